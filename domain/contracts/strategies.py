"""How offers are ranked: the spec of GPUSpotStrategy."""

from enum import StrEnum

from pydantic import Field

from domain.contracts.resources import ResourceModel


class StrategyMode(StrEnum):
    """Which rule ranks the offers."""

    COST_FIRST = "CostFirst"
    STABLE_FIRST = "StableFirst"
    BALANCE = "Balance"
    ADAPTIVE = "Adaptive"


class CostFirst(ResourceModel):
    """Settings of mode CostFirst."""

    prefer_low_price: bool = True
    """Whether price counts; false ranks by inventory alone."""
    price_tolerance_percent: int = 20
    """Offers within this many percent of the cheapest count as equally cheap."""
    fallback_on_insufficient: bool = True
    """Whether the next type of the same GPU class is tried when the best has no stock."""


class StableFirst(ResourceModel):
    """Settings of mode StableFirst."""

    prefer_long_uptime: bool = True
    """Whether offers that promise ``minStableMinutes`` lead."""
    avoid_high_interrupt_rate: bool = True
    """Whether offers with recent interruptions go to the end."""
    min_stable_minutes: int = 60
    """Minutes without a reclaim that an offer should promise."""


class Balance(ResourceModel):
    """Settings of mode Balance."""

    cost_weight: float = 0.6
    """Weight of the price part, 0 to 1."""
    stability_weight: float = 0.4
    """Weight of the stability part, 0 to 1."""


class StrategySpec(ResourceModel):
    """How a pool chooses among offers."""

    mode: StrategyMode = StrategyMode.COST_FIRST
    """CostFirst, StableFirst, Balance or Adaptive."""
    cost_first: CostFirst = Field(default_factory=CostFirst)
    """Settings of mode CostFirst."""
    stable_first: StableFirst = Field(default_factory=StableFirst)
    """Settings of mode StableFirst."""
    balance: Balance = Field(default_factory=Balance)
    """Settings of mode Balance."""
