"""What a pool's resource asks for: the resolved pool, and whether to start, update or delete. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from activities.cluster.base import Object
from crd_bridge.keyed_queue import Key
from crd_bridge.objects import ObjectHeader, known_machines, parse_pool
from crd_bridge.parts import Broken, Parts
from crd_bridge.sections import entries, section
from domain.contracts.names import FINALIZER
from domain.contracts.pools import PoolSpec, ProviderChoice
from domain.contracts.resolved import NodeClassPart, ProfilePart, ResolvedPool, StrategyPart, Unresolved


class Action(StrEnum):
    """What the bridge has to do for a pool."""

    START = "start"
    """Nothing was sent since this bridge leads: start the workflow, or update the one that runs."""
    UPDATE = "update"
    """Something changed."""
    DELETE = "delete"
    """Tell the workflow that the resource is to go."""
    NOTHING = "nothing"


@dataclass(frozen=True)
class Intent:
    """What to do, and how."""

    action: Action
    add_finalizer: bool = False
    """The resource must carry our finalizer before the workflow starts."""
    may_start: bool = True
    """False when only a workflow that runs is to be told."""


def decide(header: ObjectHeader, update_id: str, sent_update_id: str) -> Intent:
    """Judge one pool.

    Args:
        header: The resource's metadata.
        update_id: Of what would be sent now.
        sent_update_id: Of what this bridge delivered last for the same uid; empty when nothing.
    """
    ours = FINALIZER in header.finalizers
    if header.deleting:
        # Without our finalizer the workflow has let go, or somebody forced it: nothing is started for it.
        action = Action.NOTHING if update_id == sent_update_id else Action.DELETE
        return Intent(action, may_start=ours)
    if update_id != sent_update_id:
        return Intent(Action.UPDATE if sent_update_id else Action.START, add_finalizer=not ours)
    return Intent(Action.UPDATE, add_finalizer=True) if not ours else Intent(Action.NOTHING)


def resolve(body: Object, parts: Parts, *, operator_namespace: str) -> ResolvedPool:
    """Resolve a GPUSpotPool with everything that it refers to.

    Returns:
        The same for the same input, to the byte. A reference that leads nowhere is in ``unresolved``.

    Raises:
        ResourceError: The pool itself cannot be read.
    """
    read = parse_pool(body)
    header, spec = read.header, read.spec
    unresolved: list[Unresolved] = []
    return ResolvedPool(
        uid=header.uid,
        namespace=header.namespace,
        name=header.name,
        generation=header.generation,
        spec=spec,
        strategies=dict(_strategies(header.namespace, spec, parts, unresolved)),
        profiles=tuple(_profiles((header.namespace, header.name), parts, unresolved)),
        node_classes=dict(_node_classes(header.namespace, spec, parts, operator_namespace, unresolved)),
        unresolved=tuple(unresolved),
        deleting=header.deleting,
        known_machines=known_machines(body),
    )


def pools_naming_strategy(pools: Iterable[Object], strategy: Key) -> list[Key]:
    """Pools whose spec names a strategy: those of its namespace, sorted."""
    namespace, name = strategy
    return sorted(
        key
        for key, spec in _raw_specs(pools)
        if key[0] == namespace
        and (
            spec.get("strategyRef") == name
            or any(window.get("strategyRef") == name for window in entries(spec, "strategySchedule"))
        )
    )


def pools_naming_node_class(
    pools: Iterable[Object], node_class: Key, *, operator_namespace: str
) -> list[Key]:
    """Pools that a node class may serve: of its namespace, or of any if it is in the operator's; sorted."""
    namespace, name = node_class
    return sorted(
        key
        for key, spec in _raw_specs(pools)
        if namespace in (key[0], operator_namespace)
        and any(
            (choice.get("nodeClassRef") or choice.get("name")) == name
            for choice in entries(spec, "providers")
        )
    )


def _raw_specs(pools: Iterable[Object]) -> Iterator[tuple[Key, Object]]:
    """Key and spec as JSON: reading hundreds of pools whole only to skip most would be waste."""
    for body in pools:
        metadata = body["metadata"]
        yield (str(metadata.get("namespace") or ""), str(metadata["name"])), section(body, "spec")


def _strategies(
    namespace: str, spec: PoolSpec, parts: Parts, unresolved: list[Unresolved]
) -> Iterator[tuple[str, StrategyPart]]:
    named = {spec.strategy_ref, *(window.strategy_ref for window in spec.strategy_schedule)} - {""}
    for name in sorted(named):
        part = parts.strategies.get((namespace, name))
        if isinstance(part, StrategyPart):
            yield name, part
        else:
            text = f"there is no GPUSpotStrategy {name} in namespace {namespace}"
            unresolved.append(_unresolved("GPUSpotStrategy", name, part, text))


def _profiles(pool: Key, parts: Parts, unresolved: list[Unresolved]) -> Iterator[ProfilePart]:
    for name, part in parts.profiles_of(pool):
        if isinstance(part, ProfilePart):
            yield part
        else:
            unresolved.append(_unresolved("GPUWorkloadProfile", name, part, ""))


def _node_classes(
    namespace: str, spec: PoolSpec, parts: Parts, operator_namespace: str, unresolved: list[Unresolved]
) -> Iterator[tuple[str, NodeClassPart]]:
    for choice in sorted(spec.providers, key=lambda choice: choice.name):
        name = choice.node_class_ref or choice.name.value
        part = parts.node_classes.get((namespace, name)) or parts.node_classes.get((operator_namespace, name))
        problem = _node_class_problem(choice, name, part, (namespace, operator_namespace))
        if isinstance(part, NodeClassPart) and not problem:
            yield choice.name.value, part
        else:
            unresolved.append(_unresolved("GPUSpotNodeClass", name, part, problem))


def _node_class_problem(
    choice: ProviderChoice, name: str, part: NodeClassPart | Broken | None, places: tuple[str, str]
) -> str:
    if part is None:
        where = " or ".join(dict.fromkeys(places))
        return f"provider {choice.name} needs a GPUSpotNodeClass {name} in namespace {where}: create it"
    if isinstance(part, NodeClassPart) and part.spec.provider != choice.name:
        return (
            f"GPUSpotNodeClass {name} is for provider {part.spec.provider}, not for {choice.name}: "
            "name another in nodeClassRef"
        )
    return ""


def _unresolved(kind: str, name: str, part: object, otherwise: str) -> Unresolved:
    return Unresolved(kind=kind, name=name, message=part.message if isinstance(part, Broken) else otherwise)
