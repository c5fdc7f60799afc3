"""The adapter, the reflector, the elector and the rights of ``deploy/`` against a real API server."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from activities.cluster.base import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODE_CLASSES,
    NODES,
    PODS,
    POOLS,
    PROFILES,
    SECRETS,
    STRATEGIES,
    Cluster,
    Object,
    Resource,
    parse_time,
)
from activities.cluster.kube import Connection, KubeCluster
from crd_bridge.backoff import Backoff
from crd_bridge.collection import Collection
from crd_bridge.election import Elector, LeaseDurations
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import Delivered
from crd_bridge.reconcile import Reconciler
from crd_bridge.watch import Reflector, Scope
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from sandbox.control_plane.components import API_SERVER
from sandbox.control_plane.launcher import ControlPlane
from tests.crd_bridge.builders import POOL_SPEC
from tests.crd_bridge.waiting import running, until, until_async
from workflows.messages import SpecEnvelope

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = Backoff(first_seconds=0.05, longest_seconds=0.5)


@pytest.fixture
async def cluster(plane_with_crds: ControlPlane) -> AsyncIterator[KubeCluster]:
    async with await KubeCluster.connect(Connection(plane_with_crds.kubeconfig)) as cluster:
        yield cluster


def a_map(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "data": {"x": "1"}}


async def code_of(work: Awaitable[object]) -> ErrorCode | None:
    try:
        await work
    except ClusterError as error:
        return error.code
    return None


# The adapter -----------------------------------------------------------------------------------------


async def test_cluster_creates_reads_patches_replaces_and_deletes(
    cluster: KubeCluster, namespace: str
) -> None:
    made = await cluster.create(CONFIG_MAPS, a_map("a"), namespace)
    assert await cluster.get(CONFIG_MAPS, "a", namespace) == made
    merged = await cluster.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, namespace=namespace)
    assert merged["data"] == {"x": "1", "y": "2"}
    steps = [{"op": "test", "path": "/data/y", "value": "2"}, {"op": "remove", "path": "/data/x"}]
    assert (await cluster.patch(CONFIG_MAPS, "a", steps, namespace=namespace))["data"] == {"y": "2"}
    assert await code_of(cluster.replace(CONFIG_MAPS, made, namespace)) is ErrorCode.CONFLICT
    assert await code_of(cluster.create(CONFIG_MAPS, a_map("a"), namespace)) is ErrorCode.CONFLICT
    stale = cluster.delete(CONFIG_MAPS, "a", namespace=namespace, uid="another")
    assert await code_of(stale) is ErrorCode.CONFLICT
    await cluster.delete(CONFIG_MAPS, "a", namespace=namespace, uid=made["metadata"]["uid"])
    assert await code_of(cluster.get(CONFIG_MAPS, "a", namespace)) is ErrorCode.NOT_FOUND
    await cluster.delete(CONFIG_MAPS, "a", namespace=namespace)


async def test_cluster_patches_under_a_version_check(cluster: KubeCluster, namespace: str) -> None:
    made = await cluster.create(CONFIG_MAPS, a_map("a"), namespace)
    checked = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    await cluster.patch(CONFIG_MAPS, "a", checked, namespace=namespace)
    assert await code_of(cluster.patch(CONFIG_MAPS, "a", checked, namespace=namespace)) is ErrorCode.CONFLICT


async def test_cluster_lists_in_pages_and_by_label(cluster: KubeCluster, namespace: str) -> None:
    for number in range(5):
        await cluster.create(CONFIG_MAPS, a_map(f"m{number}", team="a" if number < 3 else "b"), namespace)
    names: list[str] = []
    token, pages = "", 0
    while True:
        page = await cluster.list_page(
            CONFIG_MAPS, namespace=namespace, label_selector="team=a", limit=2, continue_token=token
        )
        names += [item["metadata"]["name"] for item in page.items]
        token, pages = page.continue_token, pages + 1
        if not token:
            break
    assert (names, pages) == (["m0", "m1", "m2"], 2)


async def test_cluster_names_the_field_of_a_refused_pool(cluster: KubeCluster, namespace: str) -> None:
    bad = a_pool("bad", minInstances=30)
    with pytest.raises(ClusterError, match="minInstances") as caught:
        await cluster.create(POOLS, bad, namespace)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_cluster_knows_who_it_is(cluster: KubeCluster) -> None:
    assert await cluster.token_user() == "sandbox-admin"


async def test_cluster_names_the_budget_that_forbids_an_eviction(
    cluster: KubeCluster, plane_with_crds: ControlPlane, namespace: str
) -> None:
    await until_async(lambda: _exists(cluster, Resource("", "v1", "serviceaccounts"), "default", namespace))
    pod = {
        "metadata": {"name": "held", "labels": {"app": "held"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere"},
    }
    await cluster.create(PODS, pod, namespace)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
    }
    plane_with_crds.kubectl("apply", "-f", "-", stdin=json.dumps(budget))
    running_pod = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.patch(PODS, "held", running_pod, namespace=namespace, subresource="status")

    async def refused_by_name() -> bool:
        with pytest.raises(ClusterError) as caught:
            await cluster.evict("held", namespace)
        return caught.value.code is ErrorCode.THROTTLED and "disruption budget keep" in str(caught.value)

    await until_async(refused_by_name)
    await cluster.delete(PODS, "held", namespace=namespace, grace_seconds=0)


async def _exists(cluster: KubeCluster, resource: Resource, name: str, namespace: str) -> bool:
    return await code_of(cluster.get(resource, name, namespace)) is None


# The reflector ---------------------------------------------------------------------------------------


async def test_reflector_resumes_after_the_api_server_restarted(
    plane_with_crds: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    events: list[str] = []
    reflector = Reflector(
        cluster,
        Scope(POOLS, namespace),
        backoff=QUICK,
        on_watch=lambda _, event: events.append(event),
    )
    queue = reflector.subscribe()
    await cluster.create(POOLS, a_pool("before"), namespace)
    async with running(reflector.run()):
        assert (await asyncio.wait_for(queue.take(), 10))[0] == (namespace, "before")
        plane_with_crds.kill(API_SERVER)
        await until(lambda: "error" in events, seconds=20)
        # In this thread: the server ends with the thread that started it.
        plane_with_crds.restart(API_SERVER)

        async def created() -> bool:
            return await code_of(cluster.create(POOLS, a_pool("during"), namespace)) in (
                None, ErrorCode.CONFLICT,
            )  # fmt: skip

        await until_async(created, seconds=30)
        assert (await asyncio.wait_for(queue.take(), 30))[0] == (namespace, "during")
        await cluster.patch(POOLS, "before", {"spec": {"minInstances": 3}}, namespace=namespace)
        key, change = await asyncio.wait_for(queue.take(), 10)
        assert (key[1], change.type, change.object["spec"]["minInstances"]) == ("before", "MODIFIED", 3)


async def test_reflector_moves_its_version_on_by_bookmarks(cluster: KubeCluster, namespace: str) -> None:
    reflector = Reflector(cluster, Scope(CONFIG_MAPS, namespace), backoff=QUICK, watch_seconds=(5, 5))
    async with running(reflector.run()):
        await reflector.wait_synced()
        listed_at, version = reflector.as_of, reflector._version
        # Elsewhere, so that no event of it is seen here.
        await cluster.create(CONFIG_MAPS, a_map(f"of-{namespace}"), "default")
        await until(lambda: reflector.as_of > listed_at and reflector._version != version, seconds=20)
        assert {item["metadata"]["namespace"] for item in reflector.objects()} <= {namespace}


async def test_reflector_sees_an_object_leave_its_selector(cluster: KubeCluster, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, a_map("m", team="a"), namespace)
    reflector = Reflector(cluster, Scope(CONFIG_MAPS, namespace, "team"), backoff=QUICK)
    queue = reflector.subscribe()
    async with running(reflector.run()):
        assert (await asyncio.wait_for(queue.take(), 10))[1].type == "ADDED"
        await cluster.patch(CONFIG_MAPS, "m", {"metadata": {"labels": {"team": None}}}, namespace=namespace)
        change = (await asyncio.wait_for(queue.take(), 10))[1]
        assert (change.type, change.object["metadata"]["labels"]) == ("DELETED", {"team": "a"})


async def test_reflector_stops_at_once_when_cancelled_while_idle(
    cluster: KubeCluster, namespace: str
) -> None:
    reflector = Reflector(cluster, Scope(CONFIG_MAPS, namespace))
    task = asyncio.ensure_future(reflector.run())
    await reflector.wait_synced()
    task.cancel()
    _, pending = await asyncio.wait({task}, timeout=2)
    assert not pending


# The elector -----------------------------------------------------------------------------------------


async def test_electors_hand_a_lease_over_on_a_real_server(cluster: KubeCluster, namespace: str) -> None:
    leading: list[str] = []
    durations = LeaseDurations(lease_seconds=5, renew_deadline_seconds=3, retry_seconds=0.1)

    async def lead(name: str) -> None:
        leading.append(name)
        assert len(leading) == 1
        try:
            await asyncio.Event().wait()
        finally:
            leading.remove(name)

    def elector(name: str) -> Elector:
        return Elector(cluster, namespace=namespace, name="l", identity=name, durations=durations)

    async with running(elector("one").run(lambda: lead("one"))) as first:
        await until(lambda: leading == ["one"])
        async with running(elector("two").run(lambda: lead("two"))):
            lease = await cluster.get(LEASES, "l", namespace)

            async def renewed() -> bool:
                now = await cluster.get(LEASES, "l", namespace)
                return parse_time(now["spec"]["renewTime"]) > parse_time(lease["spec"]["renewTime"])

            await until_async(renewed)
            assert lease["spec"]["holderIdentity"] == "one"
            first.cancel()
            await until(lambda: leading == ["two"], seconds=3)
    released = await cluster.get(LEASES, "l", namespace)
    assert (released["spec"].get("holderIdentity", ""), released["spec"]["leaseTransitions"]) == ("", 1)


# The finalizer ---------------------------------------------------------------------------------------


def a_pool(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "spotgpu.zuoyang.cn/v1alpha1",
        "kind": "GPUSpotPool",
        "metadata": {"name": name},
        "spec": POOL_SPEC | spec,
    }


IMMUTABLE = Resource("test.spotgpu.zuoyang.cn", "v1", "frozens")
IMMUTABLE_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "frozens.test.spotgpu.zuoyang.cn"},
    "spec": {
        "group": IMMUTABLE.group, "scope": "Namespaced",
        "names": {"kind": "Frozen", "plural": "frozens", "singular": "frozen"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                "type": "object",
                "properties": {"cpu": {"x-kubernetes-int-or-string": True}},
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "spec is immutable"}],
            }}}},
        }],
    },
}  # fmt: skip


class _NoWorkflows:
    """Takes everything; this test is about the finalizer."""

    def envelope(self, resolved: ResolvedPool) -> SpecEnvelope:
        return SpecEnvelope(resolved=resolved, settings=PoolSettings())

    async def apply(self, resolved: ResolvedPool, *, edit: str) -> Delivered:
        return Delivered("run", accepted=True)


async def test_p39_finalizer_is_a_metadata_only_patch_whatever_the_spelling_of_the_spec(
    plane_with_crds: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    """A spec that cannot be changed, stored as ``1000m``: writing it back as ``1`` would be refused."""
    plane_with_crds.kubectl("apply", "-f", "-", stdin=json.dumps(IMMUTABLE_CRD))
    body = {
        "apiVersion": "test.spotgpu.zuoyang.cn/v1", "kind": "Frozen",
        "metadata": {"name": "pool", "finalizers": [FINALIZER]}, "spec": {"cpu": "1000m"},
    }  # fmt: skip

    async def made() -> bool:
        return await code_of(cluster.create(IMMUTABLE, body, namespace)) is None

    await until_async(made, seconds=20)
    stored = await cluster.get(IMMUTABLE, "pool", namespace)
    rewritten = {**stored, "spec": {"cpu": "1"}}
    assert await code_of(cluster.replace(IMMUTABLE, rewritten, namespace)) is ErrorCode.INVALID_REQUEST
    await cluster.delete(IMMUTABLE, "pool", namespace=namespace)
    going = await cluster.get(IMMUTABLE, "pool", namespace)
    version = going["metadata"]["resourceVersion"]
    let_go = {"metadata": {"finalizers": None, "resourceVersion": version}}
    await cluster.patch(IMMUTABLE, "pool", let_go, namespace=namespace)
    assert await code_of(cluster.get(IMMUTABLE, "pool", namespace)) is ErrorCode.NOT_FOUND


async def test_p39_bridge_adds_the_finalizer_and_leaves_the_spec_as_it_was_written(
    cluster: KubeCluster, namespace: str
) -> None:
    await cluster.create(POOLS, a_pool("pool", maxPricePerHour=8.00), namespace)
    pools = Collection([Reflector(cluster, Scope(POOLS, namespace), backoff=QUICK)])
    reconciler = Reconciler(
        cluster,
        pools,
        Parts(),
        _NoWorkflows(),  # pyright: ignore[reportArgumentType]  # stands in for PoolWorkflows
        operator_namespace=namespace,
        on_new_run=lambda _: None,
    )
    before = await cluster.get(POOLS, "pool", namespace)
    async with running(pools.run()):
        await pools.wait_synced()
        await reconciler.serve((namespace, "pool"))
    after = await cluster.get(POOLS, "pool", namespace)
    assert after["metadata"]["finalizers"] == [FINALIZER]
    assert (after["spec"], after["metadata"]["generation"]) == (
        before["spec"],
        before["metadata"]["generation"],
    )
    await cluster.patch(POOLS, "pool", {"metadata": {"finalizers": None}}, namespace=namespace)


# Rights ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane_with_rights(plane_with_crds: ControlPlane) -> ControlPlane:
    for folder in ("manifests", "rbac"):
        plane_with_crds.kubectl("apply", "-f", str(REPOSITORY / "deploy" / folder))
    return plane_with_crds


async def acting_as(plane: ControlPlane, account: str) -> KubeCluster:
    path = plane.service_account_kubeconfig("spotgpu-system", account)
    return await KubeCluster.connect(Connection(path))


Attempt = Callable[[Cluster], Awaitable[object]]
OPS = "spotgpu-system"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
LEASE = {"metadata": {"name": "spotgpu-bridge"}, "spec": {"holderIdentity": "x"}}
NODE = {"metadata": {"name": "n"}}


def a_secret_of(namespace: str) -> Attempt:
    return lambda cluster: cluster.get(SECRETS, "tencent-credentials", namespace)


DENIED_TO_BOTH: dict[str, Attempt] = {
    "list secrets everywhere": lambda c: c.list_page(SECRETS),
    "list secrets of its own namespace": lambda c: c.list_page(SECRETS, namespace=OPS),
    "read a secret of another namespace": a_secret_of("default"),
    "make a pod": lambda c: c.create(PODS, POD, "default"),
    "make a node": lambda c: c.create(NODES, NODE),
    "make a pool": lambda c: c.create(POOLS, a_pool("p"), "default"),
    "delete a pool": lambda c: c.delete(POOLS, "p", namespace="default"),
    "change a strategy": lambda c: c.patch(STRATEGIES, "s", {"spec": {}}, namespace="default"),
    "change a node class": lambda c: c.patch(NODE_CLASSES, "s", {"spec": {}}, namespace="default"),
    "read another config map": lambda c: c.get(CONFIG_MAPS, "other", OPS),
    "read config maps of another namespace": lambda c: c.get(CONFIG_MAPS, "x", "default"),
    "touch a lease of another namespace": lambda c: c.get(LEASES, "l", "kube-system"),
    "give itself rights": lambda c: c.patch(
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False),
        "spotgpu-worker", {"rules": []},
    ),
}  # fmt: skip
DENIED_TO_BRIDGE: dict[str, Attempt] = {
    "read a secret of its own namespace": a_secret_of(OPS),
    "delete a pod": lambda c: c.delete(PODS, "p", namespace="default"),
    "evict a pod": lambda c: c.evict("p", "default"),
    "change a node": lambda c: c.patch(NODES, "n", {"metadata": {"labels": {"a": "b"}}}),
    "delete a node": lambda c: c.delete(NODES, "n"),
    "write a status": lambda c: c.patch(
        POOLS, "p", {"status": {}}, namespace="default", subresource="status"
    ),
    "touch another lease": lambda c: c.get(LEASES, "other", OPS),
}
DENIED_TO_WORKER: dict[str, Attempt] = {
    "touch the bridge's lease": lambda c: c.get(LEASES, "spotgpu-bridge", OPS),
    "change a pod": lambda c: c.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, namespace="default"),
    "read a profile": lambda c: c.get(PROFILES, "p", "default"),
}


@pytest.mark.parametrize("what", [*DENIED_TO_BOTH, *DENIED_TO_BRIDGE])
async def test_bridge_is_denied_to(plane_with_rights: ControlPlane, what: str) -> None:
    async with await acting_as(plane_with_rights, "spotgpu-bridge") as cluster:
        assert await code_of((DENIED_TO_BOTH | DENIED_TO_BRIDGE)[what](cluster)) is ErrorCode.FORBIDDEN


@pytest.mark.parametrize("what", [*DENIED_TO_BOTH, *DENIED_TO_WORKER])
async def test_worker_is_denied_to(plane_with_rights: ControlPlane, what: str) -> None:
    async with await acting_as(plane_with_rights, "spotgpu-worker") as cluster:
        assert await code_of((DENIED_TO_BOTH | DENIED_TO_WORKER)[what](cluster)) is ErrorCode.FORBIDDEN


ALLOWED_TO_BRIDGE: dict[str, Attempt] = {
    **{
        f"list {resource.plural}": (lambda c, resource=resource: c.list_page(resource))
        for resource in (POOLS, STRATEGIES, PROFILES, NODE_CLASSES, NODES, PODS)
    },
    "put a finalizer on a pool": lambda c: c.patch(POOLS, "p", {"metadata": {}}, namespace="default"),
    "read its lease": lambda c: c.get(LEASES, "spotgpu-bridge", OPS),
    "read the installation": lambda c: c.get(CONFIG_MAPS, "spotgpu-installation", OPS),
    "know who it is": lambda c: c.token_user(),
}
ALLOWED_TO_WORKER: dict[str, Attempt] = {
    "list pools": lambda c: c.list_page(POOLS),
    "list nodes": lambda c: c.list_page(NODES),
    "list pods": lambda c: c.list_page(PODS),
    "write a status": lambda c: c.patch(
        POOLS, "p", {"status": {}}, namespace="default", subresource="status"
    ),
    "remove a finalizer": lambda c: c.patch(POOLS, "p", {"metadata": {}}, namespace="default"),
    "change a node": lambda c: c.patch(NODES, "n", {"metadata": {"labels": {"a": "b"}}}),
    "delete a node": lambda c: c.delete(NODES, "n"),
    "evict a pod": lambda c: c.evict("p", "default"),
    "read a secret of its own namespace": a_secret_of(OPS),
    "read the installation": lambda c: c.get(CONFIG_MAPS, "spotgpu-installation", OPS),
    "know who it is": lambda c: c.token_user(),
}


@pytest.mark.parametrize("what", ALLOWED_TO_BRIDGE)
async def test_bridge_may(plane_with_rights: ControlPlane, what: str) -> None:
    async with await acting_as(plane_with_rights, "spotgpu-bridge") as cluster:
        assert await code_of(ALLOWED_TO_BRIDGE[what](cluster)) in (None, ErrorCode.NOT_FOUND)


@pytest.mark.parametrize("what", ALLOWED_TO_WORKER)
async def test_worker_may(plane_with_rights: ControlPlane, what: str) -> None:
    async with await acting_as(plane_with_rights, "spotgpu-worker") as cluster:
        assert await code_of(ALLOWED_TO_WORKER[what](cluster)) in (None, ErrorCode.NOT_FOUND)


async def test_worker_may_publish_an_event(plane_with_rights: ControlPlane, namespace: str) -> None:
    event = {
        "metadata": {"name": f"e{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"},
        "involvedObject": {"kind": "GPUSpotPool", "namespace": namespace, "name": "p"},
        "reason": "LaunchOrdered", "message": "m", "type": "Normal",
    }  # fmt: skip
    async with await acting_as(plane_with_rights, "spotgpu-worker") as cluster:
        await cluster.create(EVENTS, event, namespace)


async def test_bridge_leads_by_its_own_lease_under_its_own_rights(plane_with_rights: ControlPlane) -> None:
    led = asyncio.Event()

    async def lead() -> None:
        led.set()

    async with await acting_as(plane_with_rights, "spotgpu-bridge") as cluster:
        elector = Elector(cluster, namespace=OPS, name="spotgpu-bridge", identity="test")
        await asyncio.wait_for(elector.run(lead), 20)
    assert led.is_set()


async def test_priority_classes_are_as_promised(plane_with_rights: ControlPlane) -> None:
    shown = json.loads(plane_with_rights.kubectl("get", "priorityclasses", "-o", "json"))
    values = {item["metadata"]["name"]: item["value"] for item in shown["items"]}
    assert (values["gpu-training-high"], values["gpu-inference-medium"]) == (1_000_000, 500_000)
