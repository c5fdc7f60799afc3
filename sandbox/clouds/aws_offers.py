"""What EC2 sells where and at which price: offerings by zone and the price history of spot instances.

The market counts in yuan; this cloud bills in US dollars, at one fixed rate, but in yuan in China. There is
no stock to read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Final

from domain.contracts.catalogue import CATALOGUE
from domain.contracts.offers import ProviderName
from sandbox.clouds import aws_filters as filters
from sandbox.clouds import aws_parameters as parameters
from sandbox.clouds.inventory import Inventory
from sandbox.market import Market, Place

CNY_PER_USD: Final = Decimal("7.2")
PRICE_HISTORY: Final = timedelta(hours=3)
"""How far back the history reaches when no start is asked for. The vendor has 90 days."""
PRICE_STEP: Final = timedelta(minutes=10)
LINUX: Final = "Linux/UNIX"

_Pair = tuple[str, str]
"""Zone (or region) and instance type."""


def usd(amount: Decimal) -> Decimal:
    """Yuan an hour in dollars with six decimals; rounded up, so that a bid of this much is enough."""
    return (amount / CNY_PER_USD).quantize(Decimal("0.000001"), rounding=ROUND_CEILING)


def bills_in(region: str) -> str:
    """The currency of a region."""
    return "CNY" if region.startswith("cn-") else "USD"


def billed(amount: Decimal, region: str) -> Decimal:
    """Yuan an hour in the currency of a region."""
    return usd(amount) if bills_in(region) == "USD" else amount


def in_yuan(amount: Decimal, region: str) -> Decimal:
    """An amount in the currency of a region in yuan."""
    return amount * CNY_PER_USD if bills_in(region) == "USD" else amount


@dataclass(frozen=True)
class Shelf:
    """What is sold in the zones of an account."""

    market: Market
    inventory: Inventory

    def offerings(self, wanted: parameters.DescribeInstanceTypeOfferings, region: str) -> dict[str, object]:
        """What is sold by zone or in the whole region, which says nothing of how much there is."""
        sold = self._sold(region)
        if wanted.location_type == "region":
            sold = [(region, name) for name in sorted({name for _, name in sold})]
        attributes: filters.Attributes[_Pair] = {
            "location": lambda pair: pair[:1],
            "instance-type": lambda pair: pair[1:],
        }
        seen = filters.chosen(sold, wanted.filter, attributes)
        shown, token = filters.page(seen, "/".join, wanted)
        offered = [
            {"instanceType": name, "locationType": wanted.location_type, "location": location}
            for location, name in shown
        ]
        return {"instanceTypeOfferingSet": offered, "nextToken": token}

    def prices(
        self, wanted: parameters.DescribeSpotPriceHistory, region: str, now: datetime
    ) -> dict[str, object]:
        """Prices between start and end, and the one that was valid at the start."""
        for name in wanted.instance_type:
            if all(row.name != name for row in CATALOGUE[ProviderName.AWS]):
                raise parameters.invalid("InstanceType", "no such instance type")
        attributes: filters.Attributes[_Pair] = {
            "availability-zone": lambda pair: pair[:1],
            "instance-type": lambda pair: pair[1:],
            "product-description": lambda _: (LINUX,),
        }
        changes = [
            self._change(zone, name, moment, region)
            for zone, name in filters.chosen(self._sold(region), wanted.filter, attributes)
            if name in (wanted.instance_type or (name,))
            and wanted.availability_zone in ("", zone)
            and LINUX in (wanted.product_description or (LINUX,))
            for moment in _moments(wanted.start_time, wanted.end_time, now)
        ]
        shown, token = filters.page(changes, _key, wanted)
        return {"spotPriceHistorySet": shown, "nextToken": token or ""}

    def _change(self, zone: str, instance_type: str, at: datetime, region: str) -> dict[str, object]:
        place = Place(ProviderName.AWS, zone, instance_type)
        return {
            "instanceType": instance_type,
            "productDescription": LINUX,
            "spotPrice": str(billed(self.market.spot_price(place, at), region)),
            "timestamp": at,
            "availabilityZone": zone,
        }

    def _sold(self, region: str) -> list[_Pair]:
        """Zone and type of everything that a region sells, sorted as texts with a slash between."""
        pairs = [
            (zone, row.name)
            for zone in self.inventory.zones[region]
            for row in CATALOGUE[ProviderName.AWS]
            if self.market.offered(Place(ProviderName.AWS, zone, row.name))
        ]
        return sorted(pairs, key="/".join)


def _moments(start: datetime | None, end: datetime | None, now: datetime) -> list[datetime]:
    """When prices changed between start and end, and the last change before the start; oldest first."""
    last = _step_of(min(end or now, now))
    moment = _step_of(min(start or now - PRICE_HISTORY, now))
    moments: list[datetime] = []
    while moment <= last:
        moments.append(moment)
        moment += PRICE_STEP
    return moments


def _step_of(moment: datetime) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (moment - midnight) // PRICE_STEP * PRICE_STEP


def _key(change: Mapping[str, object]) -> str:
    return f"{change['availabilityZone']}/{change['instanceType']}/{change['timestamp']}"
