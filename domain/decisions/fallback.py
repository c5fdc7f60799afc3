"""The next offer to try after a refusal: one ladder, from the next door to another kind of machine."""

from collections.abc import Collection
from decimal import Decimal
from enum import IntEnum

from domain.contracts.offers import CapacityType, Offer
from domain.contracts.strategies import StrategySpec
from domain.decisions.scoring import RankedOffer, Ranking


class Rung(IntEnum):
    """Steps of the ladder, nearest first."""

    SAME_OFFER = 0
    """The same zone: another subnet, or one retry."""
    OTHER_ZONE = 1
    """Another zone of the region, same type."""
    OTHER_REGION = 2
    """Another region of the provider, same type."""
    OTHER_TYPE = 3
    """The next type by price with the same GPU model, at the same provider."""
    OTHER_PROVIDER = 4
    """Another provider, same GPU model."""
    OTHER_GPU = 5
    """Another GPU model that the pool accepts."""
    ON_DEMAND = 6
    """On-demand, when the pool allows it."""


def next_offer(
    ranking: Ranking,
    refused: Offer,
    tried: Collection[str],
    strategy: StrategySpec,
    *,
    retry_same_zone: bool = False,
) -> Offer | None:
    """The offer to try after ``refused``, None when the round has nothing left.

    A machine without a known price is taken only when no other spot machine is left on any rung, and of the
    others so is one with a degraded topology.

    Args:
        ranking: Of this round, made again with the holds that the refusal led to.
        refused: What was refused just now.
        tried: Keys of the offers that were refused for this slot in this round; never tried again.
        strategy: ``costFirst.fallbackOnInsufficient`` false leaves out other types and GPU models; it
            counts in every mode.
        retry_same_zone: True when the refused zone has a subnet that was not used, or was asked only
            once; then the refused offer itself comes first.
    """
    if retry_same_zone:
        return refused
    steps = [
        (_step(rung, entry, place), entry.offer)
        for place, entry in enumerate(ranking.ranked)
        if entry.offer.key != refused.key and entry.offer.key not in tried
        for rung in [rung_of(entry.offer, refused)]
        if _allowed(rung, entry.offer, refused, strategy)
    ]
    return min(steps, key=lambda step: step[0])[1] if steps else None


def _step(rung: Rung, entry: RankedOffer, place: int) -> tuple[bool, bool, bool, Rung, Decimal, int]:
    """Sort key, smallest first."""
    return (
        rung == Rung.ON_DEMAND,
        entry.price_assumed,
        entry.topology_degraded,
        rung,
        _price_on(rung, entry),
        place,
    )


def rung_of(offer: Offer, refused: Offer) -> Rung:
    """How far an offer is from the refused one. The GPU class is the GPU's model, of any memory."""
    if offer.capacity_type == CapacityType.ON_DEMAND and refused.capacity_type != CapacityType.ON_DEMAND:
        return Rung.ON_DEMAND
    if offer.instance_type.gpu_model != refused.instance_type.gpu_model:
        return Rung.OTHER_GPU
    if offer.provider != refused.provider:
        return Rung.OTHER_PROVIDER
    if offer.instance_type.name != refused.instance_type.name:
        return Rung.OTHER_TYPE
    if offer.region != refused.region:
        return Rung.OTHER_REGION
    return Rung.SAME_OFFER if offer.zone == refused.zone else Rung.OTHER_ZONE


def _allowed(rung: Rung, offer: Offer, refused: Offer, strategy: StrategySpec) -> bool:
    if strategy.cost_first.fallback_on_insufficient:
        return True
    if rung in (Rung.OTHER_TYPE, Rung.OTHER_GPU):
        return False
    # Type names never match across clouds: there the same machine is the same GPU, as many times.
    return rung in (Rung.OTHER_ZONE, Rung.OTHER_REGION) or _same_gpus(offer, refused)


def _same_gpus(offer: Offer, refused: Offer) -> bool:
    ours, theirs = offer.instance_type, refused.instance_type
    return (ours.gpu_type, ours.gpu_count) == (theirs.gpu_type, theirs.gpu_count)


def _price_on(rung: Rung, entry: RankedOffer) -> Decimal:
    """Price where the ladder goes by price; elsewhere the ranking's own order decides."""
    price = entry.offer.price
    return price.per_hour if rung == Rung.OTHER_TYPE and price is not None else Decimal(0)
