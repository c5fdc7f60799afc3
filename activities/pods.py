"""Emptying a Node: cordon, evict within every budget as long as can be, then delete what is left."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final

from temporalio import activity

from activities.cluster.base import PODS, Cluster, Object
from activities.cluster.node_changes import change_node, closed_by, taints_of
from activities.failures import as_application_error
from activities.heartbeats import beating, pause
from activities.signatures import DrainRequest
from activities.telemetry import metrics
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.facts import DrainResult
from domain.contracts.names import TAINT_DRAINING

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
MAX_BLOCKERS: Final = 20
_AT_ONCE: Final = 10
_DEFAULT_GRACE_SECONDS: Final = 30
_LOOK_AGAIN: Final = timedelta(seconds=1)
# The kubelet's own time between the end of the grace and the pod's disappearance.
_AFTER_GRACE: Final = timedelta(seconds=5)
_CAUSE_CHARS: Final = 200
# The API server's words: "The disruption budget keep needs 1 healthy pods and has 1 currently".
_BUDGET: Final = re.compile(r"disruption budget (\S+) ")


class PodActivities:
    """Bound to the cluster by ``workers.wiring``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @activity.defn(name="k8s.drain_node")
    async def drain_node(self, request: DrainRequest) -> DrainResult:
        """Cordon and evict until empty or the deadline; a blocked eviction is a state, not a failure.

        What cannot be evicted is deleted so early that its grace ends with the deadline. DaemonSet pods,
        mirror pods and finished pods stay. A machine without a Node is done at once.
        """
        async with beating():
            with as_application_error():
                result = await _Drain(self._cluster, request).run()
        outcome = "blocked" if result.blockers else "empty" if result.done else "left"
        metrics.DRAINS.labels(outcome).inc()
        return result


class _Drain:
    """One drain, as far as it got in this attempt; another attempt starts from what the cluster shows."""

    def __init__(self, cluster: Cluster, request: DrainRequest) -> None:
        self._cluster = cluster
        self._request = request
        self._blockers: dict[str, str] = {}
        self._forced: set[str] = set()
        """Pods that were deleted against what held them."""
        self._half = timedelta(seconds=request.grace_seconds) / 2
        # An attempt that begins late, since nobody could drain before, still gives half of what was meant.
        self._end = max(request.deadline, datetime.now(UTC) + self._half)
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> DrainResult:
        node = await change_node(
            self._cluster, self._request.node_name, self._request.provider_id, _cordon_patch
        )
        if node is None:
            return DrainResult(done=True)
        while left := await self._leaving():
            now = datetime.now(UTC)
            if now >= self._end + _AFTER_GRACE:
                rest = (f"{_path_of(pod)}: did not end within its grace" for pod in left)
                return DrainResult(done=False, blockers=(*self._named(), *rest)[:MAX_BLOCKERS])
            waiting = [pod for pod in left if not _is_ending(pod)]
            await self._delete_all([pod for pod in waiting if now >= self._last_moment(pod)])
            await self._evict_all([pod for pod in waiting if now < self._last_moment(pod)])
            await pause(_LOOK_AGAIN)
        return DrainResult(done=True, blockers=self._named()[:MAX_BLOCKERS])

    async def _leaving(self) -> list[Object]:
        """Pods that must leave and are still there."""
        pods: list[Object] = []
        token = ""
        while True:
            page = await self._cluster.list_page(
                PODS, field_selector=f"spec.nodeName={self._request.node_name}", continue_token=token
            )
            pods += [pod for pod in page.items if must_leave(pod)]
            token = page.continue_token
            if not token:
                return pods

    async def _evict_all(self, pods: Sequence[Object]) -> None:
        self._blockers = {path: cause for path, cause in self._blockers.items() if path in self._forced}
        await asyncio.gather(*(self._evict(pod) for pod in pods))

    async def _evict(self, pod: Object) -> None:
        async with self._gate:
            try:
                await self._cluster.evict(
                    pod["metadata"]["name"],
                    pod["metadata"]["namespace"],
                    grace_seconds=self._grace_seconds(pod),
                )
            except ClusterError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    # Whatever the cause, it is tried again until the deadline and named if it stays.
                    self._blockers[_path_of(pod)] = _cause(pod, error)

    def _named(self) -> tuple[str, ...]:
        """What held pods until they were deleted all the same."""
        return tuple(self._blockers[path] for path in sorted(self._blockers))

    def _last_moment(self, pod: Object) -> datetime:
        """When a pod that cannot be evicted is deleted, so that its grace ends with the drain.

        The first half belongs to the budgets, however long the pod's own grace is.
        """
        return self._end - min(timedelta(seconds=_own_grace_seconds(pod)), self._half)

    def _grace_seconds(self, pod: Object) -> int:
        """The pod's own grace, cut to what is left; never 0, which would mean by force."""
        left = (self._end - datetime.now(UTC)).total_seconds()
        return max(min(_own_grace_seconds(pod), ceil(left)), 1)

    async def _delete_all(self, pods: Sequence[Object]) -> None:
        self._forced |= {_path_of(pod) for pod in pods}
        await asyncio.gather(*(self._delete_pod(pod) for pod in pods))

    async def _delete_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        async with self._gate:
            try:
                await self._cluster.delete(
                    PODS,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    uid=metadata["uid"],
                    grace_seconds=self._grace_seconds(pod),
                )
            except ClusterError as error:
                # A lost precondition: the pod is gone and another one has its name.
                if error.code is not ErrorCode.CONFLICT:
                    raise


def must_leave(pod: Object) -> bool:
    """False for pods that end with the machine: of DaemonSets, of the kubelet itself, and finished ones."""
    metadata = pod["metadata"]
    owners: list[Object] = metadata.get("ownerReferences") or []
    if any(owner["kind"] == "DaemonSet" and owner.get("controller") for owner in owners):
        return False
    if MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return False
    return pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}


def _cordon_patch(node: Object) -> Object | None:
    taints = closed_by(taints_of(node), TAINT_DRAINING)
    if node["spec"].get("unschedulable") and taints == taints_of(node):
        return None
    return {"spec": {"unschedulable": True, "taints": taints}}


def _own_grace_seconds(pod: Object) -> int:
    return int(pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))


def _is_ending(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _path_of(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _cause(pod: Object, error: ClusterError) -> str:
    """``namespace/pod: cause (owner)``."""
    budget = _BUDGET.search(str(error))
    if error.code is ErrorCode.THROTTLED and budget:
        cause = f"PodDisruptionBudget {pod['metadata']['namespace']}/{budget.group(1)} allows 0"
    else:
        cause = str(error)[:_CAUSE_CHARS]
    owners: list[Object] = pod["metadata"].get("ownerReferences") or []
    owner = f" (owned by {owners[0]['kind']} {owners[0]['name']})" if owners else ""
    return f"{_path_of(pod)}: {cause}{owner}"
