"""Nodes of pools: listed by label, settled under a version check, removed with their machine."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from temporalio import activity

from activities.cluster.base import NODES, Cluster, Object
from activities.cluster.node_changes import (
    Taint,
    change_node,
    closed_by,
    provider_id_of,
    read_node,
    taints_of,
    without_taint,
)
from activities.failures import as_application_error
from activities.signatures import DeleteNodesRequest, NodeSettlement, PoolNodesRequest, SettleNodesRequest
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.facts import NodeFact, NodesSeen
from domain.contracts.names import (
    GPU_RESOURCE,
    LABEL_LIFECYCLE,
    LABEL_POOL_UID,
    TAINT_GPU_NOT_READY,
    TAINT_SPOT,
)
from domain.contracts.offers import CapacityType

Item = TypeVar("Item")

_AT_ONCE: Final = 10


class NodeActivities:
    """Bound to the cluster by ``workers.wiring``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @activity.defn(name="k8s.list_pool_nodes")
    async def list_pool_nodes(self, request: PoolNodesRequest) -> NodesSeen:
        """All Nodes of one pool, by its label."""
        as_of = datetime.now(UTC)
        facts: list[NodeFact] = []
        token = ""
        with as_application_error():
            while True:
                page = await self._cluster.list_page(
                    NODES, label_selector=f"{LABEL_POOL_UID}={request.pool_uid}", continue_token=token
                )
                facts += [node_fact(node) for node in page.items]
                token = page.continue_token
                if not token:
                    return NodesSeen(as_of=as_of, nodes=tuple(facts), complete=True)

    @activity.defn(name="k8s.settle_nodes")
    async def settle_nodes(self, request: SettleNodesRequest) -> None:
        """Labels and taints of joined Nodes; a Node that is gone or another machine's is left alone."""
        with as_application_error():
            await _each(request.nodes, self._settle)

    async def _settle(self, wanted: NodeSettlement) -> None:
        node = await change_node(
            self._cluster, wanted.name, wanted.provider_id, lambda node: settlement_patch(node, wanted)
        )
        if node is None:
            activity.logger.info(
                "No Node to settle", extra={"node": wanted.name, "provider_id": wanted.provider_id}
            )

    @activity.defn(name="k8s.delete_nodes")
    async def delete_nodes(self, request: DeleteNodesRequest) -> None:
        """Remove the Nodes of machines that are gone; a successor under the same name stays."""
        with as_application_error():
            await _each(sorted(request.nodes.items()), self._delete)

    async def _delete(self, machine: tuple[str, str]) -> None:
        provider_id, name = machine
        node = await read_node(self._cluster, name, provider_id)
        if node is None:
            return
        try:
            await self._cluster.delete(NODES, name, uid=node["metadata"]["uid"])
        except ClusterError as error:
            # The precondition failed: since we looked, another Node took the name.
            if error.code is not ErrorCode.CONFLICT:
                raise


async def _each(items: Iterable[Item], act: Callable[[Item], Awaitable[None]]) -> None:
    """Act on every item, a few at a time, then raise the first failure: one Node holds up no other."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Item) -> None:
        async with gate:
            await act(item)

    for result in await asyncio.gather(*(one(item) for item in items), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def node_fact(node: Object) -> NodeFact:
    """What a pool needs to know of a Node."""
    status = node.get("status", {})
    conditions: list[Object] = status.get("conditions") or []
    gpus = str(status.get("allocatable", {}).get(GPU_RESOURCE, "0"))
    return NodeFact(
        provider_id=provider_id_of(node),
        name=node["metadata"]["name"],
        uid=node["metadata"]["uid"],
        ready=any(item["type"] == "Ready" and item["status"] == "True" for item in conditions),
        gpus_allocatable=int(gpus) if gpus.isdecimal() else 0,
        gpu_taint=any(taint["key"] == TAINT_GPU_NOT_READY for taint in taints_of(node)),
    )


def settlement_patch(node: Object, wanted: NodeSettlement) -> Mapping[str, Any] | None:
    """What is missing of the wanted labels and taints, as a merge patch; None when nothing is.

    The taint of spot machines is put back if somebody dropped it; ``gpu-not-ready`` stands exactly until
    the GPUs may be used.
    """
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    missing = {key: value for key, value in wanted.labels.items() if labels.get(key) != value}
    taints = _settled_taints(taints_of(node), wanted)
    patch: dict[str, Any] = {}
    if missing:
        patch["metadata"] = {"labels": missing}
    if taints != taints_of(node):
        patch["spec"] = {"taints": taints}
    return patch or None


def _settled_taints(taints: list[Taint], wanted: NodeSettlement) -> list[Taint]:
    if wanted.labels.get(LABEL_LIFECYCLE) == CapacityType.SPOT:
        taints = closed_by(taints, TAINT_SPOT)
    if wanted.gpus_ready:
        return without_taint(taints, TAINT_GPU_NOT_READY)
    return closed_by(taints, TAINT_GPU_NOT_READY)
