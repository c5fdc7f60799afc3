"""Parameters of Alibaba's RPC style: names, kinds and limits by action, and how a query becomes values.

Lists are dotted and count from 1 (``Tag.1.Key``), nested objects are dotted (``SystemDisk.Size``), booleans
are words. Only what is simulated is listed: any other name is refused, where the gateway ignores it.
"""

import json
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.alias_generators import to_pascal

from sandbox.clouds import dotted
from sandbox.clouds.cloud import VendorError


def _ids(text: object) -> object:
    """A JSON array in one text, the form of DescribeInstances alone."""
    return json.loads(text) if isinstance(text, str) else text


def _own_key(key: str) -> str:
    if key.lower().startswith(("aliyun", "acs:")) or not key:
        raise ValueError("a tag key is not empty and does not begin with aliyun or acs:")
    return key


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError("ASCII only")
    return text


ClientToken = Annotated[str, Field(max_length=64), AfterValidator(_ascii)]
TagKey = Annotated[str, Field(max_length=128), AfterValidator(_own_key)]


class Parameters(BaseModel):
    """Fields in the vendor's spelling. An unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_pascal)

    region_id: str


class Tag(BaseModel):
    """One tag."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_pascal)

    key: TagKey
    value: str = Field(default="", max_length=128)


