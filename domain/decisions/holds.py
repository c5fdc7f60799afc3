"""Offers in which nothing is bought for now: how long, and which offers a hold covers.

The ``prefix`` of an ``OfferHold`` is read segment by segment, as ``provider/region/zone/type/capacity``:
each of its segments must match the offer's at the same place, where ``*`` and ``[...]`` mean what they
mean in a file name pattern. Fewer segments than an offer's key cover everything below. So
``tencent/ap-guangzhou/ap-guangzhou-3`` is that zone and never zone 30, and
``tencent/ap-guangzhou/*/GT4[.-]*/spot`` is the spot side of family GT4 in the whole region.
"""

import re
import zlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from domain.contracts.errors import ErrorCode
from domain.contracts.instances import Refusal
from domain.contracts.offers import Offer
from domain.contracts.pool_state import OfferHold
from domain.contracts.settings import PoolSettings

STRIKE_MEMORY: Final = timedelta(hours=1)
"""A hold that ended is remembered this long, so that the next refusal doubles instead of starting over."""

MAX_STRIKES: Final = 30
"""Enough to reach any maximum; bounds the power of two."""

MAX_SILENCE: Final = timedelta(minutes=5)
"""Longest rest of a region whose purchases fail, as of one whose lists do."""

JITTER_SHARE: Final = 0.1
"""Stock holds end up to this share early, so that pools that were refused together do not ask together."""

_REASON_CHARS: Final = 300

REASON_STOCK: Final = "InsufficientCapacity"
REASON_NOT_OFFERED: Final = "NotOffered"
REASON_QUOTA: Final = "QuotaExceeded"
REASON_PRICE: Final = "PriceTooLow"
REASON_UNANSWERED: Final = "Unanswered"


def hold_after(
    refusal: Refusal, offer: Offer, previous_hold: OfferHold | None, settings: PoolSettings, *, now: datetime
) -> OfferHold:
    """The hold that a refusal leads to.

    No stock holds that offer, doubling with each strike up to a maximum; a type that is not sold there
    holds the offer for a day; a quota holds the family in that region, this capacity type only; a price
    below the market holds the offer until the next round.

    Args:
        refusal: The market's answer.
        offer: What was refused.
        previous_hold: The hold that the same refusal made before, ended or not (``hold_for`` finds it).
        settings: Durations of the pool.
        now: When the refusal was seen, UTC.
    """
    if refusal.code == ErrorCode.QUOTA:
        seconds = settings.quota_cooldown_seconds
        return _hold(family_prefix(offer), seconds, 1, _quota_reason(refusal), now)
    if refusal.code == ErrorCode.PRICE_TOO_LOW:
        return _hold(offer_prefix(offer), settings.round_retry_seconds, 1, REASON_PRICE, now)
    if refusal.not_offered:
        return _hold(offer_prefix(offer), settings.not_offered_cooldown_seconds, 1, REASON_NOT_OFFERED, now)
    strikes = _next_strike(previous_hold, REASON_STOCK)
    full = min(settings.stock_cooldown_seconds * 2 ** (strikes - 1), settings.stock_cooldown_max_seconds)
    seconds = full * (1 - JITTER_SHARE * _fraction(f"{offer.key} {strikes} {now.isoformat()}"))
    return _hold(offer_prefix(offer), seconds, strikes, REASON_STOCK, now)


def with_silence(
    holds: tuple[OfferHold, ...], offer: Offer, error: str, settings: PoolSettings, *, now: datetime
) -> tuple[OfferHold, ...]:
    """The holds after a purchase whose every attempt failed and that made nothing.

    What fails is the cloud's call and not an offer, so the whole region rests, at first as long as an offer
    without stock would, doubling with each strike up to five minutes: the next purchase is the probe.
    """
    prefix = region_prefix(offer)
    strikes = _next_strike(next((h for h in holds if h.prefix == prefix), None), REASON_UNANSWERED)
    most = min(settings.stock_cooldown_max_seconds, MAX_SILENCE.total_seconds())
    seconds = min(settings.stock_cooldown_seconds * 2 ** (strikes - 1), most)
    hold = _hold(prefix, seconds, strikes, f"{REASON_UNANSWERED}: {error}"[:_REASON_CHARS], now)
    return (*(h for h in expire(holds, now) if h.prefix != prefix), hold)


def is_silent(holds: tuple[OfferHold, ...], offer: Offer, now: datetime) -> bool:
    """Whether the offer's region rests after a purchase that came to nothing."""
    prefix = region_prefix(offer)
    return any(h.prefix == prefix and h.until > now and h.reason.startswith(REASON_UNANSWERED) for h in holds)


