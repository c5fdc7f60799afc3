"""Which instance types and offers a pool may buy at all, before anything is ranked."""

from collections.abc import Iterable, Sequence

from domain.contracts.catalogue import types_for
from domain.contracts.node_classes import InstanceTypeOverride, NodeClassSpec
from domain.contracts.offers import InstanceType, Interconnect, Offer, ProviderName
from domain.contracts.pools import PoolSpec, ProviderChoice
from domain.contracts.profiles import ProfileSpec


def eligible_types(
    spec: PoolSpec, provider: ProviderName, node_class: NodeClassSpec | None
) -> tuple[InstanceType, ...]:
    """Instance types of one provider that this pool may buy.

    The node class adds types that the catalogue lacks and replaces those that it knows wrongly; the
    pool's ``instanceTypes`` of that provider narrow the result.

    Args:
        spec: The pool.
        provider: The cloud; one that the pool does not name gives nothing.
        node_class: The provider's node class, None when it could not be resolved.

    Returns:
        Sorted by name, one entry per name; empty when nothing fits.
    """
    choices = [choice for choice in spec.providers if choice.name == provider]
    if not choices:
        return ()
    overrides = overridden_types(provider, node_class)
    overridden = {override.name for override in overrides}
    found = {override.name: override for override in overrides if accepts_gpu(spec.gpu_types, override)}
    for gpu_type in spec.gpu_types:
        found.update((t.name, t) for t in types_for(provider, gpu_type) if t.name not in overridden)
    return tuple(found[name] for name in sorted(found) if any(_names_type(c, name) for c in choices))


def overridden_types(provider: ProviderName, node_class: NodeClassSpec | None) -> tuple[InstanceType, ...]:
    """The types that a node class adds or corrects, whatever GPUs they have."""
    return () if node_class is None else tuple(_from_override(provider, o) for o in node_class.instance_types)


def accepts_gpu(gpu_types: Sequence[str], instance_type: InstanceType) -> bool:
    """Whether a type's GPU is one of ``gpu_types``: ``MODEL-MEMORY``, or a bare model for any memory."""
    return instance_type.gpu_type in gpu_types or instance_type.gpu_model in gpu_types


def selects(spec: PoolSpec, offer: Offer) -> bool:
    """Whether the pool's list of providers names this offer's region, zone and instance type."""
    return any(
        choice.name == offer.provider
        and (not choice.regions or offer.region in choice.regions)
        and (not choice.zones or offer.zone in choice.zones)
        and _names_type(choice, offer.instance_type.name)
        for choice in spec.providers
    )


def memory_floor_gb(profiles: Iterable[ProfileSpec]) -> int:
    """Memory that one GPU must have, in GB: the largest ``minMemoryGB`` of the bound profiles, else 0.

    The largest, since the machines of a pool serve all profiles that are bound to it.
    """
    return max((profile.gpu_requirement.min_memory_gb or 0 for profile in profiles), default=0)


def _names_type(choice: ProviderChoice, name: str) -> bool:
    return not choice.instance_types or name in choice.instance_types


def _from_override(provider: ProviderName, override: InstanceTypeOverride) -> InstanceType:
    return InstanceType(
        provider=provider,
        name=override.name,
        gpu_model=override.gpu_model,
        gpu_count=override.gpu_count,
        gpu_memory_gb=override.gpu_memory_gb,
        vcpu_count=override.vcpu_count,
        ram_gib=override.ram_gib,
        interconnect=Interconnect(override.interconnect),
    )
