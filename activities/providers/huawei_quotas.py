"""Huawei's quotas of machines: per project, in machines, vCPUs and memory, spot apart from all."""

from typing import Final

from activities.providers import huawei_answers as answers
from activities.providers.quotas import Quota
from domain.contracts.offers import CapacityType, Offer

ANSWERED: Final = frozenset({"Ecs.0001"})
"""Refusals whose quota ShowServerLimits tells; the others are of disks, addresses and groups."""


def found(answer: answers.ServerLimits, offer: Offer) -> list[Quota]:
    """The three limits that an offer counts against, first those that leave no room for one more machine."""
    seen, kind, where = answer.absolute, offer.instance_type, offer.region
    cores, memory = kind.vcpu_count, kind.ram_gib * 1024
    if offer.capacity_type is CapacityType.SPOT:
        rows = (
            (Quota("spot instances", where, seen.max_spot_instances, seen.used_spot_instances), 1),
            (Quota("spot vCPU", where, seen.max_spot_cores, seen.used_spot_cores), cores),
            (Quota("spot MB of memory", where, seen.max_spot_ram, seen.used_spot_ram), memory),
        )
    else:
        rows = (
            (Quota("instances", where, seen.max_instances, seen.used_instances), 1),
            (Quota("vCPU", where, seen.max_cores, seen.used_cores), cores),
            (Quota("MB of memory", where, seen.max_ram, seen.used_ram), memory),
        )
    return [quota for quota, _ in sorted(filter(_limits, rows), key=_leaves_room)]


def _limits(row: tuple[Quota, int]) -> bool:
    """A negative limit is none."""
    return (row[0].limit or 0) >= 0


def _leaves_room(row: tuple[Quota, int]) -> bool:
    quota, need = row
    return (quota.limit or 0) - (quota.used or 0) >= need
