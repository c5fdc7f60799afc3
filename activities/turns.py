"""The calls of one process leave one after the other, evenly spaced, in each lane of a region.

The rate of a lane lives in the Temporal server and holds for all workers together, but it counts activities,
and lets bursts of twice itself through (measured). A cloud counts calls, by the second.
"""

import time
from collections.abc import Callable
from threading import Lock

from temporalio import activity
from temporalio.exceptions import CancelledError

from domain.contracts.lanes import Lane
from domain.contracts.offers import RegionKey


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
        self._next: dict[tuple[str, Lane], float] = {}
        """When the next call of a lane may leave."""
        self._lock = Lock()

    def take(self, region: RegionKey, lane: Lane) -> None:
        """Wait until a call may leave. Turns are given in the order in which they are asked for.

        Raises:
            CancelledError: The purchase was called back while it waited, so that nothing is bought.
        """
        with self._lock:
            now = self._clock()
            turn = max(now, self._next.get((str(region), lane), now))
            self._next[str(region), lane] = turn + 1 / self._rates(region, lane)
        if turn > now:
            self._sleep(turn - now)
        if lane is Lane.PURCHASES:
            refuse_if_cancelled()


def refuse_if_cancelled() -> None:
    """Last look before a purchase leaves.

    Raises:
        CancelledError: It was called back, so that nothing is bought.
    """
    if activity.in_activity() and activity.is_cancelled():
        raise CancelledError("cancelled before the call: nothing was bought")
