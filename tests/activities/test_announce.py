import pytest
from temporalio.exceptions import ApplicationError

from activities.announce import AnnounceActivities, event_object
from activities.cluster.base import CONFIG_MAPS, EVENTS, Object
from activities.signatures import EventsRequest, ObjectRef
from domain.contracts.announcements import Announcement, EventReason, EventType
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import INSTALLATION_CONFIG_MAP
from tests.activities.builders import NOW, an_attempt
from tests.fakes.cluster import FakeCluster

POOL = ObjectRef(namespace="default", name="pool", uid="uid-1")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def an_event(key: str = "k1", message: str = "2 instances ordered") -> Announcement:
    return Announcement(reason=EventReason.SCALE_UP, message=message, type=EventType.WARNING, at=NOW, key=key)


async def publish(cluster: FakeCluster, *events: Announcement, pool: ObjectRef | None = POOL) -> None:
    request = EventsRequest(pool=pool, operator_namespace="spotgpu-system", events=events)
    await an_attempt().run(AnnounceActivities(cluster).publish_events, request)


def published(cluster: FakeCluster) -> list[Object]:
    return [body for (resource, _, _), body in cluster.objects.items() if resource == EVENTS]


async def test_event_names_its_pool(cluster: FakeCluster) -> None:
    await publish(cluster, an_event())
    (event,) = published(cluster)
    assert event["involvedObject"] == {
        "apiVersion": "spotgpu.zuoyang.cn/v1alpha1",
        "kind": "GPUSpotPool",
        "namespace": "default",
        "name": "pool",
        "uid": "uid-1",
    }
    assert (event["reason"], event["type"], event["message"]) == ("ScaleUp", "Warning", "2 instances ordered")
    assert event["lastTimestamp"] == "2026-07-01T12:00:00Z"
    assert event["metadata"]["namespace"] == "default"


async def test_event_of_one_key_is_published_once(cluster: FakeCluster) -> None:
    await publish(cluster, an_event("a"), an_event("b"))
    await publish(cluster, an_event("b"), an_event("c"))
    assert len(published(cluster)) == 3


async def test_event_about_the_installation_names_its_config_map(cluster: FakeCluster) -> None:
    body = {"metadata": {"name": INSTALLATION_CONFIG_MAP, "uid": "cm-1"}}
    await cluster.create(CONFIG_MAPS, body, "spotgpu-system")
    await publish(cluster, an_event(), pool=None)
    (event,) = published(cluster)
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == ("ConfigMap", "cm-1")
    assert event["metadata"]["namespace"] == "spotgpu-system"


async def test_event_about_an_installation_without_config_map_is_published(cluster: FakeCluster) -> None:
    await publish(cluster, an_event(), pool=None)
    assert len(published(cluster)) == 1


@pytest.mark.parametrize(
    "error",
    [
        ClusterError(
            ErrorCode.FORBIDDEN, "namespace x because it is being terminated", operation="create", status=403
        ),
        ClusterError(ErrorCode.NOT_FOUND, "namespaces x not found", operation="create", status=404),
    ],
    ids=["namespace ends", "namespace is gone"],
)
async def test_event_that_nobody_can_read_is_done(cluster: FakeCluster, error: ClusterError) -> None:
    cluster.fail_next("create events", error)
    await publish(cluster, an_event())


async def test_event_that_fails_is_tried_again_and_holds_up_no_other(cluster: FakeCluster) -> None:
    cluster.fail_next("create events", ClusterError(ErrorCode.THROTTLED, "wait", operation="create"))
    with pytest.raises(ApplicationError):
        await publish(cluster, an_event("a"), an_event("b"))
    assert len(published(cluster)) == 1
    await publish(cluster, an_event("a"), an_event("b"))
    assert len(published(cluster)) == 2


def test_event_fits_the_servers_limits() -> None:
    subject = {"kind": "GPUSpotPool", "namespace": "n", "name": "a" * 199 + "." + "b" * 50, "uid": "u"}
    event = event_object(an_event(message="x" * 5000), subject)
    assert len(event["message"]) == 1024
    assert len(event["metadata"]["name"]) < 253
    assert ".." not in event["metadata"]["name"]


async def test_events_of_a_large_batch_come_through_one_attempt_while_a_tenth_of_writes_fails(
    cluster: FakeCluster,
) -> None:
    cluster.reject_every = 10
    await publish(cluster, *(an_event(f"k{number}") for number in range(50)))
    assert len(published(cluster)) == 50
    assert (len(cluster.rejected), cluster.writes) == (5, 55)


async def test_events_that_an_api_server_takes_none_of_are_left_to_the_next_attempt(
    cluster: FakeCluster,
) -> None:
    down = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="create events")
    cluster.fail_next("create events", down, times=2)
    with pytest.raises(ApplicationError):
        await publish(cluster, an_event("a"), an_event("b"))
    assert published(cluster) == []
    assert sum(call.startswith("create events") for call in cluster.calls) == 2, "not asked again at once"
