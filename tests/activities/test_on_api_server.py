"""The cluster activities under the worker's own service account, against a real API server with RBAC on."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.announce import AnnounceActivities
from activities.cluster.kube import Connection, KubeCluster
from activities.nodes import NodeActivities
from activities.owners import OwnerActivities
from activities.pods import PodActivities
from activities.signatures import (
    AskOwnersRequest,
    DeleteNodesRequest,
    DrainRequest,
    EventsRequest,
    NodeSettlement,
    ObjectRef,
    PoolNodesRequest,
    SettleNodesRequest,
    StatusRequest,
)
from activities.status import StatusActivities
from crd_bridge.schema import CRD_FOLDER
from domain.contracts.announcements import Announcement, EventReason
from domain.contracts.names import (
    FINALIZER,
    LABEL_LIFECYCLE,
    LABEL_POOL_UID,
    TAINT_DRAINING,
    TAINT_GPU_NOT_READY,
    TAINT_SPOT,
)
from domain.contracts.offers import ProviderName
from domain.contracts.pools import OrphanPolicy
from domain.contracts.status import (
    Condition,
    InstanceReport,
    InstanceStatus,
    PoolStatus,
    WorkflowRef,
)
from sandbox.control_plane.annotations import MANAGED_BY_KWOK, MANAGED_BY_KWOK_VALUE, POWER, POWER_ON
from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.launcher import ControlPlane
from tests.activities.builders import NOW, a_machine, an_attempt
from tests.crd_bridge.waiting import until
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION
from workers.installation import read_or_make
from workers.secrets import OperatorSecrets

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

DEPLOY = CRD_FOLDER.parent
NAMESPACE = "spotgpu-system"
POOL_YAML = Path(__file__).parents[2] / "docs" / "examples" / "gpuspotpool.yaml"


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane as ``deploy/`` sets it up."""
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), find_or_build(os.environ, _tell))
    plane.start()
    try:
        plane.wait_ready()
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("apply", "-f", str(CRD_FOLDER), "-f", str(DEPLOY / "rbac"))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield plane
    finally:
        plane.stop()


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[KubeCluster]:
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "spotgpu-worker")
    async with await KubeCluster.connect(Connection(kubeconfig=kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:60].rstrip("-")
    plane.kubectl("create", "namespace", name)
    return name


def read(plane: ControlPlane, *what: str) -> dict[str, Any]:
    return json.loads(plane.kubectl("get", *what, "-o", "json"))


def a_node(plane: ControlPlane, name: str, *, provider_id: str = "", gpus: str = "8") -> str:
    identity = provider_id or f"qcloud:///100003/{name}"
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {LABEL_POOL_UID: "uid-1"},
            "annotations": {MANAGED_BY_KWOK: MANAGED_BY_KWOK_VALUE, POWER: POWER_ON},
        },
        "spec": {
            "providerID": identity,
            "taints": [{"key": TAINT_GPU_NOT_READY, "value": "true", "effect": "NoSchedule"}],
        },
        "status": {"allocatable": {"nvidia.com/gpu": gpus}, "capacity": {"nvidia.com/gpu": gpus}},
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    return identity


def a_pod(plane: ControlPlane, namespace: str, name: str, node: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(body))


def a_budget(plane: ControlPlane, namespace: str, name: str, app: str) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(body))


async def _until(condition: Any, what: str) -> None:
    await until(condition, seconds=30, what=what)


