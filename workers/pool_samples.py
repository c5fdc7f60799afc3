"""What every GPUSpotPool says of itself, for the metrics: read when somebody asks for them."""

import asyncio
import logging
import time
from datetime import timedelta
from decimal import Decimal
from typing import Final

from activities.cluster.base import POOLS, Cluster, Object, parse_time
from activities.telemetry.metrics import PoolSample
from domain.contracts.errors import ClusterError

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 5.0
"""Prometheus gives up a scrape after ten seconds; the other series must not be lost with these."""


class PoolReader:
    """Reads when somebody asks and the last complete reading is old; a pool that is gone leaves with it."""

    def __init__(self, cluster: Cluster, max_age: timedelta) -> None:
        self._cluster = cluster
        self._max_age_seconds = max_age.total_seconds()
        self._read_at: float | None = None
        self._lock = asyncio.Lock()
        self.samples: tuple[PoolSample, ...] = ()

    async def refresh(self) -> None:
        """Read all pools unless the last reading is young enough; after a failure the last one stays."""
        async with self._lock:
            if self._read_at is not None and time.monotonic() - self._read_at < self._max_age_seconds:
                return
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    self.samples = await self._read()
            except (ClusterError, TimeoutError) as error:
                _log.warning("Pools could not be read for the metrics", extra={"reason": str(error)})
            else:
                self._read_at = time.monotonic()

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
