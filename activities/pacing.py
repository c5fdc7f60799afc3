"""Lanes that a cloud throttles are slowed for every worker of the installation, by Temporal's own means.

The rate of a task queue lives in the Temporal server, so it holds for all workers at once. A worker whose
calls are throttled again and again halves it, with the reason beside it; the region's sync doubles it again
while it stays quiet, and takes the limit away when the full rate is reached. A limit that a person set is
left alone. A server that knows no such limit (before 1.29) leaves the growing delays of the throttled calls
themselves.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit
from temporalio.api.workflowservice.v1 import UpdateTaskQueueConfigRequest
from temporalio.client import Client
from temporalio.service import RPCError

from activities.task_queues import SLOWEST, describe, limit_of
from activities.telemetry import metrics
from domain.contracts.lanes import Lane
from domain.contracts.offers import RegionKey

REASON: Final = "spotgpu: the cloud throttles"
_STEP_SECONDS: Final = 2.0
"""Throttled answers of one burst count once."""
_EASE_SECONDS: Final = 20.0
"""A lane that was not slowed for so long may go twice as fast, and one that was not throttled for so long is
not slowed at the first burst: calls that left evenly may arrive together."""
_LANES: Final[Mapping[str, Lane]] = {
    "launch": Lane.PURCHASES,
    "terminate": Lane.ENDS,
    "retain": Lane.ENDS,
}

_log = logging.getLogger(__name__)


def lane_of(operation: str) -> Lane:
    """The lane of an operation of the cloud port."""
    return _LANES.get(operation, Lane.READINGS)


@dataclass(frozen=True)
class _Limit:
    """A limit of ours as the server has it."""

    rate: float
    since: float
    """When this process saw it first, by its own clock."""


class LanePaces:
    """Slows and eases the lanes of regions. Safe from several threads; works in one event loop."""

    def __init__(
        self,
        client: Client,
        rates: Callable[[RegionKey, Lane], float],
        loop: asyncio.AbstractEventLoop,
        *,
        ease_seconds: float = _EASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind to a server.

        Args:
            client: Of the namespace whose queues these are.
            rates: Full rate of a region's lane, activities a second.
            loop: Where the client works.
            ease_seconds: How long a slowed lane stays as it is before it may go twice as fast.
            clock: Seconds of a steady clock.
        """
        self._client = client
        self._rates = rates
        self._loop = loop
        self._ease_seconds = ease_seconds
        self._clock = clock
        self._seen: dict[str, _Limit] = {}
        self._throttled_at: dict[str, float] = {}
        """Queue to the beginning of its newest burst of throttled answers."""
        self._looked_at: dict[RegionKey, float] = {}
        self._lock = Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def throttled(self, region: RegionKey, operation: str) -> None:
        """A cloud said that calls of this kind come too fast. Returns at once; never fails its caller."""
        lane = lane_of(operation)
        queue = lane.queue(region)
        with self._lock:
            now = self._clock()
            quiet = now - self._throttled_at.get(queue, -inf)
            if quiet < _STEP_SECONDS:
                return
            self._throttled_at[queue] = now
        if quiet > _EASE_SECONDS:
            return
        self._loop.call_soon_threadsafe(self._begin, region, lane)

    async def ease(self, region: RegionKey) -> None:
        """Let lanes that were quiet for long enough go faster, and show how fast each may go.

        Called after each poll of a region; the server is asked four times in the time of one step.
        """
        now = self._clock()
        if now - self._looked_at.get(region, -self._ease_seconds) < self._ease_seconds / 4:
            return
        self._looked_at[region] = now
        for lane in Lane:
            try:
                rate = await self._eased(region, lane)
            except RPCError as error:
                _log.warning("Lane not read", extra={"queue": lane.queue(region), "reason": error.message})
                return
            labels = (region.provider.value, region.account, region.region, lane.value)
            metrics.LANE_RATE.labels(*labels).set(rate)

    def _begin(self, region: RegionKey, lane: Lane) -> None:
        task = asyncio.ensure_future(self._slow(region, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _slow(self, region: RegionKey, lane: Lane) -> None:
        queue, full = lane.queue(region), self._rates(region, lane)
        try:
            limit, foreign = await self._read(queue)
            if foreign:
                return
            rate = max((full if limit is None else limit) / 2, full * SLOWEST)
            await self._set(queue, rate)
        except RPCError as error:
            _log.warning("Lane not slowed", extra={"queue": queue, "reason": error.message})
            return
        _log.warning("Lane slowed: the cloud throttles", extra={"queue": queue, "calls_per_second": rate})

    async def _eased(self, region: RegionKey, lane: Lane) -> float:
        """The rate that the lane has from now on."""
        queue, full = lane.queue(region), self._rates(region, lane)
        limit, foreign = await self._read(queue)
        if limit is None or foreign:
            self._seen.pop(queue, None)
            return full if limit is None else limit
        now = self._clock()
        seen = self._seen.get(queue)
        if seen is None or seen.rate != limit:
            seen = self._seen[queue] = _Limit(limit, now)
        quiet_since = max(seen.since, self._throttled_at.get(queue, -inf))
        if now - quiet_since < self._ease_seconds:
            return limit
        rate = limit * 2
        await self._set(queue, rate if rate < full else None)
        _log.info("Lane eased", extra={"queue": queue, "calls_per_second": min(rate, full)})
        return min(rate, full)

    async def _read(self, queue: str) -> tuple[float | None, bool]:
        """Limit of a queue, None without one, and whether somebody else set it."""
        answer = await describe(self._client, queue)
        limit = limit_of(answer)
        reason = answer.config.queue_rate_limit.metadata.reason
        return limit, limit is not None and not reason.startswith(REASON)

    async def _set(self, queue: str, rate: float | None) -> None:
        update = UpdateTaskQueueConfigRequest.RateLimitUpdate(reason=REASON)
        if rate is not None:
            update.rate_limit.CopyFrom(RateLimit(requests_per_second=rate))
        await self._client.workflow_service.update_task_queue_config(
            UpdateTaskQueueConfigRequest(
                namespace=self._client.namespace,
                identity=self._client.identity,
                task_queue=queue,
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                update_queue_rate_limit=update,
            )
        )
