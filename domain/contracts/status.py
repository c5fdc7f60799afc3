"""What a pool says of itself: the status of GPUSpotPool."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, JsonValue

from domain.contracts.money import to_cents
from domain.contracts.resources import (
    MAX_INSTANCES,
    MAX_TEXT_CHARS,
    ResourceModel,
    StatusText,
)

MAX_REPORTS: Final = 2 * MAX_INSTANCES
"""Machines in a status: a pool has at most one replacement under way for each machine it may have."""
MAX_INTERRUPTED: Final = 20
MAX_ZONES: Final = 256
MAX_CONDITIONS: Final = 32

_ALWAYS_SHOWN: Final = frozenset({"instances", "interruptedInstances", "zones", "conditions"})
"""Lists that are rendered even when empty, so that a merge patch takes the last entry away too."""
_LEFT_OUT_WHEN_ZERO: Final = frozenset({"observedGeneration"})
"""A generation counts from 1; zero means unknown."""


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

    type: StatusText
    """Name of the condition."""
    status: StatusText = Field(json_schema_extra={"enum": ["True", "False", "Unknown"]})
    """True, False or Unknown."""
    reason: StatusText = ""
    """One word for a program."""
    message: StatusText = ""
    """One sentence for a person."""
    observed_generation: int = 0
    """Generation of the spec that this was judged by."""
    last_transition_time: AwareDatetime | None = None
    """When ``status`` last changed."""


class InstanceReport(ResourceModel):
    """One machine of the pool."""

    id: StatusText
    """Instance id at the cloud; the launch token while the cloud has not named it."""
    provider: StatusText
    """Cloud."""
    region: StatusText
    """Region."""
    zone: StatusText = ""
    """Zone."""
    gpu_type: StatusText
    """GPU of the machine as MODEL-MEMORY."""
    instance_type: StatusText = ""
    """Instance type in the provider's spelling."""
    capacity_type: StatusText = ""
    """spot or on-demand."""
    status: InstanceStatus
    """Pending, Running, Interrupting or Terminated."""
    phase: StatusText = ""
    """Finer than status, for example Ordered, Joining, Ready, Draining."""
    slot: StatusText = ""
    """Slot that this machine fills."""
    price_per_hour: Decimal | None = None
    """Price of one hour in the pool's currency."""
    created_at: AwareDatetime | None = None
    """When it was ordered."""
    node_name: StatusText = ""
    """Node that it joined as."""
    provider_id: StatusText = Field(default="", alias="providerID")
    """Provider id of the Node."""
    interrupt_notice_at: AwareDatetime | None = None
    """When the cloud's notice was seen."""
    interrupt_deadline: AwareDatetime | None = None
    """When the cloud takes it back."""
    checkpoint_status: StatusText = ""
    """How saving before the interruption went, for example complete or incomplete."""


class InterruptedInstance(ResourceModel):
    """A machine that a cloud took back."""

    id: StatusText
    """Instance id at the cloud."""
    interrupt_reason: StatusText
    """Why, as far as the cloud says."""
    at: AwareDatetime | None = None
    """When it was seen."""


class ZoneReport(ResourceModel):
    """Health of one zone as this pool sees it."""

    provider: StatusText
    """Cloud."""
    region: StatusText
    """Region."""
    zone: StatusText
    """Zone."""
    health: StatusText
    """Healthy, CoolingDown or Quarantined."""
    cool_down_until: AwareDatetime | None = None
    """Until when nothing is bought there."""
    recent_interruptions: int = 0
    """Interruptions within the last hour."""


