"""The ladder after a refusal: cases from tests/cases/fallback.toml, and that it always ends."""

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.offers import Offer
from domain.contracts.pool_state import OfferHold
from domain.contracts.profiles import ProfileSpec
from domain.decisions.fallback import Rung, next_offer, rung_of
from domain.decisions.holds import offer_prefix
from domain.decisions.scoring import Ranking, rank_offers
from tests.domain.decisions.builders import NOON, a_pool, a_strategy, an_offer

CASES = tomllib.loads((Path(__file__).parents[2] / "cases" / "fallback.toml").read_text())["case"]
OFFERS: dict[str, Offer] = {
    "g3": an_offer("2.00"),
    "g6": an_offer("2.10", zone="ap-guangzhou-6"),
    "s5": an_offer("2.20", region="ap-shanghai", zone="ap-shanghai-5"),
    "g3x4": an_offer("6.40", type_name="GT4.20XLARGE474", gpus=4, interconnect="pcie"),
    "g3x8": an_offer("12.00", type_name="GT4.41XLARGE948", gpus=8, interconnect="nvlink"),
    "bj": an_offer(
        "1.90", provider="aliyun", region="cn-beijing", zone="cn-beijing-h", type_name="ecs.gn7-c12g1.3xlarge"
    ),
    "v100": an_offer("1.00", type_name="GN10Xp.2XLARGE40", gpu="V100-32G"),
    "od": an_offer("9.00", capacity_type="on-demand"),
}
NAMES = {offer.key: name for name, offer in OFFERS.items()}


def ranking_of(case: dict[str, Any]) -> Ranking:
    pool = a_pool(gpuTypes=["A100-40G", "V100-32G"], onDemand={"fallback": case.get("on_demand", True)})
    profile = ProfileSpec.model_validate(
        {"poolRef": "p", "gpuRequirement": {"preferredTopology": case.get("wish", "Any")}}
    )
    holds = [
        OfferHold(prefix=offer_prefix(OFFERS[name]), until=NOON + timedelta(minutes=2), reason="test")
        for name in case.get("held", [])
    ]
    return rank_offers(
        OFFERS.values(), pool, a_strategy(**case.get("strategy", {})), [profile], holds=holds, now=NOON
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_next_offer_climbs_the_ladder(case: dict[str, Any]) -> None:
    found = next_offer(
        ranking_of(case),
        OFFERS[case["refused"]],
        [OFFERS[name].key for name in case.get("tried", [])],
        a_strategy(**case.get("strategy", {})),
        retry_same_zone=case.get("retry_same_zone", False),
    )
    assert ("" if found is None else NAMES[found.key]) == case["next"]


@given(refused=st.sampled_from(sorted(OFFERS)), fallback=st.booleans(), on_demand=st.booleans())
def test_next_offer_tries_each_offer_at_most_once_and_ends(
    refused: str, fallback: bool, on_demand: bool
) -> None:
    case = {"strategy": {"costFirst": {"fallbackOnInsufficient": fallback}}, "on_demand": on_demand}
    ranking, strategy = ranking_of(case), a_strategy(**case["strategy"])
    tried: list[str] = []
    offer: Offer | None = OFFERS[refused]
    while offer is not None:
        assert offer.key not in tried
        tried.append(offer.key)
        offer = next_offer(ranking, offer, tried, strategy)
    assert len(tried) <= len(OFFERS)


def test_rung_of_the_same_zone_is_the_offer_itself() -> None:
    assert rung_of(OFFERS["g3"], OFFERS["g3"]) is Rung.SAME_OFFER


def test_rung_of_on_demand_after_on_demand_is_judged_by_place() -> None:
    other = an_offer("9.00", zone="ap-guangzhou-6", capacity_type="on-demand")
    assert rung_of(other, OFFERS["od"]) is Rung.OTHER_ZONE


def test_p45_machine_without_a_price_is_the_last_spot_machine_of_the_ladder() -> None:
    refused = an_offer()
    unpriced = an_offer(None, zone="ap-guangzhou-6")
    dear = an_offer("19", provider="aliyun", region="cn-beijing", zone="h", type_name="ecs.gn7-c12g1.3xlarge")
    pool, strategy = a_pool(maxPricePerHour="20"), a_strategy()
    ranking = rank_offers([refused, unpriced, dear], pool, strategy, now=NOON)
    first = next_offer(ranking, refused, {refused.key}, strategy)
    assert first == dear, "another cloud with a known price before the next zone without one"
    second = next_offer(ranking, dear, {refused.key, dear.key}, strategy)
    assert second is not None
    assert second.key == unpriced.key
