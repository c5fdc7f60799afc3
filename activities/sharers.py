"""Which share of a lane's budget this worker may use: workers divide it, and a slowed lane has less of it.

The rate of a lane's queue holds for all workers together, but on average, and it counts activities. Each
worker spaces its own calls (``turns``), by the share that is told here.
Source: the pollers of a queue and its rate limit, which DescribeTaskQueue tells; the server keeps a poller
for five minutes.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from activities.task_queues import SLOWEST, describe, limit_of
from activities.telemetry import metrics
from domain.contracts.lanes import Lane
from domain.contracts.offers import RegionKey

_SILENT_AFTER: Final = timedelta(seconds=75)
"""A worker that did not ask for work for so long is gone: a poll of the SDK waits for 60 s at most."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Poll:
    """The newest poll of a worker."""

    told: datetime
    """As the server tells it, by its clock."""
    seen_at: float
    """When this process saw it first, by its own clock."""


class Sharers:
    """Workers and slowed lanes by the server's word. The numbers may be read from any thread."""

    def __init__(
        self,
        client: Client,
        regions: Sequence[RegionKey],
        rates: Callable[[RegionKey, Lane], float],
        *,
        silent_after: timedelta = _SILENT_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count this process alone until it looks.

        Args:
            client: Of the namespace whose queues are looked at. Its identity is this worker's name: two with
                one name count as one.
            regions: Which this worker serves.
            rates: Full rate of a region's lane, activities a second.
            silent_after: How long after its last poll a worker still counts.
            clock: Seconds of a steady clock.
        """
        self._client = client
        self._regions = regions
        self._rates = rates
        self._silent_after = silent_after
        self._clock = clock
        self._polls: dict[RegionKey, Mapping[str, _Poll]] = {}
        self._counts = dict.fromkeys(regions, 1)
        self._limits: dict[tuple[RegionKey, Lane], float | None] = {}
        """Limits that the server has beside the full rate, activities a second; None without one."""
        self._is_blind = False

    def count(self, region: RegionKey) -> int:
        """Workers that serve a region now, this one included."""
        return self._counts.get(region, 1)

    def share(self, region: RegionKey, lane: Lane) -> float:
        """Of the lane's budget, what this worker may use now: above 0, at most 1."""
        full, limit = self._rates(region, lane), self._limits.get((region, lane))
        # A person may stop a lane altogether: what is under way still comes to its end.
        left = 1.0 if limit is None else min(max(limit / full, SLOWEST), 1.0)
        return left / self.count(region)

    async def look(self) -> None:
        """Ask the server once per lane. While it does not answer, the last numbers stand."""
        try:
            for region in self._regions:
                await self._look_at(region)
        except RPCError as error:
            if not self._is_blind:
                _log.warning("Workers not counted", extra={"reason": error.message})
            self._is_blind = True
        else:
            self._is_blind = False

    async def _look_at(self, region: RegionKey) -> None:
        told: dict[str, datetime] = {}
        for lane in Lane:
            # All lanes have the same workers; but one whose slots are full in a lane does not poll there.
            for name, at in (await self._read(region, lane)).items():
                told[name] = max(at, told.get(name, at))
        self._polls[region] = self._newest(told, self._polls.get(region, {}))
        oldest = self._clock() - self._silent_after.total_seconds()
        living = {name for name, poll in self._polls[region].items() if poll.seen_at > oldest}
        count = len(living | {self._client.identity})
        if count != self.count(region):
            _log.info("Budget shared among workers", extra={"region": str(region), "workers": count})
        self._counts[region] = count
        labels = (region.provider.value, region.account, region.region)
        metrics.REGION_WORKERS.labels(*labels).set(count)

    async def _read(self, region: RegionKey, lane: Lane) -> dict[str, datetime]:
        """When each worker polled last by the server's clock; keeps the lane's limit, if it has one."""
        answer = await describe(self._client, lane.queue(region))
        self._limits[region, lane] = limit_of(answer)
        return {poller.identity: poller.last_access_time.ToDatetime(tzinfo=UTC) for poller in answer.pollers}

    def _newest(self, told: Mapping[str, datetime], known: Mapping[str, _Poll]) -> dict[str, _Poll]:
        """The polls that an answer tells of, each with the moment when it was new.

        The server's clock may be far from ours, so its times are only compared with each other.
        """
        found: dict[str, _Poll] = {}
        for name, at in told.items():
            before = known.get(name)
            if before is None:
                # A worker that is new to us may be long gone: the age of its poll counts.
                age = (max(told.values()) - at).total_seconds()
                found[name] = _Poll(at, self._clock() - age)
            else:
                found[name] = before if before.told == at else _Poll(at, self._clock())
        return found
