"""Rankings: boundary cases from tests/cases/scoring.toml, and what holds for every input."""

import tomllib
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.money import ExchangeRate, PriceQuote
from domain.contracts.offers import Offer
from domain.contracts.pool_state import OfferHold
from domain.contracts.profiles import ProfileSpec
from domain.contracts.strategies import StrategySpec
from domain.decisions.holds import offer_prefix
from domain.decisions.scoring import SOURCE_CEILING, Exclusion, Ranking, rank_offers
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


# A missing price, and prices in another currency


def prices_in(ranking: Ranking) -> list[tuple[str, Decimal | None, bool]]:
    """Zone, price and whether it was assumed, best first."""
    return [
        (e.offer.zone, e.offer.price.per_hour if e.offer.price else None, e.price_assumed)
        for e in ranking.ranked
    ]


def test_p45_offer_without_a_price_is_bought_under_the_cap_when_it_is_the_only_one() -> None:
    ranking = rank_offers([an_offer(None)], a_pool(maxPricePerHour="20"), a_strategy(), now=NOON)
    assert prices_in(ranking) == [("ap-guangzhou-3", Decimal(20), True)]
    assert ranking.best is not None
    assert ranking.best.price is not None
    assert ranking.best.price.source == SOURCE_CEILING
    assert "price unknown, counted at its upper bound: 1 offers" in ranking.notes[-1]


def test_p45_list_price_of_the_same_machine_is_the_upper_bound_when_it_is_known() -> None:
    listed = an_offer("12", capacity_type="on-demand")
    elsewhere = an_offer("2", capacity_type="on-demand", zone="ap-guangzhou-6")
    for cap, bound in ((None, "12"), ("20", "12"), ("9", "9")):
        fields = {} if cap is None else {"maxPricePerHour": cap}
        ranking = rank_offers([an_offer(None), listed, elsewhere], a_pool(**fields), a_strategy(), now=NOON)
        assert prices_in(ranking) == [("ap-guangzhou-3", Decimal(bound), True)]
        assert all(e.reason == Exclusion.ON_DEMAND_NOT_ALLOWED for e in ranking.excluded)


def test_p45_offer_without_a_price_comes_last_of_spot_and_before_on_demand() -> None:
    offers = [
        an_offer("19", zone="dear", stock="scarce"),
        an_offer(None, zone="unpriced"),
        an_offer("4", zone="unpriced", capacity_type="on-demand"),
    ]
    pool = a_pool(maxPricePerHour="20", onDemand={"fallback": True})
    ranking = rank_offers(offers, pool, a_strategy(), now=NOON)
    places = [(e.offer.zone, e.offer.capacity_type.value) for e in ranking.ranked]
    assert places == [("dear", "spot"), ("unpriced", "spot"), ("unpriced", "on-demand")]


@pytest.mark.parametrize(
    ("offer", "pool", "said"),
    [
        pytest.param(an_offer(None), {}, "neither a list price nor maxPricePerHour", id="nothing bounds it"),
        pytest.param(
            an_offer(None, capacity_type="on-demand"),
            {"maxPricePerHour": "20", "onDemand": {"fallback": True}},
            "takes no bid",
            id="on-demand has no bid",
        ),
    ],
)
def test_p45_offer_that_nothing_bounds_is_excluded_with_the_reason(
    offer: Offer, pool: dict[str, Any], said: str
) -> None:
    (excluded,) = rank_offers([offer], a_pool(**pool), a_strategy(), now=NOON).excluded
    assert excluded.reason == Exclusion.NO_PRICE
    assert said in excluded.detail


def a_rate(rate: str = "7.2", *, age_days: float = 1, base: str = "USD", quote: str = "CNY") -> ExchangeRate:
    as_of = NOON - timedelta(days=age_days)
    return ExchangeRate(base=base, quote=quote, rate=Decimal(rate), as_of=as_of, source="operator")


def test_p45_offer_without_a_price_that_is_billed_in_another_currency_needs_a_rate_too() -> None:
    offer = an_offer(None, zone="usd").model_copy(update={"currency": "USD"})
    pool = a_pool(maxPricePerHour="7.20")
    (excluded,) = rank_offers([offer], pool, a_strategy(), now=NOON).excluded
    assert excluded.reason == Exclusion.CURRENCY_MISMATCH
    (entry,) = rank_offers([offer], pool, a_strategy(), rates=[a_rate()], now=NOON).ranked
    assert entry.price_assumed
    assert entry.rate is not None
    assert entry.rate.back(Decimal("7.20")) == Decimal(1), "the bid goes to the cloud in its own currency"