async def test_drain_evicts_within_budgets_and_names_what_blocked(
    plane: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    provider_id = a_node(plane, "drained")
    for name in ("free", "held"):
        a_pod(plane, namespace, name, "drained")
    a_budget(plane, namespace, "keep", "held")
    await _until(lambda: _phases(plane, namespace) == ["Running", "Running"], "pods run")
    await _until(
        lambda: read(plane, "pdb", "keep", "-n", namespace).get("status", {}).get("currentHealthy") == 1,
        "the budget counts its pod",
    )
    request = DrainRequest(
        provider_id=provider_id,
        node_name="drained",
        deadline=datetime.now(UTC) + timedelta(seconds=5),
        grace_seconds=1,
    )
    drain = asyncio.ensure_future(an_attempt().run(PodActivities(cluster).drain_node, request))
    await _until(lambda: _names(plane, namespace) == ["held"], "the free pod is evicted, the held one stays")
    result = await drain

    assert result.done
    assert result.blockers == (f"{namespace}/held: PodDisruptionBudget {namespace}/keep allows 0",)
    assert _names(plane, namespace) == []
    spec = read(plane, "node", "drained")["spec"]
    assert spec["unschedulable"] is True
    assert TAINT_DRAINING in [taint["key"] for taint in spec["taints"]]


def _names(plane: ControlPlane, namespace: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in read(plane, "pods", "-n", namespace)["items"])


def _phases(plane: ControlPlane, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in read(plane, "pods", "-n", namespace)["items"]]


async def test_nodes_are_listed_settled_and_removed(plane: ControlPlane, cluster: KubeCluster) -> None:
    provider_id = a_node(plane, "settled")
    hands = NodeActivities(cluster)
    seen = await an_attempt().run(hands.list_pool_nodes, PoolNodesRequest(pool_uid="uid-1"))
    fact = next(node for node in seen.nodes if node.name == "settled")
    assert (fact.provider_id, fact.gpu_taint) == (provider_id, True)

    wanted = NodeSettlement(
        provider_id=provider_id, name="settled", labels={LABEL_LIFECYCLE: "spot"}, gpus_ready=True
    )
    await an_attempt().run(hands.settle_nodes, SettleNodesRequest(nodes=(wanted,)))
    node = read(plane, "node", "settled")
    keys = [taint["key"] for taint in node["spec"]["taints"]]
    assert node["metadata"]["labels"][LABEL_LIFECYCLE] == "spot"
    assert TAINT_SPOT in keys
    assert TAINT_GPU_NOT_READY not in keys

    await an_attempt().run(hands.delete_nodes, DeleteNodesRequest(nodes={"qcloud:///1/other": "settled"}))
    assert "settled" in plane.kubectl("get", "nodes", "-o", "name")
    await an_attempt().run(hands.delete_nodes, DeleteNodesRequest(nodes={provider_id: "settled"}))
    assert "node/settled" not in plane.kubectl("get", "nodes", "-o", "name")


def a_pool(plane: ControlPlane, namespace: str) -> ObjectRef:
    plane.kubectl("apply", "-n", namespace, "-f", str(POOL_YAML))
    name = "training-pool-a100"
    patch = json.dumps({"metadata": {"finalizers": ["example.com/other", FINALIZER]}})
    plane.kubectl("patch", "gsp", name, "-n", namespace, "--type=merge", "-p", patch)
    return ObjectRef(
        namespace=namespace, name=name, uid=read(plane, "gsp", name, "-n", namespace)["metadata"]["uid"]
    )


async def test_status_is_accepted_shown_and_not_written_twice(
    plane: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    pool = a_pool(plane, namespace)
    report = InstanceReport(
        id="ins-abc123",
        provider=ProviderName.TENCENT,
        region="ap-guangzhou",
        gpu_type="A100-40G",
        status=InstanceStatus.RUNNING,
        price_per_hour="4.2",  # type: ignore[arg-type]  # pydantic makes it a Decimal
        created_at=NOW,
    )
    status = PoolStatus(
        observed_generation=1,
        current_instances=1,
        instances=(report,),
        strategy="CostFirst",
        workflow=WorkflowRef(id="pool:x:y", run_id="r"),
        conditions=(Condition(type="Ready", status="True", last_transition_time=NOW),),
    )
    hands = StatusActivities(cluster)
    await an_attempt().run(hands.patch_status, StatusRequest(pool=pool, status=status))
    first = read(plane, "gsp", pool.name, "-n", namespace)
    await an_attempt().run(hands.patch_status, StatusRequest(pool=pool, status=status))
    second = read(plane, "gsp", pool.name, "-n", namespace)
    assert first["status"]["instances"][0]["pricePerHour"] == 4.2
    assert first["metadata"]["generation"] == 1
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    fewer = status.model_copy(update={"strategy": "", "instances": ()})
    await an_attempt().run(hands.patch_status, StatusRequest(pool=pool, status=fewer))
    shown = read(plane, "gsp", pool.name, "-n", namespace)["status"]
    assert "strategy" not in shown
    assert shown["instances"] == []


async def test_finalizer_is_removed_from_a_pool_that_is_being_deleted(
    plane: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    pool = a_pool(plane, namespace)
    plane.kubectl("delete", "gsp", pool.name, "-n", namespace, "--wait=false")
    hands = StatusActivities(cluster)
    await an_attempt().run(hands.remove_finalizer, pool)
    await an_attempt().run(hands.remove_finalizer, pool)
    left = read(plane, "gsp", pool.name, "-n", namespace)["metadata"]["finalizers"]
    assert left == ["example.com/other"]
    plane.kubectl(
        "patch", "gsp", pool.name, "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    await an_attempt().run(hands.remove_finalizer, pool)
    await an_attempt().run(hands.patch_status, StatusRequest(pool=pool, status=PoolStatus()))


async def test_event_is_published_once_and_described_with_its_pool(
    plane: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    pool = a_pool(plane, namespace)
    event = Announcement(reason=EventReason.SCALE_UP, message="2 ordered", at=datetime.now(UTC), key="k")
    request = EventsRequest(pool=pool, operator_namespace=NAMESPACE, events=(event,))
    for _ in range(2):
        await an_attempt().run(AnnounceActivities(cluster).publish_events, request)
    events = read(plane, "events", "-n", namespace)["items"]
    assert [item["reason"] for item in events] == ["ScaleUp"]
    assert "2 ordered" in plane.kubectl("describe", "gsp", pool.name, "-n", namespace)


async def test_installation_secrets_and_policies_are_read_with_the_workers_rights(
    plane: ControlPlane, cluster: KubeCluster, namespace: str
) -> None:
    installation = await read_or_make(cluster, NAMESPACE)
    assert await read_or_make(cluster, NAMESPACE) == installation
    event = Announcement(reason=EventReason.ORPHAN_FOUND, message="an orphan", at=datetime.now(UTC), key="k")
    request = EventsRequest(pool=None, operator_namespace=NAMESPACE, events=(event,))
    await an_attempt().run(AnnounceActivities(cluster).publish_events, request)
    about = read(plane, "events", "-n", NAMESPACE)["items"][0]["involvedObject"]
    assert (about["kind"], about["name"]) == ("ConfigMap", "spotgpu-installation")

    plane.kubectl("create", "secret", "generic", "join", "-n", NAMESPACE, "--from-literal=token=abcdef")
    loop = asyncio.get_running_loop()
    secrets = OperatorSecrets(cluster, NAMESPACE, loop, max_age_seconds=1)
    assert await asyncio.to_thread(secrets.read, "join") == {"token": "abcdef"}

    pool = a_pool(plane, namespace)
    patch = '{"spec":{"orphanPolicy":"Report"}}'
    plane.kubectl("patch", "gsp", pool.name, "-n", namespace, "--type=merge", "-p", patch)
    machines = (a_machine(1, pool=pool.uid), a_machine(2, pool="gone"))
    hands = OwnerActivities(cluster, FakePools())
    answer = await an_attempt().run(hands.ask_owners, AskOwnersRequest(region=REGION, machines=machines))
    assert [one.instance_id for one in answer.answers] == ["ins-0002"]
    assert answer.policies == {pool.uid: OrphanPolicy.REPORT}
