"""Changing Nodes under a version check, and only Nodes that are still the machine that is meant."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from activities.cluster.base import NODES, Cluster, Object
from domain.contracts.errors import ClusterError, ErrorCode

Taint = Mapping[str, Any]
_NO_SCHEDULE: Final = "NoSchedule"
Change = Callable[[Object], Mapping[str, Any] | None]
"""From a Node as read to a merge patch for it, or None when it is as it should be."""

_ATTEMPTS: Final = 5


async def read_node(cluster: Cluster, name: str, provider_id: str) -> Object | None:
    """The Node of a machine, or None when there is none: a name alone may belong to a successor."""
    if not name:
        return None
    try:
        node = await cluster.get(NODES, name)
    except ClusterError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return None
    return node if provider_id_of(node) == provider_id else None


async def change_node(cluster: Cluster, name: str, provider_id: str, change: Change) -> Object | None:
    """Patch a Node under a version check; after a lost one, read again and decide again.

    Returns:
        The Node as it is now, or None when the machine has no Node.

    Raises:
        ClusterError: ``CONFLICT`` when it was lost five times in a row, or any other fault.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        node = await read_node(cluster, name, provider_id)
        patch = change(node) if node is not None else None
        if node is None or patch is None:
            return node
        metadata = {**patch.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            return await cluster.patch(NODES, name, {**patch, "metadata": metadata})
        except ClusterError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            if error.code is not ErrorCode.CONFLICT or attempt == _ATTEMPTS:
                raise
    return None


def provider_id_of(node: Object) -> str:
    """The machine that the Node stands for, empty while nobody said so."""
    return str(node.get("spec", {}).get("providerID", ""))


def taints_of(node: Object) -> list[Taint]:
    """Taints as they stand, in their order."""
    return list(node.get("spec", {}).get("taints") or [])


def closed_by(taints: Iterable[Taint], key: str) -> list[Taint]:
    """The taints with ``key=true:NoSchedule`` among them; one that is there already keeps its place."""
    kept = list(taints)
    if any(taint["key"] == key and taint["effect"] == _NO_SCHEDULE for taint in kept):
        return kept
    return [*kept, {"key": key, "value": "true", "effect": _NO_SCHEDULE}]


def without_taint(taints: Iterable[Taint], key: str) -> list[Taint]:
    """The taints without any of this key."""
    return [taint for taint in taints if taint["key"] != key]
