"""The Kubernetes adapter against a peer that misbehaves; good behaviour is tested on a real API server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from activities.cluster import kube
from activities.cluster.base import CONFIG_MAPS, PODS, POOLS, SECRETS
from activities.cluster.kube import Connection, KubeCluster
from domain.contracts.errors import ClusterError, ErrorCode

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: one
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
contexts:
- {{name: one, context: {{cluster: c, user: one}}}}
- {{name: two, context: {{cluster: c, user: two}}}}
users:
- {{name: one, user: {{token: "{token}"}}}}
- {{name: two, user: {{token: "token-of-two"}}}}
"""


class Peer:
    """Answers as told, and remembers what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.requests: list[web.Request] = []
        self.bodies: list[str] = []
        self.counted: list[tuple[str, str, int]] = []
        self.server = ""
        self._answer: Answer | None = None

    def answers(self, answer: Answer) -> None:
        self._answer = answer

    def answers_with(self, status: int, body: object = None, **headers: str) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response(body or {}, status=status, headers=headers)

        self._answer = answer

    def write_kubeconfig(self, token: str) -> None:
        self.kubeconfig.write_text(KUBECONFIG.format(server=self.server, token=token))

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.text())
        assert self._answer is not None
        return await self._answer(request)

    @asynccontextmanager
    async def cluster(self, context: str = "") -> AsyncIterator[KubeCluster]:
        connection = Connection(self.kubeconfig, context)

        def count(verb: str, resource: str, status: int, seconds: float) -> None:
            assert seconds >= 0
            self.counted.append((verb, resource, status))

        async with await KubeCluster.connect(connection, count) as cluster:
            yield cluster


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    peer = Peer(tmp_path)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", peer.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    peer.server = f"http://{host}:{port}"
    peer.write_kubeconfig("token-of-one")
    yield peer
    await runner.cleanup()


def a_status(code: int, message: str, **details: object) -> dict[str, object]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}


async def failure_of(work: Awaitable[object]) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        await work
    return caught.value


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_REQUEST), (401, ErrorCode.UNAUTHENTICATED), (403, ErrorCode.FORBIDDEN),
        (404, ErrorCode.NOT_FOUND), (409, ErrorCode.CONFLICT), (410, ErrorCode.CONFLICT),
        (422, ErrorCode.INVALID_REQUEST), (429, ErrorCode.THROTTLED), (500, ErrorCode.UNAVAILABLE),
        (503, ErrorCode.UNAVAILABLE), (418, ErrorCode.UNKNOWN),
    ],
)  # fmt: skip
async def test_cluster_maps_a_status_to_the_closed_set(peer: Peer, status: int, code: ErrorCode) -> None:
    peer.answers_with(status, a_status(status, "because"))
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "ns"))
    assert (error.code, error.status, error.operation) == (code, status, "create configmaps/ns")
    assert "because" in str(error)


async def test_cluster_names_the_fields_of_causes(peer: Peer) -> None:
    causes = [
        {"reason": "FieldValueInvalid", "field": "spec.minInstances", "message": "must be at least 0"},
        {"reason": "FieldValueRequired", "field": "spec.providers", "message": "said already"},
    ]
    peer.answers_with(422, a_status(422, "is invalid: spec.providers: said already", causes=causes))
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.create(POOLS, {"metadata": {"name": "a"}}, "ns"))
    assert "(spec.minInstances: must be at least 0)" in str(error)


async def test_cluster_reports_the_wish_of_a_throttling_server(peer: Peer) -> None:
    peer.answers_with(429, a_status(429, "slow down"), **{"Retry-After": "7"})
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.evict("a", "ns"))
    assert (error.code, error.retry_after) == (ErrorCode.THROTTLED, timedelta(seconds=7))


async def test_cluster_names_the_budget_that_forbids_an_eviction(peer: Peer) -> None:
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget keep needs 1 healthy pods"}
    peer.answers_with(429, a_status(429, "Cannot evict pod", causes=[cause]))
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.evict("a", "ns", grace_seconds=5))
    assert "disruption budget keep" in str(error)
    assert json.loads(peer.bodies[0])["deleteOptions"] == {"gracePeriodSeconds": 5}


async def test_cluster_repeats_a_read_that_is_told_to_come_back_and_counts_each(peer: Peer) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        if len(peer.requests) < 3:
            return web.json_response({}, status=429, headers={"Retry-After": "0"})
        return web.json_response({"metadata": {"name": "a"}})

    peer.answers(answer)
    async with peer.cluster() as cluster:
        assert (await cluster.get(CONFIG_MAPS, "a", "ns"))["metadata"]["name"] == "a"
    assert peer.counted == [("get", "configmaps", 429)] * 2 + [("get", "configmaps", 200)]


async def test_cluster_does_not_wait_longer_than_a_call_may_take(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "CALL_SECONDS", 0.2)
    peer.answers_with(429, {}, **{"Retry-After": "3600"})
    began = time.monotonic()
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.get(CONFIG_MAPS, "a", "ns"))
    assert error.code is ErrorCode.UNAVAILABLE
    assert time.monotonic() - began < 5


async def test_cluster_never_repeats_a_write(peer: Peer) -> None:
    peer.answers_with(429, {}, **{"Retry-After": "0"})
    async with peer.cluster() as cluster:
        await failure_of(cluster.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "ns"))
        await failure_of(cluster.patch(CONFIG_MAPS, "a", {"data": {}}, namespace="ns"))
        await failure_of(cluster.delete(CONFIG_MAPS, "a", namespace="ns"))
    assert len(peer.requests) == 3


async def test_cluster_tells_when_nobody_answers(peer: Peer) -> None:
    peer.server = "http://127.0.0.1:1"
    peer.write_kubeconfig("t")
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.get(PODS, "a", "ns"))
    assert (error.code, error.status) == (ErrorCode.UNAVAILABLE, 0)
    assert peer.counted == [("get", "pods", 0)]


async def test_cluster_takes_an_answer_that_is_no_json_for_none(peer: Peer) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>a proxy's page</html>")

    peer.answers(answer)
    async with peer.cluster() as cluster:
        assert (await failure_of(cluster.get(PODS, "a", "ns"))).code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("body", "content_type", "sent"),
    [
        ({"data": {"x": "1"}}, "application/merge-patch+json", {"data": {"x": "1"}}),
        (
            ({"op": "remove", "path": "/data"},), "application/json-patch+json",
            [{"op": "remove", "path": "/data"}],
        ),
        ({}, "application/merge-patch+json", {}),
    ],
    ids=["mapping", "sequence", "empty mapping"],
)  # fmt: skip
async def test_cluster_states_the_kind_of_a_patch(
    peer: Peer, body: dict[str, object], content_type: str, sent: object
) -> None:
    peer.answers_with(200, {"metadata": {}})
    async with peer.cluster() as cluster:
        await cluster.patch(POOLS, "p", body, namespace="ns", subresource="status")
    request = peer.requests[0]
    assert request.path == "/apis/spotgpu.zuoyang.cn/v1alpha1/namespaces/ns/gpuspotpools/p/status"
    assert (request.headers["Content-Type"], json.loads(peer.bodies[0])) == (content_type, sent)
    assert peer.counted == [("patch", "gpuspotpools/status", 200)]


async def test_cluster_quotes_names_in_paths(peer: Peer) -> None:
    peer.answers_with(200, {})
    async with peer.cluster() as cluster:
        await cluster.get(PODS, "../../secrets", "ns")
    assert peer.requests[0].raw_path == "/api/v1/namespaces/ns/pods/..%2F..%2Fsecrets"


async def test_cluster_refuses_a_namespaced_object_without_a_namespace(peer: Peer) -> None:
    async with peer.cluster() as cluster:
        error = await failure_of(cluster.get(PODS, "a"))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert peer.requests == []


async def test_cluster_reads_its_credentials_again_when_they_are_refused(peer: Peer) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        fresh = request.headers["Authorization"] == "Bearer fresh"
        return web.json_response({"metadata": {}}, status=200 if fresh else 401)

    peer.answers(answer)
    async with peer.cluster() as cluster:
        cluster._loaded_at = float("-inf")  # as if connected a while ago
        peer.write_kubeconfig("fresh")
        await asyncio.gather(*(cluster.get(PODS, "a", "ns") for _ in range(3)))
        peer.write_kubeconfig("stale")
        await cluster.get(PODS, "a", "ns")
    assert [request.headers["Authorization"] for request in peer.requests].count("Bearer fresh") == 4


async def test_cluster_uses_the_context_that_is_named(peer: Peer) -> None:
    peer.answers_with(200, {})
    async with peer.cluster("two") as cluster:
        await cluster.get(PODS, "a", "ns")
    assert peer.requests[0].headers["Authorization"] == "Bearer token-of-two"


async def test_cluster_ignores_proxies_on_loopback(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    peer.answers_with(200, {"metadata": {}})
    async with peer.cluster() as cluster:
        await cluster.get(PODS, "a", "ns")


@pytest.mark.parametrize("text", ["", "clusters: [", "apiVersion: v1\nkind: Config\n"])
async def test_connect_names_a_kubeconfig_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    error = await failure_of(KubeCluster.connect(Connection(path)))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert str(path) in str(error)


async def test_connect_says_what_to_do_outside_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    error = await failure_of(KubeCluster.connect(Connection()))
    assert "Name a readable kubeconfig" in str(error)


async def test_secret_is_decoded_and_never_quoted_in_an_error(peer: Peer) -> None:
    peer.answers_with(200, {"data": {"token": "aHVzaA=="}})
    async with peer.cluster() as cluster:
        assert await cluster.read_secret("s", "ops") == {"token": "hush"}
        peer.answers_with(200, {"data": {"token": "//5odXNo"}})
        error = await failure_of(cluster.read_secret("s", "ops"))
    assert "'token'" in str(error)
    assert "hush" not in str(error)
    assert error.__cause__ is None
    assert error.operation == f"get {SECRETS.plural}/ops/s"


def watching(*lines: object, then: Callable[[], Awaitable[None]] | None = None) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            text = line if isinstance(line, str) else json.dumps(line) + "\n"
            await response.write(text.encode())
        if then is not None:
            await then()
        return response

    return answer


EVENT = {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "2"}}}


async def test_watch_yields_events_and_ends_with_the_server(peer: Peer) -> None:
    big = {"type": "MODIFIED", "object": {"metadata": {"name": "b"}, "data": {"x": "y" * 1_400_000}}}
    peer.answers(watching(EVENT, big))
    async with peer.cluster() as cluster:
        seen = [event async for event in cluster.watch(PODS, resource_version="1", timeout_seconds=9)]
    assert [event.type for event in seen] == ["ADDED", "MODIFIED"]
    query = peer.requests[0].query
    assert dict(query) == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "1", "timeoutSeconds": "9",
    }  # fmt: skip


async def test_watch_raises_410_for_a_version_that_is_too_old(peer: Peer) -> None:
    peer.answers(watching({"type": "ERROR", "object": a_status(410, "too old") | {"reason": "Expired"}}))
    async with peer.cluster() as cluster:
        error = await failure_of(anext(cluster.watch(PODS, resource_version="1")))
    assert (error.status, error.code) == (410, ErrorCode.CONFLICT)


async def test_watch_raises_when_the_connection_breaks_in_the_middle_of_a_line(peer: Peer) -> None:
    peer.answers(watching(EVENT, '{"type": "ADD'))
    async with peer.cluster() as cluster:
        events = cluster.watch(PODS, resource_version="1")
        assert (await anext(events)).type == "ADDED"
        assert (await failure_of(anext(events))).code is ErrorCode.UNAVAILABLE


async def test_watch_gives_up_a_connection_that_fell_silent(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "WATCH_SLACK_SECONDS", -0.8)
    silence = asyncio.Event()

    async def wait() -> None:
        await silence.wait()

    peer.answers(watching(EVENT, then=wait))
    async with peer.cluster() as cluster:
        events = cluster.watch(PODS, resource_version="1", timeout_seconds=1)
        assert (await anext(events)).type == "ADDED"
        error = await failure_of(anext(events))
    silence.set()
    assert error.code is ErrorCode.UNAVAILABLE
    assert "no answer in time" in str(error)


async def test_watch_lets_go_of_its_connection_when_it_is_left(peer: Peer) -> None:
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(json.dumps(EVENT).encode() + b"\n")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    peer.answers(answer)
    async with peer.cluster() as cluster:
        events = cluster.watch(PODS, resource_version="1")
        await anext(events)
        await events.aclose()
        await asyncio.wait_for(ended.wait(), 5)
