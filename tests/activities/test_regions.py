import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest
from temporalio.exceptions import ApplicationError

from activities.regions import RegionActivities, RegionSight, poll_delay, probe_delay
from activities.signatures import InstallationRequest, LeftoversRequest, WatchRegionRequest
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.facts import RegionHealth, RegionState
from domain.contracts.installation import Installation
from domain.contracts.instances import InstanceState
from domain.contracts.leftovers import Leftover, LeftoverKind
from domain.contracts.names import TAG_EPOCH, TAG_INSTALLATION, TAG_RETAINED
from domain.contracts.settings import SyncSettings
from tests.activities.builders import a_fault, an_attempt
from tests.crd_bridge.waiting import until
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION, FakeClouds, FakeProvider

FAST = SyncSettings(polling_interval_seconds=0.02, run_seconds=60, failures_to_open=5)
SOON = SyncSettings(polling_interval_seconds=0.02, run_seconds=0.1, failures_to_open=5)


class Watched:
    """A region that is being watched while the block lasts."""

    def __init__(self, cloud: FakeProvider, pools: FakePools, settings: SyncSettings = FAST) -> None:
        installation = Installation(id="inst-1")
        self.cloud = cloud
        self.pools = pools
        self.hands = RegionActivities(FakeClouds(cloud), installation, pools, jitter=lambda: 0.0)
        self._request = WatchRegionRequest(region=REGION, settings=settings)
        self.environment = an_attempt()

    async def __aenter__(self) -> Self:
        self.task = asyncio.ensure_future(self.environment.run(self.hands.watch_region, self._request))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def polls(self, number: int) -> None:
        """Wait for so many further polls to be over."""
        wanted = self.cloud.count("list_tagged") + number + 1
        await until(lambda: self.cloud.count("list_tagged") >= wanted)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)


@pytest.fixture
def cloud() -> FakeProvider:
    return FakeProvider()


