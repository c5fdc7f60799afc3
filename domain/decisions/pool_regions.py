"""Where a pool may buy, and where it may have machines."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

from typing_extensions import override

from domain.contracts.facts import RegionHealth
from domain.contracts.model import Contract
from domain.contracts.offers import InstanceType, RegionKey
from domain.contracts.pools import ProviderChoice
from domain.contracts.resolved import NodeClassPart, ResolvedPool
from domain.contracts.settings import PoolSettings
from domain.decisions.eligibility import eligible_types, overridden_types
from domain.decisions.launch_requests import subnets_of
from domain.decisions.pool_draft import Draft, seconds


class Candidate(Contract):
    """A region that the pool may buy in, with the types it may buy there."""

    region: RegionKey
    types: tuple[InstanceType, ...]
    overrides: tuple[InstanceType, ...] = ()
    """Those of them that the node class adds or corrects."""
    zones: tuple[str, ...]


class Ground(Contract):
    """What resource and settings alone say of where machines may stand."""

    candidates: tuple[Candidate, ...]
    of_spec: tuple[RegionKey, ...]
    """Served regions that the spec names."""
    served: frozenset[str]
    """Names of all regions that some worker answers for."""
    gpu_counts: tuple[int, ...]
    """GPUs of the machines that may be bought, each number once, sorted."""


class _Wanted:
    """A resource and settings, told apart by identity: both are frozen, and comparing them costs too much."""

    def __init__(self, resolved: ResolvedPool, settings: PoolSettings) -> None:
        self.resolved = resolved
        self.settings = settings

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Wanted):
            return NotImplemented
        return other.resolved is self.resolved and other.settings is self.settings

    @override
    def __hash__(self) -> int:
        return hash((id(self.resolved), id(self.settings)))


def ground(draft: Draft) -> Ground:
    """Worked out once for a resource and its settings, and not at each of many judgements."""
    return _ground(_Wanted(draft.resolved, draft.settings))


@lru_cache(maxsize=256)
def _ground(wanted: _Wanted) -> Ground:
    found = _candidates(wanted)
    return Ground(
        candidates=found,
        of_spec=_regions_of_spec(wanted),
        served=frozenset(str(region) for region in wanted.settings.served_regions),
        gpu_counts=tuple(sorted({row.gpu_count for candidate in found for row in candidate.types})),
    )


def candidates(draft: Draft) -> tuple[Candidate, ...]:
    """Served regions that the spec names and whose node class can boot a machine there, sorted."""
    return ground(draft).candidates


def _candidates(wanted: _Wanted) -> tuple[Candidate, ...]:
    found: dict[str, Candidate] = {}
    spec = wanted.resolved.spec
    for choice in spec.providers:
        part = wanted.resolved.node_classes.get(choice.name)
        if part is None:
            continue
        types = eligible_types(spec, choice.name, part.spec)
        own = overridden_types(choice.name, part.spec)
        account = part.spec.credentials_secret_ref.name
        for region in _regions_of_account(wanted.settings, choice.name, account):
            if choice.regions and region.region not in choice.regions:
                continue
            zones = tuple(
                zone
                for zone in subnets_of(part.spec, region.region)
                if not choice.zones or zone in choice.zones
            )
            if types and zones:
                found[str(region)] = Candidate(
                    region=region, types=types, overrides=tuple(t for t in types if t in own), zones=zones
                )
    return tuple(found[key] for key in sorted(found))


def gaps(draft: Draft, choice: ProviderChoice) -> list[str]:
    """What keeps machines from standing in each region of a spec's entry, whose provider has a node class."""
    part = draft.resolved.node_classes[choice.name]
    account = part.spec.credentials_secret_ref.name
    served = {region.region for region in _regions_of_account(draft.settings, choice.name, account)}
    if not served:
        return [f"{choice.name}: no region is served with account {account}"]
    return [
        f"{choice.name} {region}: {gap}"
        for region in choice.regions or sorted(served)
        if (gap := _gap(part, region, choice.zones) if region in served else f"not served with {account}")
    ]


