"""Parameters of Huawei's calls: every name that the vendor knows, typed where the sandbox acts on it.

A test compares the names with the SDK's request classes. Names that the sandbox does not play are known all
the same, so that a typo and an unplayed feature get different answers.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.clouds.cloud import VendorError

WRONG: Final = "Ecs.0005"
SPOT: Final = "spot"
ON_DEMAND: Final = "postPaid"

Unplayed = Annotated[object, Field(default=None)]


class Parameters(BaseModel):
    """Names are the vendor's; anything else is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class Nic(Parameters):
    """The network interface."""

    subnet_id: str
    port_id: Unplayed
    ip_address: Unplayed
    ipv6_enable: Unplayed
    ipv6_bandwidth: Unplayed
    allowed_address_pairs: Unplayed
    efi_enable: Unplayed


class Bandwidth(Parameters):
    """Bandwidth of a new address."""

    size: int | None = None
    sharetype: str
    chargemode: str = ""
    id: Unplayed


class Eip(Parameters):
    """A new address."""

    iptype: str
    bandwidth: Bandwidth
    extendparam: Unplayed


class PublicIp(Parameters):
    """The public address: a new one. It outlives the server unless it is told not to."""

    id: Unplayed
    eip: Eip
    delete_on_termination: bool = False


class Volume(Parameters):
    """What every disk has."""

    volumetype: str
    size: int
    iops: Unplayed
    throughput: Unplayed
    passthrough: Annotated[object, Field(default=None, alias="hw:passthrough")]
    cluster_type: Unplayed
    cluster_id: Unplayed
    extendparam: Unplayed
    metadata: Unplayed


class RootVolume(Volume):
    """The disk to boot from."""

    size: int = 40


class DataVolume(Volume):
    """A further disk. It outlives the server unless it is told not to."""

    shareable: Unplayed
    multiattach: Unplayed
    data_image_id: Unplayed
    delete_on_termination: bool = False


class SecurityGroup(Parameters):
    """A security group by id."""

    id: str


class Tag(Parameters):
    """One tag."""

    key: str
    value: str = ""


class ExtendParam(Parameters):
    """How it is paid, as both create calls know it."""

    region_id: Annotated[str, Field(default="", alias="regionID")]
    market_type: Annotated[str, Field(default="", alias="marketType")]
    spot_price: Annotated[str | None, Field(default=None, alias="spotPrice")]
    support_auto_recovery: Unplayed
    enterprise_project_id: Unplayed
    disk_prior: Annotated[object, Field(default=None, alias="diskPrior")]
    spot_duration_hours: Unplayed
    spot_duration_count: Unplayed
    interruption_policy: Unplayed
    backup: Annotated[object, Field(default=None, alias="CB_CSBS_BACKUP")]


class PostPaidExtendParam(ExtendParam):
    """Of the pay-per-use API (v1), where the number 0 means pay-per-use."""

    charging_mode: Annotated[Literal[0], Field(default=0, alias="chargingMode")]


class AnyExtendParam(ExtendParam):
    """Of the newer API (v1.1), where the word does, and where no word means a subscription."""

    charging_mode: Annotated[Literal["postPaid"], Field(alias="chargingMode")]
    period_type: Annotated[object, Field(default=None, alias="periodType")]
    period_num: Annotated[object, Field(default=None, alias="periodNum")]
    is_auto_renew: Annotated[object, Field(default=None, alias="isAutoRenew")]
    is_auto_pay: Annotated[object, Field(default=None, alias="isAutoPay")]


class Server(Parameters):
    """The servers to buy, but for how they are paid."""

    auto_terminate_time: str = ""
    availability_zone: str
    count: int = 1
    data_volumes: tuple[DataVolume, ...] = ()
    flavor_ref: Annotated[str, Field(alias="flavorRef")]
    image_ref: Annotated[str, Field(alias="imageRef")]
    is_auto_rename: Annotated[bool, Field(default=True, alias="isAutoRename")]
    key_name: str = ""
    metadata: Mapping[str, str] = Field(default_factory=dict)
    name: str
    nics: tuple[Nic, ...]
    publicip: PublicIp | None = None
    root_volume: RootVolume
    security_groups: tuple[SecurityGroup, ...] = ()
    server_tags: tuple[Tag, ...] = ()
    user_data: str = ""
    vpcid: str
    description: str = ""
    admin_pass: Annotated[object, Field(default=None, alias="adminPass")]
    batch_create_in_multi_az: Unplayed
    scheduler_hints: Annotated[object, Field(default=None, alias="os:scheduler_hints")]
    tags: Unplayed
    cpu_options: Unplayed
    security_options: Unplayed
    serial_console_options: Unplayed
    metadata_options: Unplayed
    enclave_options: Unplayed


class PostPaidServer(Server):
    """In the words of v1."""

    extendparam: PostPaidExtendParam = PostPaidExtendParam.model_construct(charging_mode=0)


class AnyServer(Server):
    """In the words of v1.1."""

    extendparam: AnyExtendParam


class CreatePostPaidServers(Parameters):
    """Buy servers (v1)."""

    dry_run: bool = False
    server: PostPaidServer


class CreateServers(Parameters):
    """Buy servers (v1.1)."""

    dry_run: bool = False
    server: AnyServer


