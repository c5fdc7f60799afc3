"""What a user wants of a pool: the spec of GPUSpotPool."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from domain.contracts.offers import ProviderName
from domain.contracts.resources import (
    CloudName,
    GpuTypeName,
    Instances,
    Minutes,
    ObjectName,
    OptionalObjectName,
    Pause,
    Percent,
    Price,
    ResourceModel,
    Seconds,
    Share,
    Step,
)


class RiskPolicy(StrEnum):
    """What a risk signal (a rebalance recommendation and the like) leads to."""

    PREWARM = "Prewarm"
    IGNORE = "Ignore"


class BudgetAction(StrEnum):
    """What happens when a budget is reached."""

    ALERT = "Alert"
    STOP_LAUNCHES = "StopLaunches"


class OrphanPolicy(StrEnum):
    """What the sweep does with a machine that no pool owns."""

    RECLAIM = "Reclaim"
    REPORT = "Report"


class DeletionPolicy(StrEnum):
    """What happens to the machines of a pool that is deleted."""

    DRAIN = "Drain"
    FORCE = "Force"
    RETAIN = "Retain"


class PauseScope(StrEnum):
    """What a pause stops. Interruption handling never pauses."""

    NONE = "None"
    LAUNCHES = "Launches"
    DISRUPTIONS = "Disruptions"
    ALL = "All"


class ProviderChoice(ResourceModel):
    """One cloud that the pool may buy from."""

    name: ProviderName
    """Cloud to buy from; at most one entry for each. The operator may have only some of them enabled: asking
    for another is a condition of the pool."""
    regions: Annotated[tuple[CloudName, ...], Field(max_length=32)] = ()
    """Regions to buy in, in the provider's spelling; empty means every region that the operator serves."""
    zones: Annotated[tuple[CloudName, ...], Field(max_length=64)] = ()
    """Zones to buy in, in the provider's spelling; empty means every zone of the regions."""
    instance_types: Annotated[tuple[CloudName, ...], Field(max_length=128)] = ()
    """Instance types to buy; empty means every catalogued type of the wanted GPUs."""
    node_class_ref: OptionalObjectName = ""
    """Name of a GPUSpotNodeClass; by default the one named like the provider. It is looked for in the pool's
    namespace and then in the operator's."""


class StrategyWindow(ResourceModel):
    """A time window in which another strategy is in force."""

    strategy_ref: ObjectName
    """Name of the GPUSpotStrategy that is in force inside the window."""
    cron: Annotated[str, Field(min_length=9, max_length=128, pattern=r"^\S+( +\S+){4}$")]
    """Start of the window as a five-field cron expression, for example "0 8 * * 1-5"."""
    duration_minutes: Annotated[int, Field(ge=1, le=10_080)]
    """Length of the window in minutes, a week at most."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$")] = (
        "UTC"
    )
    """IANA time zone in which the cron expression is read, for example Asia/Shanghai."""


class InterruptStrategy(ResourceModel):
    """What happens when a cloud takes a machine back."""

    graceful_shutdown_seconds: Pause = 120
    """Seconds that workloads get to save and stop, at most; the cloud's own deadline comes first."""
    checkpoint_required: bool = True
    """Not in effect yet: whether to wait for the workload's word that its checkpoint is complete."""
    rebuild_on_interrupt: bool = True
    """Whether a replacement is bought at once instead of after the cool-down."""
    risk_policy: RiskPolicy = RiskPolicy.PREWARM
    """Not in effect yet: what a risk signal (a cloud's advice that a machine may soon be taken back) leads
    to: Prewarm buys a replacement ahead, Ignore only records it."""


class ScaleStrategy(ResourceModel):
    """How fast the pool follows its level."""

    scale_up_step: Step = 2
    """Instances ordered per decision, at most."""
    scale_down_step: Step = 1
    """Instances removed per decision, at most."""
    cooldown_seconds: Pause = 300
    """Seconds between two scaling decisions in the same direction."""
    rebuild_batch_size: Step = 2
    """Not in effect yet: lost instances that are replaced per batch."""
    rebuild_batch_interval_seconds: Pause = 10
    """Not in effect yet: seconds between two batches of replacements."""


class Timeouts(ResourceModel):
    """When a machine that does not come up counts as a failed launch."""

    pending_seconds: Seconds = 60
    """Seconds from the order until the cloud runs the machine."""
    join_seconds: Seconds = 900
    """Seconds from running until its Node has joined."""
    gpu_ready_seconds: Seconds = 600
    """Seconds from joining until all its GPUs are allocatable."""


class OnDemand(ResourceModel):
    """Whether on-demand machines may stand in when spot cannot be had."""

    fallback: bool = False
    """Not in effect yet: whether on-demand may be bought at all."""
    wait_for_spot_seconds: Pause = 300
    """Seconds that spot is tried before on-demand is bought."""
    max_instances: Instances | None = None
    """On-demand instances at the same time, at most; unset means up to the pool's maxInstances."""
    max_price_per_hour: Price | None = None
    """Ceiling for one on-demand instance-hour in the pool's currency; unset means none."""
    return_to_spot_after_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = 3600
    """Seconds after which an on-demand machine is replaced by spot if there is some."""


