"""What Huawei checks in a create call before it accepts the job; stock and quota come later, in the job."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from domain.contracts.catalogue import instance_type
from domain.contracts.offers import ProviderName
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.huawei_parameters import SPOT, ExtendParam, PublicIp, Server, Tag, Volume, time_of, wrong
from sandbox.clouds.inventory import Inventory

NOT_OFFERED: Final = "Ecs.0029"
MAX_COUNT: Final = 100
MAX_TAGS: Final = 10
MAX_TOKEN_CHARS: Final = 64
"""Not documented for ECS; another service of the vendor asks for a UUID."""
_MAX_USER_DATA_BYTES: Final = 32 * 1024
_MAX_NICS: Final = 12
_MAX_DATA_VOLUMES: Final = 23
_MAX_KEY_CHARS: Final = 36
_MAX_VALUE_CHARS: Final = 43
_MAX_DESCRIPTION_CHARS: Final = 85
_MAX_METADATA: Final = 10
_ROOT_GB: Final = range(1, 1025)
_DATA_GB: Final = range(10, 32769)
_NUMBER_SUFFIX: Final = "-0000"
_DISK_TYPES: Final = frozenset({"SATA", "SAS", "SSD", "GPSSD", "ESSD", "GPSSD2", "ESSD2"})
_NAME: Final = re.compile(r"[\w.-]{1,64}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NOT_IN_KEYS: Final = re.compile(r"[\x00-\x1f=*<>\\,|/]")
_NOT_IN_VALUES: Final = re.compile(r"[\x00-\x1f=*<>\\,|]")


def check(server: Server, region: str, inventory: Inventory) -> None:
    """Zone, type, image, network, disks, names and tags.

    Raises:
        VendorError: the first that is wrong.
    """
    if server.availability_zone not in inventory.zones[region]:
        raise wrong(f"availability_zone {server.availability_zone}")
    if instance_type(ProviderName.HUAWEI, server.flavor_ref) is None:
        raise VendorError(NOT_OFFERED, f"The flavor {server.flavor_ref} is not available.", status=400)
    if not _UUID.fullmatch(server.image_ref) or server.image_ref not in inventory.images[region]:
        raise wrong(f"imageRef {server.image_ref}")
    _check_network(server, region, inventory)
    _check_disks(server)
    _check_names(server, inventory)
    check_tags(server.server_tags)


def is_spot(terms: ExtendParam) -> bool:
    """Whether a purchase is for spot capacity; a bid belongs to it alone."""
    if terms.market_type not in ("", SPOT):
        raise wrong(f"extendparam.marketType {terms.market_type}")
    spot = terms.market_type == SPOT
    if not spot and terms.spot_price is not None:
        raise wrong("extendparam.spotPrice without marketType spot")
    return spot


def bid(terms: ExtendParam, *, market: Decimal, on_demand: Decimal) -> Decimal | None:
    """The highest price an hour; None without one, which means the on-demand price.

    Raises:
        VendorError: no number, or not between the market's price and the on-demand price.
    """
    if not terms.spot_price:
        return None
    try:
        price = Decimal(terms.spot_price)
    except InvalidOperation as exc:
        raise wrong(f"extendparam.spotPrice {terms.spot_price}") from exc
    if not price.is_finite() or price < market:
        raise wrong("the value of spotPrice is lower than the market price")
    if price > on_demand:
        raise wrong("the value of spotPrice is higher than the on-demand price")
    return price


def user_data(encoded: str) -> str:
    """The decoded boot script."""
    try:
        raw = base64.b64decode(encoded, validate=True)
        text = raw.decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise wrong("user_data is not base64") from exc
    if len(raw) > _MAX_USER_DATA_BYTES:
        raise wrong("user_data has more than 32 KB")
    return text


def release_at(text: str, now: datetime) -> datetime | None:
    """When the dead-man switch ends a server; None for an empty text."""
    if not text:
        return None
    at = time_of(text)
    if at <= now:
        raise wrong("auto_terminate_time is not ahead")
    return at


def check_token(token: str) -> None:
    """Length and alphabet of ``X-Client-Token``."""
    if len(token) > MAX_TOKEN_CHARS or not token.isascii():
        raise wrong("X-Client-Token")


def check_tags(tags: Sequence[Tag]) -> None:
    """Number, lengths and alphabet of tags."""
    keys = [tag.key for tag in tags]
    if len(tags) > MAX_TAGS or len(set(keys)) != len(keys):
        raise wrong(f"server_tags: at most {MAX_TAGS}, each key once")
    for tag in tags:
        if not 0 < len(tag.key) <= _MAX_KEY_CHARS or _NOT_IN_KEYS.search(tag.key):
            raise wrong(f"the tag key {tag.key!r}")
        if len(tag.value) > _MAX_VALUE_CHARS or _NOT_IN_VALUES.search(tag.value):
            raise wrong(f"the value of tag {tag.key!r}")


def survivors(server: Server) -> list[tuple[str, bool]]:
    """Address and data disks that come with a server: kind, and whether they end with it."""
    address: Iterable[PublicIp] = (server.publicip,) if server.publicip else ()
    return [
        *(("publicip", each.delete_on_termination) for each in address),
        *(("volume", each.delete_on_termination) for each in server.data_volumes),
    ]


def _check_network(server: Server, region: str, inventory: Inventory) -> None:
    if not 1 <= len(server.nics) <= _MAX_NICS:
        raise wrong(f"nics: 1 to {_MAX_NICS}")
    for nic in server.nics:
        subnet = inventory.subnets.get(nic.subnet_id)
        if subnet is None or (subnet.region, subnet.vpc_id) != (region, server.vpcid):
            raise wrong(f"nics.subnet_id {nic.subnet_id} is not a subnet of vpcid {server.vpcid}")
        # A subnet of the vendor serves its whole region; one of the inventory that names a zone does not.
        if subnet.zone not in ("", server.availability_zone):
            raise wrong(f"nics.subnet_id {nic.subnet_id} is in {subnet.zone}")
    for group in server.security_groups:
        if group.id not in inventory.security_groups[region]:
            raise wrong(f"security_groups.id {group.id}")


def _check_disks(server: Server) -> None:
    if len(server.data_volumes) > _MAX_DATA_VOLUMES:
        raise wrong(f"data_volumes: at most {_MAX_DATA_VOLUMES}")
    sized: list[tuple[Volume, range]] = [(server.root_volume, _ROOT_GB)]
    sized += [(volume, _DATA_GB) for volume in server.data_volumes]
    for volume, sizes in sized:
        if volume.volumetype not in _DISK_TYPES:
            raise wrong(f"volumetype {volume.volumetype}")
        if volume.size not in sizes:
            raise wrong(f"volume size {volume.size}")


def _check_names(server: Server, inventory: Inventory) -> None:
    if not 1 <= server.count <= MAX_COUNT:
        raise wrong(f"count {server.count}")
    suffix = _NUMBER_SUFFIX if server.count > 1 else ""
    if not _NAME.fullmatch(server.name + suffix):
        raise wrong(f"name {server.name}")
    if server.key_name and server.key_name not in inventory.key_pairs:
        raise wrong(f"key_name {server.key_name}")
    if len(server.description) > _MAX_DESCRIPTION_CHARS or len(server.metadata) > _MAX_METADATA:
        raise wrong("description or metadata is too long")
