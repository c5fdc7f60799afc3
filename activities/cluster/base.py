"""The port to the Kubernetes API: about ten methods on plain objects (dicts as the API sends them)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

Object = dict[str, Any]
"""A Kubernetes object exactly as its JSON; the one place where untyped data crosses a border."""


@dataclass(frozen=True)
class Resource:
    """Which collection of the API."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    namespaced: bool = True


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
EVENTS = Resource("", "v1", "events")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
POOLS = Resource("spotgpu.zuoyang.cn", "v1alpha1", "gpuspotpools")
STRATEGIES = Resource("spotgpu.zuoyang.cn", "v1alpha1", "gpuspotstrategies")
PROFILES = Resource("spotgpu.zuoyang.cn", "v1alpha1", "gpuworkloadprofiles")
NODE_CLASSES = Resource("spotgpu.zuoyang.cn", "v1alpha1", "gpuspotnodeclasses")


@dataclass(frozen=True)
class Page:
    """One page of a list."""

    items: Sequence[Object]
    resource_version: str
    continue_token: str


WatchEventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch."""

    type: WatchEventType
    object: Object


class Cluster(Protocol):
    """Async on one event loop. Every method raises ``ClusterError``; nothing is retried inside but reads.

    Codes: ``NOT_FOUND`` 404, ``CONFLICT`` 409, ``INVALID_REQUEST`` 400/422, ``FORBIDDEN`` 403,
    ``UNAUTHENTICATED`` 401, ``THROTTLED`` 429 with ``retry_after``, ``UNAVAILABLE`` 5xx or no answer.
    """

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """One object."""
        ...

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
    ) -> Page:
        """One page; 410 (expired continue token) raises ``ClusterError`` with status 410."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        timeout_seconds: int = 280,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events after ``resource_version`` with bookmarks, until the server ends the watch.

        A version that is too old raises ``ClusterError`` with status 410.
        """
        ...

    async def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        """Create; an existing name raises ``CONFLICT``."""
        ...

    async def replace(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        """Replace with the ``resourceVersion`` that ``body`` carries."""
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Object:
        """Merge patch for a mapping, JSON patch for a sequence.

        ``metadata.resourceVersion`` in a merge patch, or a ``test`` operation in a JSON patch, makes it a
        version check.
        """
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete, with the uid as precondition when given. Not found counts as done."""
        ...

    async def evict(self, name: str, namespace: str, *, grace_seconds: int | None = None) -> None:
        """Evict a pod. A budget that forbids it raises ``THROTTLED`` with its name in the text."""
        ...

    async def token_user(self) -> str:
        """Name of the user or service account that this client is, for messages and start-up checks."""
        ...


class SecretReader(Protocol):
    """Secrets of the operator's own namespace, for code that runs in a thread."""

    def read(self, name: str) -> Mapping[str, str]:
        """The Secret's data, decoded.

        Raises:
            ClusterError: ``NOT_FOUND`` when there is none, or any other fault of the API.
        """
        ...


def parse_time(text: str) -> datetime:
    """An RFC 3339 time of the API as an aware UTC datetime."""
    return datetime.fromisoformat(text)
