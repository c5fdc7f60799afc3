"""The four kinds: their names in the API, their models, and the columns of ``kubectl get``."""

from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import ProfileSpec
from domain.contracts.resources import ResourceModel
from domain.contracts.status import PoolStatus
from domain.contracts.strategies import StrategySpec

SpecT = TypeVar("SpecT", bound=ResourceModel)

CATEGORY: Final = "spotgpu"
"""``kubectl get spotgpu`` lists all kinds."""


@dataclass(frozen=True)
class Column:
    """One column of ``kubectl get``."""

    name: str
    type: Literal["integer", "number", "string", "date"]
    json_path: str
    description: str
    wide: bool = False
    """Shown with ``-o wide`` only."""


@dataclass(frozen=True)
class ResourceKind(Generic[SpecT]):
    """One kind of custom resource."""

    kind: str
    plural: str
    short_name: str
    spec: type[SpecT]
    description: str
    columns: tuple[Column, ...]
    status: type[ResourceModel] | None = None
    """None for a kind that only states wishes."""

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.kind.lower()


AGE: Final = Column("Age", "date", ".metadata.creationTimestamp", "Time since the object was made.")

POOL: Final = ResourceKind(
    kind="GPUSpotPool",
    plural="gpuspotpools",
    short_name="gsp",
    spec=PoolSpec,
    status=PoolStatus,
    description="A pool of GPU spot instances that is kept at its level, whatever the clouds take back.",
    columns=(
        Column("Desired", "integer", ".status.desiredInstances", "Instances that the pool should have now."),
        Column("Current", "integer", ".status.currentInstances", "Instances that live."),
        Column("Ready", "integer", ".status.readyInstances", "Instances that joined with all their GPUs."),
        Column("Cost/h", "number", ".status.hourlyCost", "Sum of the live instances' prices per hour."),
        Column("Strategy", "string", ".status.strategy", "The strategy in force."),
        Column(
            "Status",
            "string",
            '.status.conditions[?(@.type=="Ready")].reason',
            "Why the pool is ready, or is not.",
        ),
        AGE,
        Column("Min", "integer", ".spec.minInstances", "Instances kept at least.", wide=True),
        Column("Max", "integer", ".spec.maxInstances", "Instances at most.", wide=True),
        Column("GPUs", "integer", ".status.gpuCount", "GPUs of the live instances.", wide=True),
        Column(
            "Month", "number", ".status.totalCostThisMonth", "Cost of the calendar month, UTC.", wide=True
        ),
        Column("Paused", "string", ".spec.paused", "What the spec pauses.", wide=True),
    ),
)

STRATEGY: Final = ResourceKind(
    kind="GPUSpotStrategy",
    plural="gpuspotstrategies",
    short_name="gss",
    spec=StrategySpec,
    description="How the pools that name it choose among the clouds' offers.",
    columns=(Column("Mode", "string", ".spec.mode", "Rule that ranks the offers."), AGE),
)

PROFILE: Final = ResourceKind(
    kind="GPUWorkloadProfile",
    plural="gpuworkloadprofiles",
    short_name="gwp",
    spec=ProfileSpec,
    description="What a kind of workload needs of the pool that it is bound to, and what it bears.",
    columns=(
        Column("Pool", "string", ".spec.poolRef", "Pool that serves the workload."),
        Column("GPUs", "integer", ".spec.gpuRequirement.minCount", "GPUs without which it cannot start."),
        Column("Priority", "string", ".spec.priority", "How important the workload is."),
        AGE,
    ),
)

NODE_CLASS: Final = ResourceKind(
    kind="GPUSpotNodeClass",
    plural="gpuspotnodeclasses",
    short_name="gsnc",
    spec=NodeClassSpec,
    description="What a machine of one provider needs to become a node of this cluster.",
    columns=(
        Column("Provider", "string", ".spec.provider", "Cloud that the class is for."),
        Column("Account", "string", ".spec.credentialsSecretRef.name", "Secret with the cloud's keys."),
        AGE,
    ),
)

KINDS: Final = (POOL, STRATEGY, PROFILE, NODE_CLASS)
