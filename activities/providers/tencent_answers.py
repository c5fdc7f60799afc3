"""Shapes of the CVM and tag answers that the adapter reads."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_pascal


def _none_is_empty(value: object) -> object:
    return () if value is None else value


def _exact(value: object) -> object:
    """Prices arrive as JSON numbers; by way of their text they keep the digits that were sent."""
    return str(value) if isinstance(value, float) else value


Price = Annotated[Decimal | None, BeforeValidator(_exact)]


class _Answer(BaseModel):
    """Fields in the vendor's spelling; those that we do not read are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_pascal)


class RunInstances(_Answer):
    """Answer of RunInstances."""

    instance_id_set: Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)] = ()


class Placement(_Answer):
    """Where a machine runs."""

    zone: str


class Tag(_Answer):
    """One tag of a machine."""

    key: str
    value: str


class SeenInstance(_Answer):
    """One machine of a DescribeInstances answer."""

    instance_id: str
    instance_type: str
    instance_charge_type: str
    instance_state: str
    restrict_state: str = "NORMAL"
    created_time: datetime
    placement: Placement
    tags: Annotated[tuple[Tag, ...], BeforeValidator(_none_is_empty)] = ()


class DescribeInstances(_Answer):
    """Answer of DescribeInstances: one page, and how many machines there are in all."""

    total_count: int
    instance_set: tuple[SeenInstance, ...]


class SeenTimer(_Answer):
    """One timer of a machine."""

    action_timer_id: str
    instance_id: str
    action_time: datetime


class DescribeInstancesActionTimer(_Answer):
    """Answer of DescribeInstancesActionTimer."""

    action_timers: Annotated[tuple[SeenTimer, ...], BeforeValidator(_none_is_empty)] = ()


class ItemPrice(_Answer):
    """A price. With a discount the discounted one is paid."""

    unit_price: Price = None
    unit_price_discount: Price = None
    charge_unit: str = ""


class SoldType(_Answer):
    """One instance type in one zone."""

    zone: str
    instance_type: str
    instance_charge_type: str
    status: str
    status_category: str = ""
    price: ItemPrice | None = None


class DescribeZoneInstanceConfigInfos(_Answer):
    """Answer of DescribeZoneInstanceConfigInfos."""

    instance_type_quota_set: Annotated[tuple[SoldType, ...], BeforeValidator(_none_is_empty)] = ()


class ZoneQuota(_Answer):
    """One limit in one zone."""

    zone: str
    total_quota: int
    used_quota: int


class AccountQuota(_Answer):
    """Limits by kind; those that were not asked for are null."""

    spot_paid_quota_set: Annotated[tuple[ZoneQuota, ...], BeforeValidator(_none_is_empty)] = ()
    post_paid_quota_set: Annotated[tuple[ZoneQuota, ...], BeforeValidator(_none_is_empty)] = ()


class AccountQuotaOverview(_Answer):
    """Limits of a region."""

    account_quota: AccountQuota


class DescribeAccountQuota(_Answer):
    """Answer of DescribeAccountQuota."""

    account_quota_overview: AccountQuotaOverview


class FailedResource(_Answer):
    """A machine whose tags were not changed."""

    resource: str = ""
    code: str = ""
    message: str = ""


class TagResources(_Answer):
    """Answer of TagResources and UnTagResources: partial failure comes with success."""

    failed_resources: Annotated[tuple[FailedResource, ...], BeforeValidator(_none_is_empty)] = Field(
        default=()
    )
