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
    monkeypatch.setattr(module, "_AFTER_GRACE", timedelta(milliseconds=50))


@pytest.fixture
async def cluster() -> FakeCluster:
    cluster = FakeCluster(page_size=2)
    await cluster.create(NODES, {"metadata": {"name": "gpu-1"}, "spec": {"providerID": "p1"}})
    return cluster


async def a_pod(cluster: FakeCluster, name: str, *, grace_seconds: int = 1, **metadata: object) -> None:
    body: Object = {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": "gpu-1", "terminationGracePeriodSeconds": grace_seconds},
        "status": {"phase": "Running"},
    }
    await cluster.create(PODS, body, "train")


async def drain(
    cluster: FakeCluster,
    *,
    node: str = "gpu-1",
    provider_id: str = "p1",
    within: float = 5,
    of_seconds: int = 0,
) -> DrainResult:
    """Drain until ``within`` seconds from now, of the ``of_seconds`` that were given to it."""
    request = DrainRequest(
        provider_id=provider_id,
        node_name=node,
        deadline=datetime.now(UTC) + timedelta(seconds=within),
        grace_seconds=of_seconds,
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


async def test_drain_deletes_what_a_budget_holds_while_its_grace_fits_before_the_deadline(
    cluster: FakeCluster,
) -> None:
    """The time of a machine under notice ends with the deadline: a pod deleted then would be cut off."""
    await a_pod(cluster, "a-0")
    cluster.fail_next("evict pods/a-0", BUDGET, times=10_000)
    deadline = datetime.now(UTC) + timedelta(seconds=1.5)
    result = await drain(cluster, within=1.5, of_seconds=2)
    assert datetime.now(UTC) < deadline - timedelta(seconds=0.5)
    assert (result.done, len(result.blockers)) == (True, 1)
    assert cluster.graces["a-0"] == 1, "its own grace in full"


async def test_drain_leaves_half_of_its_time_to_a_budget_whatever_the_grace_of_the_pod(
    cluster: FakeCluster,
) -> None:
    await a_pod(cluster, "a-0", grace_seconds=21_600)
    cluster.fail_next("evict pods/a-0", BUDGET, times=10_000)
    began = datetime.now(UTC)
    assert (await drain(cluster, within=2, of_seconds=2)).done
    assert datetime.now(UTC) >= began + timedelta(seconds=1)
    assert cluster.graces["a-0"] == 1, "cut to what is left"


async def test_drain_that_begins_after_its_deadline_gives_half_of_what_was_meant(
    cluster: FakeCluster,
) -> None:
    await a_pod(cluster, "a-0", grace_seconds=600)
    cluster.fail_next("evict pods/a-0", BUDGET, times=10_000)
    assert (await drain(cluster, within=-60, of_seconds=120)).done
    assert cluster.graces["a-0"] == 60


async def test_drain_ends_though_pods_come_back_without_end(cluster: FakeCluster) -> None:
    async def come_back() -> None:
        for number in range(10_000):
            await a_pod(cluster, f"again-{number}")
            await asyncio.sleep(0.005)

    coming = asyncio.ensure_future(come_back())
    result = await drain(cluster, within=0.1)
    coming.cancel()
    assert not result.done


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
