"""Workflow ids, and the names and payloads of every signal, update and query: the public face."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from domain.contracts.model import Contract
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.pool_state import PoolCarry
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings, SweepSettings, SyncSettings
from domain.contracts.status import PoolStatus

POOL_WORKFLOW = "GPUSpotPool"
REGION_SYNC_WORKFLOW = "RegionSync"
ORPHAN_SWEEP_WORKFLOW = "OrphanSweep"

# Signal of a worker that starts to a region's sync: the SyncSettings that hold from now on.
CONFIGURE = "configure"

# Updates and queries of a pool.
APPLY_SPEC = "apply_spec"
STATE_QUERY = "state"
OWNERSHIP_QUERY = "owns"

# Signals of machines to a pool; the manual ones have the names of ``INTERVENTIONS``.
OBSERVED = "observed"
REGION_STATE = "region_state"
NODE_SEEN = "node_seen"
DEMAND = "demand"
RENEW = "renew"


def pool_workflow_id(namespace: str, name: str) -> str:
    """``pool:{namespace}:{name}``; a colon cannot occur in Kubernetes names."""
    return f"pool:{namespace}:{name}"


def region_sync_id(region: RegionKey) -> str:
    """``sync:{provider}:{account}:{region}``."""
    return f"sync:{region}"


def orphan_sweep_id(region: RegionKey) -> str:
    """``sweep:{provider}:{account}:{region}``: id of the Schedule and prefix of its runs."""
    return f"sweep:{region}"


class SpecEnvelope(Contract):
    """Payload of ``apply_spec``: the resolved resource with the operator's settings."""

    resolved: ResolvedPool
    settings: PoolSettings


class PoolInput(Contract):
    """Input of a pool's run; ``carry`` is None in the first run of a chain."""

    schema_version: int = 1
    resolved: ResolvedPool
    settings: PoolSettings
    carry: PoolCarry | None = None


class PoolSnapshot(Contract):
    """Answer of the query ``state``."""

    status: PoolStatus
    waits_for: str
    """What the pool waits for and why, in one clause."""
    held: bool
    """A pause holds."""
    launches_total: int
    unowned_nodes: int
    """Nodes that claim this pool but match no machine of it."""
    history_events: int


class ApplyAnswer(Contract):
    """What ``apply_spec`` answers."""

    accepted: bool
    """False when everything in the envelope was known already."""
    generation: int


class RegionSyncInput(Contract):
    """Input of a region's sync."""

    region: RegionKey
    settings: SyncSettings


class OrphanSweepInput(Contract):
    """Input of one sweep of a region."""

    region: RegionKey
    settings: SweepSettings


class Intervention(BaseModel):
    """What every manual message must say; a field that is not known is refused, not ignored."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )

    by: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256)]
    """Who intervenes."""
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024)]
    """Why."""


Scope = Literal["Launches", "Disruptions", "All"]


class Pause(Intervention):
    """Stop launches, disruptions or all, until resumed."""

    scope: Scope


class Resume(Intervention):
    """Lift a manual pause."""

    scope: Scope


class ScaleTo(Intervention):
    """Set the water level by hand; within ``minInstances`` and ``maxInstances``."""

    instances: int = Field(ge=0, le=10_000)
    expires_after_seconds: int | None = Field(default=None, ge=1, le=31_536_000)


class ReplaceInstance(Intervention):
    """Buy a replacement, then end this machine."""

    id: str = Field(min_length=1, max_length=128)


class TerminateInstance(Intervention):
    """Drain and end this machine; the pool refills the slot if its level asks for it."""

    id: str = Field(min_length=1, max_length=128)


class QuarantineZone(Intervention):
    """Buy nothing in a zone for a while."""

    provider: ProviderName
    zone: str = Field(min_length=1, max_length=128)
    minutes: int = Field(ge=1, le=525_600)


class ClearZone(Intervention):
    """Lift a quarantine and every cool-down of a zone."""

    provider: ProviderName
    zone: str = Field(min_length=1, max_length=128)


class DeleteStage(StrEnum):
    """Stages of a deletion that a human may force."""

    DRAIN = "Drain"
    TERMINATE = "Terminate"
    NODES = "Nodes"


class ForceDelete(Intervention):
    """End a stage of a deletion that does not end by itself."""

    stage: DeleteStage


class Resync(Intervention):
    """Read clouds and cluster again before the next decision."""


INTERVENTIONS: dict[str, type[Intervention]] = {
    "pause": Pause,
    "resume": Resume,
    "scale_to": ScaleTo,
    "replace_instance": ReplaceInstance,
    "terminate_instance": TerminateInstance,
    "quarantine_zone": QuarantineZone,
    "clear_zone": ClearZone,
    "force_delete": ForceDelete,
    "resync": Resync,
}
"""Name of the update and of the signal to its payload."""


class InterventionAnswer(Contract):
    """What an intervention did."""

    done: str