class BudgetLimit(ResourceModel):
    """One limit of money and what happens at it."""

    amount: Price
    """Limit in the pool's currency."""
    action: BudgetAction = BudgetAction.ALERT
    """What happens at the limit: Alert only tells, StopLaunches also buys nothing more."""


class Budget(ResourceModel):
    """Limits of money for the pool."""

    hourly: BudgetLimit | None = None
    """Limit for the sum of the hourly prices of all live instances."""
    monthly: BudgetLimit | None = None
    """Limit for the cost of a calendar month, UTC."""


class PriceReplacement(ResourceModel):
    """When a machine is replaced by a cheaper one."""

    enabled: bool = True
    """Not in effect yet: whether machines are replaced for their price at all."""
    over_price_minutes: Minutes = 10
    """Minutes that a machine is too dear before it is replaced."""
    min_saving_percent: Percent = 20
    """What the replacement must save, in percent of the current price."""
    max_per_day: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Price replacements within 24 hours, at most; unset means no limit."""
    min_node_life_minutes: Minutes = 60
    """Minutes that a machine must have lived before it is replaced for its price."""


class Spread(ResourceModel):
    """How much of the pool may stand in one place."""

    max_share_per_zone_percent: Share = 100
    """Not in effect yet: share of the pool in one zone, at most, in percent."""
    max_share_per_type_percent: Share = 100
    """Not in effect yet: share of the pool of one instance type, at most, in percent."""


class PoolSpec(ResourceModel):
    """A pool of GPU spot instances that is kept at its level."""

    min_instances: Instances
    """Instances that the pool keeps at least; not more than maxInstances."""
    max_instances: Instances
    """Instances that the pool has at most; ordered ones count."""
    gpu_types: Annotated[tuple[GpuTypeName, ...], Field(min_length=1, max_length=32)]
    """Accepted GPUs as MODEL-MEMORY, for example A100-40G; a bare model accepts any memory. Each one stands
    once."""
    max_price_per_hour: Price | None = None
    """Ceiling for one instance-hour in the pool's currency; unset means the on-demand price."""
    currency: Annotated[str, Field(min_length=3, max_length=3, pattern=r"^[A-Z]{3}$")] = "CNY"
    """Currency of every amount of this pool, as its ISO 4217 code."""
    providers: Annotated[tuple[ProviderChoice, ...], Field(min_length=1, max_length=8)]
    """Clouds that the pool may buy from, at least one; each one stands once."""
    strategy_ref: OptionalObjectName = ""
    """Name of a GPUSpotStrategy in the pool's namespace; unset means CostFirst with its defaults."""
    strategy_schedule: Annotated[tuple[StrategyWindow, ...], Field(max_length=32)] = ()
    """Not in effect yet: windows in which another strategy is in force; the first that matches wins."""
    interrupt_strategy: InterruptStrategy = Field(default_factory=InterruptStrategy)
    """What happens when a cloud takes a machine back."""
    scale_strategy: ScaleStrategy = Field(default_factory=ScaleStrategy)
    """How fast the pool follows its level."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """When a machine that does not come up counts as a failed launch, is ended and ordered anew."""
    on_demand: OnDemand = Field(default_factory=OnDemand)
    """Not in effect yet: whether on-demand machines may stand in when spot cannot be had."""
    budget: Budget = Field(default_factory=Budget)
    """Limits of money for the pool."""
    price_replacement: PriceReplacement = Field(default_factory=PriceReplacement)
    """Not in effect yet: when a machine is replaced by a cheaper one."""
    spread: Spread = Field(default_factory=Spread)
    """Not in effect yet: how much of the pool may stand in one place."""
    orphan_policy: OrphanPolicy | None = None
    """What the sweep does with a machine of this pool that no slot owns: Reclaim ends it, Report only tells.
    Unset means the operator's setting."""
    deletion_policy: DeletionPolicy = DeletionPolicy.DRAIN
    """What happens to the machines when the pool is deleted: Drain lets workloads leave first, Force ends
    them at once, Retain leaves them running and no longer ours."""
    paused: PauseScope = PauseScope.NONE
    """What is paused: Launches (nothing is bought), Disruptions (nothing is ended for price or level), All or
    None. Interruption handling never pauses."""

    @model_validator(mode="after")
    def _check_across_fields(self) -> Self:
        """Hold what the API server's rules hold, for a pool that was stored before they existed."""
        if self.min_instances > self.max_instances:
            raise ValueError(
                f"minInstances ({self.min_instances}) must not be greater than "
                f"maxInstances ({self.max_instances})"
            )
        if len(set(self.gpu_types)) < len(self.gpu_types):
            raise ValueError("gpuTypes must not name the same type twice")
        if len({choice.name for choice in self.providers}) < len(self.providers):
            raise ValueError("providers must not have two entries for the same name")
        return self
