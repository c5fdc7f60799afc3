import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities import pods as module
from activities.cluster.base import NODES, PODS, Object
from activities.pods import PodActivities, must_leave
from activities.signatures import DrainRequest
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.facts import DrainResult
from domain.contracts.names import TAINT_DRAINING
from tests.activities.builders import an_attempt
from tests.crd_bridge.waiting import until
from tests.fakes.cluster import FakeCluster

BUDGET = ClusterError(
    ErrorCode.THROTTLED,
    "Cannot evict pod as it would violate the pod's disruption budget. "
    "(The disruption budget keep needs 1 healthy pods and has 1 currently)",
    operation="create pods/train/a-0/eviction",
    status=429,
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN", timedelta(milliseconds=5))
    monkeypatch.setattr(module, "_AFTER_GRACE", timedelta())


@pytest.fixture
async def cluster() -> FakeCluster:
    cluster = FakeCluster(page_size=2)
    await cluster.create(NODES, {"metadata": {"name": "gpu-1"}, "spec": {"providerID": "p1"}})
    return cluster


async def a_pod(cluster: FakeCluster, name: str, **metadata: object) -> None:
    body: Object = {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": "gpu-1", "terminationGracePeriodSeconds": 1},
        "status": {"phase": "Running"},
    }
    await cluster.create(PODS, body, "train")


async def drain(
    cluster: FakeCluster, *, node: str = "gpu-1", provider_id: str = "p1", within: float = 5
) -> DrainResult:
    request = DrainRequest(
        provider_id=provider_id,
        node_name=node,
        deadline=datetime.now(UTC) + timedelta(seconds=within),
        grace_seconds=1,
    )
    return await an_attempt().run(PodActivities(cluster).drain_node, request)


def left(cluster: FakeCluster) -> list[str]:
    return sorted(name for resource, _, name in cluster.objects if resource == PODS)


async def test_drain_cordons_and_evicts_what_must_leave(cluster: FakeCluster) -> None:
    for number in range(3):
        await a_pod(cluster, f"a-{number}")
    await a_pod(cluster, "daemon", ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}])
    await a_pod(cluster, "mirror", annotations={"kubernetes.io/config.mirror": "x"})
    assert await drain(cluster) == DrainResult(done=True)
    assert left(cluster) == ["daemon", "mirror"]
    node = await cluster.get(NODES, "gpu-1")
    assert node["spec"]["unschedulable"] is True
    assert [t["key"] for t in node["spec"]["taints"]] == [TAINT_DRAINING]


@pytest.mark.parametrize(
    ("node", "provider_id"),
    [
        pytest.param("", "p1", id="never joined"),
        pytest.param("gone", "p1", id="node is gone"),
        pytest.param("gpu-1", "p2", id="another machine has the name"),
    ],
)
async def test_p37_drain_without_a_node_is_done_at_once(
    cluster: FakeCluster, node: str, provider_id: str
) -> None:
    await a_pod(cluster, "a-0")
    cluster.calls.clear()
    assert await drain(cluster, node=node, provider_id=provider_id) == DrainResult(done=True)
    assert left(cluster) == ["a-0"]
    assert not [call for call in cluster.calls if not call.startswith("get nodes")]


async def test_drain_waits_for_a_budget_that_allows_it_later(cluster: FakeCluster) -> None:
    await a_pod(cluster, "a-0")
    cluster.fail_next("evict pods/a-0", BUDGET, times=3)
    assert await drain(cluster) == DrainResult(done=True)
    assert cluster.calls.count("evict pods/a-0") == 4


async def test_drain_deletes_what_a_budget_holds_at_the_deadline_and_names_it(cluster: FakeCluster) -> None:
    await a_pod(cluster, "a-0", ownerReferences=[{"kind": "StatefulSet", "name": "a", "controller": True}])
    await a_pod(cluster, "b-0")
    cluster.fail_next("evict pods/a-0", BUDGET, times=10_000)
    result = await drain(cluster, within=0.05)
    assert result == DrainResult(
        done=True,
        blockers=("train/a-0: PodDisruptionBudget train/keep allows 0 (owned by StatefulSet a)",),
    )
    assert left(cluster) == []


async def test_drain_says_which_pods_did_not_end(cluster: FakeCluster) -> None:
    await a_pod(cluster, "stuck", finalizers=["example.com/hold"])
    result = await drain(cluster, within=0.05)
    assert result == DrainResult(done=False, blockers=("train/stuck: did not end within its grace",))


async def test_drain_evicts_a_pod_that_is_ending_only_once(cluster: FakeCluster) -> None:
    await a_pod(cluster, "slow", finalizers=["example.com/hold"])
    draining = asyncio.ensure_future(drain(cluster, within=20))
    await until(lambda: cluster.calls.count("list pods") >= 4)
    await cluster.patch(PODS, "slow", {"metadata": {"finalizers": None}}, namespace="train")
    assert await draining == DrainResult(done=True)
    assert cluster.calls.count("evict pods/slow") == 1


async def test_drain_takes_any_refusal_as_a_state(cluster: FakeCluster) -> None:
    await a_pod(cluster, "a-0")
    refused = ClusterError(ErrorCode.FORBIDDEN, "no rights", operation="create pods/eviction", status=403)
    cluster.fail_next("evict pods/a-0", refused, times=10_000)
    result = await drain(cluster, within=0.05)
    assert len(result.blockers) == 1
    assert "no rights" in result.blockers[0]


async def test_drain_fails_and_is_retried_when_the_cluster_cannot_be_read(cluster: FakeCluster) -> None:
    cluster.fail_next("list pods", ClusterError(ErrorCode.UNAVAILABLE, "down", operation="list pods"))
    with pytest.raises(ApplicationError) as failure:
        await drain(cluster)
    assert (failure.value.type, failure.value.non_retryable) == ("Unavailable", False)
    assert await drain(cluster) == DrainResult(done=True)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_may_stay(phase: str) -> None:
    assert not must_leave({"metadata": {}, "status": {"phase": phase}})


def test_pods_that_name_a_daemon_set_without_being_its_own_must_leave() -> None:
    metadata = {"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}
    assert must_leave({"metadata": metadata, "status": {"phase": "Running"}})
