"""Rankings: boundary cases from tests/cases/scoring.toml, and what holds for every input."""

import tomllib
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.offers import Offer
from domain.contracts.pool_state import OfferHold
from domain.contracts.profiles import ProfileSpec
from domain.contracts.strategies import StrategySpec
from domain.decisions.holds import offer_prefix
from domain.decisions.scoring import Exclusion, Ranking, rank_offers
from tests.domain.decisions.builders import NOON, a_pool, a_strategy, an_offer

CASES = tomllib.loads((Path(__file__).parents[2] / "cases" / "scoring.toml").read_text())["case"]


def offer_of(row: dict[str, Any]) -> Offer:
    return an_offer(**{**row, "price": None if row.get("price") == "none" else row.get("price", "8.00")})


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_rank_offers_gives_the_order_of_the_case(case: dict[str, Any]) -> None:
    offers = {name: offer_of(row) for name, row in case["offers"].items()}
    names = {offer.key: name for name, offer in offers.items()}
    ranking = rank_offers(
        offers.values(),
        a_pool(**case.get("pool", {})),
        a_strategy(**case.get("strategy", {})),
        [ProfileSpec.model_validate(profile) for profile in case.get("profiles", [])],
        stability={offers[name].key: value for name, value in case.get("stability", {}).items()},
        now=NOON,
    )
    assert [names[offer.key] for offer in ranking.offers] == case["order"]
    assert {names[e.offer.key]: e.reason.value for e in ranking.excluded} == case.get("excluded", {})
    scores = {names[entry.offer.key]: entry.score for entry in ranking.ranked}
    assert {name: scores[name] for name in case.get("scores", {})} == {
        name: Decimal(score) for name, score in case.get("scores", {}).items()
    }
    assert [names[e.offer.key] for e in ranking.ranked if e.stock_assumed] == case.get("assumed", [])
    assert [names[e.offer.key] for e in ranking.ranked if e.topology_degraded] == case.get("degraded", [])
    assert any(case.get("note", "") in note for note in (*ranking.notes, ""))


def test_rank_offers_names_the_end_and_the_reason_when_an_offer_is_held() -> None:
    offer = an_offer()
    hold = OfferHold(
        prefix=offer_prefix(offer), until=NOON + timedelta(minutes=2), reason="InsufficientCapacity"
    )
    ranking = rank_offers([offer], a_pool(), a_strategy(), holds=[hold], now=NOON)
    assert ranking.best is None
    assert ranking.excluded[0].reason == Exclusion.HELD
    assert ranking.excluded[0].detail == "held until 2026-07-01T12:02:00+00:00: InsufficientCapacity"


def test_rank_offers_frees_an_offer_at_the_end_of_its_hold() -> None:
    offer = an_offer()
    hold = OfferHold(prefix=offer_prefix(offer), until=NOON, reason="InsufficientCapacity")
    assert rank_offers([offer], a_pool(), a_strategy(), holds=[hold], now=NOON).best == offer


def test_rank_offers_says_so_when_only_a_degraded_topology_is_left() -> None:
    profile = ProfileSpec.model_validate({"poolRef": "p", "gpuRequirement": {"preferredTopology": "NVLink"}})
    ranking = rank_offers(
        [an_offer(interconnect="pcie", gpus=4)], a_pool(), a_strategy(), [profile], now=NOON
    )
    assert ranking.ranked[0].topology_degraded
    assert any("NVLink" in note for note in ranking.notes)


# Properties -------------------------------------------------------------------------------------------

PRICES = st.none() | st.decimals("0.01", "40", places=2).map(str)
STOCKS = st.sampled_from(["ample", "tight", "scarce", "none", "unknown"])
PLACES = st.sampled_from(
    [
        ("tencent", "ap-guangzhou", "ap-guangzhou-3", "GT4.4XLARGE96"),
        ("tencent", "ap-guangzhou", "ap-guangzhou-6", "GT4.20XLARGE474"),
        ("tencent", "ap-shanghai", "ap-shanghai-5", "GT4.4XLARGE96"),
        ("aliyun", "cn-beijing", "cn-beijing-h", "ecs.gn7-c12g1.3xlarge"),
        ("aliyun", "cn-beijing", "cn-beijing-g", "ecs.gn7-c12g1.3xlarge"),
        ("aliyun", "cn-shenzhen", "cn-shenzhen-e", "ecs.ebmgn7.26xlarge"),
        ("huawei", "cn-north-4", "cn-north-4a", "p2s.2xlarge.8"),
    ]
)


