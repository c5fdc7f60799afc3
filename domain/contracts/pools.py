"""What a user wants of a pool: the spec of GPUSpotPool."""

from decimal import Decimal
from enum import StrEnum

from pydantic import Field

from domain.contracts.offers import ProviderName
from domain.contracts.resources import ResourceModel


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
    """Cloud: tencent, aliyun, huawei or aws. The operator may have only some enabled."""
    regions: tuple[str, ...] = ()
    """Regions to buy in; empty means every region that the operator serves."""
    zones: tuple[str, ...] = ()
    """Zones to buy in; empty means every zone of the regions."""
    instance_types: tuple[str, ...] = ()
    """Instance types to buy; empty means every catalogued type of the wanted GPUs."""
    node_class_ref: str = ""
    """Name of a GPUSpotNodeClass; by default the one named like the provider, in the pool's namespace
    and else in the operator's."""


class StrategyWindow(ResourceModel):
    """A time window in which another strategy is in force."""

    strategy_ref: str
    """Name of the GPUSpotStrategy that is in force inside the window."""
    cron: str
    """Start of the window as a five-field cron expression."""
    duration_minutes: int
    """Length of the window in minutes."""
    time_zone: str = "UTC"
    """IANA time zone in which the cron expression is read."""


class InterruptStrategy(ResourceModel):
    """What happens when a cloud takes a machine back."""

    graceful_shutdown_seconds: int = 120
    """Seconds that workloads get to save and stop, at most."""
    checkpoint_required: bool = True
    """Whether to wait for the workload's word that its checkpoint is complete."""
    rebuild_on_interrupt: bool = True
    """Whether a replacement is bought at once, not held by the cool-down."""
    risk_policy: RiskPolicy = RiskPolicy.PREWARM
    """What a risk signal leads to: Prewarm buys ahead, Ignore only records it."""


class ScaleStrategy(ResourceModel):
    """How fast the pool follows its water level."""

    scale_up_step: int = 2
    """Instances ordered per decision, at most."""
    scale_down_step: int = 1
    """Instances removed per decision, at most."""
    cooldown_seconds: int = 300
    """Seconds between two scaling decisions in the same direction."""
    rebuild_batch_size: int = 2
    """Lost instances that are replaced per batch."""
    rebuild_batch_interval_seconds: int = 10
    """Seconds between two batches."""


class Timeouts(ResourceModel):
    """When a machine that does not come up counts as a failed launch."""

    pending_seconds: int = 60
    """Seconds from the order until the cloud runs the machine."""
    join_seconds: int = 900
    """Seconds from running until its Node has joined."""
    gpu_ready_seconds: int = 600
    """Seconds from joining until all its GPUs are allocatable."""


class OnDemand(ResourceModel):
    """Whether on-demand machines may stand in when spot cannot be had."""

    fallback: bool = False
    """Whether on-demand may be bought at all."""
    wait_for_spot_seconds: int = 300
    """Seconds that spot is tried before on-demand is bought."""
    max_instances: int | None = None
    """On-demand instances at the same time, at most."""
    max_price_per_hour: Decimal | None = None
    """Ceiling for one on-demand instance-hour in the pool's currency."""
    return_to_spot_after_seconds: int = 3600
    """Seconds after which an on-demand machine is replaced by spot if there is some."""


class BudgetLimit(ResourceModel):
    """One limit of money and what happens at it."""

    amount: Decimal
    """Limit in the pool's currency, greater than zero."""
    action: BudgetAction = BudgetAction.ALERT
    """Alert only, or StopLaunches."""


class Budget(ResourceModel):
    """Limits of money for the pool."""

    hourly: BudgetLimit | None = None
    """Limit for the sum of the hourly prices of all live instances."""
    monthly: BudgetLimit | None = None
    """Limit for the cost of a calendar month, UTC."""


class PriceReplacement(ResourceModel):
    """When a machine is replaced by a cheaper one."""

    enabled: bool = True
    """Whether machines are replaced for their price at all."""
    over_price_minutes: int = 10
    """Minutes that a machine is too dear before it is replaced."""
    min_saving_percent: int = 20
    """What the replacement must save, in percent of the current price."""
    max_per_day: int | None = None
    """Price replacements within 24 hours, at most."""
    min_node_life_minutes: int = 60
    """Minutes that a machine must have lived."""


class Spread(ResourceModel):
    """How much of the pool may stand in one place."""

    max_share_per_zone_percent: int = 100
    """Share of the pool in one zone, at most, in percent."""
    max_share_per_type_percent: int = 100
    """Share of the pool of one instance type, at most, in percent."""


class PoolSpec(ResourceModel):
    """A pool of GPU spot instances that is kept at its level."""

    min_instances: int
    """Instances that the pool keeps at least."""
    max_instances: int
    """Instances that the pool has at most; ordered ones count."""
    gpu_types: tuple[str, ...]
    """Accepted GPUs as MODEL-MEMORY, for example A100-40G; a bare model accepts any memory."""
    max_price_per_hour: Decimal | None = None
    """Ceiling for one instance-hour in ``currency``."""
    currency: str = "CNY"
    """ISO 4217 code of every amount of this pool."""
    providers: tuple[ProviderChoice, ...]
    """Clouds that the pool may buy from."""
    strategy_ref: str = ""
    """Name of a GPUSpotStrategy in the pool's namespace; empty means CostFirst with its defaults."""
    strategy_schedule: tuple[StrategyWindow, ...] = ()
    """Windows in which another strategy is in force; the first that matches wins."""
    interrupt_strategy: InterruptStrategy = Field(default_factory=InterruptStrategy)
    """What happens when a cloud takes a machine back."""
    scale_strategy: ScaleStrategy = Field(default_factory=ScaleStrategy)
    """How fast the pool follows its water level."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """When a machine that does not come up counts as a failed launch."""
    on_demand: OnDemand = Field(default_factory=OnDemand)
    """Whether on-demand machines may stand in when spot cannot be had."""
    budget: Budget = Field(default_factory=Budget)
    """Limits of money for the pool."""
    price_replacement: PriceReplacement = Field(default_factory=PriceReplacement)
    """When a machine is replaced by a cheaper one."""
    spread: Spread = Field(default_factory=Spread)
    """How much of the pool may stand in one place."""
    orphan_policy: OrphanPolicy | None = None
    """Overrides the operator's setting for machines of this pool that no slot owns."""
    deletion_policy: DeletionPolicy = DeletionPolicy.DRAIN
    """What happens to the machines when the pool is deleted."""
    paused: PauseScope = PauseScope.NONE
    """What is paused: None, Launches, Disruptions or All."""