def _gap(part: NodeClassPart, region: str, zones: Sequence[str]) -> str:
    """What a node class lacks to boot a machine in a region, empty when it lacks nothing."""
    name, spec = f"GPUSpotNodeClass {part.origin.name}", part.spec
    pictured = [image.region for image in spec.images]
    if region not in pictured:
        return f"{name} has no image for it (it has {_listed(pictured)})"
    found = subnets_of(spec, region)
    if not found:
        joined = [network.region for network in spec.network if network.subnets]
        return f"{name} has no subnet in it (it has {_listed(joined)})"
    if zones and not set(zones) & set(found):
        return f"{name} has no subnet in {', '.join(zones)} (it has {_listed(found)})"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _regions_of_account(settings: PoolSettings, provider: str, account: str) -> tuple[RegionKey, ...]:
    return tuple(
        region
        for region in settings.served_regions
        if region.provider == provider and region.account == account
    )


def regions_of_spec(draft: Draft) -> tuple[RegionKey, ...]:
    """Served regions that the spec names, whatever became of their node classes."""
    return ground(draft).of_spec


def _regions_of_spec(wanted: _Wanted) -> tuple[RegionKey, ...]:
    return tuple(
        region
        for region in wanted.settings.served_regions
        if any(
            choice.name == region.provider and (not choice.regions or region.region in choice.regions)
            for choice in wanted.resolved.spec.providers
        )
    )


def regions_of_pool(draft: Draft) -> tuple[RegionKey, ...]:
    """Served regions in which the pool may have machines: those of its spec and account, and those it read.

    A provider that an edit took away may still hold some; an account that no node class names holds none.
    Machines of a former chain may stand anywhere: its readings are not known.
    """
    if draft.resolved.known_machines and not draft.state.known_found:
        return draft.settings.served_regions
    read = {key for key, view in draft.state.regions.items() if view.as_of is not None}
    parts = draft.resolved.node_classes
    accounts = {name: part.spec.credentials_secret_ref.name for name, part in parts.items()}
    named = {
        str(region)
        for region in regions_of_spec(draft)
        if accounts.get(region.provider, region.account) == region.account
    }
    return tuple(region for region in draft.settings.served_regions if str(region) in read | named)


def is_served(draft: Draft, region: RegionKey) -> bool:
    """Whether some worker of this operator answers for the region; an order to another waits for ever."""
    return str(region) in ground(draft).served


def is_usable(draft: Draft, region: RegionKey) -> bool:
    """Whether a region may be bought in now: its sync is well and its newest reading is young."""
    return draft.region(region).health is RegionHealth.OK and draft.is_fresh(region)


def missing_machines(draft: Draft) -> tuple[str, ...]:
    """Ids of machines of a former chain, named by the status, that no region has shown yet.

    They count like machines until it is certain that they are gone: else a chain that starts while a region
    is out of reach, or a machine too young to be listed, would buy a second time what is there.
    """
    if draft.state.known_found or not draft.resolved.known_machines:
        return ()
    met = {machine.instance_id for machine in draft.machines} | set(draft.state.adopted_machines)
    return tuple(known for known in draft.resolved.known_machines if known not in met)


def settle_known(draft: Draft) -> None:
    """Stop to expect machines of a former chain once all were met, or every region was read without them."""
    if draft.state.known_found or not draft.resolved.known_machines:
        return
    if draft.state.known_since is None:
        draft.update(known_since=draft.now)
    certain = known_certain_from(draft)
    views = [draft.region(region) for region in regions_of_pool(draft)]
    all_read = all(v.as_of is not None and certain is not None and v.as_of >= certain for v in views)
    if all_read or not missing_machines(draft):
        draft.update(known_found=True)


def known_certain_from(draft: Draft) -> datetime | None:
    """From when on a reading without them tells that machines of a former chain are gone; None if settled.

    The youngest of them may have been made a moment before this chain began.
    """
    since = draft.state.known_since
    if draft.state.known_found or since is None:
        return None
    return since + seconds(draft.settings.newborn_seconds)


def regions_to_meet(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions to be read for machines of a former chain: at once, and again when their absence counts."""
    certain = known_certain_from(draft)
    if certain is None or not missing_machines(draft):
        return ()
    views = [draft.region(region) for region in regions_of_pool(draft)]
    return tuple(view.region for view in views if view.as_of is None or view.as_of < certain <= draft.now)
