"""The price list on the wire: GetProducts of the Price List Query API, a JSON service beside EC2.

It is signed for a service of its own, served in a few regions for the whole partition, and refuses in words
of its own. A type has several products, so that only a question with every filter has one answer.
Source: the service model of pricing in botocore 1.44.8; products in the shape of the vendor's list. Not
documented are the texts of refusals, and what becomes of a field that is unknown: here it is refused.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from domain.contracts.catalogue import CATALOGUE
from domain.contracts.offers import ProviderName
from sandbox.clouds import aws_filters as filters
from sandbox.clouds import aws_signature as signature
from sandbox.clouds.aws_json import SIGNATURE_WORDS, Dialect, check_form
from sandbox.clouds.aws_offers import billed, bills_in
from sandbox.clouds.cloud import Call, VendorError, WireRequest
from sandbox.clouds.inventory import Account, Inventory
from sandbox.market import Market, Place

SERVICE: Final = "pricing"
HOMES: Final = frozenset({"ap-south-1", "cn-northwest-1", "eu-central-1", "us-east-1"})
"""Regions that serve the list."""
ACTION: Final = "GetProducts"
EC2: Final = "AmazonEC2"
FORMAT: Final = "aws_v1"
DIALECT: Final = Dialect(
    "AWSPriceListService.",
    {
        **SIGNATURE_WORDS,
        "RequestLimitExceeded": "ThrottlingException",
        "InternalError": "InternalErrorException",
        "InvalidNextToken": "InvalidNextTokenException",
    },
    frozenset({"InternalErrorException"}),
)

# System, tenancy, capacity and market of a product, and its price as a share of the usual one.
_VARIANTS: Final[Sequence[tuple[str, str, str, str, str]]] = (
    ("Linux", "Shared", "Used", "OnDemand", "1"),
    ("Linux", "Shared", "Used", "CapacityBlock", "0"),
    ("Linux", "Shared", "UnusedCapacityReservation", "OnDemand", "1"),
    ("Linux", "Shared", "AllocatedCapacityReservation", "OnDemand", "0"),
    ("Linux", "Dedicated", "Used", "OnDemand", "1.1"),
    ("Windows", "Shared", "Used", "OnDemand", "1.5"),
)


class _Part(BaseModel):
    """Fields in the vendor's spelling. An unknown name is an error, and so is a number as a text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_pascal)


class Condition(_Part):
    """A filter: the product's attribute has this value."""

    type: Literal["TERM_MATCH"]
    field: str = Field(min_length=1, max_length=1024)
    value: str = Field(min_length=1, max_length=1024)


class GetProducts(_Part):
    """Products that fulfil every filter."""

    service_code: str
    filters: tuple[Condition, ...] = Field(default=(), max_length=50)
    format_version: Literal["aws_v1"] = "aws_v1"
    next_token: str = ""
    max_results: int = Field(default=100, ge=1, le=100)


@dataclass(frozen=True)
class Product:
    """One entry of the list. ``amount`` is in ``currency`` an hour."""

    sku: str
    attributes: Mapping[str, str]
    amount: Decimal
    currency: str

    def text(self, now: datetime) -> str:
        """The entry as the vendor sends it; its price holds since the month began."""
        term = f"{self.sku}.JRTCKXETXF"
        rate: dict[str, object] = {
            "unit": "Hrs",
            "beginRange": "0",
            "endRange": "Inf",
            "rateCode": f"{term}.6YS6EN2CT7",
            "appliesTo": (),
            "pricePerUnit": {self.currency: f"{self.amount:.10f}"},
        }
        terms: dict[str, object] = {
            "sku": self.sku,
            "effectiveDate": f"{now:%Y-%m}-01T00:00:00Z",
            "offerTermCode": "JRTCKXETXF",
            "termAttributes": {},
            "priceDimensions": {f"{term}.6YS6EN2CT7": rate},
        }
        product = {
            "productFamily": "Compute Instance",
            "attributes": dict(self.attributes),
            "sku": self.sku,
        }
        return json.dumps({"product": product, "serviceCode": EC2, "terms": {"OnDemand": {term: terms}}})


def opened(request: WireRequest, account: Account, *, now: datetime) -> Call:
    """A verified question. Its region is one that serves the list, not the one whose prices are asked for.

    Raises:
        VendorError: in the vendor's words, or in those that its dialect translates.
    """
    scope = signature.verify(request, account, now=now, service=SERVICE)
    if scope.region not in HOMES:
        raise VendorError("UnrecognizedClientException", f"no price list is served in {scope.region}")
    check_form(request, known=DIALECT.action_of(request) == ACTION)
    try:
        wanted = GetProducts.model_validate_json(request.body)
    except ValidationError as exc:
        raise _refusal(exc) from exc
    parameters = wanted.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Call(ACTION, scope.region, scope.access_key_id, parameters, decoded=wanted)


def products(
    wanted: GetProducts, home: str, now: datetime, market: Market, inventory: Inventory
) -> dict[str, object]:
    """The answer's content: one page of what is sold in the partition of the region that serves the list.

    Raises:
        VendorError: another service, a field that products have not, a token from elsewhere.
    """
    if wanted.service_code != EC2:
        raise _invalid(f"The service code {wanted.service_code} is not known")
    listed = [product for region in inventory.zones for product in _sold(region, market, inventory)]
    partition = [each for each in listed if each.currency == bills_in(home)]
    chosen = [each for each in partition if all(_fulfils(each, one) for one in wanted.filters)]
    shown, token = filters.page(sorted(chosen, key=lambda each: each.sku), lambda each: each.sku, wanted)
    more = {"NextToken": token} if token else {}
    return {"FormatVersion": FORMAT, "PriceList": [each.text(now) for each in shown], **more}


def _sold(region: str, market: Market, inventory: Inventory) -> list[Product]:
    """Products of a region, whose zones all have the same price."""
    places = {
        row.name: Place(ProviderName.AWS, zone, row.name)
        for zone in inventory.zones[region]
        for row in CATALOGUE[ProviderName.AWS]
        if market.offered(Place(ProviderName.AWS, zone, row.name))
    }
    return [
        _product(region, place, variant, billed(market.on_demand_price(place), region))
        for place in places.values()
        for variant in _VARIANTS
    ]


def _product(region: str, place: Place, variant: tuple[str, str, str, str, str], price: Decimal) -> Product:
    system, tenancy, capacity, sale, share = variant
    attributes = {
        "servicecode": EC2,
        "regionCode": region,
        "instanceType": place.instance_type,
        "operatingSystem": system,
        "tenancy": tenancy,
        "capacitystatus": capacity,
        "marketoption": sale,
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "operation": "RunInstances",
    }
    name = "/".join((region, place.instance_type, *variant))
    sku = hashlib.sha256(name.encode()).hexdigest()[:16].upper()
    return Product(sku, attributes, price * Decimal(share), bills_in(region))


def _fulfils(product: Product, condition: Condition) -> bool:
    if condition.field == "ServiceCode":
        return condition.value == EC2
    if condition.field not in product.attributes:
        raise _invalid(f"{condition.field} is not an attribute of {EC2}")
    return product.attributes[condition.field] == condition.value


def _invalid(text: str) -> VendorError:
    return VendorError("InvalidParameterException", text)


def _refusal(fault: ValidationError) -> VendorError:
    first = fault.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return VendorError("SerializationException", "The body is no JSON.")
    name = ".".join(str(part) for part in first["loc"])
    return _invalid(f"Input Parameters are invalid. {name}: {first['msg']}")
