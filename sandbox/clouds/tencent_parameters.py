"""Parameters of Tencent's actions: every name that the vendor knows, typed where the sandbox acts on it.

A test compares the names with the SDK's model classes. Names that the sandbox does not play are known all the
same, so that a typo and an unplayed feature get different answers.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from sandbox.clouds.cloud import VendorError, WireRequest

SPOT: Final = "SPOTPAID"
ON_DEMAND: Final = "POSTPAID_BY_HOUR"

Unplayed = Annotated[object, Field(default=None)]


class Parameters(BaseModel):
    """Names are the vendor's in PascalCase; anything else is an unknown parameter."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_pascal, populate_by_name=False)


class Placement(Parameters):
    """Where to run."""

    zone: str
    project_id: int = 0
    host_ids: Unplayed
    host_id: Unplayed
    dedicated_resource_pack_tenancy: Unplayed
    dedicated_resource_pack_ids: Unplayed
    rack_id: Unplayed


class SystemDisk(Parameters):
    """The disk to boot from."""

    disk_type: str = "CLOUD_PREMIUM"
    disk_size: int = 50
    disk_id: Unplayed
    cdc_id: Unplayed
    disk_name: Unplayed
    encrypt: Unplayed
    kms_key_id: Unplayed


class VirtualPrivateCloud(Parameters):
    """The network."""

    vpc_id: str
    subnet_id: str
    as_vpc_gateway: bool = False
    private_ip_addresses: Unplayed
    ipv6_address_count: Unplayed


class InternetAccessible(Parameters):
    """The public address; it costs nothing here."""

    internet_charge_type: str = ""
    internet_max_bandwidth_out: int = 0
    public_ip_assigned: bool = False
    bandwidth_package_id: Unplayed
    internet_service_provider: Unplayed
    ipv4_address_type: Annotated[object, Field(default=None, alias="IPv4AddressType")]
    ipv6_address_type: Annotated[object, Field(default=None, alias="IPv6AddressType")]
    anti_ddos_package_id: Annotated[object, Field(default=None, alias="AntiDDoSPackageId")]


class LoginSettings(Parameters):
    """How to log in."""

    key_ids: tuple[str, ...] = ()
    password: Unplayed
    keep_image_login: Unplayed


class Tag(Parameters):
    """One tag."""

    key: str
    value: str


class TagSpecification(Parameters):
    """Tags of a kind of resource."""

    resource_type: str
    tags: tuple[Tag, ...]


class SpotOptions(Parameters):
    """The bid."""

    max_price: str | None = None
    spot_instance_type: str = "one-time"


class InstanceMarketOptions(Parameters):
    """The spot switch."""

    market_type: str = "spot"
    spot_options: SpotOptions = SpotOptions()


class ActionTimer(Parameters):
    """The dead-man switch."""

    timer_action: str
    action_time: datetime
    externals: Unplayed
    action_timer_id: Unplayed
    status: Unplayed
    instance_id: Unplayed


class Filter(Parameters):
    """One condition of a list."""

    name: str
    values: tuple[str, ...]


class RunInstances(Parameters):
    """Buy machines."""

    placement: Placement
    image_id: str
    instance_type: str
    instance_charge_type: str = "POSTPAID_BY_HOUR"
    instance_market_options: InstanceMarketOptions | None = None
    system_disk: SystemDisk = SystemDisk.model_construct()
    virtual_private_cloud: VirtualPrivateCloud
    internet_accessible: InternetAccessible | None = None
    instance_count: int = 1
    min_count: int | None = None
    instance_name: str = ""
    host_name: str = ""
    login_settings: LoginSettings | None = None
    security_group_ids: tuple[str, ...] = ()
    client_token: str = ""
    tag_specification: tuple[TagSpecification, ...] = ()
    user_data: str = ""
    action_timer: ActionTimer | None = None
    dry_run: bool = False
    instance_charge_prepaid: Unplayed
    data_disks: Unplayed
    enhanced_service: Unplayed
    disaster_recover_group_ids: Unplayed
    metadata: Unplayed
    cpu_topology: Unplayed
    cam_role_name: Unplayed
    hpc_cluster_id: Unplayed
    launch_template: Unplayed
    dedicated_cluster_id: Unplayed
    chc_ids: Unplayed
    partition_number: Unplayed
    disable_api_termination: Unplayed
    enable_jumbo_frame: Unplayed
    network_interfaces: Unplayed


class DescribeInstances(Parameters):
    """List machines."""

    instance_ids: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    offset: int = 0
    limit: int = 20


class TerminateInstances(Parameters):
    """End machines."""

    instance_ids: tuple[str, ...]
    release_address: bool = False
    release_prepaid_data_disks: bool = False


class ImportInstancesActionTimer(Parameters):
    """Give machines a timer."""

    instance_ids: tuple[str, ...]
    action_timer: ActionTimer


class DeleteInstancesActionTimer(Parameters):
    """Take timers away."""

    action_timer_ids: tuple[str, ...]


class DescribeInstancesActionTimer(Parameters):
    """Show timers."""

    action_timer_ids: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    timer_action: str = ""
    status_list: tuple[str, ...] = ()
    end_action_time: Unplayed
    start_action_time: Unplayed


class DescribeZoneInstanceConfigInfos(Parameters):
    """Price and stock."""

    filters: tuple[Filter, ...] = ()


