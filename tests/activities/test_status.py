import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.base import POOLS, Object
from activities.signatures import ObjectRef, StatusRequest
from activities.status import StatusActivities, status_patch
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.status import Condition, PoolStatus, WorkflowRef
from tests.activities.builders import an_attempt
from tests.fakes.cluster import FakeCluster

POOL = ObjectRef(namespace="default", name="pool", uid="uid-1")
LOST = ClusterError(ErrorCode.CONFLICT, "modified", operation="patch", status=409)


@pytest.fixture
async def cluster() -> FakeCluster:
    cluster = FakeCluster()
    metadata = {"name": "pool", "uid": "uid-1", "finalizers": ["other/one", FINALIZER]}
    await cluster.create(POOLS, {"metadata": metadata, "spec": {"minInstances": 1}}, "default")
    cluster.calls.clear()
    return cluster


async def write(cluster: FakeCluster, status: PoolStatus, pool: ObjectRef = POOL) -> None:
    await an_attempt().run(StatusActivities(cluster).patch_status, StatusRequest(pool=pool, status=status))


async def read(cluster: FakeCluster) -> Object:
    return await cluster.get(POOLS, "pool", "default")


async def test_status_is_written_as_the_resource_shows_it(cluster: FakeCluster) -> None:
    await write(cluster, PoolStatus(current_instances=2, strategy="CostFirst"))
    status = (await read(cluster))["status"]
    assert (status["currentInstances"], status["strategy"]) == (2, "CostFirst")


async def test_status_that_is_there_already_is_not_written(cluster: FakeCluster) -> None:
    status = PoolStatus(current_instances=2, conditions=(Condition(type="Ready", status="True"),))
    await write(cluster, status)
    await write(cluster, status)
    assert cluster.calls.count("patch gpuspotpools/pool") == 1


async def test_status_takes_away_what_the_pool_does_not_say_any_more(cluster: FakeCluster) -> None:
    await write(cluster, PoolStatus(strategy="x", workflow=WorkflowRef(id="w", run_id="r")))
    await write(cluster, PoolStatus(workflow=WorkflowRef(id="w")))
    status = (await read(cluster))["status"]
    assert status["workflow"] == {"id": "w"}
    assert "strategy" not in status


async def test_status_survives_lost_version_checks(cluster: FakeCluster) -> None:
    cluster.fail_next("patch", LOST, times=3)
    await write(cluster, PoolStatus(current_instances=1))
    assert (await read(cluster))["status"]["currentInstances"] == 1


async def test_status_that_always_loses_is_tried_again_later(cluster: FakeCluster) -> None:
    cluster.fail_next("patch", LOST, times=99)
    with pytest.raises(ApplicationError) as failure:
        await write(cluster, PoolStatus(current_instances=1))
    assert (failure.value.type, failure.value.non_retryable) == ("Conflict", False)


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(POOL.model_copy(update={"name": "gone"}), id="gone"),
        pytest.param(POOL.model_copy(update={"uid": "uid-2"}), id="another object"),
    ],
)
async def test_status_and_finalizer_of_a_pool_that_is_no_more_are_done(
    cluster: FakeCluster, pool: ObjectRef
) -> None:
    await write(cluster, PoolStatus(current_instances=1), pool)
    await an_attempt().run(StatusActivities(cluster).remove_finalizer, pool)
    assert not [call for call in cluster.calls if call.startswith("patch")]


def test_status_patch_carries_its_version_check_and_nothing_of_the_spec() -> None:
    resource = {"metadata": {"resourceVersion": "7"}, "spec": {"a": 1}, "status": {"old": 1}}
    assert status_patch(resource, {"new": 2}) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"old": None, "new": 2},
    }


async def test_finalizer_is_removed_and_others_stay(cluster: FakeCluster) -> None:
    await an_attempt().run(StatusActivities(cluster).remove_finalizer, POOL)
    await an_attempt().run(StatusActivities(cluster).remove_finalizer, POOL)
    assert (await read(cluster))["metadata"]["finalizers"] == ["other/one"]


@pytest.mark.parametrize("code", [ErrorCode.CONFLICT, ErrorCode.INVALID_REQUEST])
async def test_finalizer_is_removed_although_the_list_changed_meanwhile(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    cluster.fail_next("patch", ClusterError(code, "test failed", operation="patch"))
    await an_attempt().run(StatusActivities(cluster).remove_finalizer, POOL)
    assert (await read(cluster))["metadata"]["finalizers"] == ["other/one"]


async def test_finalizer_of_a_pool_that_vanished_meanwhile_is_done(cluster: FakeCluster) -> None:
    cluster.fail_next("patch", ClusterError(ErrorCode.NOT_FOUND, "gone", operation="patch", status=404))
    await an_attempt().run(StatusActivities(cluster).remove_finalizer, POOL)
