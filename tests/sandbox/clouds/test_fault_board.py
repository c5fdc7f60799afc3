from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from sandbox.clouds.faults import Fault, FaultBoard, FaultKind, Target

RUN = Target("RunInstances", "r", "z1", "t1")


class Clock:
    now = datetime(2026, 7, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> FaultBoard:
    return FaultBoard(clock)


def strikes(board: FaultBoard, times: int, target: Target = RUN) -> list[bool]:
    return [board.strike(target, FaultKind.THROTTLE) is not None for _ in range(times)]


def test_fault_wears_off_by_count(board: FaultBoard):
    board.set(Fault(kind=FaultKind.THROTTLE, count=2))
    assert strikes(board, 4) == [True, True, False, False]
    assert board.reports() == ()


def test_fault_wears_off_by_time(board: FaultBoard, clock: Clock):
    board.set(Fault(kind=FaultKind.THROTTLE, for_seconds=10))
    assert strikes(board, 1) == [True]
    clock.now += timedelta(seconds=10)
    assert strikes(board, 1) == [False]


def test_fault_strikes_each_kth_request(board: FaultBoard):
    board.set(Fault(kind=FaultKind.THROTTLE, every=3))
    assert strikes(board, 7) == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(
    "narrow",
    [{"action": "DescribeInstances"}, {"zone": "z2"}, {"instance_type": "t2"}, {"region": "r2"}],
    ids=lambda narrow: next(iter(narrow)),
)
def test_fault_spares_what_it_is_not_aimed_at(board: FaultBoard, narrow: dict[str, str]):
    board.set(Fault(kind=FaultKind.THROTTLE, **narrow))
    assert strikes(board, 1) == [False]
    assert board.reports()[0].matches == 0


def test_fault_is_switched_off_by_its_number(board: FaultBoard):
    number = board.set(Fault(kind=FaultKind.THROTTLE))
    board.set(Fault(kind=FaultKind.FAIL))
    board.clear(number)
    assert strikes(board, 1) == [False]
    assert board.strike(RUN, FaultKind.FAIL) is not None


def test_fault_with_a_misspelt_field_is_refused():
    with pytest.raises(ValidationError, match="zones"):
        Fault.model_validate({"kind": "throttle", "zones": "z1"})
