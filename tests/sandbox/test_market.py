from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from domain.contracts.catalogue import CATALOGUE, types_for
from domain.contracts.offers import ProviderName
from sandbox.market import Market, MarketModel, Place, Trace, UnknownTypeError

START = datetime(2026, 7, 1, tzinfo=UTC)
A100 = Place(ProviderName.TENCENT, "ap-guangzhou-3", "GT4.4XLARGE96")
OTHER_ZONE = A100._replace(zone="ap-guangzhou-6")
WEEK = [START + timedelta(hours=hours) for hours in range(0, 168, 3)]
TRACE = ["t_s,zone-a,zone-b", "0,3,0", "600,1,5", "1200,0,16"]


def test_market_is_the_same_for_a_seed_and_another_for_another():
    one = [MarketModel(1).spot_price(A100, at) for at in WEEK]
    assert one == [MarketModel(1).spot_price(A100, at) for at in WEEK]
    assert one != [MarketModel(2).spot_price(A100, at) for at in WEEK]
    assert one != [MarketModel(1).spot_price(OTHER_ZONE, at) for at in WEEK]
    assert len(set(one)) > 10


@pytest.mark.parametrize("seed", range(8))
def test_price_of_one_a100_stays_within_the_public_pools_limit(seed: int):
    model = MarketModel(seed)
    singles = [row for p in ProviderName for row in types_for(p, "A100") if row.gpu_count == 1]
    for row in singles:
        for at in WEEK:
            assert (
                Decimal("3.5") <= model.spot_price(Place(row.provider, "z", row.name), at) <= Decimal("7.5")
            )


def test_price_of_each_type_grows_with_its_gpus_and_stays_well_below_on_demand():
    model = MarketModel(3)
    for provider, rows in CATALOGUE.items():
        for row in rows:
            place = Place(provider, "z", row.name)
            for at in WEEK[::8]:
                ratio = model.on_demand_price(place) / model.spot_price(place, at)
                assert 4 <= ratio <= 10, (row.name, ratio)
    single, eight = (Place(ProviderName.TENCENT, "z", n) for n in ("GT4.4XLARGE96", "GT4.41XLARGE948"))
    assert model.spot_price(eight, START) > 6 * model.spot_price(single, START)


def test_stock_is_generous_unless_it_is_set():
    market = Market.seeded(5)
    assert min(market.capacity(A100, at) for at in WEEK) >= 100
    market.set_capacity(A100.provider, A100.zone, A100.instance_type, 2)
    assert market.capacity(A100, START) == 2
    assert market.capacity(OTHER_ZONE, START) > 2
    market.set_capacity(A100.provider, A100.zone, A100.instance_type, None)
    assert market.capacity(A100, START) > 2


def test_zone_override_replaces_those_of_its_types():
    market = Market.seeded(5)
    market.set_capacity(A100.provider, A100.zone, A100.instance_type, 9)
    market.run_out(A100.provider, A100.zone)
    assert market.capacity(A100, START) == 0
    market.set_capacity(A100.provider, A100.zone, A100.instance_type, 1)
    assert market.capacity(A100, START) == 1


def test_price_override_holds_until_it_is_taken_back():
    market = Market.seeded(5)
    before = market.spot_price(A100, START)
    market.set_price(A100.provider, A100.zone, None, Decimal(12))
    assert market.spot_price(A100, START) == Decimal(12)
    market.reset()
    assert market.spot_price(A100, START) == before


def test_withdrawn_type_is_not_offered_in_its_zone_only():
    market = Market.seeded(5)
    market.withdraw(A100.provider, A100.zone, A100.instance_type)
    assert not market.offered(A100)
    assert market.offered(OTHER_ZONE)


def test_trace_value_holds_until_the_next_sample():
    trace = Trace.parse(TRACE, "test")
    counts = [trace.count("zone-b", seconds) for seconds in (-5, 0, 599, 600, 1199, 1200, 10_000)]
    assert counts == [0, 0, 0, 5, 5, 16, 16]


def test_replayed_trace_is_the_capacity():
    market = Market.seeded(5)
    place = (A100.provider, A100.zone, None)
    market.replay(place, Trace.parse(TRACE, "test"), column="zone-a", start=START)
    assert [market.capacity(A100, START + timedelta(minutes=m)) for m in (0, 10, 20)] == [3, 1, 0]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["zone-a,zone-b", "1,2"], "t_s"),
        (["t_s,zone-a"], "no samples"),
        (["t_s,zone-a", "0"], "test:2"),
        (["t_s,zone-a", "0,1", "5,many"], "test:3"),
    ],
    ids=["no header", "no samples", "short line", "not a number"],
)
def test_trace_that_cannot_be_read_says_where(lines: list[str], named: str):
    with pytest.raises(ValueError, match=named):
        Trace.parse(lines, "test")


def test_unknown_column_and_unknown_type_are_named():
    with pytest.raises(ValueError, match="zone-c"):
        Market.seeded(1).replay(
            (A100.provider, A100.zone, None), Trace.parse(TRACE, "t"), column="zone-c", start=START
        )
    with pytest.raises(UnknownTypeError, match=r"S5\.SMALL1"):
        MarketModel(1).spot_price(A100._replace(instance_type="S5.SMALL1"), START)
