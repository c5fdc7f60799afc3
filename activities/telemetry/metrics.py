"""Every Prometheus series of the project, with help, unit and labels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

REGISTRY: Final = CollectorRegistry()
"""All series of this process; served by ``workers.health``."""

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

PROVIDER_CALL_SECONDS: Final = Histogram(
    "spotgpu_provider_call_seconds",
    "Time of one call of the cloud port, in seconds",
    ("provider", "region", "operation"),
    buckets=_SECONDS,
    registry=REGISTRY,
)
PROVIDER_CALLS: Final = Counter(
    "spotgpu_provider_calls",
    "Calls of the cloud port by how they ended: ok, a market answer, or an error code",
    ("provider", "region", "operation", "outcome"),
    registry=REGISTRY,
)
PROVIDER_ERRORS: Final = Counter(
    "spotgpu_provider_errors",
    "Failed calls of the cloud port by error code",
    ("provider", "region", "code"),
    registry=REGISTRY,
)
UNKNOWN_CODES: Final = Counter(
    "spotgpu_provider_unknown_errors",
    "Vendor codes that the adapter's table lacks",
    ("provider", "operation", "vendor_code"),
    registry=REGISTRY,
)
CALL_WAIT_SECONDS: Final = Histogram(
    "spotgpu_provider_wait_seconds",
    "Time that a cloud activity waited in its queue for the rate budget, in seconds",
    ("provider", "region", "operation"),
    buckets=_SECONDS,
    registry=REGISTRY,
)
CIRCUIT_OPEN: Final = Gauge(
    "spotgpu_provider_circuit_open",
    "1 while a region's circuit is open",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
LANE_RATE: Final = Gauge(
    "spotgpu_lane_calls_per_second",
    "Tasks a second that a lane of a region may take up now, all workers together: readings without the"
    " sync's share; less while the cloud throttles",
    ("provider", "account", "region", "lane"),
    registry=REGISTRY,
)
REGION_WORKERS: Final = Gauge(
    "spotgpu_region_workers",
    "Workers that serve a region and share its budget of calls, as this one counts them",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
REGION_READ_TIME: Final = Gauge(
    "spotgpu_region_read_timestamp_seconds",
    "When a region was last listed with success, in Unix seconds",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
REGION_MACHINES: Final = Gauge(
    "spotgpu_region_machines",
    "Machines of this installation that a region listed",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
DEAD_MAN_LATE: Final = Gauge(
    "spotgpu_dead_man_late_machines",
    "Machines whose dead-man switch should have been renewed long ago: the cloud will end them",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
DEAD_MAN_RENEWALS: Final = Counter(
    "spotgpu_dead_man_renewals",
    "Machines whose dead-man switch was to be renewed, by outcome: renewed or failed",
    ("provider", "account", "region", "outcome"),
    registry=REGISTRY,
)
OFFER_PRICE: Final = Gauge(
    "spotgpu_offer_price_per_hour",
    "Price of an offer in its currency, as last read",
    ("provider", "region", "zone", "instance_type", "capacity_type", "currency"),
    registry=REGISTRY,
)
OFFERS_READ_TIME: Final = Gauge(
    "spotgpu_offers_read_timestamp_seconds",
    "When the offers of a region were last read, in Unix seconds",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
ORPHANS: Final = Gauge(
    "spotgpu_orphans",
    "Orphans that still run, by the last sweep",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
ORPHAN_COST: Final = Gauge(
    "spotgpu_orphan_hourly_cost",
    "Known hourly price of the orphans that still run, by the last sweep",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
ORPHANS_RECLAIMED: Final = Counter(
    "spotgpu_orphans_reclaimed",
    "Orphans that sweeps ended",
    ("provider", "account", "region"),
    registry=REGISTRY,
)
KUBERNETES_REQUESTS: Final = Counter(
    "spotgpu_kubernetes_requests",
    "Requests to the Kubernetes API; status 0 when there was no answer",
    ("verb", "resource", "status"),
    registry=REGISTRY,
)
BRIDGE_LEADING: Final = Gauge(
    "spotgpu_bridge_leading", "1 while this bridge holds the Lease", registry=REGISTRY
)
BRIDGE_WATCHES: Final = Counter(
    "spotgpu_bridge_watches",
    "What the bridge's watches did: list, watch, expired or error",
    ("resource", "event"),
    registry=REGISTRY,
)
BRIDGE_SKIPPED_NODES: Final = Gauge(
    "spotgpu_bridge_skipped_nodes", "Nodes that belong to no pool, by reason", ("reason",), registry=REGISTRY
)
RECONCILE_LAG_SECONDS: Final = Histogram(
    "spotgpu_reconcile_lag_seconds",
    "Time from a change to its delivery to Temporal, in seconds",
    ("work", "outcome"),
    buckets=_SECONDS,
    registry=REGISTRY,
)
DRAINS: Final = Counter(
    "spotgpu_drains",
    "Drains of a Node by how they ended: empty, absent or blocked",
    ("outcome",),
    registry=REGISTRY,
)


def expose() -> bytes:
    """All series in the Prometheus text format."""
    return generate_latest(REGISTRY)


@dataclass(frozen=True)
class PoolSample:
    """What one GPUSpotPool says of itself: the durable state that the pool series are computed from."""

    namespace: str
    name: str
    min_instances: int
    max_instances: int
    current_instances: int
    desired_instances: int
    ready_instances: int
    interruptions_total: int
    hourly_cost: Decimal
    max_hourly_cost: Decimal | None
    """The hourly budget, None when the pool has none."""
    month_cost: Decimal
    cost_as_of: datetime | None


GaugeValue = Callable[[PoolSample], float | None]

_GAUGES: Final[Sequence[tuple[str, str, GaugeValue]]] = (
    ("spotgpu_pool_current_instances", "Instances of a pool that live", lambda s: s.current_instances),
    ("spotgpu_pool_min_instances", "Instances that a pool keeps at least", lambda s: s.min_instances),
    ("spotgpu_pool_max_instances", "Instances that a pool has at most", lambda s: s.max_instances),
    (
        "spotgpu_pool_desired_instances",
        "Instances that a pool should have now",
        lambda s: s.desired_instances,
    ),
    (
        "spotgpu_pool_ready_instances",
        "Instances that joined with all GPUs ready",
        lambda s: s.ready_instances,
    ),
    ("spotgpu_pool_hourly_cost", "Sum of the hourly prices of a pool", lambda s: float(s.hourly_cost)),
    (
        "spotgpu_pool_max_hourly_cost",
        "Hourly budget of a pool; absent when it has none",
        lambda s: None if s.max_hourly_cost is None else float(s.max_hourly_cost),
    ),
)


class PoolCollector(Collector):
    """Computes the pool series at each scrape, so that a restart neither loses nor double-counts."""

    def __init__(
        self,
        samples: Callable[[], Iterable[PoolSample]],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._samples = samples
        self._now = now

    @override
    def collect(self) -> Iterable[Metric]:
        """All pool series of this moment."""
        samples = list(self._samples())
        for name, text, value_of in _GAUGES:
            yield _gauge(name, text, ((sample, value_of(sample)) for sample in samples))
        now = self._now()
        yield _gauge(
            "spotgpu_pool_month_cost",
            "Cost of a pool in this calendar month, extrapolated from its last writing",
            ((sample, _month_cost(sample, now)) for sample in samples),
        )
        interruptions = CounterMetricFamily(
            "spotgpu_pool_interrupt", "Machines that clouds took back", labels=("namespace", "pool")
        )
        for sample in samples:
            interruptions.add_metric((sample.namespace, sample.name), sample.interruptions_total)
        yield interruptions


def _gauge(name: str, text: str, values: Iterable[tuple[PoolSample, float | None]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=("namespace", "pool"))
    for sample, value in values:
        if value is not None:
            family.add_metric((sample.namespace, sample.name), value)
    return family


def _month_cost(sample: PoolSample, now: datetime) -> float:
    """The written cost plus the hourly cost since then; nothing is added across a month's end."""
    written = sample.cost_as_of
    if written is None or (written.year, written.month) != (now.year, now.month):
        return float(sample.month_cost)
    hours = Decimal(max((now - written).total_seconds(), 0)) / 3600
    return float(sample.month_cost + sample.hourly_cost * hours)
