"""Amounts of money: a ``Decimal`` that never loses its currency."""

from decimal import ROUND_HALF_EVEN, Decimal

from domain.contracts.model import AwareDatetime, Contract

CENT = Decimal("0.01")


def to_cents(amount: Decimal) -> Decimal:
    """Round half to even at the cent; only totals are rounded, never the parts they are made of."""
    return amount.quantize(CENT, rounding=ROUND_HALF_EVEN)


class PriceQuote(Contract):
    """What one instance-hour costs, by whose word and since when."""

    per_hour: Decimal
    """Price of one instance for one hour in ``currency``, greater than zero."""
    currency: str
    """ISO 4217 code, for example CNY."""
    as_of: AwareDatetime
    """When the source said so, UTC."""
    source: str
    """The API operation that answered, for example ``DescribeSpotPriceHistory``."""
