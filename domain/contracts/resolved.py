"""A pool's resource with everything it refers to, as the bridge resolved it at one moment."""

import hashlib

from pydantic import Field

from domain.contracts.model import Contract
from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import ProfileSpec
from domain.contracts.strategies import StrategySpec


class Origin(Contract):
    """Which version of which object a part was read from."""

    name: str
    namespace: str = ""
    uid: str
    generation: int

    def is_newer_than(self, other: "Origin | None") -> bool:
        """True for another object, or a later generation of the same."""
        return other is None or self.uid != other.uid or self.generation > other.generation


class StrategyPart(Contract):
    """A strategy and where it was read."""

    origin: Origin
    spec: StrategySpec


class ProfilePart(Contract):
    """A profile and where it was read."""

    origin: Origin
    spec: ProfileSpec


class NodeClassPart(Contract):
    """A node class and where it was read."""

    origin: Origin
    spec: NodeClassSpec


class Unresolved(Contract):
    """A reference that led nowhere; the pool keeps its last good part and says so in a condition."""

    kind: str
    """GPUSpotStrategy, GPUSpotNodeClass or GPUWorkloadProfile."""
    name: str
    message: str


class ResolvedPool(Contract):
    """The start input of a pool's workflow and the payload of every edit."""

    uid: str
    namespace: str
    name: str
    generation: int
    spec: PoolSpec
    strategies: dict[str, StrategyPart] = Field(default_factory=dict)
    """By name: ``strategyRef`` and those of the schedule."""
    profiles: tuple[ProfilePart, ...] = ()
    """Profiles whose ``poolRef`` names this pool, sorted by name."""
    node_classes: dict[str, NodeClassPart] = Field(default_factory=dict)
    """By provider name."""
    unresolved: tuple[Unresolved, ...] = ()
    deleting: bool = False
    """The resource carries a deletion timestamp."""
    known_machines: tuple[str, ...] = ()
    """Instance ids that the resource's status named when the workflow was started."""

    @property
    def digest(self) -> str:
        """12 hex digits of the SHA-256 of what was resolved, without the status."""
        body = self.model_dump_json(exclude={"known_machines"})
        return hashlib.sha256(body.encode()).hexdigest()[:12]

    @property
    def update_id(self) -> str:
        """``{uid}:{generation}:{digest}``: the same edit sent twice runs once."""
        return f"{self.uid}:{self.generation}:{self.digest}"
