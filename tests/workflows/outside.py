"""An outside world in one object: every activity that a pool orders, against machines in memory."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from temporalio import activity

from activities import signatures as s
from domain.contracts.announcements import Announcement
from domain.contracts.catalogue import instance_type
from domain.contracts.facts import DrainResult, NodeFact, NodesSeen, RegionObservation
from domain.contracts.instances import (
    Created,
    Instance,
    InstanceState,
    LaunchAnswer,
    LaunchRequest,
)
from domain.contracts.money import PriceQuote
from domain.contracts.names import TAG_LAUNCH, TAG_POOL
from domain.contracts.offers import CapacityType, Offer, ProviderName, RegionKey, Stock
from domain.contracts.status import PoolStatus

GUANGZHOU = RegionKey(provider=ProviderName.TENCENT, account="tencent-credentials", region="ap-guangzhou")
ZONES = ("ap-guangzhou-3", "ap-guangzhou-6")


class Outside:
    """One region of one cloud and one cluster. Machines run, join and get their GPUs at once."""

    def __init__(self) -> None:
        self.machines: dict[str, Instance] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.by_token: dict[str, str] = {}
        self.creates: list[str] = []
        self.terminated: list[str] = []
        self.statuses: list[PoolStatus] = []
        self.events: list[Announcement] = []
        self.drains_hang = False
        self.finalizer_removed = False
        self.on_create: Callable[[LaunchRequest], LaunchAnswer | None] = lambda _request: None
        """May answer a create in the world's place, or raise."""
        self.stubborn: set[str] = set()
        """Machines that go on showing themselves after they were told to end."""
        self.hold_creates: asyncio.Event | None = None
        """While set and not fired, create calls wait before they leave; a call back ends the wait."""
        self.waiting_creates = 0
        self._count = 0

    def activities(self) -> list[Any]:
        return [
            value
            for name in dir(self)
            if hasattr(value := getattr(self, name), "__temporal_activity_definition")
        ]

    def boot(self, request: LaunchRequest) -> Instance:
        """A machine for this launch; the same token gives the same machine."""
        if request.token in self.by_token:
            return self.machines[self.by_token[request.token]]
        self._count += 1
        instance = Instance(
            provider=ProviderName.TENCENT,
            region="ap-guangzhou",
            zone=request.offer.zone,
            id=f"ins-{self._count:04d}",
            provider_id=f"qcloud:///100003/ins-{self._count:04d}",
            instance_type=request.offer.instance_type.name,
            capacity_type=CapacityType.SPOT,
            state=InstanceState.RUNNING,
            created_at=datetime.now(UTC),
            tags=dict(request.tags),
        )
        self.machines[instance.id] = instance
        self.by_token[request.token] = instance.id
        self.nodes[instance.provider_id] = NodeFact(
            provider_id=instance.provider_id,
            name=request.name,
            ready=True,
            gpus_allocatable=request.offer.instance_type.gpu_count,
            gpu_taint=True,
        )
        return instance

    def vanish(self, instance_id: str) -> None:
        machine = self.machines.pop(instance_id)
        self.nodes.pop(machine.provider_id, None)

    def of_pool(self, uid: str) -> tuple[Instance, ...]:
        return tuple(i for i in self.machines.values() if i.tags.get(TAG_POOL) == uid)

    def observation(self, uid: str) -> RegionObservation:
        return RegionObservation(region=GUANGZHOU, as_of=datetime.now(UTC), instances=self.of_pool(uid))

    def seen_nodes(self) -> NodesSeen:
        return NodesSeen(as_of=datetime.now(UTC), nodes=tuple(self.nodes.values()), complete=True)

    @activity.defn(name="cloud.create_instance")
    async def create_instance(self, request: LaunchRequest) -> LaunchAnswer:
        await self._before_create()
        self.creates.append(request.token)
        answer = self.on_create(request)
        if answer is not None:
            return answer
        instance = self.boot(request)
        return LaunchAnswer(result=Created(instance_id=instance.id, zone=instance.zone))

    async def _before_create(self) -> None:
        if self.hold_creates is None:
            return
        self.waiting_creates += 1
        while not self.hold_creates.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.1)

    @activity.defn(name="cloud.find_by_token")
    async def find_by_token(self, request: s.TokenRequest) -> s.Reading:
        found = tuple(i for i in self.machines.values() if i.tags.get(TAG_LAUNCH) == request.token)
        return s.Reading(as_of=datetime.now(UTC), instances=found)

    @activity.defn(name="cloud.terminate_instances")
    async def terminate_instances(self, request: s.InstancesRequest) -> None:
        for instance_id in request.instance_ids:
            self.terminated.append(instance_id)
            if instance_id in self.machines and instance_id not in self.stubborn:
                self.machines.pop(instance_id)

    @activity.defn(name="cloud.describe")
    async def describe(self, request: s.InstancesRequest) -> s.Reading:
        found = tuple(self.machines[i] for i in request.instance_ids if i in self.machines)
        return s.Reading(as_of=datetime.now(UTC), instances=found)

    @activity.defn(name="cloud.list_pool")
    async def list_pool(self, request: s.PoolRegionRequest) -> RegionObservation:
        return self.observation(request.pool_uid)

    @activity.defn(name="cloud.list_offers")
    async def list_offers(self, request: s.OffersRequest) -> s.OffersAnswer:
        row = instance_type(ProviderName.TENCENT, "GT4.4XLARGE96")
        assert row is not None
        now = datetime.now(UTC)
        return s.OffersAnswer(
            offers=tuple(
                Offer(
                    provider=ProviderName.TENCENT,
                    account="tencent-credentials",
                    region="ap-guangzhou",
                    zone=zone,
                    instance_type=row,
                    capacity_type=CapacityType.SPOT,
                    price=PriceQuote(per_hour=price, currency="CNY", as_of=now, source="test"),
                    stock=Stock.AMPLE,
                )
                for zone, price in zip(ZONES, (Decimal("4.2"), Decimal("5.1")), strict=True)
            )
        )

    @activity.defn(name="k8s.list_pool_nodes")
    async def list_pool_nodes(self, request: s.PoolNodesRequest) -> NodesSeen:
        return self.seen_nodes()

    @activity.defn(name="k8s.settle_nodes")
    async def settle_nodes(self, request: s.SettleNodesRequest) -> None:
        for node in request.nodes:
            if node.provider_id in self.nodes:
                opened = self.nodes[node.provider_id].model_copy(update={"gpu_taint": False})
                self.nodes[node.provider_id] = opened

    @activity.defn(name="k8s.drain_node")
    async def drain_node(self, request: s.DrainRequest) -> DrainResult:
        while self.drains_hang:
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return DrainResult(done=True)

    @activity.defn(name="k8s.delete_nodes")
    async def delete_nodes(self, request: s.DeleteNodesRequest) -> None:
        for provider_id in request.nodes:
            self.nodes.pop(provider_id, None)

    @activity.defn(name="k8s.patch_status")
    async def patch_status(self, request: s.StatusRequest) -> None:
        self.statuses.append(request.status)

    @activity.defn(name="k8s.remove_finalizer")
    async def remove_finalizer(self, request: s.ObjectRef) -> None:
        self.finalizer_removed = True

    @activity.defn(name="k8s.publish_events")
    async def publish_events(self, request: s.EventsRequest) -> None:
        self.events.extend(request.events)

    @property
    def status(self) -> PoolStatus | None:
        """The status that was written last."""
        return self.statuses[-1] if self.statuses else None

    async def until(self, condition: Callable[[], bool], seconds: float = 15) -> None:
        """Wait until something holds; fails with the last status when it does not."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"never held; last status: {self.status}")
            await asyncio.sleep(0.05)