async def test_watch_tells_everything_once_after_the_start(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    pools = FakePools("a", "idle", "elsewhere", in_region=("a", "idle"))
    async with Watched(cloud, pools) as watched:
        await watched.polls(3)
    assert pools.observations("a") == [["ins-0001"]]
    assert pools.observations("idle") == [[]], "a pool without machines learns that it has none"
    assert pools.healths("a") == pools.healths("idle") == ["ok"]
    assert pools.observations("elsewhere") == []


async def test_watch_tells_a_quiet_region_nothing(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    pools = FakePools("a")
    async with Watched(cloud, pools) as watched:
        await watched.polls(5)
        assert len(pools.told) == 2


async def test_watch_tells_only_the_pool_whose_machines_changed(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    cloud.add(pool="b")
    pools = FakePools("a", "b")
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
        cloud.machines["ins-0002"] = cloud.machines["ins-0002"].model_copy(
            update={"state": InstanceState.INTERRUPTING}
        )
        await watched.until(lambda: len(pools.observations("b")) == 2)
        del cloud.machines["ins-0002"]
        await watched.until(lambda: pools.observations("b")[-1] == [])
    assert pools.observations("a") == [["ins-0001"]]
    assert pools.observations("b") == [["ins-0002"], ["ins-0002"], []]


async def test_watch_dates_observations_before_the_list(cloud: FakeProvider) -> None:
    pools = FakePools("a")
    before = datetime.now(UTC)
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
    assert before <= pools.told[0][2].as_of <= datetime.now(UTC)  # type: ignore[attr-defined]  # by name  # an observation


async def test_watch_ignores_machines_of_other_installations(cloud: FakeProvider) -> None:
    cloud.add(pool="a", installation="another")
    pools = FakePools("a")
    async with Watched(cloud, pools) as watched:
        await watched.polls(2)
    assert pools.observations("a") == [[]]


async def test_watch_finds_a_pool_that_is_not_listed_by_region(cloud: FakeProvider) -> None:
    """The pool was edited and no longer names the region, but has a machine there."""
    cloud.add(pool="a")
    pools = FakePools("a", in_region=())
    async with Watched(cloud, pools) as watched:
        await watched.polls(2)
    assert pools.observations("a") == [["ins-0001"]]


async def test_watch_tells_a_pool_once_it_starts(cloud: FakeProvider) -> None:
    cloud.add(pool="late")
    pools = FakePools()
    async with Watched(cloud, pools) as watched:
        await watched.polls(2)
        assert pools.told == []
        pools.running.add("late")
        await watched.until(lambda: pools.observations("late") == [["ins-0001"]])


async def test_watch_tells_again_what_temporal_did_not_take(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    pools = FakePools("a")
    pools.unreachable = 5
    async with Watched(cloud, pools) as watched:
        await watched.until(lambda: pools.observations("a") and pools.healths("a"))
        await watched.polls(2)
    assert pools.observations("a") == [["ins-0001"]]
    assert pools.healths("a") == ["ok"]


async def test_watch_says_stale_then_opens_the_circuit_then_heals(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    pools = FakePools("a")
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
        cloud.faults["list_tagged"] = [a_fault(ErrorCode.UNAVAILABLE) for _ in range(6)]
        await watched.until(lambda: pools.healths("a")[-1:] == ["ok"] and len(pools.healths("a")) > 1)
    assert pools.healths("a") == ["ok", "stale", "circuit-open", "ok"]
    assert pools.observations("a") == [["ins-0001"]], "a failed list says nothing about machines"
    reasons = [p.reason for _, name, p in pools.told if name == "region_state"]  # type: ignore[attr-defined]  # a state
    assert "told to fail" in reasons[1]
    assert reasons[-1] == ""


async def test_watch_that_never_saw_the_region_does_not_call_it_ok(cloud: FakeProvider) -> None:
    pools = FakePools("a")
    cloud.faults["list_tagged"] = [a_fault(ErrorCode.UNAUTHENTICATED) for _ in range(2)]
    async with Watched(cloud, pools) as watched:
        await watched.until(lambda: pools.observations("a"))
        await watched.until(lambda: len(pools.healths("a")) == 2)
    assert pools.healths("a") == ["stale", "ok"]


async def test_watch_tells_when_a_failing_region_begins_to_refuse_the_keys(cloud: FakeProvider) -> None:
    pools = FakePools("a")
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
        codes = [ErrorCode.UNAVAILABLE] * 4 + [ErrorCode.UNAUTHENTICATED] * 4
        cloud.faults["list_tagged"] = [a_fault(code) for code in codes]
        await watched.until(lambda: pools.healths("a")[-1:] == ["ok"] and len(pools.healths("a")) > 1)
    states = [payload for _, _, payload in pools.told if isinstance(payload, RegionState)]
    assert [(state.health.value, state.code) for state in states] == [
        ("ok", None),
        ("stale", ErrorCode.UNAVAILABLE),
        ("circuit-open", ErrorCode.UNAUTHENTICATED),
        ("ok", None),
    ]


def a_refusal(text: str) -> ProviderError:
    return ProviderError(
        ErrorCode.UNAUTHENTICATED, text, provider="tencent", operation="list", vendor_code="Code.X"
    )


async def test_watch_tells_when_the_keys_are_refused_for_another_reason(cloud: FakeProvider) -> None:
    """A person who mends the Secret once more reads of the new mistake, and request ids are no news."""
    pools = FakePools("a")
    texts = [f"no such key, request {n}a" for n in range(6)]
    texts += [f"wrong signature, request {n}a" for n in range(2)]
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
        cloud.faults["list_tagged"] = [a_refusal(text) for text in texts]
        await watched.until(lambda: pools.healths("a")[-1:] == ["ok"] and len(pools.healths("a")) > 1)
    states = [state for _, _, state in pools.told if isinstance(state, RegionState)]
    assert [(state.health.value, "signature" in state.reason) for state in states] == [
        ("ok", False),
        ("stale", False),
        ("circuit-open", False),
        ("circuit-open", True),
        ("ok", False),
    ]


async def test_watch_tells_when_an_open_circuit_has_another_cause(cloud: FakeProvider) -> None:
    pools = FakePools("a")
    async with Watched(cloud, pools) as watched:
        await watched.polls(1)
        codes = [ErrorCode.UNAUTHENTICATED] * 5 + [ErrorCode.FORBIDDEN] + [ErrorCode.UNAVAILABLE] * 2
        cloud.faults["list_tagged"] = [a_fault(code) for code in codes]
        await watched.until(lambda: pools.healths("a")[-1:] == ["ok"] and len(pools.healths("a")) > 1)
    assert pools.healths("a") == ["ok", "stale", "circuit-open", "circuit-open", "ok"]


async def test_watch_renewed_in_the_same_process_tells_nothing_twice(cloud: FakeProvider) -> None:
    """The hourly renewal of the activity must cost quiet pools no history."""
    cloud.add(pool="a")
    pools = FakePools("a")
    watched = Watched(cloud, pools, SOON)
    async with watched:
        await watched.task
    told = list(pools.told)
    async with watched:
        await watched.task
    assert pools.told == told


async def test_watch_that_was_broken_off_tells_everything_again(cloud: FakeProvider) -> None:
    """Another worker may have told the pools something else meanwhile."""
    cloud.add(pool="a")
    pools = FakePools("a")
    watched = Watched(cloud, pools)
    async with watched:
        await watched.until(lambda: len(pools.observations("a")) == 1)
    async with watched:
        await watched.until(lambda: len(pools.observations("a")) == 2)


async def test_watch_in_another_process_tells_everything_again(cloud: FakeProvider) -> None:
    cloud.add(pool="a")
    pools = FakePools("a")
    for _ in range(2):
        watched = Watched(cloud, pools, SOON)
        async with watched:
            await watched.task
    assert pools.observations("a") == [["ins-0001"], ["ins-0001"]]


async def test_watch_hands_over_when_its_worker_shuts_down(cloud: FakeProvider) -> None:
    async with Watched(cloud, FakePools()) as watched:
        await watched.polls(1)
        watched.environment.worker_shutdown()
        with pytest.raises(ApplicationError) as failure:
            await watched.task
    assert (failure.value.type, failure.value.non_retryable) == ("WorkerShutdown", False)


def test_probes_of_an_open_circuit_become_rarer_up_to_five_minutes() -> None:
    request = WatchRegionRequest(region=REGION, settings=SyncSettings(polling_interval_seconds=30))
    sight = RegionSight()
    delays: list[float] = []
    for failures in (0, 4, 5, 6, 7, 8, 9, 1000):
        sight.failures = failures
        delays.append(probe_delay(request, sight).total_seconds())
    assert delays == [30, 30, 60, 120, 240, 300, 300, 300]


def test_throttled_polls_make_a_region_stale_and_open_no_circuit() -> None:
    sight = RegionSight()
    sight.announced = True
    sight.failures = sight.throttled = 9
    assert sight.health(5) is RegionHealth.STALE
    sight.failures += 5
    assert sight.health(5) is RegionHealth.CIRCUIT_OPEN


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 27.0), (0.5, 30.0), (1.0, 33.0)])
def test_polls_come_as_often_as_they_should_on_average(jitter: float, seconds: float) -> None:
    request = WatchRegionRequest(region=REGION, settings=SyncSettings(polling_interval_seconds=30))
    sight = RegionSight()
    assert poll_delay(request, sight, jitter).total_seconds() == pytest.approx(seconds)
    sight.retry_after = timedelta(seconds=60)
    assert poll_delay(request, sight, jitter) == sight.retry_after, "what the cloud wished is not undercut"


def test_list_installation_shows_living_machines_oldest_first(cloud: FakeProvider) -> None:
    now = datetime.now(UTC)
    cloud.add(pool="a", token="a-1", created_at=now)
    cloud.add(pool="a", token="a-2", created_at=now - timedelta(hours=1))
    cloud.add(pool="a", state=InstanceState.TERMINATED)
    cloud.add(installation="another")
    hands = RegionActivities(FakeClouds(cloud), Installation(id="inst-1", epoch=2), FakePools())
    reading = an_attempt().run(hands.list_installation, InstallationRequest(region=REGION))
    assert [m.launch for m in reading.machines] == ["a-2", "a-1"]
    assert (reading.own_epoch, reading.highest_epoch) == (2, 0)


@pytest.mark.parametrize(("tag", "highest"), [("7", 7), ("", 0), ("x", 0), ("-1", 0)])
def test_list_installation_reads_the_highest_epoch(cloud: FakeProvider, tag: str, highest: int) -> None:
    cloud.add(tags={TAG_INSTALLATION: "inst-1", TAG_EPOCH: tag})
    hands = RegionActivities(FakeClouds(cloud), Installation(id="inst-1", epoch=2), FakePools())
    reading = an_attempt().run(hands.list_installation, InstallationRequest(region=REGION))
    assert reading.highest_epoch == highest


def test_list_installation_shows_retained_machines_apart(cloud: FakeProvider) -> None:
    cloud.add(tags={TAG_RETAINED: "inst-1"})
    hands = RegionActivities(FakeClouds(cloud), Installation(id="inst-1"), FakePools())
    reading = an_attempt().run(hands.list_installation, InstallationRequest(region=REGION))
    assert (len(reading.machines), len(reading.retained)) == (0, 1)


def a_leftover(name: str, **tags: str) -> Leftover:
    return Leftover(region=REGION, kind=LeftoverKind.ADDRESS, id=name, ours=False, tags=tags)


def test_p12_leftovers_of_ours_are_released_once_they_were_seen_for_long_enough(cloud: FakeProvider) -> None:
    cloud.left = [a_leftover("eip-2", **{TAG_INSTALLATION: "inst-1"}), a_leftover("eip-1", team="other")]
    hands = RegionActivities(FakeClouds(cloud), Installation(id="inst-1"), FakePools())
    request = LeftoversRequest(region=REGION, min_age_seconds=0.02)

    def sweep(asked: LeftoversRequest) -> tuple[list[str], list[str], list[str]]:
        reading = an_attempt().run(hands.sweep_leftovers, asked)
        groups = (reading.released, reading.waiting, reading.shown)
        released, waiting, shown = ([each.id for each in group] for group in groups)
        return released, waiting, shown

    assert sweep(LeftoversRequest(region=REGION)) == ([], ["eip-2"], ["eip-1"])
    assert sweep(LeftoversRequest(region=REGION)) == ([], ["eip-2"], ["eip-1"])
    time.sleep(0.03)
    assert sweep(request) == (["eip-2"], [], ["eip-1"])
    assert [each.id for each in cloud.left] == ["eip-1"]
    cloud.left.append(a_leftover("eip-2", **{TAG_INSTALLATION: "inst-1"}))
    assert sweep(LeftoversRequest(region=REGION)) == ([], ["eip-2"], ["eip-1"]), "the same id, but anew"


def test_sweeps_look_for_retained_machines_and_leftovers_once_an_interval(cloud: FakeProvider) -> None:
    hands = RegionActivities(FakeClouds(cloud), Installation(id="inst-1"), FakePools())
    listing = InstallationRequest(region=REGION, retained_age_seconds=3600)
    left = LeftoversRequest(region=REGION, interval_seconds=3600)
    retained = cloud.add(tags={TAG_RETAINED: "inst-1"})
    for _ in range(3):
        reading = an_attempt().run(hands.list_installation, listing)
        assert [machine.instance_id for machine in reading.retained] == [retained.id]
        an_attempt().run(hands.sweep_leftovers, left)
    assert (cloud.count("list_tagged"), cloud.count("leftovers")) == (3 + 1, 1)
