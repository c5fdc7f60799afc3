"""The Kubernetes adapter: the port ``Cluster`` over the async half of the official client, on plain dicts.

One code path serves every resource: no typed API class, no discovery and so no discovery cache on disk.
Counted are requests as they leave, so a read that the client repeats after a Retry-After counts each time.
"""

# The official client declares itself typed but leaves most signatures without annotations.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import base64
import binascii
import ipaddress
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self, TypedDict, Unpack, cast
from urllib.parse import quote, urlsplit

import aiohttp
import yaml
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import rest as kubernetes_rest
from kubernetes.aio.client.exceptions import ApiException
from typing_extensions import override

from activities.cluster.answers import error_from, event_from
from activities.cluster.base import PODS, SECRETS, Object, Page, Resource, WatchEvent
from domain.contracts.errors import ClusterError, ErrorCode

RequestHook = Callable[[str, str, int, float], None]
"""Called as ``(verb, resource, status, seconds)`` for each request; status 0 when there was no answer."""

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

CONNECT_SECONDS: Final = 10.0
CALL_SECONDS: Final = 60.0
"""For a whole call with the client's own repeats of reads: the server's Retry-After may be any number."""
WATCH_SLACK_SECONDS: Final = 15.0
"""How much longer than the server's own end a silent watch is believed in."""

RELOAD_SECONDS: Final = 10.0
"""Shortest time between two readings of credentials that the server refuses."""

_CLOSING_SECONDS: Final = 0.05
_SELF_REVIEW: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)


@dataclass(frozen=True)
class Connection:
    """Where the API server is, and as whom to call it."""

    kubeconfig: Path | None = None
    """None means: as the service account of the pod that this runs in."""
    context: str = ""
    """A context of the kubeconfig; empty means its current one."""


@dataclass(frozen=True)
class _Call:
    """One call of the port, as errors and counters name it."""

    verb: str
    resource: Resource
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @property
    def counted_as(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def operation(self) -> str:
        parts = (self.resource.plural, self.namespace, self.name, self.subresource)
        return f"{self.verb} {'/'.join(part for part in parts if part)}"

    @property
    def path(self) -> str:
        """The URL's path.

        Raises:
            ClusterError: ``INVALID_REQUEST`` when an object of a namespaced resource lacks its namespace.
        """
        if self.resource.namespaced and self.name and not self.namespace:
            raise ClusterError(ErrorCode.INVALID_REQUEST, "name the namespace, too", operation=self.operation)
        group, version = self.resource.group, self.resource.version
        parts = ["apis", group, version] if group else ["api", version]
        if self.resource.namespaced and self.namespace:
            parts += ["namespaces", self.namespace]
        parts += [self.resource.plural, self.name, self.subresource]
        return "/" + "/".join(quote(part, safe="") for part in parts if part)


class _Wishes(TypedDict, total=False):
    """What a request may carry beside its call."""

    query: Mapping[str, str]
    """Empty values are left out."""
    body: Object | list[Object]
    content_type: str


@dataclass(frozen=True)
class _Request:
    """One call as it goes out."""

    call: _Call
    method: str
    limits: aiohttp.ClientTimeout
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Object | list[Object] | None = None
    content_type: str = "application/json"


_current_call: ContextVar[_Call | None] = ContextVar("_current_call", default=None)


class _Rest(kubernetes_rest.RESTClientObject):
    """The client's transport with TCP keep-alive, so that a peer that vanished is noticed within a minute."""

    @override
    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=_keepalive_socket
        )


