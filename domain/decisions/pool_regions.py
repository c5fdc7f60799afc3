"""Where a pool may buy, and where it may have machines."""

from domain.contracts.facts import RegionHealth
from domain.contracts.model import Contract
from domain.contracts.offers import InstanceType, RegionKey
from domain.decisions.eligibility import eligible_types, overridden_types
from domain.decisions.launch_requests import subnets_of
from domain.decisions.pool_draft import Draft


class Candidate(Contract):
    """A region that the pool may buy in, with the types it may buy there."""

    region: RegionKey
    types: tuple[InstanceType, ...]
    overrides: tuple[InstanceType, ...] = ()
    """Those of them that the node class adds or corrects."""
    zones: tuple[str, ...]


def candidates(draft: Draft) -> tuple[Candidate, ...]:
    """Served regions that the spec names and whose node class can boot a machine there, sorted."""
    return draft.once("candidates", lambda: _candidates(draft))


def _candidates(draft: Draft) -> tuple[Candidate, ...]:
    found: dict[str, Candidate] = {}
    for choice in draft.resolved.spec.providers:
        part = draft.resolved.node_classes.get(choice.name)
        if part is None:
            continue
        types = eligible_types(draft.resolved.spec, choice.name, part.spec)
        own = overridden_types(choice.name, part.spec)
        for region in served_regions(draft, choice.name, part.spec.credentials_secret_ref.name):
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


def served_regions(draft: Draft, provider: str, account: str) -> tuple[RegionKey, ...]:
    """The operator's regions of one provider and account."""
    return tuple(
        region
        for region in draft.settings.served_regions
        if region.provider == provider and region.account == account
    )


def regions_of_spec(draft: Draft) -> tuple[RegionKey, ...]:
    """Served regions that the spec names, whatever became of their node classes."""
    return draft.once("regions", lambda: _regions_of_spec(draft))


def _regions_of_spec(draft: Draft) -> tuple[RegionKey, ...]:
    return tuple(
        region
        for region in draft.settings.served_regions
        if any(
            choice.name == region.provider and (not choice.regions or region.region in choice.regions)
            for choice in draft.resolved.spec.providers
        )
    )


def regions_of_pool(draft: Draft) -> tuple[RegionKey, ...]:
    """Served regions in which the pool may have machines: those of its spec and account, and those it read.

    A provider that an edit took away may still hold some; an account that no node class names holds none.
    """
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
    served = draft.once("served", lambda: {str(r) for r in draft.settings.served_regions})
    return str(region) in served


def is_usable(draft: Draft, region: RegionKey) -> bool:
    """Whether a region may be bought in now: its sync is well and its newest reading is young."""
    return draft.region(region).health is RegionHealth.OK and draft.is_fresh(region)


def missing_machines(draft: Draft) -> int:
    """How many machines of a former chain, named by the status, no region has shown yet.

    They count like machines until every region was read once: else a chain that starts while a region is out
    of reach would buy all of its machines a second time.
    """
    if draft.state.known_found or not draft.resolved.known_machines:
        return 0
    met = {machine.instance_id for machine in draft.machines} | set(draft.state.adopted_machines)
    return sum(1 for known in draft.resolved.known_machines if known not in met)


def settle_known(draft: Draft) -> None:
    """Stop to expect machines of a former chain once every region was read."""
    if draft.state.known_found or not draft.resolved.known_machines:
        return
    if all(draft.region(region).as_of is not None for region in regions_of_pool(draft)):
        draft.update(known_found=True)
