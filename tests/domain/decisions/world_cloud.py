"""The outside of a simulated pool: clouds with their machines, a cluster with their Nodes, and no pool."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from domain.contracts.catalogue import instance_type
from domain.contracts.facts import NodeFact
from domain.contracts.instances import Instance, InstanceState, LaunchRequest
from domain.contracts.money import PriceQuote
from domain.contracts.offers import CapacityType, Offer, RegionKey, Stock
from domain.contracts.provider_ids import provider_id
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import BEIJING, GUANGZHOU, REGIONS, SHANGHAI, SHENZHEN

ZONES: dict[str, tuple[str, ...]] = {
    str(GUANGZHOU): ("ap-guangzhou-3", "ap-guangzhou-6"),
    str(SHANGHAI): ("ap-shanghai-5",),
    str(SHENZHEN): ("cn-shenzhen-e", "cn-shenzhen-f"),
    str(BEIJING): ("cn-beijing-h", "cn-beijing-l"),
}
TYPES = {
    "tencent": ("GT4.4XLARGE96",),
    "aliyun": ("ecs.gn7-c12g1.3xlarge", "ecs.gn7e-c16g1.4xlarge"),
}
PRICES = {"GT4.4XLARGE96": "4.20", "ecs.gn7-c12g1.3xlarge": "4.60", "ecs.gn7e-c16g1.4xlarge": "5.10"}
PLENTY = 10_000


def at(t: float) -> datetime:
    """A moment of the simulation as a time."""
    return NOON + timedelta(seconds=t)


@dataclass
class CloudMachine:
    """One machine as its cloud knows it; all times in seconds of the simulation."""

    id: str
    request: LaunchRequest
    born: float
    listed_from: float
    """Lists show it only from here on: they lag."""
    runs_at: float | None
    joins_at: float | None
    gpus_at: float | None
    gpus: int
    notice_at: float | None = None
    deadline: float | None = None
    told_at: float | None = None
    ends_at: float | None = None
    retained: bool = False

    @property
    def region(self) -> RegionKey:
        return self.request.offer.region_key

    @property
    def provider_id(self) -> str:
        offer = self.request.offer
        return provider_id(offer.provider, offer.region, offer.zone, self.id)

    def is_alive(self, t: float) -> bool:
        """Whether it exists and costs money."""
        return self.ends_at is None or t < self.ends_at

    def is_up(self, t: float) -> bool:
        return self.is_alive(t) and self.told_at is None and self.runs_at is not None and t >= self.runs_at

    def seen(self, t: float) -> Instance:
        """As a reading at ``t`` shows it."""
        offer = self.request.offer
        state = InstanceState.RUNNING if self.is_up(t) else InstanceState.PENDING
        if self.told_at is not None:
            state = InstanceState.TERMINATED
        elif self.notice_at is not None and t >= self.notice_at:
            state = InstanceState.INTERRUPTING
        return Instance(
            provider=offer.provider,
            region=offer.region,
            zone=offer.zone,
            id=self.id,
            provider_id=self.provider_id,
            instance_type=offer.instance_type.name,
            capacity_type=offer.capacity_type,
            state=state,
            reason="Recycling" if state is InstanceState.INTERRUPTING else "",
            created_at=at(self.born),
            interrupt_deadline=at(self.deadline) if self.deadline is not None else None,
            tags=dict(self.request.tags),
        )


@dataclass
class Clouds:
    """Every region's machines, stock and health."""

    machines: dict[str, CloudMachine] = field(default_factory=dict)
    stock: dict[str, int] = field(default_factory=dict)
    """By zone; a zone that is not named has plenty."""
    down: set[str] = field(default_factory=set)
    """Regions (as text) that answer nothing."""
    creates: list[str] = field(default_factory=list)
    """Tokens whose create call was carried out, in order."""
    currency: str = "CNY"
    """In which every offer is priced."""

    def living(self, t: float) -> list[CloudMachine]:
        return [m for m in self.machines.values() if m.is_alive(t) and not m.retained]

    def listed(self, region: RegionKey, t: float) -> list[Instance]:
        """What a list of the pool's machines shows."""
        here = [m for m in self.living(t) if m.region == region and t >= m.listed_from]
        return [m.seen(t) for m in sorted(here, key=lambda m: m.id)]

    def described(self, ids: tuple[str, ...], t: float) -> list[Instance]:
        found = [self.machines[i] for i in ids if i in self.machines]
        return [m.seen(t) for m in found if m.is_alive(t) and t >= m.listed_from]

    def offers(self, region: RegionKey, t: float) -> tuple[Offer, ...]:
        return tuple(
            self._offer(region, zone, name, t)
            for zone in ZONES[str(region)]
            for name in TYPES[region.provider.value]
        )

    def _offer(self, region: RegionKey, zone: str, name: str, t: float) -> Offer:
        row = instance_type(region.provider, name)
        assert row is not None
        cents = Decimal(ZONES[str(region)].index(zone)) / 10
        quote = PriceQuote(
            per_hour=Decimal(PRICES[name]) + cents, currency=self.currency, as_of=at(t), source="simulation"
        )
        return Offer(
            provider=region.provider,
            account=region.account,
            region=region.region,
            zone=zone,
            instance_type=row,
            capacity_type=CapacityType.SPOT,
            price=quote,
            stock=Stock.AMPLE if self.stock.get(zone, PLENTY) > 0 else Stock.SCARCE,
        )


@dataclass
class ClusterNode:
    """One Node as the cluster knows it."""

    provider_id: str
    name: str
    ready: bool = True
    gpus: int = 0
    tainted: bool = True

    def fact(self) -> NodeFact:
        return NodeFact(
            provider_id=self.provider_id,
            name=self.name,
            uid=f"uid-{self.name}",
            ready=self.ready,
            gpus_allocatable=self.gpus,
            gpu_taint=self.tainted,
        )

    def gone(self) -> NodeFact:
        return NodeFact(provider_id=self.provider_id, name=self.name, exists=False)


__all__ = ["REGIONS", "TYPES", "ZONES", "CloudMachine", "Clouds", "ClusterNode", "at"]
