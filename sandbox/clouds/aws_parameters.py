"""Parameters of EC2's query protocol: names, kinds and limits by action, and how a form becomes values.

Only what is simulated is listed: any other name is refused as unknown, as the vendor does with names that it
does not know itself. Booleans are ``true`` and ``false``.
"""

import re
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

VERSION: Final = "2016-11-15"
MAX_FILTER_VALUES: Final = 200
_INSTANCE_ID: Final = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")


def _flag(text: object) -> object:
    """Booleans as the protocol writes them; pydantic alone would take ``yes`` and ``1`` too."""
    if text not in ("true", "false", True, False):
        raise ValueError("true or false")
    return text


def _own_key(key: str) -> str:
    if key.lower().startswith("aws:") or not key:
        raise ValueError("a tag key is not empty and does not begin with aws:")
    return key


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError("ASCII only")
    return text


Flag = Annotated[bool, BeforeValidator(_flag)]
ClientToken = Annotated[str, Field(max_length=64), AfterValidator(_ascii)]
TagKey = Annotated[str, Field(max_length=127), AfterValidator(_own_key)]
InstanceIds = Annotated[tuple[str, ...], Field(max_length=1000)]
PageSize = Annotated[int | None, Field(ge=5, le=1000)]


class _Part(BaseModel):
    """Fields in the vendor's spelling. An unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_pascal)


class Parameters(_Part):
    """What every action takes."""

    dry_run: Flag = False


class Tag(_Part):
    """One tag."""

    key: TagKey
    value: str = Field(default="", max_length=255)


class TagSpecification(_Part):
    """Tags of one kind of what a launch makes."""

    resource_type: Literal["instance", "volume", "spot-instances-request", "network-interface"]
    tag: Annotated[tuple[Tag, ...], Field(min_length=1, max_length=50)]


class Ebs(_Part):
    """A volume."""

    volume_size: int | None = Field(default=None, ge=1, le=65536)
    volume_type: Literal["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"] = "gp2"
    delete_on_termination: Flag = True
    iops: int | None = Field(default=None, ge=100)
    throughput: int | None = Field(default=None, ge=125)
    encrypted: Flag = False


class BlockDevice(_Part):
    """Where a volume is attached; the image's root device name means its root volume."""

    device_name: str
    ebs: Ebs = Field(default_factory=Ebs)


class SpotOptions(_Part):
    """Terms of a spot instance. Persistent requests are not played."""

    max_price: Decimal | None = None
    spot_instance_type: Literal["one-time"] = "one-time"
    instance_interruption_behavior: Literal["terminate"] = "terminate"


class MarketOptions(_Part):
    """How an instance is paid."""

    market_type: Literal["spot"]
    spot_options: SpotOptions = Field(default_factory=SpotOptions)


class Placement(_Part):
    """Where an instance is to run."""

    availability_zone: str = ""
    tenancy: Literal["default"] = "default"


class Profile(_Part):
    """Role of an instance."""

    arn: str = ""
    name: str = ""


class MetadataOptions(_Part):
    """How an instance reaches its metadata."""

    http_tokens: Literal["optional", "required"] = "optional"
    http_endpoint: Literal["enabled", "disabled"] = "enabled"
    http_put_response_hop_limit: int = Field(default=1, ge=1, le=64)


class Monitoring(_Part):
    """Detailed monitoring."""

    enabled: Flag


class RunInstances(Parameters):
    """Buy instances."""

    image_id: str
    instance_type: str = "m1.small"
    min_count: int = Field(ge=1)
    max_count: int = Field(ge=1)
    client_token: ClientToken = ""
    subnet_id: str = ""
    security_group_id: tuple[str, ...] = Field(default=(), max_length=16)
    key_name: str = ""
    user_data: str = ""
    placement: Placement = Field(default_factory=Placement)
    block_device_mapping: tuple[BlockDevice, ...] = ()
    instance_market_options: MarketOptions | None = None
    tag_specification: tuple[TagSpecification, ...] = ()
    iam_instance_profile: Profile | None = None
    metadata_options: MetadataOptions = Field(default_factory=MetadataOptions)
    monitoring: Monitoring | None = None
    ebs_optimized: Flag = False


class TerminateInstances(Parameters):
    """End instances: all or none."""

    instance_id: Annotated[InstanceIds, Field(min_length=1)]


class Filter(_Part):
    """A condition: the attribute has one of these values."""

    name: str
    value: tuple[str, ...] = Field(min_length=1)


Filters = Annotated[tuple[Filter, ...], Field(max_length=50)]


class Paged(Parameters):
    """Reading in pages, narrowed by filters."""

    filter: Filters = ()
    max_results: PageSize = None
    next_token: str = ""


