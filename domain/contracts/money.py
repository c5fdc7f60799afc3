"""Amounts of money: a ``Decimal`` that never loses its currency."""

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal

from pydantic import Field

from domain.contracts.model import AwareDatetime, Contract

CENT = Decimal("0.01")
BID_STEP = Decimal("0.000001")


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


class ExchangeRate(Contract):
    """What one unit of a currency is worth in another, by whose word and since when."""

    base: str
    """ISO 4217 code of the currency that is changed, for example USD."""
    quote: str
    """ISO 4217 code of the currency that comes out, for example CNY."""
    rate: Decimal = Field(gt=0)
    """Units of ``quote`` for one unit of ``base``."""
    as_of: AwareDatetime
    """When the source said so, UTC."""
    source: str
    """Who said so, for example ``operator setting``."""

    def convert(self, price: PriceQuote) -> PriceQuote:
        """A price in ``quote``; it keeps its own time and names the rate in its source. Nothing is rounded.

        Raises:
            ValueError: The price is in another currency than ``base``.
        """
        if price.currency != self.base:
            raise ValueError(f"a rate of {self.base} does not convert {price.currency}")
        rate = f"{self.rate} {self.quote}/{self.base} of {self.as_of:%Y-%m-%d} by {self.source}"
        return PriceQuote(
            per_hour=price.per_hour * self.rate,
            currency=self.quote,
            as_of=price.as_of,
            source=f"{price.source}, {rate}",
        )

    def back(self, amount: Decimal) -> Decimal:
        """An amount of ``quote`` in ``base``, rounded down: a bid never exceeds its ceiling."""
        return (amount / self.rate).quantize(BID_STEP, rounding=ROUND_DOWN)
