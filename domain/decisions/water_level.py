"""How many instances a pool should have: the water level."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from domain.contracts.facts import Demand, ProfileDemand
from domain.contracts.pool_state import ManualLevel
from domain.contracts.pools import PoolSpec
from domain.contracts.resolved import ProfilePart


def water_level(spec: PoolSpec, demand_instances: int, manual: ManualLevel | None, *, now: datetime) -> int:
    """clamp(max(minInstances, demand, manual override), minInstances, maxInstances).

    A manual level that ended, at its ``until`` or before, counts for nothing.
    """
    by_hand = manual.instances if manual is not None and is_in_force(manual, now=now) else 0
    return min(max(spec.min_instances, demand_instances, by_hand), spec.max_instances)


def is_in_force(manual: ManualLevel, *, now: datetime) -> bool:
    """Whether a manual level still counts."""
    return manual.until is None or now < manual.until


def demand_instances(
    profiles: Sequence[ProfilePart],
    demand: Demand | None,
    *,
    gpus_per_instance: int,
    live_gpus: Sequence[int] = (),
) -> int:
    """Instances that the bound workloads need.

    The GPUs that they ask for, divided by the GPUs of an instance and rounded up. In a pool of mixed
    sizes the live machines count with their own GPUs, largest first, and only the rest is divided: else
    the level would jump whenever the favoured type changes.

    Args:
        profiles: Profiles bound to the pool; demand of others is ignored.
        demand: Newest word of the bridge, None before the first.
        gpus_per_instance: GPUs of the type that would be bought next; less than 1 counts as 1.
        live_gpus: GPUs of each live machine, in any order.
    """
    wanted = sum(gpus_wanted(profiles, demand).values())
    used = 0
    for gpus in sorted(live_gpus, reverse=True):
        if wanted <= 0:
            break
        wanted -= gpus
        used += 1
    return used + _ceil_div(max(wanted, 0), max(gpus_per_instance, 1))


def gpus_wanted(profiles: Sequence[ProfilePart], demand: Demand | None) -> Mapping[str, int]:
    """GPUs by profile: what its pods ask for, at least its gang; absent when they ask for none."""
    entries = demand.profiles if demand else ()
    asked = {entry.profile: entry for entry in entries if entry.pods > 0 and entry.gpus > 0}
    return {
        part.origin.name: _gang(part, asked[part.origin.name])
        for part in profiles
        if part.origin.name in asked
    }


def _gang(part: ProfilePart, asked: ProfileDemand) -> int:
    """A gang that cannot start uses nothing, so its first pod already asks for all of it."""
    return max(asked.gpus, part.spec.gpu_requirement.min_count)


def _ceil_div(amount: int, size: int) -> int:
    return -(-amount // size)
