"""What is sent to buy one server of Huawei."""

import base64
from decimal import ROUND_FLOOR, Decimal
from typing import Final
from uuid import UUID, uuid5

from activities.providers import huawei_tags
from activities.providers.dead_man import to_second
from domain.contracts.instances import LaunchRequest
from domain.contracts.names import TAG_LAUNCH
from domain.contracts.offers import CapacityType

MAX_USER_DATA_BYTES: Final = 32 * 1024
MAX_NAME_CHARS: Final = 64
PRICE_STEP: Final = Decimal("0.001")
"""Finest bid that is sent."""
TOKEN_NAMESPACE: Final = UUID("5f0c6f0e-3f3b-5c55-9d0a-6c1f3f1d9b3e")
"""Launch tokens have up to 64 characters, ``X-Client-Token`` is to be a UUID: uuid5 of the token in here."""
SPOT_MODE: Final = "spot"
PAY_PER_USE: Final = 0


def client_token(launch_token: str) -> str:
    """What ``X-Client-Token`` carries for a launch token."""
    return str(uuid5(TOKEN_NAMESPACE, launch_token))


def launch_flaw(request: LaunchRequest, user_data: str) -> str:
    """What makes a request impossible before it is sent: what, where and what to do; empty when fine."""
    size = len(user_data.encode())
    if size > MAX_USER_DATA_BYTES:
        return (
            f"user data has {size} bytes, at most {MAX_USER_DATA_BYTES} can be sent: "
            "shorten userDataTemplate of the node class and fetch the rest at boot"
        )
    bid = request.max_price_per_hour
    if bid is not None and bid < PRICE_STEP:
        return f"the bid {bid} per hour is below the least price of {PRICE_STEP}: raise maxPricePerHour"
    if len(request.name) > MAX_NAME_CHARS:
        return f"the name {request.name} has more than {MAX_NAME_CHARS} characters: shorten the pool's name"
    return huawei_tags.flaw({**request.tags, TAG_LAUNCH: request.token})


def launch_body(request: LaunchRequest, user_data: str, *, with_bid: bool = True) -> dict[str, object]:
    """Body of CreatePostPaidServers for one machine.

    The same request gives the same body, as its token demands: nothing here may depend on the time. There is
    no address and no data disk that could outlive the machine.
    """
    tags = huawei_tags.stored({**request.tags, TAG_LAUNCH: request.token})
    server: dict[str, object] = {
        "availability_zone": request.offer.zone,
        "count": 1,
        "extendparam": spot_terms(request, with_bid=with_bid),
        "flavorRef": request.offer.instance_type.name,
        "imageRef": request.image_id,
        "name": request.name or f"spotgpu-{client_token(request.token)[:8]}",
        "nics": [{"subnet_id": request.subnet_id}],
        "root_volume": {"volumetype": request.disk.type, "size": request.disk.size_gb},
        "security_groups": [{"id": group} for group in request.security_group_ids],
        "server_tags": [{"key": key, "value": tags[key]} for key in sorted(tags)],
        "user_data": base64.b64encode(user_data.encode()).decode("ascii"),
        "vpcid": request.vpc_id,
    }
    if request.dead_man_at is not None:
        server["auto_terminate_time"] = to_second(request.dead_man_at)
    if request.key_pair_id:
        server["key_name"] = request.key_pair_id
    return {"server": server}


def spot_terms(request: LaunchRequest, *, with_bid: bool) -> dict[str, object]:
    """How it is paid. Without a bid the vendor takes the on-demand price as the limit."""
    terms: dict[str, object] = {"chargingMode": PAY_PER_USE}
    if request.offer.capacity_type is not CapacityType.SPOT:
        return terms
    terms["marketType"] = SPOT_MODE
    if with_bid and request.max_price_per_hour is not None:
        bid = request.max_price_per_hour.quantize(PRICE_STEP, rounding=ROUND_FLOOR)
        terms["spotPrice"] = f"{bid:f}"
    return terms
