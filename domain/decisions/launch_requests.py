"""What a launch asks of a cloud: the complete request for one machine, without any secret."""

from datetime import datetime
from decimal import Decimal

from domain.contracts.instances import DiskSpec, LaunchRequest
from domain.contracts.money import ExchangeRate
from domain.contracts.names import (
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_MODEL,
    LABEL_INSTANCE_TYPE,
    LABEL_INTERCONNECT,
    LABEL_LIFECYCLE,
    LABEL_POOL,
    LABEL_POOL_UID,
    LABEL_PROVIDER,
    LABEL_REGION,
    LABEL_SLOT,
    LABEL_ZONE,
    TAG_LAUNCH,
    TAG_POOL,
    TAG_SLOT,
    TAINT_GPU_NOT_READY,
    TAINT_SPOT,
)
from domain.contracts.node_classes import NodeClassSpec, RegionNetwork
from domain.contracts.offers import CapacityType, Offer
from domain.contracts.resolved import ResolvedPool

_LABEL_CHARS = 63
"""Longest value of a Kubernetes label."""


def subnets_of(node_class: NodeClassSpec, region: str) -> dict[str, tuple[str, ...]]:
    """Subnet ids by zone, in the order of the node class; empty when no machine can boot there."""
    if not any(image.region == region for image in node_class.images):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for network in _networks(node_class, region):
        for subnet in network.subnets:
            found[subnet.zone] = (*found.get(subnet.zone, ()), subnet.subnet_id)
    return found


def _networks(node_class: NodeClassSpec, region: str) -> tuple[RegionNetwork, ...]:
    return tuple(network for network in node_class.network if network.region == region)


def launch_request(
    resolved: ResolvedPool,
    node_class: NodeClassSpec,
    offer: Offer,
    *,
    token: str,
    slot: str,
    number: int,
    subnet_index: int = 0,
    rate: ExchangeRate | None = None,
    dead_man_at: datetime | None = None,
) -> LaunchRequest:
    """The request for one machine.

    Args:
        resolved: The pool.
        node_class: The provider's node class; has an image and a subnet for the offer's zone.
        offer: What to buy.
        token: The launch's token.
        slot: The slot that it fills.
        number: The launch's number, part of the machine's name.
        subnet_index: Which of the zone's subnets to use.
        rate: How the offer's price was converted into the pool's currency; the bid goes the other way.
        dead_man_at: When the cloud ends the machine by itself unless it is told otherwise.
    """
    network = _networks(node_class, offer.region)[0]
    subnets = subnets_of(node_class, offer.region)[offer.zone]
    image = next(i.image_id for i in node_class.images if i.region == offer.region)
    return LaunchRequest(
        token=token,
        offer=offer,
        image_id=image,
        vpc_id=network.vpc_id,
        subnet_id=subnets[min(subnet_index, len(subnets) - 1)],
        security_group_ids=network.security_group_ids,
        key_pair_id=node_class.key_pair_id,
        disk=DiskSpec(type=node_class.system_disk.type, size_gb=node_class.system_disk.size_gb),
        user_data_template=node_class.join.user_data_template,
        join_secret=node_class.join.secret_ref.name,
        labels={**node_class.labels, **node_labels(resolved, offer, slot)},
        taints=node_taints(node_class, offer),
        tags={**node_class.tags, TAG_POOL: resolved.uid, TAG_SLOT: slot, TAG_LAUNCH: token},
        max_price_per_hour=_bid(resolved, offer, rate),
        dead_man_at=dead_man_at,
        name=machine_name(resolved.name, token, number),
    )


def _bid(resolved: ResolvedPool, offer: Offer, rate: ExchangeRate | None) -> Decimal | None:
    """The pool's ceiling in the currency that the cloud sells in."""
    ceiling = resolved.spec.max_price_per_hour
    if offer.capacity_type is not CapacityType.SPOT or ceiling is None:
        return None
    return ceiling if rate is None else rate.back(ceiling)


def machine_name(pool_name: str, token: str, number: int) -> str:
    """``{pool}-{chain}-{number}`` as a DNS label: unique, since neither chain nor number repeats."""
    chain = token.rsplit("-", 2)[-2]
    stem = pool_name.replace(".", "-")[:40].strip("-")
    return f"{stem}-{chain}-{number}"


def node_labels(resolved: ResolvedPool, offer: Offer, slot: str) -> dict[str, str]:
    """Labels that every Node of the pool carries."""
    row = offer.instance_type
    return {
        LABEL_POOL: resolved.name[:_LABEL_CHARS].strip("-."),
        LABEL_POOL_UID: resolved.uid,
        LABEL_SLOT: slot,
        LABEL_PROVIDER: offer.provider,
        LABEL_REGION: offer.region,
        LABEL_ZONE: offer.zone,
        LABEL_INSTANCE_TYPE: row.name,
        LABEL_GPU_MODEL: row.gpu_model,
        LABEL_GPU_COUNT: str(row.gpu_count),
        LABEL_GPU_MEMORY: str(row.gpu_memory_gb),
        LABEL_INTERCONNECT: row.interconnect,
        LABEL_LIFECYCLE: offer.capacity_type,
    }


def node_taints(node_class: NodeClassSpec, offer: Offer) -> tuple[str, ...]:
    """Taints at birth: GPUs are closed until they are all there, spot machines take tolerant pods only."""
    spot = (f"{TAINT_SPOT}=true:NoSchedule",) if offer.capacity_type is CapacityType.SPOT else ()
    return (*spot, f"{TAINT_GPU_NOT_READY}=true:NoSchedule", *node_class.taints)
