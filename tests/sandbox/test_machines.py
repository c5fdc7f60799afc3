"""Machines against a real control plane: they boot their user data, join, show GPUs and go dark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from aiohttp import ClientSession

from domain.contracts.offers import ProviderName
from sandbox.boot_script import JoinLine
from sandbox.ca_hash import ca_cert_hash
from sandbox.clouds.ledger import Ledger, LedgerSettings, Order
from sandbox.control_plane.launcher import ControlPlane
from sandbox.machines import Life, MachineFault, Machines, MachineSettings, Phase
from sandbox.metadata import MetadataServer
from sandbox.node_api import ApiAccess, JsonObject, NodeApi

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOKEN = "abcdef.0123456789abcdef"
GPU = "nvidia.com/gpu"
PATIENCE_SECONDS = 30


@dataclass
class World:
    """One cloud's ledger, its machines, and the cluster they join."""

    plane: ControlPlane
    api: NodeApi
    ledger: Ledger
    machines: Machines
    join: JoinLine
    bought: int = 0
    ids: list[str] = field(default_factory=list[str])

    async def buy(self, script: str | None = None, *, instance_type: str = "GT4.4XLARGE96") -> Life:
        self.bought += 1
        order = Order(
            region="ap-guangzhou",
            zone="ap-guangzhou-3",
            instance_type=instance_type,
            spot=True,
            price_per_hour=Decimal("4.2"),
            image_id="img",
            subnet_id="subnet",
            user_data=self.script() if script is None else script,
        )
        (machine,) = self.ledger.buy(order)
        self.ids.append(machine.id)
        self.ledger.advance()
        return next(life for life in self.machines.lives() if life.machine is machine)

    def script(self, flags: str = "", **changes: str) -> str:
        line = {"server": self.join.server, "token": TOKEN, "hash": self.join.ca_cert_hash} | changes
        return (
            "#!/bin/sh\n"
            "INSTANCE_ID=$(curl -fsS http://metadata.tencentyun.com/latest/meta-data/instance-id)\n"
            "cat >/etc/default/kubelet <<EOF\n"
            f"KUBELET_EXTRA_ARGS={flags or '--provider-id=qcloud:///100003/$INSTANCE_ID'}\n"
            "EOF\n"
            f"kubeadm join {line['server']} --token {line['token']} "
            f"--discovery-token-ca-cert-hash {line['hash']}\n"
        )

    async def node(self, life: Life) -> JsonObject:
        found = await self.api.node(life.node_name)
        assert found is not None
        return found

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self.plane.kubectl, *arguments, stdin=stdin)


@pytest.fixture
async def world(shared_control_plane: ControlPlane) -> AsyncIterator[World]:
    plane = shared_control_plane
    api = NodeApi(ApiAccess(plane.server, plane.ca_file, plane.admin_token))
    join = JoinLine(plane.server.removeprefix("https://"), TOKEN, ca_cert_hash(plane.ca_file))
    machines = Machines(api, join, MachineSettings(0, 0.05, 0.1))
    ledger = Ledger(
        clock=lambda: datetime.now(UTC), id_prefix="ins-", settings=LedgerSettings(boot_seconds=0)
    )
    machines.attach(ProviderName.TENCENT, ledger)
    machines.start()
    yield World(plane, api, ledger, machines, join)
    await machines.stop()
    for life in machines.lives():
        if life.node_name:
            await asyncio.to_thread(plane.kubectl, "delete", "node", life.node_name, "--ignore-not-found")
    await api.close()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        await asyncio.sleep(0.1)


async def until_phase(life: Life, phase: Phase) -> None:
    async def reached() -> bool:
        return life.phase is phase

    await until(reached, f"{life.machine.id} {phase} (is {life.phase}: {life.note})")


