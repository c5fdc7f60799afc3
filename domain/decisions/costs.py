"""What machines cost: by the second from running to ending, by month, and for one hour.

Nothing is rounded here but by ``Decimal`` itself at its 28th digit; ``money.to_cents`` rounds totals for
people. Months are calendar months in UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

from domain.contracts.money import PriceQuote

MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS_PER_HOUR: Final = timedelta(hours=1) // MICROSECOND


@dataclass(frozen=True)
class Bill:
    """One machine's meter: its price and the time that the cloud charges for."""

    price_per_hour: Decimal
    since: datetime
    """When charging began, UTC."""
    until: datetime | None = None
    """When charging ended, UTC; None while it runs."""


@dataclass(frozen=True)
class Ledger:
    """What the machines that are gone have cost in one month."""

    month: str
    """``YYYY-MM``, UTC; empty before the first entry."""
    closed: Decimal = Decimal(0)


def cost_between(price_per_hour: Decimal, start: datetime, end: datetime) -> Decimal:
    """Cost of one machine from ``start`` to ``end``; nothing when ``end`` is not after ``start``."""
    elapsed = max(end - start, timedelta(0))
    return price_per_hour * (elapsed // MICROSECOND) / MICROSECONDS_PER_HOUR


def month_of(moment: datetime) -> str:
    """``YYYY-MM`` of a moment, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m}"


@lru_cache(maxsize=4)
def month_bounds(month: str) -> tuple[datetime, datetime]:
    """First moment of a month and of the next one, UTC.

    Raises:
        ValueError: ``month`` is not ``YYYY-MM``.
    """
    start = datetime.strptime(f"{month}-01", "%Y-%m-%d").replace(tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def cost_in_month(bill: Bill, month: str, *, now: datetime) -> Decimal:
    """What a machine has cost within one month, up to ``now``."""
    start, end = month_bounds(month)
    stop = now if bill.until is None else bill.until
    return cost_between(bill.price_per_hour, max(bill.since, start), min(stop, end))


def turn_month(ledger: Ledger, *, now: datetime) -> Ledger:
    """The ledger of the month of ``now``: the same one, or an empty one after a month's end."""
    month = month_of(now)
    return ledger if ledger.month == month else Ledger(month=month)


def close_bill(ledger: Ledger, bill: Bill, *, now: datetime) -> Ledger:
    """The ledger after a machine is gone: its cost within the month of ``now`` is added."""
    current = turn_month(ledger, now=now)
    return Ledger(current.month, current.closed + cost_in_month(bill, current.month, now=now))


def month_total(ledger: Ledger, running: Iterable[Bill], *, now: datetime) -> Decimal:
    """Cost of the month of ``now``: closed bills and what runs. Machines are never in both."""
    current = turn_month(ledger, now=now)
    return current.closed + sum((cost_in_month(bill, current.month, now=now) for bill in running), Decimal(0))


def hourly_sum(prices: Iterable[PriceQuote | None]) -> Decimal:
    """What the machines cost in one hour together; one without a known price adds nothing."""
    return sum((price.per_hour for price in prices if price is not None), Decimal(0))
