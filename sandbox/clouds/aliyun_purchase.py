"""What Alibaba checks in a RunInstances call before the market is asked."""

import base64
import binascii
from datetime import datetime, timedelta
from typing import Final

from sandbox.clouds import aliyun_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.inventory import Inventory, Subnet

MAX_USER_DATA_BYTES: Final = 32 * 1024
MIN_RELEASE_AHEAD: Final = timedelta(minutes=30)
MAX_RELEASE_AHEAD: Final = timedelta(days=3 * 365)
NEWER_FAMILIES: Final = ("ecs.gn7", "ecs.gn8", "ecs.ebmgn7")
"""Families that take ESSD kinds of disks only."""
DISK_CATEGORIES: Final = frozenset(
    {"cloud_efficiency", "cloud_ssd", "cloud_essd", "cloud_essd_entry", "cloud_auto"}
)


def check(wanted: parameters.RunInstances, inventory: Inventory) -> None:
    """Network, image, groups, keys, spot terms and disk.

    Raises:
        VendorError: the first that does not exist or does not fit.
    """
    _check_network(wanted, inventory)
    _check_spot(wanted)
    _check_disk(wanted)
    if wanted.image_id not in inventory.images.get(wanted.region_id, frozenset()):
        raise parameters.not_found("InvalidImageId.NotFound", "The specified ImageId does not exist.")
    if wanted.key_pair_name and wanted.key_pair_name not in inventory.key_pairs:
        raise parameters.not_found("InvalidKeyPairName.NotFound", "The KeyPairName does not exist.")


def zone_of(wanted: parameters.RunInstances, inventory: Inventory) -> str:
    """The zone that is named, else that of the vSwitch."""
    subnet = _subnet(wanted, inventory)
    zone = wanted.zone_id or (subnet.zone if subnet else "")
    if zone not in inventory.zones[wanted.region_id]:
        raise parameters.not_found("InvalidZoneId.NotFound", "The specified ZoneId does not exist.")
    return zone


def plain(user_data: str) -> str:
    """The boot script of a request."""
    try:
        script = base64.b64decode(user_data, validate=True)
        text = script.decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        text = "The specified UserData is not valid base64."
        raise VendorError("InvalidUserData.Base64FormatInvalid", text, status=400) from exc
    if len(script) > MAX_USER_DATA_BYTES:
        raise VendorError("InvalidUserData.SizeExceeded", "The UserData exceeds 32 KB.", status=400)
    return text


def release_at(at: datetime | None, now: datetime) -> datetime | None:
    """When the dead-man switch ends the machine: a whole minute, from half an hour to three years ahead."""
    if at is None:
        return None
    if not now + MIN_RELEASE_AHEAD <= at <= now + MAX_RELEASE_AHEAD:
        raise parameters.invalid("AutoReleaseTime", "it is 30 minutes to three years ahead")
    return at.replace(second=0, microsecond=0)


def echoed(wanted: parameters.RunInstances, inventory: Inventory) -> dict[str, object]:
    """Fields that DescribeInstances gives back as they were ordered, and ``VpcId``."""
    subnet = _subnet(wanted, inventory)
    limit = wanted.spot_price_limit
    spot = wanted.spot_strategy != "NoSpot"
    return {
        "InstanceChargeType": wanted.instance_charge_type,
        "SpotStrategy": wanted.spot_strategy,
        "SpotPriceLimit": float(limit) if limit is not None else 0.0,
        "SpotDuration": wanted.spot_duration if spot else 0,
        "SpotInterruptionBehavior": wanted.spot_interruption_behavior if spot else "",
        "SecurityGroupIds": {"SecurityGroupId": _groups(wanted)},
        "KeyPairName": wanted.key_pair_name,
        "HostName": wanted.host_name,
        "VpcId": subnet.vpc_id if subnet else "",
        "MetadataOptions": {"HttpEndpoint": wanted.http_endpoint, "HttpTokens": wanted.http_tokens},
    }


def _groups(wanted: parameters.RunInstances) -> list[str]:
    return [*wanted.security_group_ids, *filter(None, [wanted.security_group_id])]


def _subnet(wanted: parameters.RunInstances, inventory: Inventory) -> Subnet | None:
    """The vSwitch that is named, None when only a zone is."""
    if not wanted.v_switch_id:
        return None
    subnet = inventory.subnets.get(wanted.v_switch_id)
    if subnet is None or subnet.region != wanted.region_id:
        raise parameters.not_found("InvalidVSwitchId.NotFound", "The specified VSwitchId does not exist.")
    return subnet


def _check_network(wanted: parameters.RunInstances, inventory: Inventory) -> None:
    subnet = _subnet(wanted, inventory)
    if subnet is not None and wanted.zone_id and subnet.zone != wanted.zone_id:
        raise parameters.invalid("VSwitchId", f"it is in zone {subnet.zone}, not in {wanted.zone_id}")
    if bool(wanted.security_group_id) == bool(wanted.security_group_ids):
        raise parameters.invalid("SecurityGroupId", "give either SecurityGroupId or SecurityGroupIds")
    if not inventory.security_groups.get(wanted.region_id, frozenset()).issuperset(_groups(wanted)):
        raise parameters.not_found("InvalidSecurityGroupId.NotFound", "The SecurityGroupId does not exist.")


def _check_spot(wanted: parameters.RunInstances) -> None:
    limit = wanted.spot_price_limit
    if wanted.spot_strategy == "SpotWithPriceLimit" and limit is None:
        raise parameters.invalid("SpotPriceLimit", "SpotWithPriceLimit needs it")
    if limit is not None and (limit <= 0 or limit != round(limit, 3)):
        raise parameters.invalid("SpotPriceLimit", "it is above zero with at most three decimals")
    if wanted.spot_duration not in (0, 1):
        raise parameters.invalid("SpotDuration", "it is 0 or 1")


def _check_disk(wanted: parameters.RunInstances) -> None:
    category = wanted.system_disk.category
    if category not in DISK_CATEGORIES:
        text = "The specified SystemDisk.Category is not valid."
        raise VendorError("InvalidSystemDiskCategory.ValueNotSupported", text, status=400)
    takes_essd_only = wanted.instance_type.startswith(NEWER_FAMILIES)
    if takes_essd_only and not category.startswith(("cloud_essd", "cloud_auto")):
        text = f"The instance type does not support the disk category {category}."
        raise VendorError("CategoryNotSupported", text, status=403)