class WorkflowRef(ResourceModel):
    """What to open in the Temporal UI."""

    id: StatusText
    """Workflow id."""
    run_id: StatusText = ""
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
    instances: tuple[InstanceReport, ...] = Field(default=(), json_schema_extra={"maxItems": MAX_REPORTS})
    """Machines of the pool."""
    interrupted_instances: tuple[InterruptedInstance, ...] = Field(
        default=(), json_schema_extra={"maxItems": MAX_INTERRUPTED}
    )
    """Machines that were taken back, newest last, at most 20."""
    interruptions_total: int = 0
    """Machines that were taken back since the pool was made."""
    zones: tuple[ZoneReport, ...] = Field(default=(), json_schema_extra={"maxItems": MAX_ZONES})
    """Zones that are not healthy."""
    hourly_cost: Decimal = Decimal(0)
    """Sum of the hourly prices of the live instances."""
    total_cost_this_month: Decimal = Decimal(0)
    """Cost of the calendar month, UTC."""
    savings_this_month: Decimal | None = None
    """What the same hours would have cost more on demand."""
    cost_as_of: AwareDatetime | None = None
    """When the costs were worked out."""
    strategy: StatusText = ""
    """The strategy in force."""
    workflow: WorkflowRef | None = None
    """What to open in the Temporal UI."""
    last_sync_time: AwareDatetime | None = None
    """When the newest observation was taken."""
    conditions: tuple[Condition, ...] = Field(default=(), json_schema_extra={"maxItems": MAX_CONDITIONS})
    """Conditions of the pool."""

    def rendered(self) -> dict[str, JsonValue]:
        """Return the ``status`` of the API: camelCase, money as numbers, times in UTC with seconds and Z.

        Empty values are left out but for the top-level lists; totals are rounded to the cent, texts cut at
        ``MAX_TEXT_CHARS`` and lists at their bounds, of interrupted instances the newest kept.
        """
        recent = self.interrupted_instances[-MAX_INTERRUPTED:]
        bounded = self.model_copy(
            update={
                "instances": self.instances[:MAX_REPORTS],
                "interrupted_instances": recent,
                "zones": self.zones[:MAX_ZONES],
                "conditions": self.conditions[:MAX_CONDITIONS],
                "hourly_cost": to_cents(self.hourly_cost),
                "total_cost_this_month": to_cents(self.total_cost_this_month),
                "savings_this_month": None
                if self.savings_this_month is None
                else to_cents(self.savings_this_month),
            }
        )
        return _rendered_fields(bounded)

    def differs_from(self, written: "PoolStatus") -> bool:
        """Whether this is worth a write: sync time, costs, prices and what ages are no cause.

        A price that was unknown and is known now is a cause.
        """
        # Compared as models, not as rendered: the pool asks after each step, with hundreds of machines.
        return (
            self.model_copy(update=_SET_ASIDE) != written.model_copy(update=_SET_ASIDE)
            or _differ(self.instances, written.instances, _without_price)
            or _differ(self.zones, written.zones, _without_count)
        )


_SET_ASIDE: Final[Mapping[str, object]] = {
    "last_sync_time": None,
    "hourly_cost": Decimal(0),
    "total_cost_this_month": Decimal(0),
    "savings_this_month": None,
    "cost_as_of": None,
    "instances": (),
    "zones": (),
}
"""Fields that move by themselves, which never cause a write, and lists that are compared one by one."""
_Item = TypeVar("_Item", InstanceReport, ZoneReport)


def _differ(ours: Sequence[_Item], theirs: Sequence[_Item], steady: Callable[[_Item], _Item]) -> bool:
    """Whether two lists differ in more than what ``steady`` takes out of an entry."""
    return len(ours) != len(theirs) or any(
        our != their and steady(our) != steady(their) for our, their in zip(ours, theirs, strict=True)
    )


def _without_price(report: InstanceReport) -> InstanceReport:
    price = None if report.price_per_hour is None else Decimal(0)
    return report.model_copy(update={"price_per_hour": price})


def _without_count(report: ZoneReport) -> ZoneReport:
    return report.model_copy(update={"recent_interruptions": 0})


def _rendered_fields(model: BaseModel) -> dict[str, JsonValue]:
    """Render one model; an empty part of it is left out."""
    shown: dict[str, JsonValue] = {}
    for name, field in type(model).model_fields.items():
        key = field.alias or name
        value = _rendered(getattr(model, name))
        empty = value is None or value == "" or value == [] or (value == 0 and key in _LEFT_OUT_WHEN_ZERO)
        if not empty or key in _ALWAYS_SHOWN:
            shown[key] = value
    return shown


def _rendered(value: object) -> JsonValue:
    match value:
        case BaseModel():
            return _rendered_fields(value)
        case tuple():
            items: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]  # of anything
            return [_rendered(item) for item in items]
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        case Decimal():
            return float(value)
        case str():
            return str(value)[:MAX_TEXT_CHARS]
        case None | bool() | int():
            return value
        case _:
            raise TypeError(f"a status has no place for {type(value).__name__}")
