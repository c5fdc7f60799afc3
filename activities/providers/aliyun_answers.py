"""Shapes of the ECS answers that the adapter reads; lists arrive wrapped twice."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_pascal


def _text_or_none(value: object) -> object:
    return value or None


class _Answer(BaseModel):
    """Fields in the vendor's spelling; those that we do not read are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_pascal)


class InstanceIds(_Answer):
    """Inner list of ``InstanceIdSets``."""

    instance_id_set: tuple[str, ...] = ()


class RunInstances(_Answer):
    """Answer of RunInstances."""

    instance_id_sets: InstanceIds = Field(default_factory=InstanceIds)


class Lock(_Answer):
    """Why an instance is locked."""

    lock_reason: str = ""


class Locks(_Answer):
    """Inner list of ``OperationLocks``."""

    lock_reason: tuple[Lock, ...] = ()


class Tag(_Answer):
    """One tag."""

    tag_key: str
    tag_value: str = ""


class Tags(_Answer):
    """Inner list of ``Tags``."""

    tag: tuple[Tag, ...] = ()


class SeenInstance(_Answer):
    """One instance. Times have the precision of a minute."""

    instance_id: str = Field(min_length=1)
    status: str
    zone_id: str = ""
    instance_type: str = ""
    spot_strategy: str = ""
    creation_time: datetime
    auto_release_time: Annotated[datetime | None, BeforeValidator(_text_or_none)] = None
    """When the cloud ends it by itself, to the minute; None without a switch."""
    operation_locks: Locks = Field(default_factory=Locks)
    tags: Tags = Field(default_factory=Tags)


class SeenInstances(_Answer):
    """Inner list of ``Instances``."""

    instance: tuple[SeenInstance, ...]


class DescribeInstances(_Answer):
    """Answer of DescribeInstances. Without the list it is no answer: an empty one would mean no machines."""

    instances: SeenInstances
    next_token: str = ""


class SoldResource(_Answer):
    """One instance type in one zone."""

    value: str = ""
    status: str = ""
    status_category: str = ""


class SoldResources(_Answer):
    """Inner list of ``SupportedResources``."""

    supported_resource: tuple[SoldResource, ...] = ()


class ResourceKind(_Answer):
    """What a zone sells of one kind."""

    supported_resources: SoldResources = Field(default_factory=SoldResources)


class ResourceKinds(_Answer):
    """Inner list of ``AvailableResources``."""

    available_resource: tuple[ResourceKind, ...] = ()


class ZoneStock(_Answer):
    """What one zone sells."""

    zone_id: str
    available_resources: ResourceKinds = Field(default_factory=ResourceKinds)


class ZoneStocks(_Answer):
    """Inner list of ``AvailableZones``."""

    available_zone: tuple[ZoneStock, ...] = ()


class DescribeAvailableResource(_Answer):
    """Answer of DescribeAvailableResource."""

    available_zones: ZoneStocks = Field(default_factory=ZoneStocks)


class PriceChange(_Answer):
    """The price of a type in a zone from one moment on."""

    zone_id: str
    spot_price: Decimal | None = None
    origin_price: Decimal | None = None
    """Price without interruption."""
    timestamp: datetime


class PriceChanges(_Answer):
    """Inner list of ``SpotPrices``."""

    spot_price_type: tuple[PriceChange, ...] = ()


class DescribeSpotPriceHistory(_Answer):
    """Answer of DescribeSpotPriceHistory."""

    currency: str = ""
    next_offset: int = 0
    spot_prices: PriceChanges = Field(default_factory=PriceChanges)


class AttributeValue(_Answer):
    """A number of an attribute."""

    value: int
    zone_id: str = ""


class AttributeValues(_Answer):
    """Inner list of ``AttributeValues``."""

    value_item: tuple[AttributeValue, ...] = ()


class AccountAttribute(_Answer):
    """One limit, or what of it is used."""

    attribute_name: str
    attribute_values: AttributeValues


class AccountAttributes(_Answer):
    """Inner list of ``AccountAttributeItems``."""

    account_attribute_item: tuple[AccountAttribute, ...] = ()


class DescribeAccountAttributes(_Answer):
    """Answer of DescribeAccountAttributes; only attributes that are numbers are asked for."""

    account_attribute_items: AccountAttributes