class SystemDisk(BaseModel):
    """The system disk."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_pascal)

    category: str = "cloud_efficiency"
    size: int = Field(default=40, ge=20, le=2048)
    performance_level: Literal["PL0", "PL1", "PL2", "PL3"] = "PL1"


Tags = Annotated[tuple[Tag, ...], Field(max_length=20)]


class RunInstances(Parameters):
    """Buy instances."""

    instance_type: str
    image_id: str
    zone_id: str = ""
    v_switch_id: str = ""
    security_group_id: str = ""
    security_group_ids: tuple[str, ...] = Field(default=(), max_length=16)
    amount: int = Field(default=1, ge=1, le=100)
    min_amount: int | None = Field(default=None, ge=1, le=100)
    instance_name: str = ""
    host_name: str = ""
    instance_charge_type: Literal["PostPaid"] = "PostPaid"
    internet_charge_type: Literal["PayByTraffic", "PayByBandwidth"] = "PayByTraffic"
    internet_max_bandwidth_out: int = Field(default=0, ge=0, le=100)
    key_pair_name: str = ""
    ram_role_name: str = ""
    http_endpoint: Literal["enabled", "disabled"] = "enabled"
    http_tokens: Literal["optional", "required"] = "optional"
    spot_strategy: Literal["NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"] = "NoSpot"
    spot_price_limit: Decimal | None = None
    spot_duration: int = 1
    spot_interruption_behavior: Literal["Terminate", "Stop"] = "Terminate"
    system_disk: SystemDisk = Field(default_factory=SystemDisk)
    user_data: str = ""
    tag: Tags = ()
    auto_release_time: AwareDatetime | None = None
    """Dead-man switch: the cloud ends the machine then, rounded down to the minute."""
    client_token: ClientToken = ""
    dry_run: bool = False


class DeleteInstances(Parameters):
    """End instances: all or none."""

    instance_id: tuple[str, ...] = Field(min_length=1, max_length=100)
    force: bool = False
    force_stop: bool = True
    terminate_subscription: bool = False
    client_token: ClientToken = ""
    dry_run: bool = False


class ModifyInstanceAutoReleaseTime(Parameters):
    """Set the dead-man switch of one instance; without a time it is taken away."""

    instance_id: str
    auto_release_time: AwareDatetime | None = None


class DescribeInstances(Parameters):
    """Show instances that fulfil every condition that is given."""

    instance_ids: Annotated[tuple[str, ...] | None, Field(max_length=100), BeforeValidator(_ids)] = None
    max_results: int = Field(default=10, ge=10, le=100)
    next_token: str = ""
    zone_id: str = ""
    status: str = ""
    instance_type: str = ""
    instance_charge_type: Literal["", "PostPaid"] = ""
    lock_reason: str = ""
    tag: Tags = ()


class DescribeAvailableResource(Parameters):
    """What is sold where, and how much of it there is."""

    destination_resource: Literal["InstanceType"]
    zone_id: str = ""
    instance_type: str = ""
    instance_charge_type: Literal["PostPaid"] = "PostPaid"
    io_optimized: Literal["optimized"] = "optimized"
    network_category: Literal["vpc"] = "vpc"
    spot_strategy: Literal["NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"] = "NoSpot"
    spot_duration: int = 1


class DescribeSpotPriceHistory(Parameters):
    """Prices of one type."""

    instance_type: str
    network_type: Literal["vpc"]
    zone_id: str = ""
    io_optimized: Literal["optimized"] = "optimized"
    os_type: Literal["linux", "windows"] = Field(default="linux", alias="OSType")
    spot_duration: int = 1
    offset: int = Field(default=0, ge=0)


class DescribePrice(Parameters):
    """A quote for one instance."""

    resource_type: Literal["instance"]
    instance_type: str
    zone_id: str
    price_unit: Literal["Hour"] = "Hour"
    period: int = Field(default=1, ge=1, le=1)
    amount: int = Field(default=1, ge=1, le=1000)
    spot_strategy: Literal["NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"] = "NoSpot"
    spot_duration: int = 1
    system_disk: SystemDisk = Field(default_factory=SystemDisk)


class DescribeAccountAttributes(Parameters):
    """Limits of the account, and what of them is used. The vendor has more attributes; these are played."""

    attribute_name: tuple[
        Literal[
            "max-postpaid-instance-vcpu-count",
            "max-spot-instance-vcpu-count",
            "used-postpaid-instance-vcpu-count",
            "used-spot-instance-vcpu-count",
        ],
        ...,
    ] = Field(default=(), max_length=8)
    zone_id: str = ""


class TagResources(Parameters):
    """Add tags to instances."""

    resource_type: Literal["instance"]
    resource_id: tuple[str, ...] = Field(min_length=1, max_length=50)
    tag: Tags = Field(min_length=1)


class UntagResources(Parameters):
    """Remove tags from instances."""

    resource_type: Literal["instance"]
    resource_id: tuple[str, ...] = Field(min_length=1, max_length=50)
    tag_key: tuple[str, ...] = Field(default=(), max_length=20)
    all: bool = False


ACTIONS: Final[dict[str, type[Parameters]]] = {
    model.__name__: model
    for model in (
        RunInstances,
        DeleteInstances,
        ModifyInstanceAutoReleaseTime,
        DescribeInstances,
        DescribeAvailableResource,
        DescribeSpotPriceHistory,
        DescribePrice,
        DescribeAccountAttributes,
        TagResources,
        UntagResources,
    )
}

# Codes of the vendor's error table for single parameters; for all others it is InvalidParameter.
CODES: Final = {
    "InstanceIds": "InvalidInstanceIds.Malformed",
    "SpotDuration": "InvalidSpotDuration",
    "SpotPriceLimit": "InvalidSpotPriceLimit",
    "SpotStrategy": "InvalidSpotStrategy",
    "ClientToken": "InvalidClientToken.ValueNotSupported",
}


def decode(action: str, query: str) -> Parameters:
    """Values of a query, checked.

    Raises:
        VendorError: an unknown action or name, a name that comes twice, a gap in a list, a value of the wrong
            kind or beyond its limit, a required parameter that is missing.
    """
    model = ACTIONS.get(action)
    if model is None:
        text = "Specified api is not found, please check your url and method."
        raise VendorError("InvalidAction.NotFound", text, status=404)
    try:
        return model.model_validate(nested(query))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        if first["type"] == "missing":
            text = f'The input parameter "{name}" that is mandatory for this request is not supplied.'
            raise VendorError("MissingParameter", text, status=400) from exc
        raise invalid(name, first["msg"]) from exc


def nested(query: str) -> dict[str, object]:
    """A query's texts by name: lists as tuples, nested objects as mappings.

    Raises:
        VendorError: a name that comes twice, or as a value and as parts of it; a gap in a list.
    """
    try:
        return dotted.nested(query)
    except dotted.DottedNameError as exc:
        raise invalid(exc.name, exc.why) from exc


def invalid(name: str, why: str) -> VendorError:
    """The vendor's words for a parameter that cannot be so."""
    code = CODES.get(name.split(".", maxsplit=1)[0], "InvalidParameter")
    return VendorError(code, f"The specified parameter {name} is not valid: {why}.", status=400)


def not_found(code: str, text: str) -> VendorError:
    """Something that the request names does not exist."""
    return VendorError(code, text, status=404)
