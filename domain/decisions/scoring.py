"""Which offer a pool buys first: every offer is either ranked with its score, or excluded with a reason.

The order is total and depends on nothing but the arguments. For every mode it is, best first:

1. spot before on-demand;
2. offers whose price is known before those whose price is only bounded;
3. with a profile that prefers NVLink: machines that are one NVLink domain (or hold one GPU) before others;
4. the mode's own order:

   ==============================  ========================================================================
   CostFirst                       score, stability, price, inventory; score = 0.7 price + 0.3 inventory, and
                                   offers within the tolerance have the price part of the cheapest
   CostFirst, preferLowPrice off   score = inventory, then stability, price
   StableFirst                     calm and promising, calm, the rest; then score = stability, price,
                                   inventory
   Balance (and Adaptive for now)  score = costWeight price + stabilityWeight stability, then inventory,
                                   price
   ==============================  ========================================================================

5. the offer's key, which is unique.

A missing price is a state of its own: such a spot offer counts at the most that it can cost, which is the
on-demand price of the same machine in the same zone where one is known, and never more than the bid, which
is the pool's ceiling. Where neither bounds it, it is excluded. So it is bought last of all spot offers, and
before on-demand, which it can never exceed. Prices in another currency than the pool's are converted by the
rates that are given, which are not older than ``MAX_RATE_AGE``.

Parts go from 0 to 100. The price part is ``(max - price) / max * 100`` of one instance-hour, where max is
``maxPricePerHour``, or the dearest candidate when the pool has no ceiling.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from domain.contracts.model import Contract
from domain.contracts.money import ExchangeRate, PriceQuote
from domain.contracts.offers import CapacityType, Interconnect, Offer, ProviderName, Stock
from domain.contracts.pool_state import OfferHold
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import ProfileSpec, Topology
from domain.contracts.strategies import StrategyMode, StrategySpec
from domain.decisions.eligibility import accepts_gpu, memory_floor_gb, selects
from domain.decisions.holds import active_hold

FULL: Final = Decimal(100)
PRICE_SHARE: Final = Decimal("0.7")
INVENTORY_SHARE: Final = Decimal("0.3")

INVENTORY: Final[Mapping[Stock, Decimal]] = {
    Stock.AMPLE: Decimal(100),
    Stock.TIGHT: Decimal(50),
    Stock.SCARCE: Decimal(10),
    Stock.UNKNOWN: Decimal(50),
}
"""Inventory part by stock. Unknown counts as tight and is flagged; none is excluded before."""

CALM_FROM: Final = Decimal(50)
"""Stability from which an offer counts as having a low interruption rate."""

PROMISED_MINUTES: Final[Mapping[ProviderName, int]] = {ProviderName.ALIYUN: 60}
"""Minutes without a reclaim that a cloud promises for spot; clouds that promise nothing are absent.

