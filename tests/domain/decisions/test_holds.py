"""Holds: how long each refusal closes which offers."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.errors import ErrorCode
from domain.contracts.instances import Refusal
from domain.contracts.offers import Offer
from domain.contracts.pool_state import OfferHold
from domain.contracts.settings import PoolSettings
from domain.decisions.fallback import next_offer
from domain.decisions.holds import (
    STRIKE_MEMORY,
    active_hold,
    covers,
    expire,
    family_prefix,
    hold_after,
    hold_for,
    is_held,
    offer_prefix,
    with_refusal,
    without_hold,
    zone_prefix,
)
from domain.decisions.scoring import rank_offers
from tests.domain.decisions.builders import NOON, a_pool, a_strategy, an_offer

SETTINGS = PoolSettings()
GUANGZHOU_3 = an_offer()
REFUSALS: dict[str, Refusal] = {
    "stock": Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="ResourcesSoldOut.AvailableZone"),
    "day": Refusal(
        code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="UnsupportedOperation.InvalidZone", not_offered=True
    ),
    "quota": Refusal(code=ErrorCode.QUOTA, vendor_code="LimitExceeded.SpotQuota"),
    "price": Refusal(code=ErrorCode.PRICE_TOO_LOW, vendor_code="InvalidParameterValue.InsufficientPrice"),
}


def seconds_of(hold: OfferHold) -> float:
    return (hold.until - NOON).total_seconds()


@pytest.mark.parametrize(
    ("refusal", "seconds", "reason"),
    [
        pytest.param("quota", 3600, "QuotaExceeded: LimitExceeded.SpotQuota", id="a quota an hour"),
        pytest.param("day", 86400, "NotOffered", id="what is not sold there a day"),
        pytest.param("price", 60, "PriceTooLow", id="a price below the market until the next round"),
    ],
)
def test_hold_after_closes_for_its_time(refusal: str, seconds: float, reason: str) -> None:
    hold = hold_after(REFUSALS[refusal], GUANGZHOU_3, None, SETTINGS, now=NOON)
    assert (seconds_of(hold), hold.reason) == (seconds, reason)


@pytest.mark.parametrize(("strike", "full"), [(1, 120), (2, 240), (3, 480), (5, 1920), (6, 3600), (40, 3600)])
def test_hold_after_doubles_with_each_strike_up_to_the_maximum(strike: int, full: float) -> None:
    hold: OfferHold | None = None
    for _ in range(strike):
        hold = hold_after(REFUSALS["stock"], GUANGZHOU_3, hold, SETTINGS, now=NOON)
    assert hold is not None
    assert 0.9 * full <= seconds_of(hold) <= full


def test_hold_after_starts_over_when_the_hold_before_was_of_another_kind() -> None:
    before = hold_after(REFUSALS["day"], GUANGZHOU_3, None, SETTINGS, now=NOON)
    assert hold_after(REFUSALS["stock"], GUANGZHOU_3, before, SETTINGS, now=NOON).strikes == 1


def test_hold_after_ends_differently_for_different_offers_and_equally_for_the_same() -> None:
    zones = [an_offer(zone=f"ap-guangzhou-{n}") for n in range(20)]
    ends = [hold_after(REFUSALS["stock"], zone, None, SETTINGS, now=NOON).until for zone in zones]
    assert len(set(ends)) > 10
    assert ends == [hold_after(REFUSALS["stock"], zone, None, SETTINGS, now=NOON).until for zone in zones]


@pytest.mark.parametrize(
    ("other", "held"),
    [
        pytest.param({}, True, id="the offer"),
        pytest.param({"zone": "ap-guangzhou-6"}, True, id="another zone of the region"),
        pytest.param({"type_name": "GT4.41XLARGE948"}, True, id="another size of the family"),
        pytest.param({"type_name": "GT40.4XLARGE96"}, False, id="a family with a longer name"),
        pytest.param({"region": "ap-shanghai", "zone": "ap-shanghai-5"}, False, id="another region"),
        pytest.param({"capacity_type": "on-demand"}, False, id="on-demand, which has its own quota"),
    ],
)
def test_p18_quota_closes_the_family_of_the_region(other: dict[str, Any], held: bool) -> None:
    hold = hold_after(REFUSALS["quota"], GUANGZHOU_3, None, SETTINGS, now=NOON)
    assert is_held(an_offer(**other), [hold], NOON) is held


def test_p18_quota_closes_spot_for_an_hour_and_leaves_on_demand_as_the_next_offer_of_the_round() -> None:
    spot = [GUANGZHOU_3, an_offer(zone="ap-guangzhou-6"), an_offer(type_name="GT4.41XLARGE948", gpus=8)]
    other = an_offer("30", capacity_type="on-demand")
    pool, strategy = a_pool(onDemand={"fallback": True}), a_strategy()
    holds = with_refusal((), REFUSALS["quota"], GUANGZHOU_3, SETTINGS, now=NOON)
    for minutes, left in ((0, [other]), (59, [other]), (60, [*spot, other])):
        now = NOON + timedelta(minutes=minutes)
        ranking = rank_offers([*spot, other], pool, strategy, holds=holds, now=now)
        assert {offer.key for offer in ranking.offers} == {offer.key for offer in left}, minutes
    ranking = rank_offers([*spot, other], pool, strategy, holds=holds, now=NOON)
    assert next_offer(ranking, GUANGZHOU_3, {GUANGZHOU_3.key}, strategy) == other


@pytest.mark.parametrize("kind", ["stock", "day", "price"])
def test_hold_after_anything_but_quota_closes_one_offer_only(kind: str) -> None:
    hold = hold_after(REFUSALS[kind], GUANGZHOU_3, None, SETTINGS, now=NOON)
    assert is_held(GUANGZHOU_3, [hold], NOON)
    assert not is_held(an_offer(zone="ap-guangzhou-6"), [hold], NOON)
    assert not is_held(an_offer(zone="ap-guangzhou-30"), [hold], NOON)


@pytest.mark.parametrize(
    ("type_name", "pattern"),
    [
        ("GT4.4XLARGE96", "GT4[.-]*"),
        ("ecs.gn7-c12g1.3xlarge", "ecs.gn7[.-]*"),
        ("ecs.ebmgn7.26xlarge", "ecs.ebmgn7[.-]*"),
        ("p4d.24xlarge", "p4d[.-]*"),
        ("odd", "odd"),
    ],
)
def test_family_prefix_cuts_the_type_at_its_first_separator(type_name: str, pattern: str) -> None:
    offer = an_offer(type_name=type_name)
    assert family_prefix(offer) == f"tencent/ap-guangzhou/*/{pattern}/spot"
    assert covers(family_prefix(offer), offer)


@pytest.mark.parametrize(
    ("prefix", "covered"),
    [
        ("tencent", True),
        ("tencent/", True),
        ("tencent/ap-guangzhou", True),
        (zone_prefix("tencent", "ap-guangzhou-3"), True),
        (zone_prefix("tencent", "ap-guangzhou-3", "ap-guangzhou"), True),
        (zone_prefix("tencent", "ap-guangzhou"), False),
        (zone_prefix("tencent", "ap-guangzhou-[1-9]"), False),
        (zone_prefix("tencent", "*"), False),
        ("aliyun", False),
        (f"{GUANGZHOU_3.key}/more", False),
    ],
)
def test_covers_compares_whole_segments(prefix: str, covered: bool) -> None:
    assert covers(prefix, GUANGZHOU_3) is covered


def test_active_hold_is_the_one_that_ends_last() -> None:
    short = OfferHold(prefix="tencent", until=NOON + timedelta(seconds=1), reason="a")
    long = OfferHold(prefix="tencent/ap-guangzhou", until=NOON + timedelta(seconds=2), reason="b")
    assert active_hold(GUANGZHOU_3, [long, short], NOON) == long
    assert active_hold(GUANGZHOU_3, [long, short], NOON + timedelta(seconds=2)) is None


def test_with_refusal_replaces_the_offer_s_hold_and_keeps_the_others() -> None:
    zone = OfferHold(prefix="aliyun", until=NOON + timedelta(hours=1), reason="quarantine")
    once = with_refusal((zone,), REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=NOON)
    twice = with_refusal(once, REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=NOON)
    assert [hold.prefix for hold in twice] == ["aliyun", offer_prefix(GUANGZHOU_3)]
    assert twice[1].strikes == 2


def test_with_refusal_doubles_when_the_hold_before_has_ended() -> None:
    once = with_refusal((), REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=NOON)
    later = once[0].until + timedelta(minutes=5)
    assert with_refusal(once, REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=later)[0].strikes == 2


def test_without_hold_forgets_strikes_after_a_success() -> None:
    zone = OfferHold(prefix="aliyun", until=NOON + timedelta(hours=1), reason="quarantine")
    held = with_refusal((zone,), REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=NOON)
    assert without_hold(held, GUANGZHOU_3) == (zone,)
    assert hold_for(GUANGZHOU_3, held) is not None
    assert hold_for(GUANGZHOU_3, (zone,)) is None


def test_expire_remembers_strikes_for_an_hour_after_the_end() -> None:
    holds = with_refusal((), REFUSALS["stock"], GUANGZHOU_3, SETTINGS, now=NOON)
    end = holds[0].until
    assert expire(holds, end + STRIKE_MEMORY - timedelta(seconds=1)) == holds
    assert expire(holds, end + STRIKE_MEMORY) == ()


OFFER_PLACES = st.builds(
    lambda zone, type_name, capacity: an_offer(zone=zone, type_name=type_name, capacity_type=capacity),
    st.sampled_from(["ap-guangzhou-3", "ap-guangzhou-6", "ap-guangzhou-30"]),
    st.sampled_from(["GT4.4XLARGE96", "GT4.41XLARGE948", "GN7.2XLARGE32"]),
    st.sampled_from(["spot", "on-demand"]),
)


@given(
    offers=st.lists(OFFER_PLACES, max_size=12), kinds=st.lists(st.sampled_from(sorted(REFUSALS)), max_size=12)
)
def test_with_refusal_always_holds_what_was_refused_last(offers: list[Offer], kinds: list[str]) -> None:
    holds: tuple[OfferHold, ...] = ()
    for offer, kind in zip(offers, kinds, strict=False):
        holds = with_refusal(holds, REFUSALS[kind], offer, SETTINGS, now=NOON)
        assert is_held(offer, holds, NOON)
        assert len({hold.prefix for hold in holds}) == len(holds)