class DescribeInstances(Paged):
    """Show instances."""

    instance_id: InstanceIds = ()


class DescribeSpotInstanceRequests(Paged):
    """Show what became of spot requests."""

    spot_instance_request_id: tuple[str, ...] = ()


class DescribeInstanceTypeOfferings(Paged):
    """Which types are sold where."""

    location_type: Literal["region", "availability-zone"] = "region"


class DescribeSpotPriceHistory(Paged):
    """Price changes of spot instances."""

    instance_type: tuple[str, ...] = ()
    product_description: tuple[str, ...] = ()
    availability_zone: str = ""
    start_time: AwareDatetime | None = None
    end_time: AwareDatetime | None = None


class DescribeImages(Paged):
    """Show images."""

    image_id: tuple[str, ...] = ()


class CreateTags(Parameters):
    """Add or change tags of instances."""

    resource_id: tuple[str, ...] = Field(min_length=1, max_length=1000)
    tag: tuple[Tag, ...] = Field(min_length=1, max_length=50)


class RemovedTag(_Part):
    """A tag to remove: whatever its value, or only with this one."""

    key: TagKey
    value: str | None = None


class DeleteTags(Parameters):
    """Remove tags of instances; without tags, all."""

    resource_id: tuple[str, ...] = Field(min_length=1, max_length=1000)
    tag: tuple[RemovedTag, ...] = Field(default=(), max_length=50)


class DescribeVolumes(Paged):
    """Show disks."""

    volume_id: tuple[str, ...] = ()


class DeleteVolume(Parameters):
    """Give a disk up."""

    volume_id: str


class DescribeAddresses(Parameters):
    """Show addresses, all at once."""

    filter: Filters = ()
    allocation_id: tuple[str, ...] = ()


class ReleaseAddress(Parameters):
    """Give an address up."""

    allocation_id: str


ACTIONS: Final[dict[str, type[Parameters]]] = {
    model.__name__: model
    for model in (
        RunInstances,
        TerminateInstances,
        DescribeInstances,
        DescribeSpotInstanceRequests,
        DescribeInstanceTypeOfferings,
        DescribeSpotPriceHistory,
        DescribeImages,
        CreateTags,
        DeleteTags,
        DescribeVolumes,
        DeleteVolume,
        DescribeAddresses,
        ReleaseAddress,
    )
}


def decode(form: str) -> tuple[str, Parameters]:
    """The action of a form, and its parameters, checked.

    Raises:
        VendorError: an unknown action, version or name, a name that comes twice, a gap in a list, a value of
            the wrong kind or beyond its limit, a required parameter that is missing.
    """
    try:
        values = dotted.nested(form)
    except dotted.DottedNameError as exc:
        raise invalid(exc.name, exc.why) from exc
    action, version = str(values.pop("Action", "")), str(values.pop("Version", ""))
    model = ACTIONS.get(action)
    if model is None:
        text = f"The action {action} is not valid for this web service."
        raise VendorError("InvalidAction", text, status=400)
    if version != VERSION:
        text = f"The requested version ({version}) of service AmazonEC2 does not exist."
        raise VendorError("NoSuchVersion", text, status=400)
    try:
        wanted = model.model_validate(values)
    except ValidationError as exc:
        raise _refusal(exc) from exc
    _check_filters(wanted)
    return action, wanted


def check_instance_ids(ids: tuple[str, ...]) -> None:
    """Refuse what cannot be an instance id.

    Raises:
        VendorError: of the first such id.
    """
    for each in ids:
        if not _INSTANCE_ID.fullmatch(each):
            raise VendorError("InvalidInstanceID.Malformed", f'Invalid id: "{each}"', status=400)


def invalid(name: str, why: str) -> VendorError:
    """The vendor's words for a parameter that cannot be so."""
    return VendorError(
        "InvalidParameterValue", f"The value of parameter {name} is invalid: {why}.", status=400
    )


def combination(why: str) -> VendorError:
    """Parameters that do not go together."""
    return VendorError("InvalidParameterCombination", why, status=400)


def _check_filters(wanted: Parameters) -> None:
    if isinstance(wanted, Paged) and sum(len(each.value) for each in wanted.filter) > MAX_FILTER_VALUES:
        text = f"The maximum number of filter values specified on a single call is {MAX_FILTER_VALUES}"
        raise VendorError("FilterLimitExceeded", text, status=400)


def _refusal(fault: ValidationError) -> VendorError:
    first = fault.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
    if first["type"] == "missing":
        return VendorError("MissingParameter", f"The request must contain the parameter {name}", status=400)
    if first["type"] == "extra_forbidden":
        return VendorError("UnknownParameter", f"The parameter {name} is not recognized", status=400)
    return invalid(name, first["msg"])
