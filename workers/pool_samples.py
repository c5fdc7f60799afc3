"""The pools' own words for the metrics: spec and status of every GPUSpotPool, read at intervals."""

import asyncio
import logging
from datetime import timedelta
from decimal import Decimal

from activities.cluster.base import POOLS, Cluster, Object, parse_time
from activities.telemetry.metrics import PoolSample
from domain.contracts.errors import ClusterError

_log = logging.getLogger(__name__)


class PoolReader:
    """Keeps the last complete reading; a pool that is gone leaves with the next one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.samples: tuple[PoolSample, ...] = ()

    async def run(self, interval: timedelta) -> None:
        """Read for ever."""
        while True:
            try:
                self.samples = await self._read()
            except ClusterError as error:
                _log.warning("Pools could not be read for the metrics", extra={"reason": str(error)})
            await asyncio.sleep(interval.total_seconds())

    async def _read(self) -> tuple[PoolSample, ...]:
        samples: list[PoolSample] = []
        token = ""
        while True:
            page = await self._cluster.list_page(POOLS, continue_token=token)
            samples += [sample for item in page.items if (sample := _readable(item))]
            token = page.continue_token
            if not token:
                return tuple(samples)


def _readable(resource: Object) -> PoolSample | None:
    """The sample, or None for a resource that was stored under another schema: it hides no other pool."""
    try:
        return sample_of(resource)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        _log.warning("A pool is left out of the metrics", extra={"pool": resource["metadata"]["name"]})
        return None


def sample_of(resource: Object) -> PoolSample:
    """What one resource says of itself; a pool without status yet has nothing."""
    spec: Object = resource["spec"]
    status: Object = resource.get("status") or {}
    budget: Object = spec.get("budget") or {}
    hourly: Object = budget.get("hourly") or {}
    written = status.get("costAsOf")
    return PoolSample(
        namespace=resource["metadata"]["namespace"],
        name=resource["metadata"]["name"],
        min_instances=int(spec["minInstances"]),
        max_instances=int(spec["maxInstances"]),
        current_instances=int(status.get("currentInstances", 0)),
        desired_instances=int(status.get("desiredInstances", 0)),
        ready_instances=int(status.get("readyInstances", 0)),
        interruptions_total=int(status.get("interruptionsTotal", 0)),
        hourly_cost=Decimal(str(status.get("hourlyCost", 0))),
        max_hourly_cost=Decimal(str(hourly["amount"])) if "amount" in hourly else None,
        month_cost=Decimal(str(status.get("totalCostThisMonth", 0))),
        cost_as_of=parse_time(written) if written else None,
    )
