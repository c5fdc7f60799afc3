"""Brings each pool's workflow in line with its resource, however often and in whatever order it is asked."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from activities.cluster.base import POOLS, Cluster, Object
from crd_bridge.collection import Collection
from crd_bridge.intents import Action, Intent, decide, resolve
from crd_bridge.keyed_queue import Key
from crd_bridge.keyed_tasks import PostponedError
from crd_bridge.objects import ObjectHeader, ResourceError, parse_header
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import PoolWorkflows, UidMismatchError, update_id_of
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent:
    """What a pool's workflow took over last from this bridge."""

    resolved: ResolvedPool
    update_id: str
    run_id: str


class Reconciler:
    """Serves one pool at a time per key; ``serve`` is the work of a ``KeyedTasks``.

    It remembers what it sent only to save calls and to speak for resources that vanish: with an empty memory
    everything is sent once more, and Temporal answers what it knows from the first outcome.
    """

    def __init__(
        self,
        cluster: Cluster,
        pools: Collection,
        parts: Parts,
        workflows: PoolWorkflows,
        *,
        operator_namespace: str,
        on_new_run: Callable[[Key], None],
    ) -> None:
        """Wire up.

        Args:
            cluster: For the finalizer, and to make sure before a pool is told that its resource is gone.
            pools: The resources as watched.
            parts: What they refer to, as watched.
            workflows: Where intents go.
            operator_namespace: Where node classes are looked for, too.
            on_new_run: Told when another run of a workflow answered than before: it may have missed signals.
        """
        self._cluster = cluster
        self._pools = pools
        self._parts = parts
        self._workflows = workflows
        self._operator_namespace = operator_namespace
        self._on_new_run = on_new_run
        self._sent: dict[Key, Sent] = {}
        self._forced: set[Key] = set()

    def force(self, key: Key) -> None:
        """Have the next ``serve`` send even what was sent already."""
        self._forced.add(key)

    async def serve(self, key: Key) -> None:
        """Bring one pool up to date.

        Raises:
            PostponedError: Temporal or the workflow is not ready; serve it again.
            ClusterError: The API server did not take the finalizer, or did not answer.
        """
        body = self._pools.get(key)
        if body is None:
            await self._bury(key)
            return
        header = parse_header(body)
        try:
            resolved = resolve(body, self._parts, operator_namespace=self._operator_namespace)
        except ResourceError as error:
            await self._refuse(key, header, error)
            return
        intent = self._intend(key, header, resolved)
        if intent.add_finalizer:
            await self._add_finalizer(body, header)
        await self._carry_out(key, intent, resolved)
        self._forced.discard(key)

    def _intend(self, key: Key, header: ObjectHeader, resolved: ResolvedPool) -> Intent:
        sent = self._sent.get(key)
        known = sent is not None and sent.resolved.uid == resolved.uid and key not in self._forced
        update_id = update_id_of(self._workflows.envelope(resolved))
        return decide(header, update_id, sent.update_id if sent and known else "")

    async def _carry_out(self, key: Key, intent: Intent, resolved: ResolvedPool) -> None:
        if intent.action is Action.NOTHING:
            return
        try:
            if intent.may_start:
                delivered = await self._workflows.apply(resolved)
                self._remember(key, resolved, delivered.run_id)
            elif await self._workflows.apply_if_open(resolved):
                self._remember(key, resolved, "")
        except UidMismatchError:
            await self._retire_predecessor(key, resolved.uid)
            raise
        extra = {"pool": "/".join(key), "action": intent.action, "generation": resolved.generation}
        _log.info("Pool sent", extra=extra)

    def _remember(self, key: Key, resolved: ResolvedPool, run_id: str) -> None:
        update_id = update_id_of(self._workflows.envelope(resolved))
        before = self._sent.get(key)
        self._sent[key] = Sent(resolved, update_id, run_id)
        if run_id and (before is None or before.run_id != run_id):
            self._on_new_run(key)

    async def _add_finalizer(self, body: Object, header: ObjectHeader) -> None:
        """Patch metadata alone: a spec written back could differ in spelling from what is stored (P39)."""
        metadata = {
            "finalizers": [*header.finalizers, FINALIZER],
            "resourceVersion": str(body["metadata"]["resourceVersion"]),
        }
        await self._cluster.patch(POOLS, header.name, {"metadata": metadata}, namespace=header.namespace)

    async def _refuse(self, key: Key, header: ObjectHeader, error: ResourceError) -> None:
        """A resource that cannot be read changes nothing, but for its deletion."""
        _log.error("Pool cannot be read", extra={"pool": "/".join(key), "reason": str(error)})
        if header.deleting:
            last = await self._last_resolved(key)
            if last is not None and last.uid == header.uid:
                await self._tell_deletion(last)

    async def _bury(self, key: Key) -> None:
        """No resource of this name is in the cache: tell a workflow that still runs for one."""
        last = await self._last_resolved(key)
        if last is not None:
            if not await self._is_gone(key, last.uid):
                return  # the cache is late, and the change that is on its way brings us here again
            await self._tell_deletion(last)
        self._sent.pop(key, None)
        self._forced.discard(key)

    async def _retire_predecessor(self, key: Key, living_uid: str) -> None:
        """Tell the workflow that has the name that its own resource is gone, so that it ends."""
        last = await self._last_resolved(key, not_uid=living_uid)
        if last is not None and await self._is_gone(key, last.uid):
            await self._tell_deletion(last)

    async def _last_resolved(self, key: Key, *, not_uid: str = "") -> ResolvedPool | None:
        """What the workflow that runs goes by: from memory, else from the input of its run."""
        sent = self._sent.get(key)
        if sent is not None and sent.resolved.uid != not_uid:
            return sent.resolved
        found = await self._workflows.last_resolved(key)
        return found if found is not None and found.uid != not_uid else None

    async def _tell_deletion(self, last: ResolvedPool) -> bool:
        """Send the last known input as deleting; False when no workflow runs any more."""
        return await self._workflows.apply_if_open(last.model_copy(update={"deleting": True}))

    async def _is_gone(self, key: Key, uid: str) -> bool:
        """Ask the API server itself whether the resource with this uid is no more.

        Only a list that succeeds is believed: a 404 for the single object is also what a server says that
        does not serve the kind at the moment.
        """
        namespace, name = key
        try:
            found = await self._cluster.get(POOLS, name, namespace)
            return str(found["metadata"]["uid"]) != uid
        except ClusterError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
        token = ""
        while True:
            page = await self._cluster.list_page(POOLS, namespace=namespace, continue_token=token)
            if any(str(item["metadata"]["uid"]) == uid for item in page.items):
                raise PostponedError(f"the API server lists the pool {namespace}/{name} but does not give it")
            token = page.continue_token
            if not token:
                return True
