"""Disks (EVS) and addresses (EIP) beside simulated servers of Huawei."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from sandbox.clouds.cloud import VendorError
from sandbox.clouds.huawei_parameters import ListThings, wrong
from sandbox.clouds.leftovers import Leftovers, Possession

_ATTACHED_DISK: Final = "in-use"
_ATTACHED_ADDRESS: Final = "ACTIVE"


class Things:
    """The four calls about them."""

    ACTIONS: ClassVar = ("ListVolumes", "DeleteVolume", "ListPublicips", "DeletePublicip")

    def __init__(self, book: Leftovers, region_of: Callable[[Possession], str]) -> None:
        self._book = book
        self._region_of = region_of

    def page(self, action: str, wanted: ListThings, region: str) -> Mapping[str, object]:
        """What follows the marker."""
        disks = action == "ListVolumes"
        show = _volume if disks else _address
        kind = "volume" if disks else "publicip"
        shown = [show(each) for each in self._book.all(kind) if self._region_of(each) == region]
        chosen = [each for each in shown if wanted.status in ("", each["status"])]
        page = chosen[_start(chosen, wanted.marker) :][: wanted.limit]
        if disks:
            return {"count": len(chosen), "volumes": page}
        return {"publicips": page, "page_info": {"current_count": len(page)}, "total_count": len(chosen)}

    def release(self, action: str, thing_id: str) -> None:
        """Give one up."""
        disk = action == "DeleteVolume"
        try:
            self._book.release(thing_id, "volume" if disk else "publicip")
        except KeyError as exc:
            code = "EVS.5404" if disk else "VPC.0504"
            raise VendorError(code, f"{thing_id} could not be found.", status=404) from exc
        except ValueError as exc:
            raise VendorError("EVS.5400" if disk else "VPC.0510", str(exc), status=400) from exc


def _start(chosen: list[dict[str, object]], marker: str) -> int:
    ids = [each["id"] for each in chosen]
    if marker and marker not in ids:
        raise wrong(f"marker {marker}")
    return ids.index(marker) + 1 if marker else 0


def _volume(thing: Possession) -> dict[str, object]:
    """One disk; its tags are a mapping."""
    return {
        "id": thing.id,
        "name": thing.id,
        "status": _ATTACHED_DISK if thing.attached else "available",
        "size": 100,
        "created_at": "2026-01-01T00:00:00.000000",
        "attachments": [{"server_id": thing.server_id}] if thing.attached else [],
        "tags": dict(thing.tags),
    }


def _address(thing: Possession) -> dict[str, object]:
    """One address; its tags are texts."""
    return {
        "id": thing.id,
        "public_ip_address": "203.0.113.7",
        "status": _ATTACHED_ADDRESS if thing.attached else "DOWN",
        "created_at": "2026-01-01T00:00:00Z",
        "tags": [f"{key}={value}" for key, value in thing.tags.items()],
    }
