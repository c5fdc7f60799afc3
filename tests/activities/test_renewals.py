from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from activities.providers.base import Capability
from activities.renewals import MAX_RENEWED, Renewals, SwitchSight
from activities.telemetry import metrics
from domain.contracts.errors import ErrorCode
from domain.contracts.facts import OwnedMachine
from domain.contracts.instances import Instance
from domain.contracts.names import TAG_POOL
from domain.contracts.settings import SyncSettings
from tests.activities.builders import a_fault
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION, FakeProvider

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)


class Kept:
    """A region whose switches are kept."""

    def __init__(self, *pools: str) -> None:
        self.cloud = FakeProvider()
        self.pools = FakePools(*pools)
        self.sight = SwitchSight()

    def buy(self, left: timedelta | None, *, pool: str = "a", owned: bool = True) -> str:
        """A machine whose switch ends it in so long, or that has none."""
        machine = self.cloud.add(pool=pool)
        if left is not None:
            self.cloud.switches[machine.id] = NOW + left
        if owned:
            self.pools.owned.setdefault(pool, set()).add(machine.id)
        return machine.id

    async def tend(self, now: datetime = NOW, **settings: float) -> None:
        renewals = Renewals(REGION, SyncSettings(**settings), self.pools, self.sight)
        await renewals.tend(self.cloud, owned(list(self.cloud.machines.values())), now)

    def late(self) -> float | None:
        labels = dict(zip(("provider", "account", "region"), str(REGION).split(":"), strict=True))
        return metrics.REGISTRY.get_sample_value("spotgpu_dead_man_late_machines", labels)


def owned(instances: Sequence[Instance]) -> list[OwnedMachine]:
    return [
        OwnedMachine(
            region=REGION,
            instance_id=instance.id,
            pool_uid=instance.tags.get(TAG_POOL, ""),
            slot="",
            launch="",
            created_at=instance.created_at,
            instance_type=instance.instance_type,
        )
        for instance in instances
    ]


async def test_a_switch_is_renewed_a_day_ahead_after_half_a_day_and_not_before() -> None:
    kept = Kept("a")
    old, young = kept.buy(12 * HOUR), kept.buy(13 * HOUR)
    await kept.tend()
    assert kept.cloud.switches == {old: NOW + DAY, young: NOW + 13 * HOUR}


async def test_a_machine_that_was_bought_without_a_switch_gets_none() -> None:
    kept = Kept("a")
    kept.buy(None)
    await kept.tend()
    assert kept.cloud.switches == {}
    assert kept.cloud.calls == ["dead_man_times"]


async def test_a_machine_that_its_pool_disowns_is_left_to_its_switch() -> None:
    kept = Kept("a")
    kept.buy(HOUR, owned=False)
    await kept.tend()
    assert "renew_dead_man" not in kept.cloud.calls
    assert kept.late() == 0, "that a machine of nobody ends is what the switch is for"


async def test_a_pool_that_is_silent_or_gone_is_taken_by_its_last_answer() -> None:
    kept = Kept("a", "b")
    known, unknown = kept.buy(12 * HOUR), kept.buy(20 * HOUR, pool="b")
    await kept.tend()
    assert kept.cloud.switches[known] == NOW + DAY
    kept.pools.silent = {"a", "b"}
    later = NOW + 13 * HOUR
    await kept.tend(later)
    assert kept.cloud.switches[known] == later + DAY
    assert kept.cloud.switches[unknown] == NOW + 20 * HOUR, "never answered: not renewed"


async def test_a_renewal_six_hours_late_is_a_metric_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept("a")
    kept.pools.silent = {"a"}
    machine = kept.buy(6 * HOUR + timedelta(seconds=1))
    await kept.tend()
    assert kept.late() == 0
    with caplog.at_level("ERROR"):
        await kept.tend(NOW + HOUR)
    assert kept.late() == 1
    assert machine in caplog.records[-1].__dict__["instance_ids"]
    kept.pools.silent = set()
    await kept.tend(NOW + 2 * HOUR)
    await kept.tend(NOW + 3 * HOUR)
    assert kept.late() == 0


async def test_it_is_looked_once_an_hour_and_renewed_a_few_machines_a_poll() -> None:
    kept = Kept("a")
    bought = [kept.buy(HOUR) for _ in range(MAX_RENEWED + 3)]
    await kept.tend()
    assert sum(at == NOW + DAY for at in kept.cloud.switches.values()) == MAX_RENEWED
    await kept.tend(NOW + timedelta(seconds=30))
    assert all(kept.cloud.switches[each] >= NOW + DAY for each in bought)
    await kept.tend(NOW + timedelta(seconds=60))
    assert kept.cloud.calls == ["dead_man_times", "renew_dead_man", "renew_dead_man"]


async def test_a_fault_waits_for_the_next_look_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept("a")
    machine = kept.buy(HOUR)
    kept.cloud.faults = {"dead_man_times": [a_fault(ErrorCode.THROTTLED)]}
    await kept.tend()
    kept.cloud.faults = {"renew_dead_man": [a_fault(ErrorCode.UNAVAILABLE)]}
    await kept.tend(NOW + HOUR)
    assert kept.cloud.switches[machine] == NOW + HOUR
    await kept.tend(NOW + 2 * HOUR)
    assert kept.cloud.switches[machine] == NOW + 2 * HOUR + DAY


async def test_a_switch_that_was_lost_while_it_was_renewed_is_set_again() -> None:
    kept = Kept("a")
    machine = kept.buy(20 * HOUR)
    await kept.tend()
    del kept.cloud.switches[machine]
    await kept.tend(NOW + HOUR)
    assert kept.cloud.switches == {machine: NOW + HOUR + DAY}


async def test_clouds_without_a_switch_and_settings_without_renewal_are_left_alone() -> None:
    kept = Kept("a")
    kept.buy(HOUR)
    await kept.tend(dead_man_renew_seconds=0)
    kept.cloud.capabilities = frozenset(Capability) - {Capability.DEAD_MAN_SWITCH}
    await kept.tend()
    assert kept.cloud.calls == []
