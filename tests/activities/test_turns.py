"""Calls of one process leave evenly spaced, each lane of a region by itself."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities.turns import Turns
from domain.contracts.lanes import Lane
from domain.contracts.offers import ProviderName, RegionKey

HERE = RegionKey(provider=ProviderName.TENCENT, account="tencent-credentials", region="ap-guangzhou")
THERE = HERE.model_copy(update={"region": "ap-beijing"})


class Clock:
    """Stands still; what would be slept is written down."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now


def turns(clock: Clock, rate: float = 10.0) -> Turns:
    return Turns(lambda *_: rate, clock=clock, sleep=clock.slept.append)


def test_first_call_leaves_at_once_and_the_others_evenly_after_it() -> None:
    clock = Clock()
    pace = turns(clock)
    for _ in range(4):
        pace.take(HERE, Lane.PURCHASES)
    assert clock.slept == pytest.approx([0.1, 0.2, 0.3])


def test_silence_saves_nothing_up() -> None:
    clock = Clock()
    pace = turns(clock)
    pace.take(HERE, Lane.PURCHASES)
    clock.now += 60
    for _ in range(3):
        pace.take(HERE, Lane.PURCHASES)
    assert clock.slept == pytest.approx([0.1, 0.2])


def test_lanes_and_regions_wait_for_nobody_else() -> None:
    clock = Clock()
    pace = turns(clock)
    for region in (HERE, THERE):
        for lane in Lane:
            pace.take(region, lane)
    assert clock.slept == []


def test_purchase_that_is_called_back_while_it_waits_does_not_leave() -> None:
    clock, environment = Clock(), ActivityEnvironment()
    pace = turns(clock)
    pace.take(HERE, Lane.PURCHASES)
    environment.cancel()
    with pytest.raises(CancelledError, match="nothing was bought"):
        environment.run(lambda: pace.take(HERE, Lane.PURCHASES))
    environment.run(lambda: pace.take(HERE, Lane.ENDS))


def test_threads_share_the_turns() -> None:
    clock = Clock()
    pace = turns(clock)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            threads.submit(pace.take, HERE, Lane.READINGS)
    assert sorted(clock.slept) == pytest.approx([n / 10 for n in range(1, 50)])