def without_silence(holds: tuple[OfferHold, ...], offer: Offer) -> tuple[OfferHold, ...]:
    """The holds after a purchase in a region was answered: its silence is forgotten."""
    prefix = region_prefix(offer)
    return tuple(h for h in holds if h.prefix != prefix or not h.reason.startswith(REASON_UNANSWERED))


def with_refusal(
    holds: tuple[OfferHold, ...], refusal: Refusal, offer: Offer, settings: PoolSettings, *, now: datetime
) -> tuple[OfferHold, ...]:
    """The holds after one more refusal: the new one in place of its predecessor, ended ones dropped."""
    hold = hold_after(refusal, offer, hold_for(offer, holds), settings, now=now)
    return (*(h for h in expire(holds, now) if h.prefix != hold.prefix), hold)


def hold_for(offer: Offer, holds: Iterable[OfferHold]) -> OfferHold | None:
    """The hold on exactly this offer, ended or not; None when there is none."""
    prefix = offer_prefix(offer)
    return next((hold for hold in holds if hold.prefix == prefix), None)


def without_hold(holds: tuple[OfferHold, ...], offer: Offer) -> tuple[OfferHold, ...]:
    """The holds after a success with this offer: its own strikes are forgotten, other holds stay."""
    prefix = offer_prefix(offer)
    return tuple(hold for hold in holds if hold.prefix != prefix)


def is_held(offer: Offer, holds: Iterable[OfferHold], now: datetime) -> bool:
    """Whether nothing is to be bought of this offer at ``now``."""
    return active_hold(offer, holds, now) is not None


def active_hold(offer: Offer, holds: Iterable[OfferHold], now: datetime) -> OfferHold | None:
    """The hold that covers this offer and ends last; None when it is free. The end itself is free."""
    covering = [hold for hold in holds if hold.until > now and covers(hold.prefix, offer)]
    return max(covering, key=lambda hold: (hold.until, hold.prefix), default=None)


def covers(prefix: str, offer: Offer) -> bool:
    """Whether a hold with this prefix means this offer."""
    patterns = prefix.rstrip("/").split("/")
    segments = offer.key.split("/")
    return len(patterns) <= len(segments) and all(map(fnmatchcase, segments, patterns))


def expire(holds: Iterable[OfferHold], now: datetime) -> tuple[OfferHold, ...]:
    """The holds that still matter: those in force, and ended ones whose strikes are remembered."""
    return tuple(hold for hold in holds if now < hold.until + STRIKE_MEMORY)


def offer_prefix(offer: Offer) -> str:
    """Prefix that holds one offer."""
    return _literal(offer.key)


def region_prefix(offer: Offer) -> str:
    """Prefix that holds the offer's region."""
    return f"{_literal(offer.provider)}/{_literal(offer.region)}"


def zone_prefix(provider: str, zone: str, region: str = "") -> str:
    """Prefix that holds a zone; zone names are unique in a provider, so the region may be left out."""
    return f"{_literal(provider)}/{_literal(region) or '*'}/{_literal(zone)}"


def family_prefix(offer: Offer) -> str:
    """Prefix that holds the offer's instance family in its region, in the same capacity type.

    The family is what stands before the first separator: ``GT4`` of ``GT4.4XLARGE96``, ``ecs.gn7`` of
    ``ecs.gn7-c12g1.3xlarge`` (and not ``ecs.gn7e``), ``p4d`` of ``p4d.24xlarge``.
    """
    family, capacity = _family_pattern(offer.instance_type.name), _literal(offer.capacity_type)
    return f"{region_prefix(offer)}/*/{family}/{capacity}"


def _family_pattern(type_name: str) -> str:
    match = re.match(r"((?:ecs\.)?[^.-]+)[.-]", type_name)
    return f"{_literal(match.group(1))}[.-]*" if match else _literal(type_name)


def _quota_reason(refusal: Refusal) -> str:
    """The vendor's word, and the text that names the quota and its limit: adapters put the numbers first."""
    return f"{REASON_QUOTA}: {refusal.vendor_code} {refusal.message}".strip()[:_REASON_CHARS]


def _next_strike(previous: OfferHold | None, reason: str) -> int:
    if previous is None or not previous.reason.startswith(reason):
        return 1
    return min(previous.strikes + 1, MAX_STRIKES)


def _hold(prefix: str, seconds: float, strikes: int, reason: str, now: datetime) -> OfferHold:
    return OfferHold(prefix=prefix, until=now + timedelta(seconds=seconds), strikes=strikes, reason=reason)


def _fraction(text: str) -> float:
    """A number in [0, 1) that is the same for the same text: decisions roll no dice."""
    return zlib.crc32(text.encode()) / 2**32


def _literal(text: str) -> str:
    """The text as a pattern that matches only itself."""
    return re.sub(r"([*?\[])", r"[\1]", text)