class KubeCluster:
    """``Cluster`` over HTTPS. Belongs to the event loop that it was connected in; close it at the end."""

    def __init__(
        self, connection: Connection, on_request: RequestHook | None, client: kubernetes_client.ApiClient
    ) -> None:
        """Use a client that was made of a connection; ``connect`` makes both."""
        self._connection = connection
        self._on_request = on_request
        self._client = client
        self._reload_lock = asyncio.Lock()
        self._loaded_at = time.monotonic()

    @classmethod
    async def connect(cls, connection: Connection, on_request: RequestHook | None = None) -> Self:
        """Read the credentials; no request is sent yet.

        Raises:
            ClusterError: ``INVALID_REQUEST`` when the kubeconfig or the pod's credentials cannot be used.
        """
        return cls(connection, on_request, await _make_client(connection, on_request))

    async def close(self) -> None:
        """End every connection."""
        await self._client.close()
        # A TLS transport, also one whose handshake was cancelled, ends some turns of the loop after its
        # close, and these may be the loop's last ones.
        await asyncio.sleep(_CLOSING_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """One object."""
        return await self._json(_Call("get", resource, name, namespace), "GET")

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
        """One page of a consistent list."""
        query = {
            "limit": str(limit),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "continue": continue_token,
        }
        answer = await self._json(_Call("list", resource, namespace=namespace), "GET", query=query)
        metadata = cast("Object", answer.get("metadata") or {})
        return Page(
            items=cast("list[Object]", answer.get("items") or []),
            resource_version=str(metadata.get("resourceVersion", "")),
            continue_token=str(metadata.get("continue") or ""),
        )

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        timeout_seconds: int = 280,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events after ``resource_version``; a connection that falls silent ends with ``UNAVAILABLE``."""
        call = _Call("watch", resource, namespace=namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "timeoutSeconds": str(timeout_seconds),
        }
        silence = timeout_seconds + WATCH_SLACK_SECONDS
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        with _translated(call):
            response = await self._send(_Request(call, "GET", limits, query))
            try:
                while line := await response.content.readline():
                    yield event_from(call.operation, line)
            finally:
                _cut(response)

    async def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        """Create."""
        return await self._json(_Call("create", resource, namespace=namespace), "POST", body=body)

    async def replace(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        """Replace with the version that ``body`` carries."""
        name = str(body["metadata"]["name"])
        return await self._json(_Call("update", resource, name, namespace), "PUT", body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Object:
        """Merge patch for a mapping, JSON patch for a sequence."""
        call = _Call("patch", resource, name, namespace, subresource)
        if isinstance(body, Mapping):
            return await self._json(call, "PATCH", body=dict(body), content_type=MERGE_PATCH)
        operations = [dict(operation) for operation in body]
        return await self._json(call, "PATCH", body=operations, content_type=JSON_PATCH)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete; not found counts as done."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._json(_Call("delete", resource, name, namespace), "DELETE", body=options)
        except ClusterError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    async def evict(self, name: str, namespace: str, *, grace_seconds: int | None = None) -> None:
        """Evict a pod."""
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if grace_seconds is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace_seconds}
        await self._json(_Call("create", PODS, name, namespace, "eviction"), "POST", body=body)

    async def token_user(self) -> str:
        """Name of the user or service account that this client is."""
        body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._json(_Call("create", _SELF_REVIEW), "POST", body=body)
        return str(answer["status"]["userInfo"]["username"])

    async def read_secret(self, name: str, namespace: str) -> dict[str, str]:
        """The decoded values of a Secret by key. They belong in no payload, log or error text.

        Raises:
            ClusterError: As ``get``; ``INVALID_REQUEST`` names a key whose value is not text.
        """
        call = _Call("get", SECRETS, name, namespace)
        encoded = cast("dict[str, str]", (await self._json(call, "GET")).get("data") or {})
        return {key: _text_of(call, key, value) for key, value in encoded.items()}

    async def _json(self, call: _Call, method: str, **wishes: Unpack[_Wishes]) -> Object:
        """Send, and return the JSON object of a successful answer."""
        limits = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
        with _translated(call):
            response = await self._send(_Request(call, method, limits, **wishes))
            return cast("Object", json.loads(await response.read()))

    async def _send(self, request: _Request) -> aiohttp.ClientResponse:
        """Send until there is an answer; on 401 once more with credentials read anew.

        Raises:
            ClusterError: The answer was no success.
        """
        client = self._client
        response = await _send_once(client, request)
        if response.status == 401 and await self._reload(client):
            response.release()
            response = await _send_once(self._client, request)
        if response.status >= 400:
            text = await response.text(errors="replace")
            raise error_from(request.call.operation, response.status, text, response.headers)
        return response

    async def _reload(self, refused: kubernetes_client.ApiClient) -> bool:
        """Read the credentials again, at most once in ten seconds; False when there are no newer ones.

        Connections of the refused client are closed, also those that still work: they began with what the
        server does not take any more.
        """
        async with self._reload_lock:
            if self._client is not refused:
                return True
            if time.monotonic() - self._loaded_at < RELOAD_SECONDS:
                return False
            self._loaded_at = time.monotonic()
            self._client = await _make_client(self._connection, self._on_request)
        await refused.close()
        return True


async def _make_client(connection: Connection, on_request: RequestHook | None) -> kubernetes_client.ApiClient:
    """A client with the credentials as they are now."""
    configuration = kubernetes_client.Configuration()
    configuration.client_go_retries = True
    configuration.trace_configs = [_tracer(on_request)] if on_request else None
    await _read_credentials(connection, configuration)
    # Proxies and netrc of the environment are for the world outside, not for a server on this machine.
    configuration.client_session_kwargs = {"trust_env": not _is_loopback(configuration.host)}
    client = kubernetes_client.ApiClient(configuration)
    client.rest_client = _Rest(configuration)
    client.user_agent = "spotgpu"
    return client


async def _read_credentials(connection: Connection, configuration: kubernetes_client.Configuration) -> None:
    path = connection.kubeconfig
    try:
        if path is None:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
            return
        await kubernetes_config.load_kube_config(
            config_file=str(path),
            context=connection.context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except (kubernetes_config.ConfigException, OSError) as error:
        raise _unusable(path, str(error)) from error
    except yaml.YAMLError:
        # Without the cause: its text may quote the file.
        raise _unusable(path, "it is no YAML") from None
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise _unusable(path, f"it is empty or a part is missing ({type(error).__name__})") from error


def _unusable(path: Path | None, why: str) -> ClusterError:
    source = f"kubeconfig {path}" if path else "the service account of this pod"
    text = f"{source} cannot be used: {why}. Name a readable kubeconfig, or run inside a pod."
    return ClusterError(ErrorCode.INVALID_REQUEST, text, operation="connect")


async def _send_once(client: kubernetes_client.ApiClient, request: _Request) -> aiohttp.ClientResponse:
    """One request of the client, with its own repeats of reads that were told to come back."""
    _, url, headers, body, _ = await client.param_serialize(
        request.method,
        request.call.path,
        query_params=[(key, value) for key, value in request.query.items() if value],
        header_params={"Accept": "application/json", "Content-Type": request.content_type},
        body=request.body,
        auth_settings=["BearerToken"],
    )
    context = _current_call.set(request.call)
    try:
        async with asyncio.timeout(CALL_SECONDS):
            answer = await client.call_api(
                request.method, url, header_params=headers, body=body, _request_timeout=request.limits
            )
    finally:
        _current_call.reset(context)
    return answer.response


def _cut(response: aiohttp.ClientResponse) -> None:
    """End a stream that the server would go on with, without the TLS farewell that it may never answer."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


@contextmanager
def _translated(call: _Call) -> Generator[None]:
    """Re-raise whatever the client and the network do as ``ClusterError``."""
    try:
        yield
    except ApiException as error:
        status = int(error.status or 0)
        raise error_from(
            call.operation, status, str(error.body or error.reason or ""), error.headers or {}
        ) from error
    except TimeoutError as error:
        text = "no answer in time: is the API server up, and reachable from here?"
        raise ClusterError(ErrorCode.UNAVAILABLE, text, operation=call.operation) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: an answer that is no JSON, or a line of a watch without an end.
        text = f"{type(error).__name__}: {error}"
        raise ClusterError(ErrorCode.UNAVAILABLE, text, operation=call.operation) from error


def _text_of(call: _Call, key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        # Without the cause: its text would quote the value.
        text = f"key {key!r} holds no UTF-8 text: store text there"
        raise ClusterError(ErrorCode.INVALID_REQUEST, text, operation=call.operation) from None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose peer is asked after 30 s of silence, and given up 30 s later."""
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _tracer(on_request: RequestHook) -> aiohttp.TraceConfig:
    """Report each request as it ends."""

    async def started(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.started = time.monotonic()

    async def ended(_: aiohttp.ClientSession, context: SimpleNamespace, end: object) -> None:
        call = _current_call.get()
        if call is not None:
            status = end.response.status if isinstance(end, aiohttp.TraceRequestEndParams) else 0
            on_request(call.verb, call.counted_as, status, time.monotonic() - context.started)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    trace.on_request_end.append(ended)
    trace.on_request_exception.append(ended)
    return trace
