"""Kubelets of a fake cloud's machines, and the bridge's word to pools, without processes of their own."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from temporalio.client import WorkflowHandle

from activities.cluster.base import NODES, Object
from crd_bridge.nodes import SeenNode, gone, read_node
from domain.contracts.errors import ClusterError
from domain.contracts.facts import NodeFact, NodesSeen
from domain.contracts.instances import Instance
from domain.contracts.names import GPU_RESOURCE, LABEL_POOL_UID, TAG_POOL, TAINT_GPU_NOT_READY
from tests.workflows.serving import StandingWorld
from workflows.messages import NODE_SEEN

_PAUSE_SECONDS = 1.0


class Kubelets:
    """Machines of some pools join once, with their GPUs ready; to remove a Node is the operator's work."""

    def __init__(self, world: StandingWorld, pools: Mapping[str, WorkflowHandle[Any, Any]]) -> None:
        """Serve the pools with these uids."""
        self._world = world
        self._pools = pools
        self._joined: set[str] = set()
        self._told: dict[str, dict[str, NodeFact]] = {uid: {} for uid in pools}

    @property
    def nodes(self) -> int:
        """Nodes that pools know of."""
        return sum(map(len, self._told.values()))

    async def run(self) -> None:
        """Join and tell until cancelled."""
        while True:
            await self._join()
            await self._tell()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _join(self) -> None:
        """One attempt for each machine; whom the API server rejects comes again, as a kubelet does."""
        for machine in list(self._world.cloud.machines.values()):
            if machine.tags.get(TAG_POOL) in self._pools and machine.id not in self._joined:
                with suppress(ClusterError):
                    await self._world.cluster.create(NODES, _node_of(machine))
                    self._joined.add(machine.id)

    async def _tell(self) -> None:
        """Signal to each pool which of its Nodes changed."""
        now = self._nodes()
        for uid, handle in self._pools.items():
            before, self._told[uid] = self._told[uid], now[uid]
            changed = [fact for name, fact in now[uid].items() if fact != before.get(name)]
            changed += [gone(fact) for name, fact in before.items() if name not in now[uid]]
            if changed:
                await handle.signal(NODE_SEEN, NodesSeen(as_of=datetime.now(UTC), nodes=tuple(changed)))

    def _nodes(self) -> dict[str, dict[str, NodeFact]]:
        """Facts by pool and name."""
        found: dict[str, dict[str, NodeFact]] = {uid: {} for uid in self._pools}
        for (kind, _, name), body in self._world.cluster.objects.items():
            seen = read_node(body, {}) if kind == NODES else None
            if isinstance(seen, SeenNode):
                found[seen.pool_uid][name] = seen.fact
        return found


def _node_of(machine: Instance) -> Object:
    return {
        "metadata": {"name": machine.id, "labels": {LABEL_POOL_UID: machine.tags[TAG_POOL]}},
        "spec": {
            "providerID": machine.provider_id,
            "taints": [{"key": TAINT_GPU_NOT_READY, "value": "true", "effect": "NoSchedule"}],
        },
        "status": {
            "allocatable": {GPU_RESOURCE: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