class ServerId(Parameters):
    """A server by id."""

    id: str


class DeleteServers(Parameters):
    """End servers."""

    servers: tuple[ServerId, ...]
    delete_publicip: bool = False
    delete_volume: bool = False


class ListServersDetails(Parameters):
    """List servers, one page."""

    limit: int = 25
    offset: int = 1
    marker: str = ""
    server_id: str = ""
    tags: str = ""
    name: str = ""
    status: str = ""
    flavor: str = ""
    enterprise_project_id: Unplayed
    ip: Unplayed
    ip_eq: Unplayed
    not_tags: Annotated[object, Field(default=None, alias="not-tags")]
    reservation_id: Unplayed


class TagValues(Parameters):
    """A key with one of several values; none means any."""

    key: str
    values: tuple[str, ...] = ()


class ListServersByTag(Parameters):
    """Ids and tags of servers that carry all these tags. Numbers are texts here."""

    action: Literal["filter"]
    limit: str = "1000"
    offset: str = "0"
    tags: tuple[TagValues, ...] = ()
    not_tags: Unplayed
    matches: Unplayed


class BatchTags(Parameters):
    """Set or remove tags of one server."""

    action: Literal["create", "delete"]
    tags: tuple[Tag, ...]


class UpdateServerAutoTerminateTime(Parameters):
    """Set the dead-man switch; an empty text takes it away."""

    auto_terminate_time: str


class ListFlavorSellPolicies(Parameters):
    """What is sold where and how, one page."""

    flavor_id: str = ""
    sell_status: str = ""
    sell_mode: str = ""
    availability_zone_id: str = ""
    limit: int = 1000
    marker: str = ""
    longest_spot_duration_hours_gt: Unplayed
    largest_spot_duration_count_gt: Unplayed
    longest_spot_duration_hours: Unplayed
    largest_spot_duration_count: Unplayed
    interruption_policy: Unplayed


class ListFlavors(Parameters):
    """Instance types with their words of sale."""

    availability_zone: str = ""
    flavor_id: str = ""
    limit: int = 1000
    marker: str = ""


class ListProjects(Parameters):
    """Projects of the account, by name, which is the region's."""

    name: str = ""


class Product(Parameters):
    """One thing whose price is asked."""

    id: str
    cloud_service_type: str
    resource_type: str
    resource_spec: str
    region: str
    available_zone: str = ""
    usage_factor: str
    usage_value: float
    usage_measure_id: int
    subscription_num: int
    resource_size: Unplayed
    size_measure_id: Unplayed


class ListOnDemandResourceRatings(Parameters):
    """Prices of pay-per-use resources."""

    project_id: str
    inquiry_precision: int = 0
    product_infos: tuple[Product, ...]


class ListThings(Parameters):
    """Disks or addresses, one page."""

    status: str = ""
    limit: int = 1000
    marker: str = ""


class Nothing(Parameters):
    """A call without parameters."""


_Model = TypeVar("_Model", bound=Parameters)


def from_body(model: type[_Model], body: bytes) -> _Model:
    """The parameters of a JSON body, types strictly as documented.

    Raises:
        VendorError: HTTP 400 with the name of the first that is wrong.
    """
    try:
        return model.model_validate_json(body or b"{}", strict=True)
    except ValidationError as exc:
        raise _refusal(exc) from exc


def from_query(model: type[_Model], query: str) -> _Model:
    """The parameters of a query; numbers are texts there. Otherwise as ``from_body``."""
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    doubled = next((name for name in names if names.count(name) > 1), "")
    if doubled:
        raise wrong(f"{doubled} stands twice")
    try:
        return model.model_validate(dict(pairs))
    except ValidationError as exc:
        raise _refusal(exc) from exc


def unplayed(parameters: Parameters, prefix: str = "") -> str:
    """The first parameter that was sent but that the sandbox does not play, as a dotted path; else empty."""
    for name, field in type(parameters).model_fields.items():
        value: object = getattr(parameters, name, None)
        path = prefix + (field.alias or name)
        inner = next((found for each in _nested(value) if (found := unplayed(each, f"{path}."))), "")
        if inner or (field.annotation is object and value is not None):
            return inner or path
    return ""


def _nested(value: object) -> list[Parameters]:
    """Parameters inside a value: itself, or the items of a list."""
    items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    return [each for each in items if isinstance(each, Parameters)]


def wrong(what: str) -> VendorError:
    """A parameter that is wrong."""
    return VendorError(WRONG, f"Request parameter is invalid: {what}.", status=400)


def time_of(text: str) -> datetime:
    """A moment as the vendor writes it, for example ``2020-01-19T03:30:52Z``.

    Raises:
        VendorError: it is written otherwise.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError as exc:
        raise wrong(f"the time {text!r}") from exc


def _refusal(exc: ValidationError) -> VendorError:
    # A misspelt name is also a missing one; the misspelling says more.
    first = min(exc.errors(), key=lambda error: error["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"]) or "the body"
    if first["type"] == "extra_forbidden":
        return wrong(f"{path} is not known")
    if first["type"] == "missing":
        return wrong(f"{path} is missing")
    return wrong(f"{path}: {first['msg']}")
