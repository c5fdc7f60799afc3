"""Disks and addresses beside simulated instances of EC2: shown, and given up when attached to none."""

from collections.abc import Callable, Mapping
from typing import Final

from sandbox.clouds import aws_filters as filters
from sandbox.clouds import aws_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.leftovers import Leftovers, Possession

_CREATED: Final = "2026-01-01T00:00:00.000Z"

_VOLUMES: Final[filters.Attributes[Possession]] = {
    "status": lambda thing: ("in-use" if thing.attached else "available",),
    "volume-id": lambda thing: (thing.id,),
}
_ADDRESSES: Final[filters.Attributes[Possession]] = {"allocation-id": lambda thing: (thing.id,)}

RegionOf = Callable[[Possession], str]


class Things:
    """The four calls about them."""

    def __init__(self, book: Leftovers, region_of: RegionOf) -> None:
        self._book = book
        self._region_of = region_of

    def volumes(self, wanted: parameters.DescribeVolumes, region: str) -> dict[str, object]:
        """One page of disks."""
        seen = filters.chosen(self._in(region, "volume"), wanted.filter, _VOLUMES, lambda thing: thing.tags)
        shown, token = filters.page(seen, lambda thing: thing.id, wanted)
        return {"volumeSet": [_volume(thing) for thing in shown], "nextToken": token}

    def addresses(self, wanted: parameters.DescribeAddresses, region: str) -> dict[str, object]:
        """All addresses."""
        things = self._in(region, "publicip")
        seen = filters.chosen(things, wanted.filter, _ADDRESSES, lambda thing: thing.tags)
        return {"addressesSet": [_address(thing) for thing in seen]}

    def delete_volume(self, volume_id: str) -> None:
        """Give a disk up."""
        try:
            self._book.release(volume_id, "volume")
        except KeyError as exc:
            text = f"The volume '{volume_id}' does not exist."
            raise VendorError("InvalidVolume.NotFound", text, status=400) from exc
        except ValueError as exc:
            raise VendorError("VolumeInUse", str(exc), status=400) from exc

    def release_address(self, allocation_id: str) -> None:
        """Give an address up."""
        try:
            self._book.release(allocation_id, "publicip")
        except KeyError as exc:
            text = f"The allocation ID '{allocation_id}' does not exist"
            raise VendorError("InvalidAllocationID.NotFound", text, status=400) from exc
        except ValueError as exc:
            raise VendorError("InvalidIPAddress.InUse", str(exc), status=400) from exc

    def _in(self, region: str, kind: str) -> list[Possession]:
        return [each for each in self._book.all(kind) if self._region_of(each) == region]


def _volume(thing: Possession) -> dict[str, object]:
    attachment = [{"instanceId": thing.server_id, "status": "attached"}] if thing.attached else []
    return {
        "volumeId": thing.id,
        "size": 100,
        "status": "in-use" if thing.attached else "available",
        "createTime": _CREATED,
        "attachmentSet": attachment,
        "tagSet": _tags(thing.tags),
    }


def _address(thing: Possession) -> dict[str, object]:
    return {
        "allocationId": thing.id,
        "publicIp": "203.0.113.7",
        "domain": "vpc",
        "instanceId": thing.server_id if thing.attached else None,
        "associationId": f"eipassoc-{thing.id[-8:]}" if thing.attached else None,
        "tagSet": _tags(thing.tags),
    }


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