def test_p45_offer_carries_its_own_list_price_as_bound() -> None:
    listed = PriceQuote(per_hour=Decimal(5), currency="CNY", as_of=NOON, source="list")
    offer = an_offer(None).model_copy(update={"list_price": listed})
    (entry,) = rank_offers([offer], a_pool(maxPricePerHour=None), a_strategy(), now=NOON).ranked
    assert entry.offer.price is not None
    assert (entry.offer.price.per_hour, entry.price_assumed) == (5, True)
    assert entry.offer.price.source == "upper bound by the on-demand price: list"


def test_offer_in_another_currency_is_converted_by_a_dated_rate_and_says_so() -> None:
    offers = [an_offer("1.00", zone="usd", currency="USD"), an_offer("7.00", zone="cny")]
    pool = a_pool(maxPricePerHour="7.20")
    ranking = rank_offers(offers, pool, a_strategy(), rates=[a_rate()], now=NOON)
    assert {zone: price for zone, price, _ in prices_in(ranking)} == {"cny": 7, "usd": Decimal("7.2")}
    entry = next(e for e in ranking.ranked if e.offer.zone == "usd")
    assert entry.rate is not None
    assert entry.rate.back(Decimal("7.20")) == Decimal(1)
    assert entry.offer.price is not None
    assert entry.offer.price.currency == "CNY"
    assert entry.offer.price.source == "test, 7.2 CNY/USD of 2026-06-30 by operator"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        pytest.param([], "priced in USD, the pool counts in CNY", id="no rate"),
        pytest.param([a_rate(age_days=7.01)], "the rate of 2026-06-24 is too old", id="old"),
        pytest.param([a_rate(base="EUR")], "priced in USD", id="of another currency"),
        pytest.param([a_rate(quote="EUR")], "priced in USD", id="into another currency"),
    ],
)
def test_offer_in_another_currency_is_excluded_without_a_rate_of_these_days(
    rates: list[ExchangeRate], said: str
) -> None:
    offers = [an_offer(currency="USD")]
    (excluded,) = rank_offers(offers, a_pool(), a_strategy(), rates=rates, now=NOON).excluded
    assert excluded.reason == Exclusion.CURRENCY_MISMATCH
    assert said in excluded.detail


def test_converted_offer_over_the_ceiling_is_excluded_in_the_pools_currency() -> None:
    offers, pool = [an_offer("2", currency="USD")], a_pool(maxPricePerHour="14")
    (excluded,) = rank_offers(offers, pool, a_strategy(), rates=[a_rate()], now=NOON).excluded
    assert excluded.reason == Exclusion.OVER_CEILING
    assert excluded.detail == "14.4 CNY is above the ceiling 14"


def test_list_price_in_another_currency_bounds_by_its_converted_amount() -> None:
    offers = [an_offer(None), an_offer("2", currency="USD", capacity_type="on-demand")]
    ranking = rank_offers(offers, a_pool(), a_strategy(), rates=[a_rate()], now=NOON)
    assert prices_in(ranking) == [("ap-guangzhou-3", Decimal("14.4"), True)]


def test_rate_converts_only_its_own_currency() -> None:
    price = an_offer("1").price
    assert price is not None
    with pytest.raises(ValueError, match="a rate of USD does not convert CNY"):
        a_rate().convert(price)


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
    leads = [(e.offer.capacity_type == "on-demand", e.price_assumed, e.topology_degraded) for e in ranked]
    assert leads == sorted(leads)


@given(offers=offers_at_hand(), strategy=STRATEGIES, ceiling=CEILINGS)
def test_rank_offers_orders_survivors_the_same_without_a_ranked_loser(
    offers: list[Offer], strategy: StrategySpec, ceiling: Decimal | None
) -> None:
    """Leaving out an excluded offer changes nothing for the others, but for a list price that bounds one."""
    ranking = ranking_of(offers, strategy, ceiling)
    ranked = {offer.key for offer in ranking.offers}
    fit = [offer for offer in offers if offer.key in ranked or offer.capacity_type == "on-demand"]
    assert ranking_of(fit, strategy, ceiling).ranked == ranking.ranked