Source: Alibaba Cloud ECS RunInstances, ``SpotDuration=1`` (the default): no reclaim in the first hour.
"""

MAX_RATE_AGE: Final = timedelta(days=7)
"""An exchange rate that is older converts nothing: yesterday's rate is near enough, last year's is not."""

SOURCE_LIST_PRICE: Final = "upper bound by the on-demand price"
SOURCE_CEILING: Final = "upper bound by the pool's ceiling"

ONE_DOMAIN: Final = frozenset({Interconnect.NVLINK, Interconnect.NVSWITCH, Interconnect.SINGLE})


class Exclusion(StrEnum):
    """Why an offer is not bought."""

    NOT_SELECTED = "NotSelected"
    GPU_TYPE_MISMATCH = "GpuTypeMismatch"
    MEMORY_TOO_SMALL = "MemoryTooSmall"
    ON_DEMAND_NOT_ALLOWED = "OnDemandNotAllowed"
    NO_STOCK = "NoStock"
    HELD = "Held"
    NO_PRICE = "NoPrice"
    CURRENCY_MISMATCH = "CurrencyMismatch"
    OVER_CEILING = "OverCeiling"


class RankedOffer(Contract):
    """An offer that may be bought, with what its place was judged by."""

    offer: Offer
    score: Decimal
    """What the mode's rule gave, 0 to 100; ties and leads are told by the module's text."""
    price_part: Decimal
    inventory_part: Decimal
    stability_part: Decimal
    stock_assumed: bool = False
    """The cloud states no stock; it was counted as tight."""
    price_assumed: bool = False
    """The cloud states no price; the offer carries the most that it can cost, and its source says so."""
    rate: ExchangeRate | None = None
    """How its price was converted; a bid at the cloud is the ceiling converted back."""
    topology_degraded: bool = False
    """A profile prefers NVLink and this machine is not one NVLink domain."""


class ExcludedOffer(Contract):
    """An offer that may not be bought, and why."""

    offer: Offer
    reason: Exclusion
    detail: str
    """One clause for a person, for example ``9.10 CNY is above maxPricePerHour 8.0``."""


class Ranking(Contract):
    """Every offer exactly once: ranked or excluded."""

    ranked: tuple[RankedOffer, ...] = ()
    """Best first."""
    excluded: tuple[ExcludedOffer, ...] = ()
    """Sorted by offer key."""
    notes: tuple[str, ...] = ()
    """What a person should know about how this was ranked."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The offers that may be bought, best first."""
        return tuple(entry.offer for entry in self.ranked)

    def rate_of(self, offer: Offer) -> ExchangeRate | None:
        """How a ranked offer's price was converted; None when it is sold in the pool's currency."""
        return next((entry.rate for entry in self.ranked if entry.offer.key == offer.key), None)

    @property
    def best(self) -> Offer | None:
        """The first choice, None when nothing may be bought."""
        return self.ranked[0].offer if self.ranked else None


@dataclass(frozen=True)
class _Rule:
    """What all offers of one ranking share."""

    strategy: StrategySpec
    highest: Decimal
    cheapest: Decimal
    prefers_nvlink: bool
    stability: Mapping[str, Decimal | int]


@dataclass(frozen=True)
class _Candidate:
    """An offer with its price in the pool's currency."""

    offer: Offer
    price: Decimal
    assumed: bool
    rate: ExchangeRate | None


OrderKey = tuple[bool, bool, bool, tuple[Decimal, ...], str]


def rank_offers(
    offers: Iterable[Offer],
    spec: PoolSpec,
    strategy: StrategySpec,
    profiles: Sequence[ProfileSpec] = (),
    *,
    holds: Sequence[OfferHold] = (),
    stability: Mapping[str, Decimal | int] | None = None,
    rates: Sequence[ExchangeRate] = (),
    now: datetime,
) -> Ranking:
    """Rank what may be bought and say why the rest may not.

    Args:
        offers: In any order, each key once. Offers that the pool does not select are excluded.
        spec: The pool: ceiling, currency, GPU types, providers.
        strategy: The strategy in force.
        profiles: Profiles bound to the pool: the largest ``minMemoryGB`` is a condition, one wish for
            NVLink puts such machines first.
        holds: Offers in which nothing is bought for now.
        stability: Offer key to 0 (was just taken back) .. 100 (nothing known against it); absent is 100.
        rates: Rates into the pool's currency; an offer in a currency without one is excluded.
        now: Decision time, UTC.

    Returns:
        Each offer once, either ranked or excluded. A ranked offer carries its price in the pool's currency.
    """
    excluded: list[ExcludedOffer] = []
    candidates: dict[str, _Candidate] = {}
    floor_gb = memory_floor_gb(profiles)
    told = sorted(offers, key=lambda offer: offer.key)
    market = _Market(spec, rates, now, told)
    for offer in told:
        verdict = _unfit(offer, spec, floor_gb) or _unavailable(offer, holds, now)
        judged = verdict or market.payable(offer)
        if isinstance(judged, _Candidate):
            candidates[offer.key] = judged
        else:
            excluded.append(ExcludedOffer(offer=offer, reason=judged[0], detail=judged[1]))
    known = [each.price for each in candidates.values() if not each.assumed]
    prices = known or [each.price for each in candidates.values()]
    rule = _rule(spec, strategy, profiles, stability or {}, prices)
    entries = [(_order(entry, price, rule), entry) for entry, price in _judged(candidates.values(), rule)]
    ranked = tuple(entry for _, entry in sorted(entries, key=lambda pair: pair[0]))
    return Ranking(ranked=ranked, excluded=tuple(excluded), notes=_notes(strategy, ranked))


