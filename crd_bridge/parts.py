"""Strategies, profiles and node classes as they are now, each read once per version."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from activities.cluster.base import Object
from crd_bridge.keyed_queue import Key
from crd_bridge.objects import ResourceError, parse_node_class, parse_profile, parse_strategy
from crd_bridge.sections import section
from domain.contracts.names import LABEL_PROFILE
from domain.contracts.resolved import NodeClassPart, ProfilePart, StrategyPart


@dataclass(frozen=True)
class Broken:
    """An object that cannot be read, and why."""

    message: str
    pool_ref: str = ""
    """For a profile: the pool that it names, if that much can be read."""


PartT = TypeVar("PartT", StrategyPart | Broken, ProfilePart | Broken, NodeClassPart | Broken)


class Parts:
    """What pools may refer to. Pure bookkeeping: whoever watches puts in what it sees."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.strategies: dict[Key, StrategyPart | Broken] = {}
        self.profiles: dict[Key, ProfilePart | Broken] = {}
        self.node_classes: dict[Key, NodeClassPart | Broken] = {}
        self._bound: dict[Key, set[str]] = {}

    def put_strategy(self, key: Key, body: Object | None) -> None:
        """Take over a strategy, or its absence."""
        _put(self.strategies, key, _read_strategy(body) if body else None)

    def put_node_class(self, key: Key, body: Object | None) -> None:
        """Take over a node class, or its absence."""
        _put(self.node_classes, key, _read_node_class(body) if body else None)

    def put_profile(self, key: Key, body: Object | None) -> frozenset[Key]:
        """Take over a profile, or its absence; return the pools that it was or is now bound to."""
        before = _pool_of(key, self.profiles.get(key))
        after = _pool_of(key, _put(self.profiles, key, _read_profile(body) if body else None))
        if before:
            self._bound[before].discard(key[1])
        if after:
            self._bound.setdefault(after, set()).add(key[1])
        return frozenset(pool for pool in (before, after) if pool)

    def profiles_of(self, pool: Key) -> Iterator[tuple[str, ProfilePart | Broken]]:
        """Names and profiles that are bound to a pool, sorted by name."""
        for name in sorted(self._bound.get(pool, ())):
            yield name, self.profiles[pool[0], name]

    def pools_with_profiles(self, namespace: str) -> list[Key]:
        """Pools of a namespace to which a profile is bound, sorted."""
        return sorted(pool for pool, names in self._bound.items() if pool[0] == namespace and names)

    def pod_selectors(self) -> frozenset[tuple[str, str]]:
        """Namespace and label selector of every profile that does not go by the profile label."""
        return frozenset(
            (namespace, selector_text(part.spec.pod_selector))
            for (namespace, _), part in self.profiles.items()
            if isinstance(part, ProfilePart) and part.spec.pod_selector
        )


def pod_selector_of(part: ProfilePart) -> dict[str, str]:
    """Labels that mark the pods of a profile."""
    return part.spec.pod_selector or {LABEL_PROFILE: part.origin.name}


def selector_text(labels: dict[str, str]) -> str:
    """The labels as the API's label selector."""
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels))


def _put(parts: dict[Key, PartT], key: Key, part: PartT | None) -> PartT | None:
    if part is None:
        parts.pop(key, None)
    else:
        parts[key] = part
    return part


def _pool_of(key: Key, part: ProfilePart | Broken | None) -> Key | None:
    match part:
        case ProfilePart():
            return key[0], part.spec.pool_ref
        case Broken() if part.pool_ref:
            return key[0], part.pool_ref
        case _:
            return None


def _read_strategy(body: Object) -> StrategyPart | Broken:
    try:
        read = parse_strategy(body)
    except ResourceError as error:
        return Broken(str(error))
    return StrategyPart(origin=read.header.origin, spec=read.spec)


def _read_node_class(body: Object) -> NodeClassPart | Broken:
    try:
        read = parse_node_class(body)
    except ResourceError as error:
        return Broken(str(error))
    return NodeClassPart(origin=read.header.origin, spec=read.spec)


def _read_profile(body: Object) -> ProfilePart | Broken:
    try:
        read = parse_profile(body)
    except ResourceError as error:
        return Broken(str(error), str(section(body, "spec").get("poolRef") or ""))
    return ProfilePart(origin=read.header.origin, spec=read.spec)
