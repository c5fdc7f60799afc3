"""What a pool says of itself: the status of GPUSpotPool."""

from decimal import Decimal
from enum import StrEnum

from pydantic import AwareDatetime, Field

from domain.contracts.resources import ResourceModel


class InstanceStatus(StrEnum):
    """The four states that the public status knows."""

    PENDING = "Pending"
    RUNNING = "Running"
    INTERRUPTING = "Interrupting"
    TERMINATED = "Terminated"


class ConditionType(StrEnum):
    """The conditions of a pool."""

    READY = "Ready"
    SCALE_UP_IN_PROGRESS = "ScaleUpInProgress"
    SCALE_UP_FAILED = "ScaleUpFailed"
    SCALE_DOWN_IN_PROGRESS = "ScaleDownInProgress"
    REBUILD_IN_PROGRESS = "RebuildInProgress"
    CAPACITY_DEGRADED = "CapacityDegraded"
    BUDGET_EXCEEDED = "BudgetExceeded"
    PROVIDER_UNAVAILABLE = "ProviderUnavailable"
    BOOTSTRAP_UNHEALTHY = "BootstrapUnhealthy"
    DRAIN_BLOCKED = "DrainBlocked"
    CONFIGURATION_INVALID = "ConfigurationInvalid"
    DELETING = "Deleting"


class Condition(ResourceModel):
    """One condition in the usual form."""

    type: str
    """Name of the condition."""
    status: str
    """True, False or Unknown."""
    reason: str = ""
    """One word for a program."""
    message: str = ""
    """One sentence for a person."""
    observed_generation: int = 0
    """Generation of the spec that this was judged by."""
    last_transition_time: AwareDatetime | None = None
    """When ``status`` last changed."""


class InstanceReport(ResourceModel):
    """One machine of the pool."""

    id: str
    """Instance id at the cloud; the launch token while the cloud has not named it."""
    provider: str
    """Cloud."""
    region: str
    """Region."""
    zone: str = ""
    """Zone."""
    gpu_type: str
    """GPU of the machine as MODEL-MEMORY."""
    instance_type: str = ""
    """Instance type in the provider's spelling."""
    capacity_type: str = ""
    """spot or on-demand."""
    status: InstanceStatus
    """Pending, Running, Interrupting or Terminated."""
    phase: str = ""
    """Finer than status, for example Ordered, Joining, Ready, Draining."""
    slot: str = ""
    """Slot that this machine fills."""
    price_per_hour: Decimal | None = None
    """Price of one hour in the pool's currency."""
    created_at: AwareDatetime | None = None
    """When it was ordered."""
    node_name: str = ""
    """Node that it joined as."""
    provider_id: str = Field(default="", alias="providerID")
    """Provider id of the Node."""
    interrupt_notice_at: AwareDatetime | None = None
    """When the cloud's notice was seen."""
    interrupt_deadline: AwareDatetime | None = None
    """When the cloud takes it back."""


class InterruptedInstance(ResourceModel):
    """A machine that a cloud took back."""

    id: str
    """Instance id at the cloud."""
    interrupt_reason: str
    """Why, as far as the cloud says."""
    at: AwareDatetime | None = None
    """When it was seen."""


class ZoneReport(ResourceModel):
    """Health of one zone as this pool sees it."""

    provider: str
    """Cloud."""
    region: str
    """Region."""
    zone: str
    """Zone."""
    health: str
    """Healthy, CoolingDown or Quarantined."""
    cool_down_until: AwareDatetime | None = None
    """Until when nothing is bought there."""
    recent_interruptions: int = 0
    """Interruptions within the last hour."""


class WorkflowRef(ResourceModel):
    """What to open in the Temporal UI."""

    id: str
    """Workflow id."""
    run_id: str = ""
    """Run id."""


class PoolStatus(ResourceModel):
    """What the pool has and does."""

    observed_generation: int = 0
    """Generation of the spec that is served."""
    current_instances: int = 0
    """Instances that live."""
    desired_instances: int = 0
    """Instances that the pool should have now."""
    ready_instances: int = 0
    """Instances that joined with all their GPUs ready."""
    on_demand_instances: int = 0
    """Live instances that are not spot."""
    gpu_count: int = 0
    """GPUs of the live instances."""
    instances: tuple[InstanceReport, ...] = ()
    """Machines of the pool."""
    interrupted_instances: tuple[InterruptedInstance, ...] = ()
    """Machines that were taken back, newest last, at most 20."""
    zones: tuple[ZoneReport, ...] = ()
    """Zones that are not healthy."""
    hourly_cost: Decimal = Decimal(0)
    """Sum of the hourly prices of the live instances."""
    total_cost_this_month: Decimal = Decimal(0)
    """Cost of the calendar month, UTC."""
    cost_as_of: AwareDatetime | None = None
    """When the costs were worked out."""
    strategy: str = ""
    """The strategy in force."""
    workflow: WorkflowRef | None = None
    """What to open in the Temporal UI."""
    last_sync_time: AwareDatetime | None = None
    """When the newest observation was taken."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the pool."""
