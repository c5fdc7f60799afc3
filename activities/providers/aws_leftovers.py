"""Disks and addresses of EC2 that belong to no machine, as the port tells them."""

from collections.abc import Iterable, Mapping
from datetime import UTC

from activities.providers import aws_answers as answers
from domain.contracts.leftovers import Leftover, LeftoverKind
from domain.contracts.offers import RegionKey


def disks(seen: Iterable[answers.Volume], region: RegionKey, tags: Mapping[str, str]) -> list[Leftover]:
    """Disks that are attached to nothing."""
    return [
        Leftover(
            region=region,
            kind=LeftoverKind.DISK,
            id=each.volume_id,
            ours=tags.items() <= (own := _tags(each.tags)).items(),
            tags=own,
            name=own.get("Name", ""),
            size_gb=each.size,
            created_at=each.create_time.astimezone(UTC) if each.create_time else None,
        )
        for each in seen
    ]


def addresses(seen: Iterable[answers.Address], region: RegionKey, tags: Mapping[str, str]) -> list[Leftover]:
    """Addresses that are attached to nothing."""
    return [
        Leftover(
            region=region,
            kind=LeftoverKind.ADDRESS,
            id=each.allocation_id,
            ours=tags.items() <= (own := _tags(each.tags)).items(),
            tags=own,
            name=each.public_ip,
        )
        for each in seen
        if not each.association_id
    ]


def release_call(leftover: Leftover) -> tuple[str, dict[str, object]]:
    """Operation and parameters that give one up."""
    if leftover.kind is LeftoverKind.DISK:
        return "DeleteVolume", {"VolumeId": leftover.id}
    return "ReleaseAddress", {"AllocationId": leftover.id}


def _tags(tags: Iterable[answers.Tag]) -> dict[str, str]:
    return {tag.key: tag.value for tag in tags}
