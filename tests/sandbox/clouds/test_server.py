import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from sandbox.clouds.admin import ReplayRequest, SettingsRequest
from sandbox.clouds.cloud import Cloud, WireRequest
from sandbox.clouds.control import CloudControl, ControlError
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.hooks import Hook, HookPoint
from sandbox.clouds.requests import Outcome
from sandbox.clouds.server import CloudServer, served
from tests.sandbox.clouds.tencent_signing import PURCHASE, TYPE, ZONE, a_cloud, signed


@dataclass
class Served:
    cloud: Cloud
    base_url: str
    control: CloudControl

    def send(self, action: str = "RunInstances", token: str = "token-1") -> bytes:
        """One signed request; raises OSError when the connection breaks."""
        body = {**PURCHASE, "ClientToken": token} if action == "RunInstances" else {}
        return send(self.base_url, signed(action, body, at=datetime.now(UTC)))


def send(base_url: str, request: WireRequest, timeout: float = 5) -> bytes:
    wire = urllib.request.Request(base_url, data=request.body, headers=dict(request.headers))  # noqa: S310 - http
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(wire, timeout=timeout) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return answer.read()


@pytest.fixture
def world() -> Iterator[Served]:
    cloud = a_cloud(None, boot_seconds=0.01, end_seconds=0.01)
    with served(cloud) as base_url:
        yield Served(cloud, base_url, CloudControl(base_url))


def eventually(check: Callable[[], object]) -> None:
    end = time.monotonic() + 5
    while not check():
        assert time.monotonic() < end, "not within the deadline"
        time.sleep(0.01)


def in_background(call: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            call()
        except OSError:
            return  # what the cloud does to the connection is what the tests are about

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_requests_are_logged_with_outcome_and_without_user_data(world: Served):
    world.send()
    world.control.run_out(ZONE)
    assert b"SpecifiedInstanceType" in world.send(token="token-2")
    bought, refused = world.control.requests("RunInstances")
    assert (bought.outcome, bought.carried_out, bought.client_token) == (Outcome.ANSWERED, True, "token-1")
    assert bought.machine_ids == (world.control.machines()[0].id,)
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "ResourceInsufficient.SpecifiedInstanceType")
    assert refused.finished_at is not None
    assert world.control.requests(after=bought.number) == [refused]
    assert world.control.ledger().requests == {"RunInstances": 2}


def test_user_data_stays_out_of_the_log(world: Served):
    body = {**PURCHASE, "UserData": "dG9wLXNlY3JldA=="}
    send(world.base_url, signed("RunInstances", body, at=datetime.now(UTC)))
    (record,) = world.control.requests()
    assert record.parameters["UserData"] == "(16 characters)"
    assert world.control.machines()[0].user_data == "top-secret"


@pytest.mark.parametrize(
    ("kind", "outcome", "carried_out"),
    [
        (FaultKind.DROP, Outcome.DROPPED, False),
        (FaultKind.DROP_ANSWER, Outcome.UNANSWERED, True),
    ],
)
def test_connection_is_cut(world: Served, kind: FaultKind, outcome: Outcome, carried_out: bool):
    world.control.set_fault(Fault(kind=kind, count=1))
    with pytest.raises(OSError, match=r"closed|reset|Remote"):
        world.send()
    (record,) = world.control.requests()
    assert (record.outcome, record.carried_out) == (outcome, carried_out)
    assert len(world.control.machines()) == int(carried_out)


def test_hanging_request_is_carried_out_and_ends_with_its_caller(world: Served):
    world.control.set_fault(Fault(kind=FaultKind.HANG, action="RunInstances", count=1))
    request = signed("RunInstances", PURCHASE, at=datetime.now(UTC))
    with pytest.raises(OSError, match="timed out"):
        send(world.base_url, request, timeout=0.3)
    eventually(lambda: world.control.requests()[0].finished_at is not None)
    assert world.control.requests()[0].outcome is Outcome.UNANSWERED
    assert len(world.control.machines()) == 1


