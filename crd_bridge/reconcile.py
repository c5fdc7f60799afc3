"""Brings each pool's workflow in line with its resource, however often and in whatever order it is asked."""

import itertools
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from activities.cluster.base import POOLS, Cluster, Object
from crd_bridge.collection import Collection
from crd_bridge.intents import Action, Intent, decide, resolve
from crd_bridge.keyed_queue import Key
from crd_bridge.keyed_tasks import PostponedError
from crd_bridge.objects import ObjectHeader, ResourceError, parse_header
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import PoolWorkflows, UidMismatchError, content_of
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Edit:
    """What was sent last to a pool's workflow, or tried to be."""

    uid: str
    content: str
    name: str
    """Names the edit among all of this pool: what changes back is another edit."""
    delivered: bool = False
    run_id: str = ""


class Reconciler:
    """Serves one pool at a time per key; ``serve`` is the work of a ``KeyedTasks``.

    It remembers what it sent only to save calls: with an empty memory everything is sent once more, and the
    workflow answers that it knows it.
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
        self._term = uuid.uuid4().hex
        self._edits: dict[Key, Edit] = {}
        self._numbers = itertools.count(1)
        self._forced: set[Key] = set()

    def force(self, key: Key, *, restart: bool = False) -> None:
        """Have the next ``serve`` send even what was sent already.

        Args:
            key: The pool.
            restart: No workflow seems to run for it. Then it is sent as a new edit: a known one would be
                answered from its first outcome even by a run that was terminated, and start nothing.
        """
        self._forced.add(key)
        if restart:
            self._edits.pop(key, None)

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
        content = content_of(self._workflows.envelope(resolved))
        edit = self._edits.get(key)
        known = edit is not None and edit.uid == header.uid and edit.delivered and key not in self._forced
        return decide(header, content, edit.content if edit and known else "")

    async def _carry_out(self, key: Key, intent: Intent, resolved: ResolvedPool) -> None:
        if intent.action is Action.NOTHING:
            return
        edit = self._edit(key, resolved)
        self._edits[key] = replace(edit, delivered=False)
        try:
            if intent.may_start:
                delivered = await self._workflows.apply(resolved, edit=edit.name)
                self._edits[key] = replace(edit, delivered=True, run_id=delivered.run_id)
                if delivered.run_id != edit.run_id:
                    self._on_new_run(key)
            else:
                await self._workflows.apply_if_open(resolved, edit=edit.name)
                self._edits[key] = replace(edit, delivered=True)
        except UidMismatchError:
            await self._tell_gone(key, living_uid=resolved.uid)
            raise
        extra = {"pool": "/".join(key), "action": intent.action, "generation": resolved.generation}
        _log.info("Pool sent", extra=extra)

    def _edit(self, key: Key, resolved: ResolvedPool) -> Edit:
        """The edit that is under way if it has this content, else a new one."""
        content = content_of(self._workflows.envelope(resolved))
        last = self._edits.get(key)
        if last is not None and (last.uid, last.content) == (resolved.uid, content):
            return last
        run_id = last.run_id if last is not None and last.uid == resolved.uid else ""
        return Edit(resolved.uid, content, f"{self._term}.{next(self._numbers)}", run_id=run_id)

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
            last = await self._workflows.last_resolved(key)
            if last is not None and last.uid == header.uid:
                await self._tell_deletion(last)

    async def _bury(self, key: Key) -> None:
        """No resource of this name is in the cache: tell a workflow that still runs for one."""
        await self._tell_gone(key)
        if self._pools.get(key) is None:
            self._edits.pop(key, None)
            self._forced.discard(key)

    async def _tell_gone(self, key: Key, *, living_uid: str = "") -> None:
        """Tell the workflow that has the name that its own resource is gone, so that it ends.

        What it goes by is read from the input of its run, so this works for resources that vanished before
        this bridge began, too.
        """
        last = await self._workflows.last_resolved(key)
        if last is not None and last.uid != living_uid and await self._is_gone(key, last.uid):
            await self._tell_deletion(last)

    async def _tell_deletion(self, last: ResolvedPool) -> None:
        """Send the last known input as deleting; a deletion is never taken back, so it is one edit."""
        deleting = last.model_copy(update={"deleting": True})
        await self._workflows.apply_if_open(deleting, edit="deletion")

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
