"""What a pool hears of the outside: observations, with the moment they were taken."""

from decimal import Decimal
from enum import StrEnum

from pydantic import Field

from domain.contracts.errors import ErrorCode
from domain.contracts.instances import Instance
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import CapacityType, RegionKey


class RegionHealth(StrEnum):
    """What a region's sync says of its own sight."""

    OK = "ok"
    STALE = "stale"
    CIRCUIT_OPEN = "circuit-open"


class RegionObservation(Contract):
    """Every machine of one pool in one region, as of one moment. Older ones are ignored."""

    region: RegionKey
    as_of: AwareDatetime
    instances: tuple[Instance, ...] = ()


class RegionState(Contract):
    """A transition of a region's sync."""

    region: RegionKey
    as_of: AwareDatetime
    health: RegionHealth
    reason: str = ""
    code: ErrorCode | None = None
    """Class of the failure that ``reason`` tells of; None when there is none."""


class NodeFact(Contract):
    """One Node of the pool, or its absence."""

    provider_id: str
    name: str
    uid: str = ""
    exists: bool = True
    ready: bool = False
    gpus_allocatable: int = 0
    gpu_taint: bool = False
    """Whether the taint ``gpu-not-ready`` is still there."""


class NodesSeen(Contract):
    """Nodes of one pool as of one moment: changes only, or all of them when ``complete``."""

    as_of: AwareDatetime
    nodes: tuple[NodeFact, ...] = ()
    complete: bool = False


class ProfileDemand(Contract):
    """Live and pending pods of one profile."""

    profile: str
    pods: int
    gpus: int
    """Sum of the GPUs that these pods ask for."""
    max_gpus_per_pod: int = 0


class Demand(Contract):
    """What the workloads bound to a pool ask for, as of one moment; replaces the one before."""

    as_of: AwareDatetime
    profiles: tuple[ProfileDemand, ...] = ()


class DrainResult(Contract):
    """How the draining of one Node ended."""

    done: bool
    """No pod that must leave is left, or there is no Node."""
    blockers: tuple[str, ...] = ()
    """``namespace/pod: cause``, for example ``train/a-0: PodDisruptionBudget train/keep allows 0``."""


class OwnedMachine(Contract):
    """A machine that the orphan sweep saw, with what its tags say."""

    region: RegionKey
    instance_id: str
    pool_uid: str
    slot: str
    launch: str
    created_at: AwareDatetime
    instance_type: str
    zone: str = ""
    capacity_type: CapacityType = CapacityType.SPOT
    price_per_hour: Decimal | None = None
    epoch: int = 0


class OwnershipAnswer(Contract):
    """A pool's answer about one machine."""

    instance_id: str
    owned: bool
    reason: str


class OwnershipQuestion(Contract):
    """Machines that a sweep asks a pool about, at most 500."""

    machines: tuple[OwnedMachine, ...] = Field(default_factory=tuple)