def test_delays_come_before_and_after_the_deed(world: Served):
    world.control.set_fault(Fault(kind=FaultKind.DELAY, seconds=0.3, count=1))
    thread = in_background(world.send)
    eventually(lambda: world.control.requests())
    assert world.control.machines() == []
    thread.join()
    world.control.set_fault(Fault(kind=FaultKind.DELAY_ANSWER, seconds=0.3, count=1))
    thread = in_background(lambda: world.send(token="token-2"))
    eventually(lambda: len(world.control.machines()) == 2)
    assert world.control.requests()[1].outcome is Outcome.OPEN
    thread.join()
    assert world.control.requests()[1].outcome is Outcome.ANSWERED


def test_vendors_rate_is_enforced_and_may_be_changed(world: Served):
    answers = [world.send(token=f"token-{n}") for n in range(14)]
    assert sum(b"RequestLimitExceeded" in answer for answer in answers) >= 1
    world.control.change_settings(SettingsRequest(rates_per_second={"RunInstances": 0}))
    answers = [world.send(token=f"again-{n}") for n in range(14)]
    assert not any(b"RequestLimitExceeded" in answer for answer in answers)


@pytest.mark.parametrize("point", list(HookPoint), ids=lambda point: point.value)
def test_hook_kills_a_process_exactly_at_its_point(world: Served, point: HookPoint):
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    number = world.control.set_hook(Hook(point=point, action="RunInstances", kill_pid=victim.pid))
    world.send("DescribeInstances")
    assert victim.poll() is None
    world.send()
    assert victim.wait(5) == -9
    (record,) = world.control.requests("RunInstances")
    eventually(lambda: world.control.hook(number).hits)
    assert world.control.hook(number).hits == [record.number]
    assert record.points == [f"{point}:{number}"]


@pytest.mark.parametrize(
    ("point", "machines"), [(HookPoint.RECEIVED, 0), (HookPoint.CARRIED_OUT, 1)], ids=lambda value: str(value)
)
def test_hook_holds_a_request_until_it_is_released(world: Served, point: HookPoint, machines: int):
    number = world.control.set_hook(Hook(point=point, action="RunInstances", block=True))
    thread = in_background(world.send)
    eventually(lambda: world.control.hook(number).hits)
    assert len(world.control.machines()) == machines
    assert world.control.requests()[0].outcome is Outcome.OPEN
    world.control.release_hook(number)
    thread.join(5)
    assert world.control.requests()[0].outcome is Outcome.ANSWERED
    assert len(world.control.machines()) == 1


def test_hook_holds_no_longer_than_its_limit_and_only_so_often(world: Served):
    hook = Hook(point=HookPoint.RECEIVED, block=True, block_seconds=0.05, count=1)
    number = world.control.set_hook(hook)
    world.send()
    world.send(token="token-2")
    assert len(world.control.hook(number).hits) == 1


def test_hook_touches_a_file_and_calls_an_address(world: Served, tmp_path: Path):
    file = tmp_path / "hit"
    address = f"{world.base_url}/_sandbox/ledger"
    number = world.control.set_hook(Hook(point=HookPoint.CARRIED_OUT, touch=str(file), url=address))
    world.send()
    assert file.read_text() == f"{world.control.hook(number).hits[0]}\n"


def test_switches_reclaim_terminate_and_stop_the_sale(world: Served):
    for token in ("token-1", "token-2"):
        world.send(token=token)
    first, second = (machine.id for machine in world.control.machines())
    world.control.warn(first)
    assert world.cloud.ledger.find([first])[0].risk_at is not None
    world.control.reclaim(first, notice_seconds=60)
    assert world.control.machines()[0].reclaim_at is not None
    world.control.terminate(second)
    assert world.control.machines()[1].end_reason == "out-of-band"
    assert [machine.id for machine in world.control.machines(live=True)] == [first]
    world.control.set_free(ZONE, TYPE, 1)
    assert b"ins-" in world.send(token="token-3")
    assert b"SpecifiedInstanceType" in world.send(token="token-4")
    world.control.withdraw(ZONE, TYPE)
    assert b"InvalidZoneInstanceType" in world.send(token="token-5")


