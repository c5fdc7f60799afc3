"""The elector with short durations against programmable faults."""

import asyncio
import re
import time
from dataclasses import dataclass, field

import pytest

from activities.cluster.base import LEASES, Cluster, Object
from crd_bridge.election import Elector, LeaseDurations
from domain.contracts.errors import ClusterError, ErrorCode
from tests.crd_bridge.waiting import running, until
from tests.fakes.cluster import FakeCluster

SHORT = LeaseDurations(lease_seconds=1.0, renew_deadline_seconds=0.5, retry_seconds=0.05)
DOWN = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="test")


@dataclass
class Log:
    """Who led when; asserts that never two do at once."""

    leading: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    stopped_at: float = 0.0

    async def lead(self, name: str) -> None:
        self.leading.append(name)
        self.history.append(name)
        assert len(self.leading) == 1, self.leading
        try:
            await asyncio.Event().wait()
        finally:
            self.leading.remove(name)
            self.stopped_at = time.monotonic()


def an_elector(cluster: Cluster, name: str, durations: LeaseDurations = SHORT) -> Elector:
    return Elector(cluster, namespace="ops", name="bridge", identity=name, durations=durations)


def lease_of(cluster: FakeCluster) -> Object:
    return cluster.objects[LEASES, "ops", "bridge"]["spec"]


async def test_elector_makes_the_lease_and_writes_utc_times() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        spec = lease_of(cluster)
    assert spec["holderIdentity"] == "one"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])


async def test_elector_releases_on_exit_so_that_the_next_leads_at_once() -> None:
    cluster, log = FakeCluster(), Log()
    long = LeaseDurations(lease_seconds=60, renew_deadline_seconds=40, retry_seconds=0.05)
    async with running(an_elector(cluster, "two", long).run(lambda: log.lead("two"))) as second:
        await until(lambda: log.leading == ["two"])
        async with running(an_elector(cluster, "one", long).run(lambda: log.lead("one"))):
            second.cancel()
            await until(lambda: log.leading == ["one"])
        assert lease_of(cluster)["leaseTransitions"] == 1
        assert lease_of(cluster)["holderIdentity"] == ""


async def test_elector_waits_for_the_end_of_a_lease_whose_holder_died() -> None:
    cluster, log = FakeCluster(), Log()
    first = asyncio.ensure_future(an_elector(cluster, "one").run(lambda: log.lead("one")))
    await until(lambda: log.leading == ["one"])
    cluster.fail_next("update leases/bridge", DOWN, times=1)  # it dies without giving the lease back
    first.cancel()
    await asyncio.wait({first})
    assert lease_of(cluster)["holderIdentity"] == "one"
    began = time.monotonic()
    async with running(an_elector(cluster, "two").run(lambda: log.lead("two"))):
        await until(lambda: log.leading == ["two"])
    assert time.monotonic() - began >= SHORT.lease_seconds


async def test_elector_stops_its_leader_before_the_lease_can_be_taken() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        await until(lambda: cluster.calls.count("update leases/bridge") >= 2)
        last_renewed = time.monotonic()
        cluster.fail_next("", DOWN, times=10_000)
        await until(lambda: log.leading == [])
        assert log.stopped_at - last_renewed < SHORT.lease_seconds


async def test_elector_stops_its_leader_when_the_server_hangs() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        cluster.hang = asyncio.Event()
        hung_at = time.monotonic()
        await until(lambda: log.leading == [])
        assert log.stopped_at - hung_at < SHORT.lease_seconds
        cluster.hang.set()
        cluster.hang = None
        await until(lambda: log.leading == ["one"])


async def test_elector_keeps_leading_over_failures_shorter_than_the_deadline() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        cluster.fail_next("update leases", DOWN, times=3)
        renewed = lease_of(cluster)["renewTime"]
        await until(lambda: lease_of(cluster)["renewTime"] != renewed)
    assert log.history == ["one"]


async def test_elector_keeps_leading_when_only_a_label_was_changed_by_somebody() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        await cluster.patch(LEASES, "bridge", {"metadata": {"labels": {"team": "a"}}}, namespace="ops")
        renewed = lease_of(cluster)["renewTime"]
        await until(lambda: lease_of(cluster)["renewTime"] != renewed)
    assert log.history == ["one"]
    assert cluster.objects[LEASES, "ops", "bridge"]["metadata"]["labels"] == {"team": "a"}


async def test_elector_stops_at_once_when_another_took_the_lease() -> None:
    cluster, log = FakeCluster(), Log()
    async with running(an_elector(cluster, "one").run(lambda: log.lead("one"))):
        await until(lambda: log.leading == ["one"])
        thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}
        await cluster.patch(LEASES, "bridge", thief, namespace="ops")
        await until(lambda: log.leading == [], seconds=SHORT.renew_deadline_seconds)
    assert lease_of(cluster)["holderIdentity"] == "thief"


async def test_electors_never_lead_together_whatever_fails() -> None:
    cluster, log = FakeCluster(), Log()
    tasks = [
        asyncio.ensure_future(an_elector(cluster, name).run(lambda name=name: log.lead(name)))
        for name in ("one", "two", "three")
    ]
    for round_number in range(4):
        await until(lambda: bool(log.leading), seconds=10)
        cluster.fail_next("update leases", DOWN, times=9 + round_number)
        await until(lambda: cluster.calls[-1].startswith("update") or not log.leading)
    leader = log.leading[0] if log.leading else ""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks), [task for task in tasks if not task.cancelled()]
    assert leader in ("one", "two", "three", "")
    assert not log.leading


async def test_elector_ends_with_the_failure_of_what_it_runs_and_gives_the_lease_back() -> None:
    cluster = FakeCluster()

    async def broken() -> None:
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        await asyncio.wait_for(an_elector(cluster, "one").run(broken), 5)
    assert lease_of(cluster)["holderIdentity"] == ""


async def test_elector_awaits_a_leader_that_is_slow_to_end() -> None:
    cluster, ended = FakeCluster(), asyncio.Event()
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            ended.set()

    task = asyncio.ensure_future(an_elector(cluster, "one").run(slow))
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert lease_of(cluster)["holderIdentity"] == "one", "not given back while the leader's task still runs"
    may_end.set()
    await asyncio.wait({task}, timeout=5)
    assert ended.is_set()
    assert lease_of(cluster)["holderIdentity"] == ""


@pytest.mark.parametrize("bad", [(10, 10, 2), (15, 10, 10), (15, 10, 0)])
def test_durations_are_refused_when_a_leader_could_not_stop_in_time(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        LeaseDurations(*bad)


def test_durations_within_a_lease_keep_the_usual_proportions() -> None:
    assert LeaseDurations.within(15) == LeaseDurations()
    short = LeaseDurations.within(3)
    assert (short.lease_seconds, short.renew_deadline_seconds) == (3, 2)
    assert short.retry_seconds == pytest.approx(0.4)
