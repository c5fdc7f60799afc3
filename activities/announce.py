"""Publishing Kubernetes Events: once per key, however often it is tried."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Final

from temporalio import activity

from activities.cluster.base import CONFIG_MAPS, EVENTS, Cluster, Object
from activities.failures import as_application_error
from activities.signatures import EventsRequest, ObjectRef
from domain.contracts.announcements import Announcement
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import GROUP, INSTALLATION_CONFIG_MAP, VERSION

_AT_ONCE: Final = 5
_MESSAGE_CHARS: Final = 1024
"""The API server refuses longer messages."""
_COMPONENT: Final = "spotgpu"
_NAME_CHARS: Final = 200


class AnnounceActivities:
    """Bound to the cluster by ``workers.wiring``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @activity.defn(name="k8s.publish_events")
    async def publish_events(self, request: EventsRequest) -> None:
        """Publish Kubernetes Events, once per key: the name is made of the key, so a retry meets its own.

        While the API server is unwell but takes some, the rest is tried again at once: a retry begins with
        all of them, and of fifty writes hardly ever all succeed where one in ten fails.
        """
        subject = await self._subject(request)
        left = [event_object(event, subject) for event in request.events]
        with as_application_error():
            while left:
                left = await self._publish_some(left)

    async def _publish_some(self, bodies: list[Object]) -> list[Object]:
        """Publish what the API server takes.

        Returns:
            What it had no strength for.

        Raises:
            ClusterError: It took none, or refused one for another reason.
        """
        gate = asyncio.Semaphore(_AT_ONCE)

        async def publish(body: Object) -> None:
            async with gate:
                await self._publish(body)

        results = await asyncio.gather(*map(publish, bodies), return_exceptions=True)
        left: list[Object] = []
        for body, result in zip(bodies, results, strict=True):
            if isinstance(result, ClusterError) and result.code is ErrorCode.UNAVAILABLE:
                left.append(body)
                if len(left) == len(bodies):
                    raise result
            elif isinstance(result, BaseException):
                raise result
        return left

    async def _publish(self, body: Object) -> None:
        try:
            await self._cluster.create(EVENTS, body, body["metadata"]["namespace"])
        except ClusterError as error:
            # The same key was published before, or the namespace of a deleted pool is going away.
            if error.code is ErrorCode.CONFLICT or _is_ending(error):
                return
            raise

    async def _subject(self, request: EventsRequest) -> Object:
        """What the Events are about: the pool, or the ConfigMap that stands for the installation."""
        if request.pool is not None:
            return _pool_reference(request.pool)
        namespace = request.operator_namespace
        with as_application_error():
            try:
                found = await self._cluster.get(CONFIG_MAPS, INSTALLATION_CONFIG_MAP, namespace)
            except ClusterError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
                found = {"metadata": {"uid": ""}}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": namespace,
            "name": INSTALLATION_CONFIG_MAP,
            "uid": found["metadata"]["uid"],
        }


def event_object(event: Announcement, subject: Object) -> Object:
    """The Event as the API wants it; its name is the same for the same subject and key."""
    identity = f"{subject['uid'] or subject['name']}|{event.key}"
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:16]
    seconds = _timestamp(event.at.astimezone(UTC))
    stem = subject["name"][:_NAME_CHARS].rstrip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{stem}.{suffix}",
            "namespace": subject["namespace"],
        },
        "involvedObject": {key: value for key, value in subject.items() if value},
        "reason": event.reason.value,
        "message": event.message[:_MESSAGE_CHARS],
        "type": event.type.value,
        "source": {"component": _COMPONENT},
        "reportingComponent": f"{GROUP}/{_COMPONENT}",
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    }


def _pool_reference(pool: ObjectRef) -> Object:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GPUSpotPool",
        "namespace": pool.namespace,
        "name": pool.name,
        "uid": pool.uid,
    }


def _timestamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_ending(error: ClusterError) -> bool:
    """Whether the namespace is being deleted or gone: nobody will read an Event there."""
    if error.code is ErrorCode.FORBIDDEN:
        return "being terminated" in str(error)
    return error.code is ErrorCode.NOT_FOUND
