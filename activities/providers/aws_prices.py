"""Prices of EC2: what to ask the price list, and what its answers and those of the spot history say.

Spot prices are EC2's own. On-demand prices stand in the Price List Query API, another service with endpoints
of its own in a few regions and one call for each type.
Source: the service model of pricing in botocore 1.44.8; products as the vendor's list has them, of which some
types have a second one for blocks of capacity, told apart by ``marketoption``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from activities.providers import aws_answers as answers
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.money import PriceQuote

CHINA: Final = "cn-"
"""How the names of the regions begin that bill in yuan."""
MAX_PRODUCTS: Final = 100
"""Products of one answer, the vendor's limit; the filters leave one."""
HOURS: Final = "Hrs"

# Linux on shared hardware, nothing installed, no reservation.
_PLAIN: Final[Mapping[str, str]] = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}

Place = tuple[str, str]
"""Zone and instance type."""
Quotes = Mapping[Place, PriceQuote | None]


def currency_of(region: str) -> str:
    """ISO 4217 code of what a region bills in."""
    return "CNY" if region.startswith(CHINA) else "USD"


def quote_from(amount: Decimal | None, currency: str, *, source: str, now: datetime) -> PriceQuote | None:
    """A price of this moment; a missing one or a zero is none."""
    if amount is None or amount <= 0:
        return None
    return PriceQuote(per_hour=amount, currency=currency, as_of=now, source=source)


def spot_quotes(changes: Iterable[answers.PriceChange], region: str, *, now: datetime) -> Quotes:
    """Where a type is sold to its spot price."""
    currency, source = currency_of(region), "DescribeSpotPriceHistory"
    return {
        place: quote_from(amount, currency, source=source, now=now)
        for place, amount in latest_prices(changes).items()
    }


def latest_prices(changes: Iterable[answers.PriceChange]) -> dict[Place, Decimal]:
    """Zone and type to the last price; the order of an answer does not matter."""
    ordered = sorted(changes, key=lambda change: change.timestamp)
    return {(change.availability_zone, change.instance_type): change.spot_price for change in ordered}


def list_quotes(
    ask: Callable[[Mapping[str, object]], answers.GetProducts],
    sold: Sequence[Place],
    region: str,
    clock: Callable[[], datetime],
) -> Quotes:
    """Where a type is sold to its on-demand price, which is that of the whole region. Nothing is kept here.

    Args:
        ask: Sends one GetProducts call with these parameters; called once a type.
        sold: What is sold where.
        region: The region of these zones.
        clock: The time, as of which an answer is a price.

    Raises:
        ProviderError: the list could not be read. One that refuses only leaves the price out.
    """
    # A local zone has a longer name than the region with one letter, and prices of its own.
    own = [(zone, name) for zone, name in sold if len(zone) == len(region) + 1]
    listed = {name: _list_quote(ask, name, region, clock) for name in sorted({name for _, name in own})}
    return {(zone, name): listed[name] for zone, name in own}


def _list_quote(
    ask: Callable[[Mapping[str, object]], answers.GetProducts],
    instance_type: str,
    region: str,
    clock: Callable[[], datetime],
) -> PriceQuote | None:
    try:
        answer = ask(question(instance_type, region))
    except ProviderError as fault:
        if fault.code in (ErrorCode.THROTTLED, ErrorCode.UNAVAILABLE):
            raise
        return None
    now, currency = clock(), currency_of(region)
    amount = listed_price(answer, instance_type, currency, now=now)
    return quote_from(amount, currency, source="GetProducts", now=now)


def question(instance_type: str, region: str) -> dict[str, object]:
    """Parameters of GetProducts for one type in one region."""
    wanted = {"instanceType": instance_type, "regionCode": region, **_PLAIN}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": wanted[name]} for name in wanted]
    return {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": MAX_PRODUCTS}


def listed_price(
    answer: answers.GetProducts, instance_type: str, currency: str, *, now: datetime
) -> Decimal | None:
    """The price of one hour; None unless it is the one price of the one product of a whole answer."""
    if answer.next_token or len(answer.price_list) != 1:
        return None
    (found,) = answer.price_list
    terms = [term for term in found.terms.on_demand.values() if term.effective_date <= now]
    rates = [rate for term in terms for rate in term.price_dimensions.values()]
    if found.product.attributes.instance_type != instance_type or len(rates) != 1:
        return None
    return rates[0].price_per_unit.get(currency) if rates[0].unit == HOURS else None
