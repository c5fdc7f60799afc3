"""Writing the status of a GPUSpotPool, and letting the resource go."""

from typing import Final, cast

from temporalio import activity

from activities.cluster.base import POOLS, Cluster, Object
from activities.failures import as_application_error
from activities.signatures import ObjectRef, StatusRequest
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER

_ATTEMPTS: Final = 5
_STATUS: Final = "status"


class StatusActivities:
    """Bound to the cluster by ``workers.wiring``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @activity.defn(name="k8s.patch_status")
    async def patch_status(self, request: StatusRequest) -> None:
        """Write a pool's status; a pool that is gone or another object counts as done.

        The whole status is the pool's: fields that it does not name any more are taken away. Nothing is
        written when the resource shows it already.
        """
        wanted = dict(request.status.rendered())
        with as_application_error():
            for attempt in range(1, _ATTEMPTS + 1):
                resource = await self._read(request.pool)
                if resource is None:
                    return
                patch = status_patch(resource, wanted)
                if patch is None or await self._write(request.pool, patch, last=attempt == _ATTEMPTS):
                    return

    async def _write(self, pool: ObjectRef, patch: Object, *, last: bool) -> bool:
        """Patch the status; False when somebody was faster, so that it must be read again."""
        try:
            await self._cluster.patch(POOLS, pool.name, patch, namespace=pool.namespace, subresource=_STATUS)
        except ClusterError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return True
            if error.code is not ErrorCode.CONFLICT or last:
                raise
            return False
        return True

    @activity.defn(name="k8s.remove_finalizer")
    async def remove_finalizer(self, request: ObjectRef) -> None:
        """Let the resource go, by a metadata-only patch; gone already counts as done."""
        with as_application_error():
            for attempt in range(1, _ATTEMPTS + 1):
                resource = await self._read(request)
                patch = finalizer_patch(resource) if resource else None
                if patch is None or await self._release(request, patch, last=attempt == _ATTEMPTS):
                    return

    async def _release(self, pool: ObjectRef, patch: list[Object], *, last: bool) -> bool:
        try:
            await self._cluster.patch(POOLS, pool.name, patch, namespace=pool.namespace)
        except ClusterError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return True
            # A failed ``test`` operation is 422: the list changed since it was read.
            if error.code not in {ErrorCode.CONFLICT, ErrorCode.INVALID_REQUEST} or last:
                raise
            return False
        return True

    async def _read(self, pool: ObjectRef) -> Object | None:
        """The resource, or None when it is gone or another object has its name."""
        try:
            resource = await self._cluster.get(POOLS, pool.name, pool.namespace)
        except ClusterError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            return None
        return resource if resource["metadata"]["uid"] == pool.uid else None


def status_patch(resource: Object, wanted: Object) -> Object | None:
    """A merge patch under a version check that makes the status ``wanted``, or None when it is."""
    shown: Object = resource.get(_STATUS) or {}
    if shown == wanted:
        return None
    version = resource["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, _STATUS: _merge_patch(shown, wanted)}


def _merge_patch(shown: Object, wanted: Object) -> Object:
    """The merge patch from one object to another: what is not wanted any more is set to null."""
    patch: Object = {key: None for key in shown if key not in wanted}
    for key, value in wanted.items():
        before = shown.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = _merge_patch(cast("Object", before), cast("Object", value))
        else:
            patch[key] = value
    return patch


def finalizer_patch(resource: Object) -> list[Object] | None:
    """A JSON patch that takes our finalizer away and touches nothing else, or None when it is not there."""
    finalizers: list[str] = resource["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        return None
    at = f"/metadata/finalizers/{finalizers.index(FINALIZER)}"
    return [{"op": "test", "path": at, "value": FINALIZER}, {"op": "remove", "path": at}]
