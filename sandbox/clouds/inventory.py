"""What an account owns before it buys machines: keys, images, networks."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Subnet:
    """A subnet (vSwitch) in one zone."""

    id: str
    vpc_id: str
    region: str
    zone: str


@dataclass
class Account:
    """Access keys that are valid now; changing them while the server runs is a rotation.

    Attributes:
        keys: Access key id to secret.
        tokens: Access key id to the session token that must come with it; keys without one are static.
    """

    keys: dict[str, str]
    tokens: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Inventory:
    """What create calls may name. A region that is not a key of ``zones`` does not exist.

    Attributes:
        zones: Region to its zones.
        images: Region to image ids.
        security_groups: Region to security group ids.
        subnets: All subnets by id.
        key_pairs: Names or ids of key pairs.
    """

    zones: Mapping[str, tuple[str, ...]]
    images: Mapping[str, frozenset[str]]
    security_groups: Mapping[str, frozenset[str]]
    subnets: Mapping[str, Subnet]
    key_pairs: frozenset[str] = frozenset()

    def region_of(self, zone: str) -> str:
        """The region of a zone, empty when unknown."""
        return next((region for region, zones in self.zones.items() if zone in zones), "")
