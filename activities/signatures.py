"""Typed stubs of every activity: the only module of this room that workflows import.

Names are contracts. A test compares the stubs with the implementations.
"""

from decimal import Decimal

from pydantic import Field
from temporalio import activity

from domain.contracts.announcements import Announcement
from domain.contracts.facts import (
    DrainResult,
    NodesSeen,
    OwnedMachine,
    OwnershipAnswer,
    RegionObservation,
)
from domain.contracts.instances import Instance, LaunchAnswer, LaunchRequest, OfferQuery
from domain.contracts.leftovers import Leftover
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import Offer, RegionKey
from domain.contracts.pools import OrphanPolicy
from domain.contracts.settings import SyncSettings
from domain.contracts.status import PoolStatus


class InstancesRequest(Contract):
    """Machines of one region by id, at most 100."""

    region: RegionKey
    instance_ids: tuple[str, ...]


class TokenRequest(Contract):
    """A launch whose outcome is unknown."""

    region: RegionKey
    pool_uid: str
    token: str


class PoolRegionRequest(Contract):
    """One pool in one region."""

    region: RegionKey
    pool_uid: str


class Reading(Contract):
    """Machines as one answer of a cloud shows them."""

    as_of: AwareDatetime
    instances: tuple[Instance, ...]


class OffersRequest(Contract):
    """Offers of one region."""

    region: RegionKey
    query: OfferQuery
    refresh: bool = False
    """Read again whatever is stored."""


class OffersAnswer(Contract):
    """Offers of one region, at most 200, sorted by key."""

    offers: tuple[Offer, ...]


class WatchRegionRequest(Contract):
    """What to watch, and for how long."""

    region: RegionKey
    settings: SyncSettings


class InstallationReading(Contract):
    """Every machine of the installation in one region that is not ended, oldest first, at most 3,000."""

    as_of: AwareDatetime
    machines: tuple[OwnedMachine, ...]
    retained: tuple[OwnedMachine, ...] = ()
    """Machines that a deleted pool gave up; at most 100, reported only."""
    own_epoch: int
    highest_epoch: int


class InstallationRequest(Contract):
    """One region whose machines of this installation are to be listed."""

    region: RegionKey
    retained_age_seconds: float = 0
    """A list of machines that deleted pools gave up is used again while it is younger."""


class LeftoversRequest(Contract):
    """One region whose addresses and disks without a machine are looked through."""

    region: RegionKey
    min_age_seconds: float = 660
    """What was seen without a machine for less long may be about to get one."""
    release: bool = True
    """Whether ours are given up; False only tells of them."""
    interval_seconds: float = 0
    """After a look that is younger nothing is read, and the answer is empty."""


class LeftoversReading(Contract):
    """What survived machines; at most 100 of each kind of answer, by id."""

    as_of: AwareDatetime
    released: tuple[Leftover, ...] = ()
    """Ours, and given up by this call."""
    waiting: tuple[Leftover, ...] = ()
    """Ours, but seen for the first time lately."""
    shown: tuple[Leftover, ...] = ()
    """Of others: told, never touched."""


class AskOwnersRequest(Contract):
    """Machines whose pools are to be asked, at most 500."""

    region: RegionKey
    machines: tuple[OwnedMachine, ...]


class AskOwnersAnswer(Contract):
    """One answer per machine that got one; a machine without an answer is nobody's orphan."""

    answers: tuple[OwnershipAnswer, ...]
    policies: dict[str, OrphanPolicy] = Field(default_factory=dict[str, OrphanPolicy])
    """Pool uid to the policy that this pool sets."""


class SweepRecord(Contract):
    """What a finished sweep found, for the metrics."""

    region: RegionKey
    orphans: int
    """Orphans that still run: reported, not ended."""
    reclaimed: int
    cost_per_hour: Decimal = Decimal(0)
    """Sum of the known prices of the orphans that still run."""


class PoolNodesRequest(Contract):
    """All Nodes of one pool."""

    pool_uid: str


class NodeSettlement(Contract):
    """What a Node of ours must carry, and whether its GPUs may be used now."""

    provider_id: str
    name: str
    labels: dict[str, str]
    gpus_ready: bool
    """Removes the taint ``gpu-not-ready`` under a version check."""


class SettleNodesRequest(Contract):
    """Nodes to bring to their labels and taints, at most 100."""

    nodes: tuple[NodeSettlement, ...]


