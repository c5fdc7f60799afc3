from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.base import NODES, Object
from activities.nodes import NodeActivities, node_fact
from activities.signatures import (
    DeleteNodesRequest,
    NodeSettlement,
    PoolNodesRequest,
    SettleNodesRequest,
)
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import LABEL_LIFECYCLE, LABEL_POOL_UID, TAINT_GPU_NOT_READY, TAINT_SPOT
from tests.activities.builders import an_attempt
from tests.fakes.cluster import FakeCluster

SPOT = {"key": TAINT_SPOT, "value": "true", "effect": "NoSchedule"}
CLOSED = {"key": TAINT_GPU_NOT_READY, "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/own", "effect": "NoExecute"}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(page_size=2)


async def a_node(
    cluster: FakeCluster,
    name: str = "gpu-1",
    *,
    provider_id: str = "qcloud:///100003/ins-1",
    taints: tuple[Object, ...] = (SPOT, CLOSED),
    labels: dict[str, str] | None = None,
    gpus: str = "0",
    ready: str = "False",
) -> Object:
    return await cluster.create(
        NODES,
        {
            "metadata": {"name": name, "labels": {LABEL_POOL_UID: "uid-1", **(labels or {})}},
            "spec": {"providerID": provider_id, "taints": [dict(t) for t in taints]},
            "status": {
                "allocatable": {"nvidia.com/gpu": gpus},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        },
    )


def settlement(
    *, gpus_ready: bool = True, provider_id: str = "qcloud:///100003/ins-1", **labels: str
) -> NodeSettlement:
    wanted = {LABEL_LIFECYCLE: "spot", **labels}
    return NodeSettlement(provider_id=provider_id, name="gpu-1", labels=wanted, gpus_ready=gpus_ready)


async def settle(cluster: FakeCluster, *nodes: NodeSettlement) -> None:
    await an_attempt().run(NodeActivities(cluster).settle_nodes, SettleNodesRequest(nodes=nodes))


async def taints(cluster: FakeCluster, name: str = "gpu-1") -> list[dict[str, Any]]:
    return (await cluster.get(NODES, name))["spec"]["taints"]


async def test_pool_nodes_are_listed_over_all_pages(cluster: FakeCluster) -> None:
    for number in range(5):
        await a_node(cluster, f"gpu-{number}")
    await cluster.create(NODES, {"metadata": {"name": "foreign"}, "spec": {}})
    seen = await an_attempt().run(NodeActivities(cluster).list_pool_nodes, PoolNodesRequest(pool_uid="uid-1"))
    assert [node.name for node in seen.nodes] == [f"gpu-{n}" for n in range(5)]
    assert seen.complete


async def test_node_fact_says_what_a_pool_needs(cluster: FakeCluster) -> None:
    fact = node_fact(await a_node(cluster, gpus="8", ready="True"))
    assert (fact.ready, fact.gpus_allocatable, fact.gpu_taint) == (True, 8, True)
    assert fact.provider_id == "qcloud:///100003/ins-1"


def test_node_fact_bears_a_node_that_says_nothing_yet() -> None:
    fact = node_fact({"metadata": {"name": "n", "uid": "u"}})
    assert (fact.provider_id, fact.ready, fact.gpus_allocatable, fact.gpu_taint) == ("", False, 0, False)


async def test_settling_opens_the_gpus_and_adds_labels_only(cluster: FakeCluster) -> None:
    await a_node(cluster, taints=(SPOT, CLOSED, FOREIGN), labels={"own": "kept"})
    await settle(cluster, settlement(zone="z1"))
    node = await cluster.get(NODES, "gpu-1")
    assert node["spec"]["taints"] == [SPOT, FOREIGN]
    assert node["metadata"]["labels"] == {
        LABEL_POOL_UID: "uid-1",
        "own": "kept",
        LABEL_LIFECYCLE: "spot",
        "zone": "z1",
    }


async def test_settling_puts_dropped_taints_back(cluster: FakeCluster) -> None:
    await a_node(cluster, taints=(FOREIGN,))
    await settle(cluster, settlement(gpus_ready=False))
    assert await taints(cluster) == [FOREIGN, SPOT, CLOSED]


async def test_settling_taints_no_on_demand_node_as_spot(cluster: FakeCluster) -> None:
    await a_node(cluster, taints=(CLOSED,))
    wanted = settlement().model_copy(update={"labels": {LABEL_LIFECYCLE: "on-demand"}})
    await settle(cluster, wanted)
    assert await taints(cluster) == []


async def test_settling_what_is_settled_writes_nothing(cluster: FakeCluster) -> None:
    await a_node(cluster)
    await settle(cluster, settlement())
    writes = [call for call in cluster.calls if call.startswith("patch")]
    await settle(cluster, settlement())
    assert [call for call in cluster.calls if call.startswith("patch")] == writes


async def test_settling_reads_again_after_a_lost_version_check(cluster: FakeCluster) -> None:
    await a_node(cluster)
    lost = ClusterError(ErrorCode.CONFLICT, "modified", operation="patch", status=409)
    cluster.fail_next("patch", lost, times=2)
    await settle(cluster, settlement())
    assert await taints(cluster) == [SPOT]
    assert cluster.calls.count("get nodes/gpu-1") == 4, "three by settling, one by the test"


async def test_settling_gives_up_a_version_check_that_is_always_lost(cluster: FakeCluster) -> None:
    await a_node(cluster)
    lost = ClusterError(ErrorCode.CONFLICT, "modified", operation="patch", status=409)
    cluster.fail_next("patch", lost, times=99)
    with pytest.raises(ApplicationError) as failure:
        await settle(cluster, settlement())
    assert (failure.value.type, failure.value.non_retryable) == ("Conflict", False)


async def test_settling_leaves_another_machines_node_alone(cluster: FakeCluster) -> None:
    before = await a_node(cluster, provider_id="qcloud:///100003/ins-2")
    await settle(cluster, settlement())
    assert await cluster.get(NODES, "gpu-1") == before


async def test_one_node_that_cannot_be_settled_holds_up_no_other(cluster: FakeCluster) -> None:
    await a_node(cluster)
    await a_node(cluster, "gpu-2", provider_id="qcloud:///100003/ins-2")
    cluster.fail_next(
        "patch nodes/gpu-1", ClusterError(ErrorCode.UNAVAILABLE, "x", operation="patch"), times=9
    )
    other = settlement(provider_id="qcloud:///100003/ins-2").model_copy(update={"name": "gpu-2"})
    with pytest.raises(ApplicationError):
        await settle(cluster, settlement(), other)
    assert await taints(cluster, "gpu-2") == [SPOT]


async def delete(cluster: FakeCluster, **nodes: str) -> None:
    request = DeleteNodesRequest(nodes={provider_id: name for name, provider_id in nodes.items()})
    await an_attempt().run(NodeActivities(cluster).delete_nodes, request)


async def test_deleting_removes_the_nodes_of_gone_machines(cluster: FakeCluster) -> None:
    await a_node(cluster, "n1", provider_id="p1")
    await delete(cluster, n1="p1", never_joined="p9")
    await delete(cluster, n1="p1")
    assert cluster.objects == {}


async def test_p01_deleting_leaves_the_successor_under_the_same_name(cluster: FakeCluster) -> None:
    await a_node(cluster, "n1", provider_id="p2")
    await delete(cluster, n1="p1")
    assert [name for _, _, name in cluster.objects] == ["n1"]


async def test_deleting_loses_the_race_with_a_successor_in_peace(cluster: FakeCluster) -> None:
    await a_node(cluster, "n1", provider_id="p1")
    cluster.fail_next(
        "delete nodes/n1", ClusterError(ErrorCode.CONFLICT, "uid", operation="delete", status=409)
    )
    await delete(cluster, n1="p1")
    assert [name for _, _, name in cluster.objects] == ["n1"]
