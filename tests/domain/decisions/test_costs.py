"""Costs: seconds, month ends, and sums that lose nothing."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.money import PriceQuote, to_cents
from domain.decisions.costs import (
    Bill,
    Ledger,
    close_bill,
    cost_between,
    cost_in_month,
    hourly_sum,
    month_bounds,
    month_of,
    month_total,
    turn_month,
)
from tests.domain.decisions.builders import NOON

EIGHT = Decimal("8.00")
MONTH_END = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("elapsed", "cost"),
    [
        (timedelta(hours=1), "8.00"),
        (timedelta(minutes=30), "4.00"),
        (timedelta(seconds=9), "0.02"),
        (timedelta(microseconds=450), "0.000001"),
        (timedelta(0), "0"),
        (timedelta(seconds=-5), "0"),
        (timedelta(days=31), "5952.00"),
    ],
)
def test_cost_between_is_the_price_by_the_time(elapsed: timedelta, cost: str) -> None:
    assert cost_between(EIGHT, NOON, NOON + elapsed) == Decimal(cost)


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        (MONTH_END - timedelta(microseconds=1), "2026-07"),
        (MONTH_END, "2026-08"),
        (datetime(2026, 8, 1, 7, tzinfo=timezone(timedelta(hours=8))), "2026-07"),
    ],
)
def test_month_of_is_the_month_in_utc(moment: datetime, month: str) -> None:
    assert month_of(moment) == month


@pytest.mark.parametrize(
    ("month", "start", "end"),
    [
        ("2026-07", (2026, 7, 1), (2026, 8, 1)),
        ("2026-12", (2026, 12, 1), (2027, 1, 1)),
        ("2028-02", (2028, 2, 1), (2028, 3, 1)),
    ],
)
def test_month_bounds_meet_the_next_month(
    month: str, start: tuple[int, int, int], end: tuple[int, int, int]
) -> None:
    assert month_bounds(month) == (datetime(*start, tzinfo=UTC), datetime(*end, tzinfo=UTC))


def test_cost_in_month_counts_only_the_part_in_the_month() -> None:
    bill = Bill(EIGHT, since=MONTH_END - timedelta(hours=1), until=MONTH_END + timedelta(hours=2))
    later = MONTH_END + timedelta(days=3)
    assert cost_in_month(bill, "2026-07", now=later) == Decimal("8.00")
    assert cost_in_month(bill, "2026-08", now=later) == Decimal("16.00")
    assert cost_in_month(bill, "2026-09", now=later) == 0


def test_month_total_starts_from_nothing_at_a_month_s_end() -> None:
    ledger = Ledger("2026-07", Decimal("100.00"))
    running = [Bill(EIGHT, since=MONTH_END - timedelta(hours=5))]
    assert month_total(ledger, running, now=MONTH_END - timedelta(hours=1)) == Decimal("132.00")
    assert month_total(ledger, running, now=MONTH_END + timedelta(hours=1)) == Decimal("8.00")


def test_close_bill_moves_a_cost_without_changing_the_total() -> None:
    ended = Bill(EIGHT, since=NOON - timedelta(hours=2), until=NOON)
    other = Bill(EIGHT, since=NOON - timedelta(hours=1))
    before = month_total(Ledger("2026-07"), [ended, other], now=NOON)
    assert month_total(close_bill(Ledger("2026-07"), ended, now=NOON), [other], now=NOON) == before == 24


def test_close_bill_in_the_next_month_adds_nothing_of_the_month_before() -> None:
    ended = Bill(EIGHT, since=MONTH_END - timedelta(hours=2), until=MONTH_END - timedelta(minutes=5))
    ledger = close_bill(Ledger("2026-07", Decimal(50)), ended, now=MONTH_END + timedelta(minutes=5))
    assert ledger == Ledger("2026-08", Decimal(0))


def test_turn_month_keeps_the_ledger_within_its_month() -> None:
    ledger = Ledger("2026-07", Decimal(5))
    assert turn_month(ledger, now=NOON) is ledger


def test_hourly_sum_leaves_out_what_has_no_price() -> None:
    quote = PriceQuote(per_hour=Decimal("2.35"), currency="CNY", as_of=NOON, source="test")
    assert hourly_sum([quote, None, quote]) == Decimal("4.70")
    assert hourly_sum([]) == 0


PRICES = st.decimals("0.001", "400", places=3)
SPANS = st.integers(0, 40 * 86400)


@given(price=PRICES, first=SPANS, second=SPANS)
def test_cost_between_adds_up_over_any_cut(price: Decimal, first: int, second: int) -> None:
    middle, end = NOON + timedelta(seconds=first), NOON + timedelta(seconds=first + second)
    parts = cost_between(price, NOON, middle) + cost_between(price, middle, end)
    assert abs(parts - cost_between(price, NOON, end)) < Decimal("1e-18")


@given(price=PRICES, before=SPANS, length=SPANS)
def test_cost_in_month_over_all_months_is_the_whole_cost(price: Decimal, before: int, length: int) -> None:
    since = NOON - timedelta(seconds=before)
    bill = Bill(price, since=since, until=since + timedelta(seconds=length))
    months = ("2026-05", "2026-06", "2026-07", "2026-08")
    total = sum((cost_in_month(bill, month, now=NOON) for month in months), Decimal(0))
    assert to_cents(total) == to_cents(cost_between(price, since, since + timedelta(seconds=length)))
