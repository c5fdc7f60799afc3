"""What EC2 checks in a RunInstances call before the market is asked."""

import base64
import binascii
from decimal import Decimal
from typing import Final

from domain.contracts.catalogue import instance_type
from domain.contracts.offers import ProviderName
from sandbox.clouds import aws_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.inventory import Inventory, Subnet

MAX_USER_DATA_BYTES: Final = 16 * 1024
LEAST_PRICE: Final = Decimal("0.001")
"""A maximum price must be above this, in USD an hour."""


def check(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> None:
    """Counts, type, image, groups, key, spot terms and tags.

    Raises:
        VendorError: the first that does not exist or does not fit.
    """
    if wanted.min_count > wanted.max_count:
        raise parameters.combination("MinCount must not be above MaxCount")
    if instance_type(ProviderName.AWS, wanted.instance_type) is None:
        raise parameters.invalid("InstanceType", "no such instance type")
    _check_owned(wanted, region, inventory)
    _check_spot(wanted)
    _check_tags(wanted)


def zone_of(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> str:
    """The zone of the subnet, which a named zone must agree with; without a subnet the named one.

    Raises:
        VendorError: there is no such subnet or zone, they disagree, or neither is named.
    """
    subnet, named = subnet_of(wanted, region, inventory), wanted.placement.availability_zone
    zone = subnet.zone if subnet else named
    if zone not in inventory.zones[region] or named not in ("", zone):
        where = f"subnet {subnet.id} is in {zone}" if subnet else "no such zone"
        raise parameters.invalid("availabilityZone", f"({named}) {where}")
    return zone


def subnet_of(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> Subnet | None:
    """The subnet that is named, None when only a zone is.

    Raises:
        VendorError: there is no such subnet in the region.
    """
    if not wanted.subnet_id:
        return None
    subnet = inventory.subnets.get(wanted.subnet_id)
    if subnet is None or subnet.region != region:
        raise _not_found("InvalidSubnetID.NotFound", "subnet ID", wanted.subnet_id)
    return subnet


def plain(user_data: str) -> str:
    """The boot script of a request.

    Raises:
        VendorError: it is no base64, no text, or too long.
    """
    try:
        script = base64.b64decode(user_data, validate=True)
        text = script.decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise parameters.invalid("userData", "it is not base64 of a text") from exc
    if len(script) > MAX_USER_DATA_BYTES:
        raise parameters.invalid("userData", "it is limited to 16384 bytes")
    return text


def tags(wanted: parameters.RunInstances, kind: str) -> dict[str, str]:
    """Tags for one kind of what the launch makes, for example ``instance``."""
    return {
        tag.key: tag.value
        for specification in wanted.tag_specification
        if specification.resource_type == kind
        for tag in specification.tag
    }


def is_spot(wanted: parameters.RunInstances) -> bool:
    """Whether it may be taken back."""
    return wanted.instance_market_options is not None


def bid(wanted: parameters.RunInstances) -> Decimal | None:
    """The highest price to pay, in USD an hour; None pays the price of the moment."""
    options = wanted.instance_market_options
    return options.spot_options.max_price if options else None


def _check_owned(wanted: parameters.RunInstances, region: str, inventory: Inventory) -> None:
    if wanted.image_id not in inventory.images.get(region, frozenset()):
        raise _not_found("InvalidAMIID.NotFound", "image id", f"[{wanted.image_id}]")
    for group in wanted.security_group_id:
        if group not in inventory.security_groups.get(region, frozenset()):
            raise _not_found("InvalidGroup.NotFound", "security group", group)
    if wanted.key_name and wanted.key_name not in inventory.key_pairs:
        raise _not_found("InvalidKeyPair.NotFound", "key pair", wanted.key_name)


def _check_spot(wanted: parameters.RunInstances) -> None:
    price = bid(wanted)
    if price is not None and price <= LEAST_PRICE:
        raise parameters.invalid("SpotOptions.MaxPrice", f"it must be above {LEAST_PRICE}")


def _check_tags(wanted: parameters.RunInstances) -> None:
    kinds = [specification.resource_type for specification in wanted.tag_specification]
    if len(set(kinds)) < len(kinds):
        raise parameters.invalid("TagSpecifications", "a resource type comes twice")
    if "spot-instances-request" in kinds and not is_spot(wanted):
        raise parameters.invalid("TagSpecifications", "there is no spot request to tag")


def _not_found(code: str, kind: str, name: str) -> VendorError:
    return VendorError(code, f"The {kind} '{name}' does not exist", status=400)