@st.composite
def offers_at_hand(draw: st.DrawFn) -> list[Offer]:
    rows = draw(
        st.lists(
            st.tuples(
                PLACES,
                PRICES,
                STOCKS,
                st.sampled_from(["spot", "on-demand"]),
                st.sampled_from(["CNY", "CNY", "USD"]),
                st.sampled_from(["single", "pcie", "nvlink"]),
            ),
            max_size=12,
            unique_by=lambda row: (row[0], row[3]),
        )
    )
    return [
        an_offer(
            price,
            provider=place[0],
            region=place[1],
            zone=place[2],
            type_name=place[3],
            stock=stock,
            capacity_type=capacity,
            currency=currency,
            interconnect=interconnect,
        )
        for place, price, stock, capacity, currency, interconnect in rows
    ]


STRATEGIES = st.builds(
    lambda mode, tolerance, low, long, calm: a_strategy(
        mode=mode,
        costFirst={"preferLowPrice": low, "priceTolerancePercent": tolerance},
        stableFirst={"preferLongUptime": long, "avoidHighInterruptRate": calm},
    ),
    st.sampled_from(["CostFirst", "StableFirst", "Balance", "Adaptive"]),
    st.integers(0, 100),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
CEILINGS = st.none() | st.decimals("0.01", "40", places=2)
WISHES = st.sampled_from(["NVLink", "PCIe", "Any"])


def ranking_of(
    offers: list[Offer],
    strategy: StrategySpec,
    ceiling: Decimal | None,
    *,
    wish: str = "Any",
    stability: dict[str, int] | None = None,
) -> Ranking:
    fields: dict[str, Any] = {"onDemand": {"fallback": True}}
    if ceiling is not None:
        fields["maxPricePerHour"] = ceiling
    profile = ProfileSpec.model_validate({"poolRef": "p", "gpuRequirement": {"preferredTopology": wish}})
    return rank_offers(offers, a_pool(**fields), strategy, [profile], stability=stability, now=NOON)


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS, wish=WISHES, random=st.randoms())
def test_rank_offers_does_not_depend_on_the_order_of_its_input(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None, wish: str, random: Any
) -> None:
    stability = {offer.key: random.randrange(101) for offer in offers}
    shuffled = random.sample(offers, len(offers))
    first = ranking_of(offers, strategy, ceiling, wish=wish, stability=stability)
    assert ranking_of(shuffled, strategy, ceiling, wish=wish, stability=stability) == first


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS)
def test_rank_offers_places_each_offer_exactly_once(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None
) -> None:
    ranking = ranking_of(offers, strategy, ceiling)
    placed = [offer.key for offer in ranking.offers] + [entry.offer.key for entry in ranking.excluded]
    assert sorted(placed) == sorted(offer.key for offer in offers)


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS, wish=WISHES)
def test_rank_offers_never_ranks_what_may_not_be_bought(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None, wish: str
) -> None:
    for offer in ranking_of(offers, strategy, ceiling, wish=wish).offers:
        assert offer.price is not None
        assert ceiling is None or offer.price.per_hour <= ceiling
        assert offer.price.currency == "CNY"
        assert offer.stock != "none"
        assert offer.provider in ("tencent", "aliyun")


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS, wish=WISHES)
def test_rank_offers_keeps_every_part_within_0_and_100(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None, wish: str
) -> None:
    for entry in ranking_of(offers, strategy, ceiling, wish=wish).ranked:
        for part in (entry.price_part, entry.inventory_part, entry.stability_part, entry.score):
            assert 0 <= part <= 100


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS)
def test_rank_offers_puts_spot_before_on_demand_and_whole_domains_before_the_rest(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None
) -> None:
    ranked = ranking_of(offers, strategy, ceiling, wish="NVLink").ranked
    leads = [(e.offer.capacity_type == "on-demand", e.topology_degraded) for e in ranked]
    assert leads == sorted(leads)


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS)
def test_rank_offers_orders_survivors_the_same_without_a_ranked_loser(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None
) -> None:
    """Leaving out an excluded offer changes nothing for the others."""
    ranking = ranking_of(offers, strategy, ceiling)
    fit = [offer for offer in offers if offer in ranking.offers]
    assert ranking_of(fit, strategy, ceiling).ranked == ranking.ranked
