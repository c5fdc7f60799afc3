"""Which parts of an edit are newer than what a pool has; a lost reference keeps its last good part."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from domain.contracts.pools import PoolSpec
from domain.contracts.resolved import Origin, ProfilePart, ResolvedPool, StrategyPart


class _Part(Protocol):
    @property
    def origin(self) -> Origin: ...


PartT = TypeVar("PartT", bound=_Part)


def merge(known: ResolvedPool, edit: ResolvedPool) -> ResolvedPool:
    """Take over what is newer, part by part.

    Edits may arrive late or twice: an older generation of a part changes nothing, and an edit that was
    resolved from an older generation of the pool brings no objects that the pool has not met: they may be
    those that the ones it knows have replaced. A deletion is never taken back. ``unresolved`` is the edit's
    word, since it tells what is missing now.
    """
    newer = edit.generation >= known.generation
    spec = edit.spec if newer else known.spec
    strategies = _merge_parts(known.strategies, edit.strategies, is_late=not newer)
    return known.model_copy(
        update={
            "generation": max(known.generation, edit.generation),
            "spec": spec,
            "strategies": _in_force(strategies, known.spec, spec),
            "profiles": _merge_profiles(known.profiles, edit.profiles, is_late=not newer),
            "node_classes": _merge_parts(known.node_classes, edit.node_classes, is_late=not newer),
            "unresolved": edit.unresolved if newer else known.unresolved,
            "deleting": known.deleting or edit.deleting,
        }
    )


def _in_force(
    strategies: dict[str, StrategyPart], before: PoolSpec, spec: PoolSpec
) -> dict[str, StrategyPart]:
    """The strategies that the spec names; one that cannot be found is stood in for by the last good one."""
    named = {spec.strategy_ref, *(window.strategy_ref for window in spec.strategy_schedule)}
    kept = {name: part for name, part in strategies.items() if name in named}
    last_good = strategies.get(before.strategy_ref)
    if spec.strategy_ref and spec.strategy_ref not in kept and last_good is not None:
        kept[spec.strategy_ref] = last_good
    return dict(sorted(kept.items()))


def _merge_parts(known: Mapping[str, PartT], edit: Mapping[str, PartT], *, is_late: bool) -> dict[str, PartT]:
    newer = {
        name: part
        for name, part in edit.items()
        if _is_newer(part.origin, known[name].origin if name in known else None, is_late=is_late)
    }
    return dict(sorted({**known, **newer}.items()))


def _is_newer(origin: Origin, before: Origin | None, *, is_late: bool) -> bool:
    if is_late and (before is None or before.uid != origin.uid):
        return False
    return origin.is_newer_than(before)


def _merge_profiles(
    known: tuple[ProfilePart, ...], edit: tuple[ProfilePart, ...], *, is_late: bool
) -> tuple[ProfilePart, ...]:
    """A timely edit lists every bound profile; of each the newer version counts."""
    before = {part.origin.uid: part for part in known}
    fresh = {part.origin.uid: part for part in edit}
    wanted = before if is_late else fresh
    return tuple(_newer_of(before.get(uid), fresh.get(uid, part)) for uid, part in wanted.items())


def _newer_of(known: ProfilePart | None, edit: ProfilePart) -> ProfilePart:
    return known if known is not None and not edit.origin.is_newer_than(known.origin) else edit
