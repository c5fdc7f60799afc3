"""The calls of one process leave one after the other, evenly spaced, in each lane of a region.

The rate of a lane lives in the Temporal server and holds for all workers together, but it counts activities,
and lets bursts of twice itself through (measured). A cloud counts calls, by the second.
"""

import time
from bisect import insort
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from threading import Lock
from typing import Final

from temporalio import activity
from temporalio.exceptions import CancelledError

from domain.contracts.lanes import Lane
from domain.contracts.offers import RegionKey

PATIENCE_SECONDS: Final = 10.0
"""A patient call lets those pass that were asked for up to so much later; so none waits for ever."""
_AT_LEAST_SECONDS: Final = 0.001

_is_patient: ContextVar[bool] = ContextVar("is_patient", default=False)
_Ticket = tuple[float, int]
"""Whose turn it is: the smallest. When it was asked for, patience added, and a number that tells apart."""


@contextmanager
def patient() -> Generator[None]:
    """Calls of the block give way to others of their lane: those of long readings, which nobody waits for."""
    token = _is_patient.set(True)
    try:
        yield
    finally:
        _is_patient.reset(token)


class _Line:
    """Who waits in a lane of a region."""

    def __init__(self) -> None:
        self.next_at = 0.0
        """When the next call may leave."""
        self.waiting: list[_Ticket] = []
        """In the order of their turns."""


class Turns:
    """Who may send the next call, and when. Safe from several threads."""

    def __init__(
        self,
        rates: Callable[[RegionKey, Lane], float],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Send nothing yet.

        Args:
            rates: Calls a second that this process may send in a lane of a region.
            clock: Seconds of a steady clock.
            sleep: Waits for so many seconds.
        """
        self._rates = rates
        self._clock = clock
        self._sleep = sleep
        self._lines: dict[tuple[str, Lane], _Line] = {}
        self._numbers = count()
        self._lock = Lock()

    def take(self, region: RegionKey, lane: Lane) -> None:
        """Wait until a call may leave: in the order of asking, but for ``patient`` ones.

        Raises:
            CancelledError: The activity was called back while it waited, so that nothing is sent.
        """
        with self._lock:
            line = self._lines.setdefault((str(region), lane), _Line())
            patience = PATIENCE_SECONDS if _is_patient.get() else 0.0
            ticket = (self._clock() + patience, next(self._numbers))
            insort(line.waiting, ticket)
        try:
            while (seconds := self._seconds_left(line, ticket, 1 / self._rates(region, lane))) > 0:
                self._sleep(seconds)
                refuse_if_cancelled()
        finally:
            with self._lock:
                if ticket in line.waiting:
                    line.waiting.remove(ticket)

    def _seconds_left(self, line: _Line, ticket: _Ticket, spacing: float) -> float:
        """Until the turn may have come; 0 when it has, which is then taken."""
        with self._lock:
            now, place = self._clock(), line.waiting.index(ticket)
            left = line.next_at + place * spacing - now
            if place or left > 0:
                # Who is before this one may wake up late.
                return max(left, _AT_LEAST_SECONDS)
            line.waiting.pop(0)
            # A thread that wakes a little late takes its time from nobody behind it.
            line.next_at = (line.next_at if -left < spacing / 4 else now) + spacing
            return 0.0


def refuse_if_cancelled() -> None:
    """Last look before a call leaves.

    Raises:
        CancelledError: The activity was called back, so that nothing is sent, and nothing bought.
    """
    if activity.in_activity() and activity.is_cancelled():
        raise CancelledError("cancelled before the call: nothing was sent")