async def test_machine_joins_with_what_its_user_data_says(world: World) -> None:
    flags = (
        "--provider-id=qcloud:///100003/$INSTANCE_ID "
        "--register-with-taints=spotgpu.zuoyang.io/spot-instance=true:NoSchedule --node-labels=x=y"
    )
    life = await world.buy(world.script(flags))
    await until_phase(life, Phase.READY)
    node = await world.node(life)
    assert node["spec"]["providerID"] == f"qcloud:///100003/{life.machine.id}"
    assert "spotgpu.zuoyang.io/spot-instance" in [taint["key"] for taint in node["spec"]["taints"]]
    assert node["metadata"]["labels"]["x"] == "y"
    assert (node["status"]["capacity"][GPU], node["status"]["allocatable"][GPU]) == ("1", "1")

    async def ready() -> bool:
        conditions = (await world.node(life))["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    await until(ready, "kwok makes the Node Ready")
    assert (await world.node(life))["status"]["allocatable"][GPU] == "1"


async def test_machine_hears_from_its_metadata_that_it_is_taken_back_while_it_has_power(
    world: World,
) -> None:
    life = await world.buy()
    server = MetadataServer(world.machines.metadata, world.machines.provider_of)
    url = await server.start()

    async def ask(leaf: str) -> tuple[int, str]:
        address = f"{url}/machines/{life.machine.id}/latest/{leaf}"
        async with ClientSession() as client, client.get(address) as answer:
            return answer.status, await answer.text()

    assert await ask("meta-data/placement/zone") == (200, "ap-guangzhou-3")
    assert await ask("user-data") == (200, life.machine.order.user_data)
    assert await ask("meta-data/spot/termination-time") == (404, "")
    world.ledger.reclaim(life.machine.id, notice_seconds=120)
    status, text = await ask("meta-data/spot/termination-time")
    assert life.machine.reclaim_at is not None
    local = life.machine.reclaim_at + timedelta(hours=8)
    assert (status, text) == (200, local.strftime("%Y-%m-%d %H:%M:%S"))
    assert world.machines.provider_of(life.machine.id) is ProviderName.TENCENT
    world.ledger.vanish(life.machine.id)
    assert await ask("meta-data/spot/termination-time") == (404, "")
    await server.stop()


async def test_machine_costs_two_requests_to_join(world: World) -> None:
    await until_phase(await world.buy(), Phase.READY)
    assert world.api.requests["create"] + world.api.requests["patch"] == 2


async def test_machine_has_neither_provider_id_nor_taints_when_its_script_names_none(world: World) -> None:
    life = await world.buy(world.script("--v=2"))
    await until_phase(life, Phase.READY)
    spec = (await world.node(life))["spec"]
    assert "providerID" not in spec
    assert not [t for t in spec.get("taints", []) if "spotgpu" in t["key"]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"token": "abcdef.wrong"}, "token", id="wrong token"),
        pytest.param({"server": "127.0.0.1:1"}, "no API server", id="wrong server"),
        pytest.param({"hash": "sha256:00"}, "hash", id="wrong CA hash"),
    ],
)
async def test_machine_never_joins_when_its_join_line_is_wrong(
    world: World, change: dict[str, str], why: str
) -> None:
    life = await world.buy(world.script(**change))
    await until_phase(life, Phase.STUCK)
    assert why in life.note
    assert world.api.requests["create"] == 0


async def test_machine_shows_seven_of_eight_gpus_when_one_is_broken(world: World) -> None:
    world.machines.faults.append(MachineFault(missing_gpus=1))
    life = await world.buy(instance_type="GT4.41XLARGE948")
    await until_phase(life, Phase.READY)
    assert (await world.node(life))["status"]["capacity"][GPU] == "7"
    whole = await world.buy(instance_type="GT4.41XLARGE948")
    await until_phase(whole, Phase.READY)
    assert (await world.node(whole))["status"]["capacity"][GPU] == "8"


async def test_p01_machine_waits_until_the_stale_node_of_its_name_is_gone(world: World) -> None:
    world.machines.faults.append(MachineFault(node_name="vm-reused", count=2))
    first = await world.buy()
    await until_phase(first, Phase.READY)
    world.ledger.terminate([first.machine.id])
    second = await world.buy()

    async def refused_twice() -> bool:
        return second.registrations_refused >= 2

    await until(refused_twice, "the second registration is refused")
    assert (await world.node(second))["spec"]["providerID"].endswith(first.machine.id)
    await world.kubectl("delete", "node", "vm-reused")
    await until_phase(second, Phase.READY)
    assert (await world.node(second))["spec"]["providerID"].endswith(second.machine.id)


async def test_machine_goes_dark_with_its_pods_when_it_is_reclaimed(world: World) -> None:
    life = await world.buy()
    await until_phase(life, Phase.READY)
    await world.kubectl("apply", "-f", "-", stdin=json.dumps(_pod("before", life.node_name)))
    world.ledger.reclaim(life.machine.id, notice_seconds=None)
    power = "sandbox.spotgpu.zuoyang.io/power"

    async def dark() -> bool:
        node = await world.node(life)
        pods, _ = await world.api.pods(life.node_name)
        marks = [pod["metadata"].get("annotations", {}).get(power) for pod in pods]
        return [node["metadata"]["annotations"][power], *marks] == ["off"] * (1 + len(pods)) and bool(pods)

    await until(dark, "node and pod have no power")
    await world.kubectl("apply", "-f", "-", stdin=json.dumps(_pod("after", life.node_name)))

    async def both_dark() -> bool:
        return len((await world.api.pods(life.node_name))[0]) == 2 and await dark()

    await until(both_dark, "a later pod has no power either")
    await world.kubectl("delete", "pod", "before", "after", "--force", "--grace-period=0")


async def test_machine_leaves_no_node_that_lives_when_it_ends_while_it_joins(world: World) -> None:
    lives = [await world.buy() for _ in range(5)]
    world.ledger.terminate([life.machine.id for life in lives])

    async def none_alive() -> bool:
        nodes = json.loads(await world.kubectl("get", "nodes", "-o", "json"))["items"]
        ours = [n for n in nodes if n["metadata"]["name"] in {life.node_name for life in lives}]
        powers = [n["metadata"]["annotations"]["sandbox.spotgpu.zuoyang.io/power"] for n in ours]
        return all(power == "off" for power in powers)

    await until(none_alive, "no Node of an ended machine has power")


def _pod(name: str, node_name: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "main", "image": "busybox"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
