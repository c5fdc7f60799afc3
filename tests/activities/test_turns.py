"""Calls of one process leave evenly spaced, each lane of a region by itself, patient ones last."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event, Thread

import pytest
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities.turns import PATIENCE_SECONDS, Turns, patient
from domain.contracts.lanes import Lane
from domain.contracts.offers import ProviderName, RegionKey

HERE = RegionKey(provider=ProviderName.TENCENT, account="tencent-credentials", region="ap-guangzhou")
THERE = HERE.model_copy(update={"region": "ap-beijing"})


class Clock:
    """Goes on only while somebody sleeps, and ``late`` seconds longer."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = 100.0
        self.late = late

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late


def turns(clock: Clock, rate: float = 10.0) -> Turns:
    return Turns(lambda *_: rate, clock=clock, sleep=clock.sleep)


def moments(clock: Clock, pace: Turns, calls: int, lane: Lane = Lane.PURCHASES) -> list[float]:
    """When each of so many calls left."""
    found: list[float] = []
    for _ in range(calls):
        pace.take(HERE, lane)
        found.append(clock.now)
    return found


def test_first_call_leaves_at_once_and_the_others_evenly_after_it() -> None:
    clock = Clock()
    assert moments(clock, turns(clock), 4) == pytest.approx([100.0, 100.1, 100.2, 100.3])


def test_silence_saves_nothing_up() -> None:
    clock = Clock()
    pace = turns(clock)
    pace.take(HERE, Lane.PURCHASES)
    clock.now += 60
    assert moments(clock, pace, 3) == pytest.approx([160.0, 160.1, 160.2])


def test_thread_that_wakes_late_takes_no_time_from_those_behind_it() -> None:
    clock = Clock(late=0.02)
    assert moments(clock, turns(clock), 4) == pytest.approx([100.0, 100.12, 100.22, 100.32])
    # More than a little is not caught up with: calls would leave closer together.
    clock = Clock(late=0.06)
    assert moments(clock, turns(clock), 3) == pytest.approx([100.0, 100.16, 100.32])


def test_lanes_and_regions_wait_for_nobody_else() -> None:
    clock = Clock()
    pace = turns(clock)
    for region in (HERE, THERE):
        for lane in Lane:
            pace.take(region, lane)
    assert clock.now == 100.0


@pytest.mark.parametrize("lane", list(Lane))
def test_call_that_is_called_back_while_it_waits_does_not_leave(lane: Lane) -> None:
    clock, environment = Clock(), ActivityEnvironment()
    pace = turns(clock)
    pace.take(HERE, lane)
    environment.cancel()
    with pytest.raises(CancelledError, match="nothing was sent"):
        environment.run(lambda: pace.take(HERE, lane))
    # Its turn goes to the next.
    assert moments(clock, pace, 2, lane) == pytest.approx([100.1, 100.2])


class Crowd:
    """Threads that ask for turns one after the other while the first turn's time has not come."""

    def __init__(self, rate: float = 10.0) -> None:
        self.clock = Clock()
        self.spacing = 1 / rate
        self.pace = turns(self.clock, rate)
        self.pace.take(HERE, Lane.READINGS)
        self.left: list[str] = []
        self._threads: list[Thread] = []

    def ask(self, name: str, *, patiently: bool = False) -> None:
        waits = Event()
        thread = Thread(target=self._take, args=(name, patiently, waits.set), daemon=True)
        thread.start()
        assert waits.wait(5)
        self._threads.append(thread)

    def _take(self, name: str, patiently: bool, waits: Callable[[], None]) -> None:
        self.pace._sleep = lambda _: (waits(), time.sleep(0.002))[0]
        with patient() if patiently else nullcontext():
            self.pace.take(HERE, Lane.READINGS)
        self.left.append(name)

    def leave(self, calls: int) -> list[str]:
        """Let the time of so many turns pass; who left, in order."""
        before = len(self.left)
        for number in range(before + 1, before + calls + 1):
            self.clock.now += self.spacing
            deadline = time.monotonic() + 5
            while len(self.left) < number:
                assert time.monotonic() < deadline, f"nobody left after {self.left}"
                time.sleep(0.001)
        return self.left[before:]


def test_patient_calls_let_those_pass_that_somebody_waits_for() -> None:
    crowd = Crowd()
    for name in ("offers 1", "offers 2"):
        crowd.ask(name, patiently=True)
    for name in ("list 1", "list 2"):
        crowd.ask(name)
    assert crowd.leave(4) == ["list 1", "list 2", "offers 1", "offers 2"]


def test_patience_has_an_end() -> None:
    crowd = Crowd(rate=0.5 / PATIENCE_SECONDS)
    crowd.ask("offers", patiently=True)
    crowd.clock.now += PATIENCE_SECONDS + 1
    crowd.ask("list")
    assert crowd.leave(2) == ["offers", "list"]


def test_threads_share_the_turns() -> None:
    pace, began = Turns(lambda *_: 500.0), time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(pace.take, HERE, Lane.READINGS) for _ in range(50)]
    assert all(call.exception() is None for call in calls)
    assert time.monotonic() - began >= 49 / 500