class DrainRequest(Contract):
    """A Node to empty. The name alone is not trusted: its provider id must match."""

    provider_id: str
    node_name: str
    deadline: AwareDatetime
    """When the graces of its pods have ended."""
    grace_seconds: int
    """From the order to the deadline."""


class DeleteNodesRequest(Contract):
    """Nodes of machines that are confirmed gone, by provider id and name."""

    nodes: dict[str, str]
    """Provider id to Node name; a Node that carries another provider id is left alone."""


class ObjectRef(Contract):
    """One GPUSpotPool by identity; another uid is another pool."""

    namespace: str
    name: str
    uid: str


class StatusRequest(Contract):
    """The whole status of a pool."""

    pool: ObjectRef
    status: PoolStatus


class EventsRequest(Contract):
    """Events about one pool, or about the installation when ``pool`` is None; at most 50."""

    pool: ObjectRef | None
    operator_namespace: str
    events: tuple[Announcement, ...]


@activity.defn(name="cloud.create_instance")
def create_instance(request: LaunchRequest) -> LaunchAnswer:
    """Buy one machine; on any attempt but the first, look for its tag before."""
    ...


@activity.defn(name="cloud.find_by_token")
def find_by_token(request: TokenRequest) -> Reading:
    """Machines that carry the launch's tag."""
    ...


@activity.defn(name="cloud.terminate_instances")
def terminate_instances(request: InstancesRequest) -> None:
    """End machines; a machine that is gone counts as ended."""
    ...


@activity.defn(name="cloud.retain_instances")
def retain_instances(request: InstancesRequest) -> None:
    """Give machines up without ending them."""
    ...


@activity.defn(name="cloud.describe")
def describe(request: InstancesRequest) -> Reading:
    """Machines by id."""
    ...


@activity.defn(name="cloud.list_pool")
def list_pool(request: PoolRegionRequest) -> RegionObservation:
    """Every machine of one pool in one region."""
    ...


@activity.defn(name="cloud.list_offers")
def list_offers(request: OffersRequest) -> OffersAnswer:
    """Price and stock of a region."""
    ...


@activity.defn(name="cloud.watch_region")
async def watch_region(request: WatchRegionRequest) -> None:
    """Poll a region until the time is up, and signal to pools only what changed."""
    ...


@activity.defn(name="cloud.list_installation")
def list_installation(request: InstallationRequest) -> InstallationReading:
    """Every machine of this installation in one region."""
    ...


@activity.defn(name="cloud.sweep_leftovers")
def sweep_leftovers(request: LeftoversRequest) -> LeftoversReading:
    """Release addresses and disks that survived machines of this installation, and tell of others."""
    ...


@activity.defn(name="ops.ask_owners")
async def ask_owners(request: AskOwnersRequest) -> AskOwnersAnswer:
    """Ask the pools of machines whether they own them."""
    ...


@activity.defn(name="ops.record_sweep")
async def record_sweep(request: SweepRecord) -> None:
    """Make a sweep's result visible as metrics."""
    ...


@activity.defn(name="k8s.list_pool_nodes")
async def list_pool_nodes(request: PoolNodesRequest) -> NodesSeen:
    """All Nodes of one pool."""
    ...


@activity.defn(name="k8s.settle_nodes")
async def settle_nodes(request: SettleNodesRequest) -> None:
    """Labels and taints of joined Nodes."""
    ...


@activity.defn(name="k8s.drain_node")
async def drain_node(request: DrainRequest) -> DrainResult:
    """Cordon and evict until empty or the deadline; a blocked eviction is a state, not a failure."""
    ...


@activity.defn(name="k8s.delete_nodes")
async def delete_nodes(request: DeleteNodesRequest) -> None:
    """Remove the Nodes of machines that are gone."""
    ...


@activity.defn(name="k8s.patch_status")
async def patch_status(request: StatusRequest) -> None:
    """Write a pool's status; a pool that is gone or another object counts as done."""
    ...


@activity.defn(name="k8s.remove_finalizer")
async def remove_finalizer(request: ObjectRef) -> None:
    """Let the resource go, by a metadata-only patch."""
    ...


@activity.defn(name="k8s.publish_events")
async def publish_events(request: EventsRequest) -> None:
    """Publish Kubernetes Events, once per key."""
    ...
