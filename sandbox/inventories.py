"""What the simulated accounts own: exactly what the example node classes name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from domain.contracts.node_classes import NodeClassSpec, RegionNetwork
from sandbox.clouds.inventory import Inventory, Subnet


def read_node_class(path: Path) -> NodeClassSpec:
    """Read the spec of a GPUSpotNodeClass file.

    Raises:
        ValueError: Not a node class; the message names the file.
    """
    try:
        return NodeClassSpec.model_validate(yaml.safe_load(path.read_text())["spec"])
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not a GPUSpotNodeClass: {error}") from error


def inventory_of(spec: NodeClassSpec) -> Inventory:
    """Give an account the images, networks and keys of a node class, and no others."""
    return Inventory(
        zones={net.region: tuple(dict.fromkeys(each.zone for each in net.subnets)) for net in spec.network},
        images=_images(spec),
        security_groups={net.region: frozenset(net.security_group_ids) for net in spec.network},
        subnets={
            subnet.subnet_id: Subnet(subnet.subnet_id, net.vpc_id, net.region, _zone(net, subnet.subnet_id))
            for net in spec.network
            for subnet in net.subnets
        },
        key_pairs=frozenset({spec.key_pair_id} - {""}),
    )


def _zone(network: RegionNetwork, subnet_id: str) -> str:
    """The zone of a subnet; empty for one that is named for several, as it serves its whole region."""
    zones = {subnet.zone for subnet in network.subnets if subnet.subnet_id == subnet_id}
    return zones.pop() if len(zones) == 1 else ""


def _images(spec: NodeClassSpec) -> Mapping[str, frozenset[str]]:
    regions = {image.region for image in spec.images}
    return {
        region: frozenset(image.image_id for image in spec.images if image.region == region)
        for region in regions
    }