def ceiling(spec: PoolSpec, capacity_type: CapacityType) -> Decimal | None:
    """The most that one instance-hour may cost; on-demand has its own ceiling, else the pool's."""
    if capacity_type == CapacityType.ON_DEMAND and spec.on_demand.max_price_per_hour is not None:
        return spec.on_demand.max_price_per_hour
    return spec.max_price_per_hour


def prefers_nvlink(profiles: Iterable[ProfileSpec]) -> bool:
    """Whether a bound profile wishes for NVLink. PCIe and Any are served by every machine."""
    return any(p.gpu_requirement.preferred_topology == Topology.NVLINK for p in profiles)


def _unfit(offer: Offer, spec: PoolSpec, floor_gb: int) -> tuple[Exclusion, str] | None:
    """What speaks against the machine itself."""
    instance_type = offer.instance_type
    if not selects(spec, offer):
        return Exclusion.NOT_SELECTED, "not among the pool's providers, regions, zones and instance types"
    if not accepts_gpu(spec.gpu_types, instance_type):
        return (
            Exclusion.GPU_TYPE_MISMATCH,
            f"{instance_type.gpu_type} is not among {', '.join(spec.gpu_types)}",
        )
    if instance_type.gpu_memory_gb < floor_gb:
        return (
            Exclusion.MEMORY_TOO_SMALL,
            f"{instance_type.gpu_memory_gb} GB a GPU, a profile needs {floor_gb}",
        )
    if offer.capacity_type == CapacityType.ON_DEMAND and not spec.on_demand.fallback:
        return Exclusion.ON_DEMAND_NOT_ALLOWED, "onDemand.fallback is false"
    return None


def _unavailable(offer: Offer, holds: Sequence[OfferHold], now: datetime) -> tuple[Exclusion, str] | None:
    """What speaks against asking for it now."""
    if offer.stock == Stock.NONE:
        return Exclusion.NO_STOCK, "the cloud says sold out"
    hold = active_hold(offer, holds, now)
    if hold is not None:
        return Exclusion.HELD, f"held until {hold.until.isoformat(timespec='seconds')}: {hold.reason}"
    return None


