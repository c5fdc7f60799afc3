"""What survives a machine and goes on costing money: addresses and disks."""

from enum import StrEnum

from pydantic import Field

from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import RegionKey


class LeftoverKind(StrEnum):
    """What sort of thing was left."""

    ADDRESS = "address"
    DISK = "disk"


class Leftover(Contract):
    """One address or disk that is attached to no machine."""

    region: RegionKey
    kind: LeftoverKind
    id: str
    """The vendor's id, for example ``eipalloc-0a1b`` or ``vol-0a1b``."""
    ours: bool
    """Whether it carries the tags that were asked for. Others are shown and never released."""
    tags: dict[str, str] = Field(default_factory=dict[str, str])
    name: str = ""
    """The vendor's name of it, or the address itself."""
    size_gb: int | None = None
    """Of a disk."""
    created_at: AwareDatetime | None = None
    """None when the cloud does not say."""
