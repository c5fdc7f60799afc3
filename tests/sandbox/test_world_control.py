"""The switches of the world over HTTP: what they are, and that a wrong one names the right ones."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator

import pytest

from sandbox.boot_script import JoinLine
from sandbox.faults import HttpFaults
from sandbox.machines import Machines
from sandbox.node_api import ApiAccess, NodeApi
from sandbox.ports import pick_ports
from sandbox.world_control import WorldClient, WorldControl, WorldControlError

pytestmark = pytest.mark.wire


@pytest.fixture
async def control() -> AsyncIterator[tuple[Machines, WorldClient]]:
    api = NodeApi(ApiAccess(server="https://127.0.0.1:1"))
    machines = Machines(api, JoinLine("127.0.0.1:1", "a.b", "sha256:0"))
    switches = WorldControl(machines, api, {"tencent": HttpFaults("tencent", "http://127.0.0.1:1")}, {})
    (port,) = pick_ports(1)
    await switches.start(port)
    yield machines, WorldClient(f"http://127.0.0.1:{port}")
    await switches.stop()
    await api.close()


def get(address: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=5) as answer:
        return answer.read()


async def test_switches_and_proxies_are_listed(control: tuple[Machines, WorldClient]) -> None:
    for path in ("", "/"):
        listed = json.loads(await asyncio.to_thread(get, f"{control[1].base_url}/_sandbox{path}"))
        assert "never_join" in listed["POST /_sandbox/machines/faults"]
        assert listed["proxies"] == ["tencent"]


@pytest.mark.parametrize(
    ("proxy", "switch", "says"),
    [
        ("aliyun", "refuse", "no switch refuse of proxy aliyun; there are tencent"),
        ("tencent/nothing", "refuse", "no switch POST .*; there are GET /_sandbox/status"),
    ],
)
async def test_wrong_switch_names_what_there_is(
    control: tuple[Machines, WorldClient], proxy: str, switch: str, says: str
) -> None:
    with pytest.raises(WorldControlError, match=says):
        await asyncio.to_thread(control[1].switch, proxy, switch)


async def test_faults_of_machines_can_be_taken_back(control: tuple[Machines, WorldClient]) -> None:
    machines, client = control
    await asyncio.to_thread(client.add_machine_fault, {"never_join": True, "count": None})
    assert [fault.never_join for fault in machines.faults] == [True]
    await asyncio.to_thread(client.clear_machine_faults)
    assert machines.faults == []