def test_price_of_a_machine_is_the_one_of_its_launch(world: Served):
    world.control.set_price(ZONE, TYPE, Decimal("7.20"))
    world.send()
    world.control.set_price(ZONE, TYPE, None)
    assert world.control.machines()[0].price_per_hour == Decimal("7.20")
    assert world.control.ledger().cost >= 0


def test_replay_takes_stock_from_a_recording(world: Served, tmp_path: Path):
    file = tmp_path / "availability.csv"
    file.write_text("t_s,zone-a\n0,1\n")
    world.control.replay(ReplayRequest(zone=ZONE, path=str(file), column="zone-a"))
    assert b"ins-" in world.send()
    assert b"SpecifiedInstanceType" in world.send(token="token-2")
    with pytest.raises(ControlError, match="zone-b"):
        world.control.replay(ReplayRequest(zone=ZONE, path=str(file), column="zone-b"))


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        (lambda control: control.reclaim("ins-00000000"), "no live machine"),
        (lambda control: control.run_out("ap-nowhere-1"), "no zone 'ap-nowhere-1'"),
        (lambda control: control.release_hook(99), "no hook 99"),
        (lambda control: control._call("POST", "stock"), "Field required|JSON"),
        (lambda control: control._call("GET", "nothing"), "no such switch.*GET ledger.*POST stock"),
        (lambda control: control._call("GET", "requests", query={"after": "x"}), "record's number"),
        (lambda control: control._call("DELETE", "faults", query={"id": "x"}), "fault's number"),
    ],
)
def test_wrong_switch_says_what_is_wrong(world: Served, switch: Callable[[CloudControl], object], says: str):
    with pytest.raises(ControlError, match=says):
        switch(world.control)


@pytest.mark.parametrize("path", ["", "/"])
def test_switches_are_listed_with_their_fields(world: Served, path: str):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{world.base_url}/_sandbox{path}") as answer:
        listed = json.load(answer)
    assert listed["POST /_sandbox/reclaim"]["fields"] == ["id", "notice_seconds"]
    assert "kind" in listed["POST /_sandbox/faults"]["fields"]
    assert all(switch["does"] for switch in listed.values())
    assert {name for name, switch in listed.items() if "fields" in switch} == {
        name for name in listed if name.startswith("POST") and not name.endswith("/release")
    }


def test_listener_hears_a_machine_start_and_lose_power(world: Served):
    heard: list[tuple[str, str]] = []
    world.cloud.ledger.listeners.on_running.append(lambda m: heard.append(("running", m.id)))
    world.cloud.ledger.listeners.on_gone.append(lambda m: heard.append(("gone", m.id)))
    world.send()
    (machine,) = world.control.machines()
    eventually(lambda: heard == [("running", machine.id)])
    world.control.reclaim(machine.id)
    eventually(lambda: heard == [("running", machine.id), ("gone", machine.id)])
    eventually(lambda: world.control.ledger().by_state["gone"] == 1)


async def test_server_listens_on_loopback_only_and_keeps_its_ledger_over_a_restart():
    cloud = a_cloud()
    with pytest.raises(ValueError, match="loopback"):
        await CloudServer(cloud).start("0.0.0.0")  # noqa: S104 - this is what must be refused
    server = CloudServer(cloud)
    base_url = await server.start()
    port = int(base_url.rsplit(":", 1)[1])
    await server.stop()
    with pytest.raises(ControlError):
        CloudControl(base_url).ledger()
    again = CloudServer(cloud)
    assert await again.start(port=port) == base_url
    await again.stop()
