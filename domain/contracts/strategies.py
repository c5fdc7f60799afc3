"""How offers are ranked: the spec of GPUSpotStrategy."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from domain.contracts.resources import Minutes, ResourceModel, Weight


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
    price_tolerance_percent: Annotated[int, Field(ge=0, le=1000)] = 20
    """Offers within this many percent of the cheapest count as equally cheap."""
    fallback_on_insufficient: bool = True
    """Whether the next type of the same GPU class is tried when the best has no stock."""


class StableFirst(ResourceModel):
    """Settings of mode StableFirst."""

    prefer_long_uptime: bool = True
    """Whether offers that promise ``minStableMinutes`` lead."""
    avoid_high_interrupt_rate: bool = True
    """Not in effect yet: whether offers with recent interruptions go to the end."""
    min_stable_minutes: Minutes = 60
    """Minutes without a reclaim that an offer should promise."""


class Balance(ResourceModel):
    """Settings of mode Balance."""

    cost_weight: Weight = 0.6
    """Weight of the price part, 0 to 1; the two weights are not both zero."""
    stability_weight: Weight = 0.4
    """Weight of the stability part, 0 to 1. Not in effect yet: all offers count as equally stable."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        """Hold what the API server's rule holds."""
        if self.cost_weight + self.stability_weight <= 0:
            raise ValueError("costWeight and stabilityWeight must not both be zero")
        return self


class StrategySpec(ResourceModel):
    """How a pool chooses among offers."""

    mode: StrategyMode = StrategyMode.COST_FIRST
    """Rule that ranks the offers: CostFirst (cheapest), StableFirst (least interrupted), Balance (weighted)
    or Adaptive (lowest expected cost of a useful GPU-hour, interruptions counted). Not in effect yet:
    Adaptive, which ranks as Balance."""
    cost_first: CostFirst = Field(default_factory=CostFirst)
    """Settings of mode CostFirst."""
    stable_first: StableFirst = Field(default_factory=StableFirst)
    """Settings of mode StableFirst."""
    balance: Balance = Field(default_factory=Balance)
    """Settings of mode Balance."""
