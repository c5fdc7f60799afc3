"""Shapes of the answers of EC2 and its price list that the adapter reads, as boto3 gives them.

A list that is missing from an answer makes it unreadable: an empty one would mean that there are none.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, Json
from pydantic.alias_generators import to_camel, to_pascal


class _Answer(BaseModel):
    """Fields in the vendor's spelling; those that we do not read are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_pascal)


class Page(_Answer):
    """One page of a reading; with a token another follows, even when this one is empty."""

    next_token: str = ""


class Placement(_Answer):
    """Where a machine runs."""

    availability_zone: str


class State(_Answer):
    """State of a machine."""

    name: str


class StateReason(_Answer):
    """Why a machine ends or ended."""

    code: str = ""


class Tag(_Answer):
    """One tag."""

    key: str
    value: str = ""


class SeenInstance(_Answer):
    """One machine."""

    instance_id: str = Field(min_length=1)
    instance_type: str
    instance_lifecycle: str = ""
    """``spot``, or absent for on-demand."""
    state: State
    state_reason: StateReason = Field(default_factory=StateReason)
    launch_time: datetime
    placement: Placement
    tags: tuple[Tag, ...] = ()


class LaunchedInstance(_Answer):
    """One machine of a RunInstances answer."""

    instance_id: str = Field(min_length=1)
    placement: Placement


class RunInstances(_Answer):
    """Answer of RunInstances."""

    instances: tuple[LaunchedInstance, ...]


class Reservation(_Answer):
    """Machines that were bought by one call."""

    instances: tuple[SeenInstance, ...]


class DescribeInstances(Page):
    """One page of machines."""

    reservations: tuple[Reservation, ...]


class SpotStatus(_Answer):
    """What became of a spot request."""

    code: str


class SpotRequest(_Answer):
    """The request behind a spot machine."""

    instance_id: str = ""
    status: SpotStatus


class DescribeSpotInstanceRequests(Page):
    """One page of spot requests."""

    spot_instance_requests: tuple[SpotRequest, ...]


class EndingInstance(_Answer):
    """A machine that a TerminateInstances call named."""

    instance_id: str


class TerminateInstances(_Answer):
    """Answer of TerminateInstances."""

    terminating_instances: tuple[EndingInstance, ...]


class Offering(_Answer):
    """A type that is sold in a zone."""

    instance_type: str
    location: str


class DescribeInstanceTypeOfferings(Page):
    """One page of offerings."""

    instance_type_offerings: tuple[Offering, ...]


class PriceChange(_Answer):
    """The spot price of a type in a zone from one moment on, an hour in the region's currency."""

    availability_zone: str
    instance_type: str
    spot_price: Decimal
    timestamp: datetime


class DescribeSpotPriceHistory(Page):
    """One page of price changes."""

    spot_price_history: tuple[PriceChange, ...]


class _Listed(BaseModel):
    """Fields of the price list, which is spelled in another way than the answers of EC2."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class Rate(_Listed):
    """What one unit costs."""

    unit: str
    """For example ``Hrs``."""
    price_per_unit: Mapping[str, Decimal]
    """Currency to amount."""


class Term(_Listed):
    """Rates that hold from one moment on."""

    effective_date: AwareDatetime
    price_dimensions: Mapping[str, Rate]


class Terms(_Listed):
    """How a product is sold."""

    on_demand: Mapping[str, Term] = Field(default_factory=dict[str, Term], alias="OnDemand")


class Attributes(_Listed):
    """What a product is."""

    instance_type: str = ""


class ListedProduct(_Listed):
    """What is sold."""

    attributes: Attributes


class PricedProduct(_Listed):
    """One entry of the price list."""

    product: ListedProduct
    terms: Terms


class GetProducts(Page):
    """One page of the price list: each entry is a text of JSON."""

    price_list: tuple[Json[PricedProduct], ...]


class Image(_Answer):
    """An image."""

    image_id: str
    root_device_name: str = ""


class DescribeImages(_Answer):
    """Answer of DescribeImages."""

    images: tuple[Image, ...]


class Volume(_Answer):
    """A disk."""

    volume_id: str = Field(min_length=1)
    size: int | None = None
    create_time: datetime | None = None
    tags: tuple[Tag, ...] = ()


class DescribeVolumes(Page):
    """One page of disks."""

    volumes: tuple[Volume, ...]


class Address(_Answer):
    """An elastic address."""

    allocation_id: str = Field(min_length=1)
    public_ip: str = ""
    association_id: str = ""
    """Empty when it is attached to nothing."""
    tags: tuple[Tag, ...] = ()


class DescribeAddresses(_Answer):
    """Answer of DescribeAddresses, which has no pages."""

    addresses: tuple[Address, ...]


class ServiceQuota(_Answer):
    """One limit; it has no use beside it."""

    value: float


class GetServiceQuota(_Answer):
    """Answer of GetServiceQuota, of the Service Quotas API."""

    quota: ServiceQuota