class _Market:
    """What offers cost in the pool's currency, and what bounds those without a price."""

    def __init__(
        self, spec: PoolSpec, rates: Sequence[ExchangeRate], now: datetime, offers: Iterable[Offer]
    ) -> None:
        self._spec = spec
        self._rates = {rate.base: rate for rate in rates if rate.quote == spec.currency}
        self._now = now
        self._listed = {
            _place(offer): price
            for offer in offers
            if offer.capacity_type == CapacityType.ON_DEMAND
            and (price := self._converted(offer.price)) is not None
        }

    def payable(self, offer: Offer) -> _Candidate | tuple[Exclusion, str]:
        """The offer with its price, or what speaks against it."""
        if offer.price is None or offer.price.per_hour <= 0:
            return self._bounded(offer)
        quote = self._converted(offer.price)
        if quote is None:
            return Exclusion.CURRENCY_MISMATCH, self._why_not(offer.price.currency)
        limit = ceiling(self._spec, offer.capacity_type)
        if limit is not None and quote.per_hour > limit:
            detail = f"{quote.per_hour} {self._spec.currency} is above the ceiling {limit}"
            return Exclusion.OVER_CEILING, detail
        rate = None if quote == offer.price else self._rates[offer.price.currency]
        priced = offer if rate is None else offer.model_copy(update={"price": quote})
        return _Candidate(priced, quote.per_hour, assumed=False, rate=rate)

    def _converted(self, price: PriceQuote | None) -> PriceQuote | None:
        """A price in the pool's currency; None when there is none or no rate for it."""
        if price is None or price.per_hour <= 0 or price.currency == self._spec.currency:
            return None if price is None or price.per_hour <= 0 else price
        rate = self._rate(price.currency)
        return None if rate is None else rate.convert(price)

    def _rate(self, currency: str) -> ExchangeRate | None:
        """The rate of a foreign currency that is young enough."""
        rate = self._rates.get(currency)
        return rate if rate is not None and self._now - rate.as_of <= MAX_RATE_AGE else None

    def _why_not(self, currency: str) -> str:
        told = f"priced in {currency}, the pool counts in {self._spec.currency}"
        rate = self._rates.get(currency)
        if rate is None:
            return f"{told}, and the operator has no rate of {currency}/{self._spec.currency}"
        return f"{told}, and the rate of {rate.as_of:%Y-%m-%d} is too old"

    def _bounded(self, offer: Offer) -> _Candidate | tuple[Exclusion, str]:
        """An offer without a price at the most that it can cost. A bid bounds spot, nothing on-demand."""
        if offer.capacity_type == CapacityType.ON_DEMAND:
            return Exclusion.NO_PRICE, "the cloud states no price, and on-demand takes no bid that bounds it"
        currency = offer.currency or self._spec.currency
        rate = self._rate(currency)
        if rate is None and currency != self._spec.currency:
            return Exclusion.CURRENCY_MISMATCH, self._why_not(currency)
        listed = self._listed.get(_place(offer)) or self._converted(offer.list_price)
        quote = self._bound(listed, ceiling(self._spec, offer.capacity_type))
        if quote is None:
            detail = "the cloud states no price, and neither a list price nor maxPricePerHour bounds it"
            return Exclusion.NO_PRICE, detail
        bounded = offer.model_copy(update={"price": quote})
        return _Candidate(bounded, quote.per_hour, assumed=True, rate=rate)

    def _bound(self, listed: PriceQuote | None, limit: Decimal | None) -> PriceQuote | None:
        """The lower of list price and bid; None when there is neither."""
        if listed is not None and (limit is None or listed.per_hour <= limit):
            return listed.model_copy(update={"source": f"{SOURCE_LIST_PRICE}: {listed.source}"})
        if limit is None:
            return None
        return PriceQuote(
            per_hour=limit, currency=self._spec.currency, as_of=self._now, source=SOURCE_CEILING
        )


def _place(offer: Offer) -> tuple[str, str, str, str]:
    """What an offer shares with its twin of the other capacity type."""
    return (offer.provider, offer.region, offer.zone, offer.instance_type.name)


def _rule(
    spec: PoolSpec,
    strategy: StrategySpec,
    profiles: Sequence[ProfileSpec],
    stability: Mapping[str, Decimal | int],
    prices: Sequence[Decimal],
) -> _Rule:
    dearest = max(prices, default=Decimal(0))
    return _Rule(
        strategy=strategy,
        highest=dearest if spec.max_price_per_hour is None else spec.max_price_per_hour,
        cheapest=min(prices, default=Decimal(0)),
        prefers_nvlink=prefers_nvlink(profiles),
        stability=stability,
    )


def _judged(candidates: Iterable[_Candidate], rule: _Rule) -> Iterable[tuple[RankedOffer, Decimal]]:
    for candidate in candidates:
        offer, price = candidate.offer, candidate.price
        price_part = _price_part(price, rule)
        inventory = INVENTORY[offer.stock]
        stability = _bounded(Decimal(rule.stability.get(offer.key, 100)))
        yield (
            RankedOffer(
                offer=offer,
                score=_score(rule.strategy, price_part, inventory, stability),
                price_part=price_part,
                inventory_part=inventory,
                stability_part=stability,
                stock_assumed=offer.stock == Stock.UNKNOWN,
                price_assumed=candidate.assumed,
                rate=candidate.rate,
                topology_degraded=rule.prefers_nvlink and offer.instance_type.interconnect not in ONE_DOMAIN,
            ),
            price,
        )


