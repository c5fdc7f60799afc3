"""What Tencent checks in a RunInstances call before the market is asked."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from domain.contracts.catalogue import instance_type
from domain.contracts.offers import ProviderName
from sandbox.clouds import tencent_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.inventory import Inventory

_MAX_USER_DATA_BYTES: Final = 16 * 1024
_MAX_TOKEN_CHARS: Final = 64
_MAX_NAME_CHARS: Final = 128
_MAX_SECURITY_GROUPS: Final = 5
_MAX_TAG_KEY_CHARS: Final = 127
_MAX_TAG_VALUE_CHARS: Final = 255
_MIN_TIMER_AHEAD: Final = timedelta(minutes=5)
_MIN_DISK_GB: Final = 20
_DISK_TYPES: Final = frozenset(
    {"CLOUD_BASIC", "CLOUD_PREMIUM", "CLOUD_BSSD", "CLOUD_SSD", "CLOUD_HSSD", "CLOUD_TSSD"}
)


def check(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> None:
    """Place, network, image, groups, keys and disk.

    Raises:
        VendorError: the first that is wrong.
    """
    _check_zone(wanted, region, inventory)
    _check_network(wanted, region, inventory)
    _check_image(wanted.image_id, inventory.images.get(region, frozenset()))
    _check_groups(wanted.security_group_ids, inventory.security_groups.get(region, frozenset()))
    for key in wanted.login_settings.key_ids if wanted.login_settings else ():
        if key not in inventory.key_pairs:
            raise VendorError("InvalidKeyPairId.NotFound", f"The key pair `{key}` is not found.")
    disk = wanted.system_disk
    if disk.disk_type not in _DISK_TYPES or disk.disk_size < _MIN_DISK_GB:
        raise VendorError(
            "InvalidParameterValue", f"`{disk.disk_type}`, {disk.disk_size} GB is no valid disk."
        )
    if len(wanted.instance_name) > _MAX_NAME_CHARS:
        raise VendorError("InvalidInstanceName.TooLong", "InstanceName has more than 128 characters.")


def is_spot(charge_type: str, market: parameters.InstanceMarketOptions | None) -> bool:
    """Whether a purchase is for spot; both switches must agree."""
    if charge_type not in (parameters.SPOT, parameters.ON_DEMAND):
        raise VendorError("InvalidParameterValue", f"The charge type `{charge_type}` is not played here.")
    spot = charge_type == parameters.SPOT
    if market is not None and (not spot or market.market_type != "spot"):
        raise VendorError(
            "InvalidParameterValue", "InstanceMarketOptions belong to SPOTPAID, MarketType spot."
        )
    if market is not None and market.spot_options.spot_instance_type != "one-time":
        raise VendorError("InvalidParameterValue", "SpotInstanceType must be one-time.")
    return spot


def bid(wanted: parameters.RunInstances) -> Decimal | None:
    """The highest price an hour, None without one."""
    market = wanted.instance_market_options
    if market is None or market.spot_options.max_price is None:
        return None
    text = market.spot_options.max_price
    try:
        price = Decimal(text)
    except InvalidOperation as exc:
        raise VendorError("InvalidParameterValue", f"MaxPrice `{text}` is not a number.") from exc
    if not price.is_finite() or price <= 0:
        raise VendorError("InvalidParameterValue", f"MaxPrice `{text}` must be above 0.")
    return price


def user_data(encoded: str) -> str:
    """The decoded boot script."""
    try:
        raw = base64.b64decode(encoded, validate=True)
        text = raw.decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise VendorError("InvalidParameterValue.InvalidUserDataFormat", "UserData must be base64.") from exc
    if len(raw) > _MAX_USER_DATA_BYTES:
        raise VendorError("InvalidParameterValue.LimitExceeded", "UserData has more than 16 KB.")
    return text


def tags(specifications: Sequence[parameters.TagSpecification]) -> dict[str, str]:
    """The tags of the machines."""
    found: dict[str, str] = {}
    for specification in specifications:
        if specification.resource_type != "instance":
            raise VendorError("InvalidParameterValue", "TagSpecification is for ResourceType instance here.")
        for tag in specification.tags:
            if tag.key in found:
                raise VendorError("InvalidParameterValue.DuplicateTags", f"The tag `{tag.key}` stands twice.")
            _check_tag(tag)
            found[tag.key] = tag.value
    return found


def release_at(timer: parameters.ActionTimer | None, now: datetime) -> datetime | None:
    """When the dead-man switch ends the machine."""
    if timer is None:
        return None
    if timer.timer_action != "TerminateInstances":
        raise VendorError("InvalidParameterValue", "TimerAction must be TerminateInstances.")
    if timer.action_time < now + _MIN_TIMER_AHEAD:
        raise VendorError("InvalidParameterValue", "ActionTime must be more than 5 minutes ahead.")
    return timer.action_time


def check_token(token: str) -> None:
    """Length and alphabet of a client token."""
    if len(token) > _MAX_TOKEN_CHARS or not token.isascii():
        raise VendorError("InvalidClientToken.TooLong", "ClientToken takes at most 64 ASCII characters.")


def _check_zone(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> None:
    zone, type_name = wanted.placement.zone, wanted.instance_type
    if inventory.region_of(zone) != region:
        raise VendorError("InvalidZone.MismatchRegion", f"The zone `{zone}` is not in region `{region}`.")
    if instance_type(ProviderName.TENCENT, type_name) is None:
        raise VendorError(
            "InvalidParameterValue.InstanceTypeNotFound", f"The instance type `{type_name}` is not found."
        )


def _check_network(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> None:
    network, zone = wanted.virtual_private_cloud, wanted.placement.zone
    subnet = inventory.subnets.get(network.subnet_id)
    if subnet is None or subnet.region != region:
        raise VendorError(
            "InvalidParameterValue.SubnetNotExist", f"The subnet `{network.subnet_id}` does not exist."
        )
    if subnet.vpc_id != network.vpc_id:
        raise VendorError(
            "InvalidParameterValue.VpcIdSubnetIdNotMatch", f"`{subnet.id}` is not in `{network.vpc_id}`."
        )
    if subnet.zone != zone:
        raise VendorError(
            "InvalidParameterValue.SubnetIdZoneIdNotMatch", f"`{subnet.id}` is in zone `{subnet.zone}`."
        )


def _check_image(image_id: str, known: frozenset[str]) -> None:
    if not image_id.startswith("img-"):
        raise VendorError("InvalidImageId.Malformed", f"The image id `{image_id}` is malformed.")
    if image_id not in known:
        raise VendorError("InvalidImageId.NotFound", f"The image `{image_id}` is not found.")


def _check_groups(groups: Sequence[str], known: frozenset[str]) -> None:
    if len(groups) > _MAX_SECURITY_GROUPS:
        raise VendorError("LimitExceeded.AssociateUSGLimitExceeded", "At most 5 security groups.")
    for group in groups:
        if group not in known:
            raise VendorError("InvalidSecurityGroupId.NotFound", f"`{group}` is not found.")


def _check_tag(tag: parameters.Tag) -> None:
    if not 1 <= len(tag.key) <= _MAX_TAG_KEY_CHARS or tag.key.startswith(("qcloud", "tencent")):
        raise VendorError("FailedOperation.IllegalTagKey", f"The tag key `{tag.key}` is illegal.")
    if len(tag.value) > _MAX_TAG_VALUE_CHARS:
        raise VendorError("FailedOperation.IllegalTagValue", f"The value of tag `{tag.key}` is too long.")
