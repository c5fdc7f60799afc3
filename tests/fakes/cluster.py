"""An in-memory ``Cluster`` for unit tests: versions, watches, version checks, and faults on demand.

It is no imitation of the API server: what a real one does is tested against a real one.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activities.cluster.base import Object, Page, Resource, WatchEvent, WatchEventType
from domain.contracts.errors import ClusterError, ErrorCode

Place = tuple[Resource, str, str]

_WRITES = ("create", "update", "patch", "delete")  # an eviction is counted as the deletion that it is


@dataclass
class _Fault:
    operation: str
    error: ClusterError
    times: int


@dataclass
class _Entry:
    version: int
    resource: Resource
    type: WatchEventType
    body: Object
    before: Object | None

    def seen_through(self, selector: str) -> WatchEvent | None:
        """As a watch with a label selector shows it: what leaves it is deleted, with its old labels."""
        was = self.before is not None and _matches(self.before, selector)
        matches = _matches(self.body, selector)
        if self.type == "DELETED" or (was and not matches):
            gone = dict(self.before or self.body)
            gone["metadata"] = gone["metadata"] | {"resourceVersion": str(self.version)}
            return WatchEvent("DELETED", copy.deepcopy(gone)) if was else None
        return WatchEvent("MODIFIED" if was else "ADDED", copy.deepcopy(self.body)) if matches else None


@dataclass
class FakeCluster:
    """Objects by resource, namespace and name; ``calls`` records operations as ``verb plural[/name]``."""

    page_size: int = 500
    calls: list[str] = field(default_factory=list[str])
    graces: dict[str, int] = field(default_factory=dict[str, int])
    """The last grace that each object was deleted with, by name."""
    objects: dict[Place, Object] = field(default_factory=dict[Place, Object])
    hang: asyncio.Event | None = None
    """While set to an event, every call waits for it."""
    reject_every: int = 0
    """Every write of this number is rejected, whoever makes it; 0 rejects none."""
    writes: int = 0
    rejected: list[str] = field(default_factory=list[str])
    """The writes that were rejected for their number, as in ``calls``."""

    def __post_init__(self) -> None:
        self._versions = itertools.count(1)
        self._version = 0
        self._uids = itertools.count(1)
        self._log: list[_Entry] = []
        self._oldest = 0
        self._faults: list[_Fault] = []
        self._changed = asyncio.Condition()
        self._cut = 0

    # Faults -----------------------------------------------------------------------------------------

    def fail_next(self, operation: str, error: ClusterError, *, times: int = 1) -> None:
        """The next calls whose record begins with ``operation`` (such as ``list pods``) raise."""
        self._faults.append(_Fault(operation, error, times))

    async def drop_watches(self) -> None:
        """Every watch breaks now, as when a connection is reset."""
        async with self._changed:
            self._cut += 1
            self._changed.notify_all()

    def expire(self) -> None:
        """Forget the past: a watch from any version of it answers 410."""
        self._oldest = self._version
        self._log.clear()

    # The port ---------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        await self._enter("get", resource, name)
        return copy.deepcopy(self._find(resource, namespace, name))

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
    ) -> Page:
        await self._enter("list", resource)
        found = [
            copy.deepcopy(self.objects[place])
            for place in sorted((place for place in self.objects if place[0] == resource), key=_path)
            if namespace in ("", place[1])
            and _matches(self.objects[place], label_selector)
            and _is_on(self.objects[place], field_selector)
        ]
        start = int(continue_token or 0)
        end = start + min(limit, self.page_size)
        return Page(found[start:end], str(self._version), str(end) if end < len(found) else "")

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        timeout_seconds: int = 280,
    ) -> AsyncGenerator[WatchEvent, None]:
        await self._enter("watch", resource)
        version, cut = int(resource_version), self._cut
        while True:
            if version < self._oldest:
                raise ClusterError(ErrorCode.CONFLICT, "Expired", operation="watch", status=410)
            for entry in list(self._log):
                if (
                    entry.version > version
                    and entry.resource == resource
                    and namespace in ("", _namespace(entry.body))
                ):
                    version = entry.version
                    event = entry.seen_through(label_selector)
                    if event is not None:
                        yield event
            version = max(version, self._version)
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            async with self._changed:
                while self._version <= version and self._cut <= cut:
                    await self._changed.wait()
            if self._cut > cut:
                raise ClusterError(ErrorCode.UNAVAILABLE, "connection reset", operation="watch")

    async def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        name = str(body["metadata"]["name"])
        await self._enter("create", resource, name)
        if (resource, namespace, name) in self.objects:
            raise ClusterError(ErrorCode.CONFLICT, f"{name} already exists", operation="create", status=409)
        fresh = copy.deepcopy(body)
        fresh["metadata"] |= {
            "namespace": namespace,
            "uid": fresh["metadata"].get("uid") or f"uid-{next(self._uids)}",
            "generation": 1,
            "creationTimestamp": datetime.now(UTC).isoformat(),
        }
        return await self._store(resource, fresh, "ADDED")

    async def replace(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        name = str(body["metadata"]["name"])
        await self._enter("update", resource, name)
        stored = self._find(resource, namespace, name)
        self._check_version(stored, body["metadata"].get("resourceVersion"))
        return await self._store(resource, copy.deepcopy(body), "MODIFIED")

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Object:
        await self._enter("patch", resource, name)
        stored = self._find(resource, namespace, name)
        if not isinstance(body, Mapping):
            body = {"metadata": {"finalizers": _without_finalizer(stored, body)}}
        self._check_version(stored, body.get("metadata", {}).get("resourceVersion"))
        merged = _merge(copy.deepcopy(stored), body)
        if merged.get("spec") != stored.get("spec"):
            merged["metadata"]["generation"] += 1
        metadata = merged["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return await self._remove(resource, merged)
        return await self._store(resource, merged, "MODIFIED")

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        await self._enter("delete", resource, name)
        stored = self.objects.get((resource, namespace, name))
        if stored is None:
            return
        if uid and stored["metadata"]["uid"] != uid:
            raise ClusterError(ErrorCode.CONFLICT, "uid differs", operation="delete", status=409)
        if grace_seconds is not None:
            self.graces[name] = grace_seconds
        if not stored["metadata"].get("finalizers"):
            await self._remove(resource, copy.deepcopy(stored))
        elif not stored["metadata"].get("deletionTimestamp"):
            going = copy.deepcopy(stored)
            going["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
            going["metadata"]["generation"] += 1
            await self._store(resource, going, "MODIFIED")

    async def evict(self, name: str, namespace: str, *, grace_seconds: int | None = None) -> None:
        await self._enter("evict", Resource("", "v1", "pods"), name)
        await self.delete(Resource("", "v1", "pods"), name, namespace=namespace, grace_seconds=grace_seconds)

    async def token_user(self) -> str:
        return "system:serviceaccount:spotgpu-system:fake"

    # Inside -----------------------------------------------------------------------------------------

    async def _enter(self, verb: str, resource: Resource, name: str = "") -> None:
        record = f"{verb} {resource.plural}{f'/{name}' if name else ''}"
        self.calls.append(record)
        if self.hang is not None:
            await self.hang.wait()
        await asyncio.sleep(0)
        for fault in self._faults:
            if record.startswith(fault.operation):
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                raise fault.error
        if verb in _WRITES:
            self._count_write(record)

    def _count_write(self, record: str) -> None:
        self.writes += 1
        if self.reject_every and self.writes % self.reject_every == 0:
            self.rejected.append(record)
            raise ClusterError(ErrorCode.UNAVAILABLE, "told to reject", operation=record, status=503)

    def _find(self, resource: Resource, namespace: str, name: str) -> Object:
        stored = self.objects.get((resource, namespace, name))
        if stored is None:
            raise ClusterError(ErrorCode.NOT_FOUND, f"{name} not found", operation="get", status=404)
        return stored

    def _check_version(self, stored: Object, version: object) -> None:
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            raise ClusterError(ErrorCode.CONFLICT, "the object has been modified", operation="", status=409)

    async def _store(self, resource: Resource, body: Object, event: WatchEventType) -> Object:
        self._stamp(body)
        place = (resource, _namespace(body), str(body["metadata"]["name"]))
        before, self.objects[place] = self.objects.get(place), body
        await self._tell(resource, event, body, before)
        return copy.deepcopy(body)

    async def _remove(self, resource: Resource, body: Object) -> Object:
        self._stamp(body)
        before = self.objects.pop((resource, _namespace(body), str(body["metadata"]["name"])))
        await self._tell(resource, "DELETED", body, before)
        return copy.deepcopy(body)

    def _stamp(self, body: Object) -> None:
        self._version = next(self._versions)
        body["metadata"]["resourceVersion"] = str(self._version)

    async def _tell(
        self, resource: Resource, event: WatchEventType, body: Object, before: Object | None
    ) -> None:
        self._log.append(_Entry(self._version, resource, event, copy.deepcopy(body), copy.deepcopy(before)))
        async with self._changed:
            self._changed.notify_all()


def _path(place: Place) -> tuple[str, str]:
    return place[1:]


def _namespace(body: Object) -> str:
    return str(body["metadata"].get("namespace") or "")


def _matches(body: Object, selector: str) -> bool:
    labels = body["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, is_equal, value = term.partition("=")
        if name not in labels or (is_equal and labels[name] != value):
            return False
    return True


def _is_on(body: Object, selector: str) -> bool:
    """The one field selector that is used: the node of a pod."""
    return not selector or f"spec.nodeName={body['spec'].get('nodeName', '')}" == selector


def _without_finalizer(stored: Object, operations: Sequence[Mapping[str, Any]]) -> list[str]:
    """The one JSON patch that is used: test and remove one finalizer."""
    test, remove = operations
    assert (test["op"], remove["op"], test["path"]) == ("test", "remove", remove["path"])
    finalizers = list(stored["metadata"].get("finalizers") or [])
    index = int(str(test["path"]).removeprefix("/metadata/finalizers/"))
    if finalizers[index : index + 1] != [test["value"]]:
        raise ClusterError(ErrorCode.INVALID_REQUEST, "test failed", operation="patch", status=422)
    return finalizers[:index] + finalizers[index + 1 :]


def _merge(target: Object, patch: Mapping[str, Any]) -> Object:
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, Mapping):
            target[name] = _merge(dict(target.get(name) or {}), value)
        else:
            target[name] = value
    return target