def _price_part(price: Decimal, rule: _Rule) -> Decimal:
    counted = price
    cost_first = rule.strategy.cost_first
    if rule.strategy.mode == StrategyMode.COST_FIRST:
        equally_cheap = rule.cheapest * (100 + cost_first.price_tolerance_percent) / 100
        counted = rule.cheapest if price <= equally_cheap else price
    return _bounded((rule.highest - counted) / rule.highest * 100)


def _score(strategy: StrategySpec, price: Decimal, inventory: Decimal, stability: Decimal) -> Decimal:
    match strategy.mode:
        case StrategyMode.COST_FIRST if strategy.cost_first.prefer_low_price:
            return PRICE_SHARE * price + INVENTORY_SHARE * inventory
        case StrategyMode.COST_FIRST:
            return inventory
        case StrategyMode.STABLE_FIRST:
            return stability
        case StrategyMode.BALANCE | StrategyMode.ADAPTIVE:
            # str() first: a weight that was written as 0.6 means six tenths exactly.
            cost_weight = Decimal(str(strategy.balance.cost_weight))
            return cost_weight * price + Decimal(str(strategy.balance.stability_weight)) * stability


def _order(entry: RankedOffer, price: Decimal, rule: _Rule) -> OrderKey:
    """Sort key, smallest first."""
    return (
        entry.offer.capacity_type == CapacityType.ON_DEMAND,
        entry.price_assumed,
        entry.topology_degraded,
        _mode_order(entry, price, rule.strategy),
        entry.offer.key,
    )


def _mode_order(entry: RankedOffer, price: Decimal, strategy: StrategySpec) -> tuple[Decimal, ...]:
    match strategy.mode:
        case StrategyMode.COST_FIRST:
            return (-entry.score, -entry.stability_part, price, -entry.inventory_part)
        case StrategyMode.STABLE_FIRST:
            return (_calm_tier(entry, strategy), -entry.score, price, -entry.inventory_part)
        case StrategyMode.BALANCE | StrategyMode.ADAPTIVE:
            return (-entry.score, -entry.inventory_part, price)


def _calm_tier(entry: RankedOffer, strategy: StrategySpec) -> Decimal:
    """0 leads (calm, and promising when that is wished for), 1 is calm, 2 was interrupted lately."""
    wishes = strategy.stable_first
    if wishes.avoid_high_interrupt_rate and entry.stability_part < CALM_FROM:
        return Decimal(2)
    if wishes.prefer_long_uptime and _promised_minutes(entry.offer) < wishes.min_stable_minutes:
        return Decimal(1)
    return Decimal(0)


def _promised_minutes(offer: Offer) -> float:
    if offer.capacity_type == CapacityType.ON_DEMAND:
        return float("inf")
    return PROMISED_MINUTES.get(offer.provider, 0)


def _notes(strategy: StrategySpec, ranked: Sequence[RankedOffer]) -> tuple[str, ...]:
    notes: list[str] = []
    if strategy.mode == StrategyMode.ADAPTIVE:
        notes.append("mode Adaptive is not built yet: ranked as Balance with the weights of spec.balance")
    assumed = [entry.offer.key for entry in ranked if entry.stock_assumed]
    if assumed:
        notes.append(f"stock unknown, counted as tight: {len(assumed)} offers, first {assumed[0]}")
    unpriced = [entry.offer.key for entry in ranked if entry.price_assumed]
    if unpriced:
        notes.append(
            f"price unknown, counted at its upper bound: {len(unpriced)} offers, first {unpriced[0]}"
        )
    if ranked and ranked[0].topology_degraded:
        notes.append("no machine with one NVLink domain can be had: a degraded topology leads")
    return tuple(notes)


def _bounded(part: Decimal) -> Decimal:
    return min(max(part, Decimal(0)), FULL)