class DescribeAccountQuota(Parameters):
    """Limits of the account, and what of them is used."""

    filters: tuple[Filter, ...] = ()


class InquiryPriceRunInstances(Parameters):
    """Price of a purchase."""

    placement: Placement
    image_id: str
    instance_type: str
    instance_charge_type: str = "POSTPAID_BY_HOUR"
    instance_count: int = 1
    instance_market_options: InstanceMarketOptions | None = None
    instance_charge_prepaid: Unplayed
    system_disk: Unplayed
    data_disks: Unplayed
    virtual_private_cloud: Unplayed
    internet_accessible: Unplayed
    instance_name: Unplayed
    login_settings: Unplayed
    security_group_ids: Unplayed
    enhanced_service: Unplayed
    client_token: Unplayed
    host_name: Unplayed
    tag_specification: Unplayed
    metadata: Unplayed
    hpc_cluster_id: Unplayed
    cpu_topology: Unplayed
    launch_template: Unplayed
    network_interfaces: Unplayed


class ResourceTag(Parameters):
    """One tag in the words of the tag service."""

    tag_key: str
    tag_value: str


class TagResources(Parameters):
    """Tag service: set tags."""

    resource_list: tuple[str, ...]
    tags: tuple[ResourceTag, ...]


class UnTagResources(Parameters):
    """Tag service: remove tags."""

    resource_list: tuple[str, ...]
    tag_keys: tuple[str, ...]


_COMPUTE_VERSION: Final = "2017-03-12"
_TAG_VERSION: Final = "2018-08-13"
ACTIONS: Final[Mapping[str, tuple[str, str, type[Parameters]]]] = {
    "RunInstances": ("cvm", _COMPUTE_VERSION, RunInstances),
    "DescribeInstances": ("cvm", _COMPUTE_VERSION, DescribeInstances),
    "TerminateInstances": ("cvm", _COMPUTE_VERSION, TerminateInstances),
    "ImportInstancesActionTimer": ("cvm", _COMPUTE_VERSION, ImportInstancesActionTimer),
    "DeleteInstancesActionTimer": ("cvm", _COMPUTE_VERSION, DeleteInstancesActionTimer),
    "DescribeInstancesActionTimer": ("cvm", _COMPUTE_VERSION, DescribeInstancesActionTimer),
    "DescribeZoneInstanceConfigInfos": ("cvm", _COMPUTE_VERSION, DescribeZoneInstanceConfigInfos),
    "DescribeAccountQuota": ("cvm", _COMPUTE_VERSION, DescribeAccountQuota),
    "InquiryPriceRunInstances": ("cvm", _COMPUTE_VERSION, InquiryPriceRunInstances),
    "TagResources": ("tag", _TAG_VERSION, TagResources),
    "UnTagResources": ("tag", _TAG_VERSION, UnTagResources),
}
"""Action to the service that signs it, its version and its parameters."""


def decode(request: WireRequest, model: type[Parameters]) -> Parameters:
    """The parameters of a request: a JSON body, or for GET a flattened query with indexes from 0.

    Raises:
        VendorError: ``UnknownParameter``, ``MissingParameter`` or ``InvalidParameter``, with the name.
    """
    try:
        if request.method == "GET":
            return model.model_validate(_nested(request.query))
        return model.model_validate_json(request.body or b"{}", strict=True)
    except ValidationError as exc:
        raise _refusal(exc) from exc


def unplayed(parameters: Parameters, prefix: str = "") -> str:
    """The first parameter that was sent but that the sandbox does not play, as a dotted path; else empty."""
    for name in type(parameters).model_fields:
        value: object = getattr(parameters, name, None)
        field = type(parameters).model_fields[name]
        path = prefix + (field.alias or name)
        if isinstance(value, Parameters):
            inner = unplayed(value, f"{path}.")
            if inner:
                return inner
        elif field.annotation is object and value is not None:
            return path
    return ""


def _refusal(exc: ValidationError) -> VendorError:
    # A misspelt name is also a missing one; the misspelling says more.
    first = min(exc.errors(), key=lambda error: error["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"]) or "the body"
    if first["type"] == "extra_forbidden":
        return VendorError("UnknownParameter", f"The parameter `{path}` is not recognized.")
    if first["type"] == "missing":
        return VendorError("MissingParameter", f"The request is missing the parameter `{path}`.")
    return VendorError("InvalidParameter", f"The parameter `{path}` is invalid: {first['msg']}.")


def _nested(query: str) -> object:
    pairs = [(path.split("."), value) for path, value in parse_qsl(query, keep_blank_values=True)]
    return _branch(pairs)


def _branch(pairs: Sequence[tuple[list[str], str]]) -> object:
    """Nested dictionaries, and lists where all keys of a level are indexes."""
    grown: dict[str, object] = {}
    for first in dict.fromkeys(path[0] for path, _ in pairs):
        inner = [(path[1:], value) for path, value in pairs if path[0] == first]
        leaves = [value for path, value in inner if not path]
        if leaves and len(inner) > 1:
            raise VendorError("InvalidParameter", f"The parameter `{first}` stands twice.")
        grown[first] = leaves[0] if leaves else _branch(inner)
    if grown and all(key.isdecimal() for key in grown):
        return [grown[key] for key in sorted(grown, key=int)]
    return grown
