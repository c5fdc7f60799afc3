"""Which parts of an edit are newer than what a pool has; a lost reference keeps its last good part."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from domain.contracts.pools import PoolSpec
from domain.contracts.resolved import Origin, ProfilePart, ResolvedPool


class _Part(Protocol):
    @property
    def origin(self) -> Origin: ...


PartT = TypeVar("PartT", bound=_Part)


def merge(known: ResolvedPool, edit: ResolvedPool) -> ResolvedPool:
    """Take over what is newer, part by part.

    Edits may arrive late or twice: an older generation of a part changes nothing. A deletion is never
    taken back. ``unresolved`` is the edit's word, since it tells what is missing now.
    """
    newer = edit.generation >= known.generation
    spec = edit.spec if newer else known.spec
    return known.model_copy(
        update={
            "generation": max(known.generation, edit.generation),
            "spec": spec,
            "strategies": _merge_parts(known.strategies, edit.strategies, keep=_named(spec)),
            "profiles": _merge_profiles(known.profiles, edit.profiles),
            "node_classes": _merge_parts(known.node_classes, edit.node_classes, keep=None),
            "unresolved": edit.unresolved if newer else known.unresolved,
            "deleting": known.deleting or edit.deleting,
        }
    )


def _named(spec: PoolSpec) -> frozenset[str]:
    """Strategies that a spec names: others are not kept."""
    return frozenset({spec.strategy_ref, *(window.strategy_ref for window in spec.strategy_schedule)})


def _merge_parts(
    known: Mapping[str, PartT], edit: Mapping[str, PartT], *, keep: frozenset[str] | None
) -> dict[str, PartT]:
    merged = {name: part for name, part in known.items() if keep is None or name in keep}
    for name, part in edit.items():
        before = known.get(name)
        if part.origin.is_newer_than(before.origin if before else None):
            merged[name] = part
    return dict(sorted(merged.items()))


def _merge_profiles(known: tuple[ProfilePart, ...], edit: tuple[ProfilePart, ...]) -> tuple[ProfilePart, ...]:
    """The edit lists every bound profile; of each the newer version counts."""
    before = {part.origin.uid: part for part in known}
    return tuple(
        part
        if part.origin.is_newer_than(before[part.origin.uid].origin if part.origin.uid in before else None)
        else before[part.origin.uid]
        for part in edit
    )
