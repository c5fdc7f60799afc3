"""The HTTP proxy of faults: bytes pass unchanged, and each rule does what it says and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientConnectionError, ClientError, ClientSession, ClientTimeout, web

from sandbox.faults import Act, Hit, HttpFaults, Rule


@dataclass
class Upstream:
    """A server that records what reaches it."""

    seen: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])
    hosts: list[str] = field(default_factory=list[str])

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append((request.method, request.raw_path, body))
        self.hosts.append(request.headers["Host"])
        if request.path == "/watch":
            return await self._watch(request)
        return web.Response(status=201, text="made", headers={"X-Answer": "yes"})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.sleep(30)  # a watch stays open: the test ends it
        return response


@asynccontextmanager
async def before_upstream(
    *rules: Rule, patience_seconds: float = 5
) -> AsyncIterator[tuple[HttpFaults, Upstream, ClientSession]]:
    upstream = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", upstream.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    faults = HttpFaults("cloud", f"http://127.0.0.1:{runner.addresses[0][1]}")
    await faults.start()
    for rule in rules:
        faults.add(rule)
    async with ClientSession(faults.url, timeout=ClientTimeout(total=patience_seconds)) as client:
        yield faults, upstream, client
    await faults.close()
    await runner.cleanup()


async def test_faults_passes_path_host_and_body_unchanged() -> None:
    async with before_upstream() as (_, upstream, client):
        async with client.post("/a%2Fb?x=%20y", data=b"\x00body", headers={"Host": "cvm.example"}) as answer:
            assert (answer.status, await answer.text(), answer.headers["X-Answer"]) == (201, "made", "yes")
        assert upstream.seen == [("POST", "/a%2Fb?x=%20y", b"\x00body")]
        assert upstream.hosts == ["cvm.example"]


async def test_faults_answers_by_itself_as_often_as_the_rule_says() -> None:
    rule = Rule("busy", Act.ANSWER, status=429, headers={"Retry-After": "1"}, body="slow down", times=2)
    async with before_upstream(rule) as (_, upstream, client):
        statuses = [(await client.get("/x")).status for _ in range(3)]
        assert statuses == [429, 429, 201]
        assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        pytest.param(Rule("r", Act.ANSWER, method="POST"), True, id="method"),
        pytest.param(Rule("r", Act.ANSWER, method="GET"), False, id="other method"),
        pytest.param(Rule("r", Act.ANSWER, path="^/pods"), True, id="path"),
        pytest.param(Rule("r", Act.ANSWER, path="nodes"), False, id="other path"),
        pytest.param(Rule("r", Act.ANSWER, contains="RunInstances"), True, id="header"),
        pytest.param(Rule("r", Act.ANSWER, contains="token-7"), True, id="body"),
        pytest.param(Rule("r", Act.ANSWER, contains="token-8"), False, id="other body"),
    ],
)
async def test_faults_hits_only_what_the_rule_describes(rule: Rule, hit: bool) -> None:
    async with before_upstream(rule) as (_, upstream, client):
        await client.post("/pods?a=1", data="token-7", headers={"X-TC-Action": "RunInstances"})
        assert len(upstream.seen) == (0 if hit else 1)


async def test_faults_cuts_before_the_server_acts() -> None:
    async with before_upstream(Rule("cut", Act.CUT)) as (_, upstream, client):
        with pytest.raises(ClientError):
            await client.post("/x", data="buy")
        assert upstream.seen == []


async def test_faults_cuts_after_the_server_acted() -> None:
    async with before_upstream(Rule("lost", Act.FORWARD_THEN_CUT)) as (_, upstream, client):
        with pytest.raises(ClientError):
            await client.post("/x", data="buy")
        assert upstream.seen == [("POST", "/x", b"buy")]


async def test_faults_hangs_after_the_server_acted() -> None:
    rule = Rule("silent", Act.FORWARD_THEN_HANG)
    async with before_upstream(rule, patience_seconds=2) as (_, upstream, client):
        with pytest.raises(TimeoutError):
            await client.post("/x", data="buy")
        assert len(upstream.seen) == 1


async def test_faults_drops_a_watch_in_the_middle() -> None:
    rule = Rule("drop", Act.DROP_STREAM, seconds=0.2)
    async with before_upstream(rule) as (_, _, client), client.get("/watch") as answer:
        assert await answer.content.readline() == b"first\n"
        with pytest.raises(ClientError):
            await answer.content.readline()


async def test_faults_expires_a_watch_as_kubernetes_does() -> None:
    async with before_upstream(Rule("old", Act.EXPIRE_WATCH, path="watch=true")) as (_, upstream, client):
        answer = await client.get("/pods?watch=true")
        event = json.loads(await answer.text())
        assert (answer.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)
        assert upstream.seen == []


async def test_faults_refuses_connections_until_it_accepts_again() -> None:
    async with before_upstream() as (faults, _, client):
        await faults.refuse()
        with pytest.raises(ClientConnectionError):
            await client.get("/x")
        await faults.accept()
        assert (await client.get("/x")).status == 201


async def test_faults_fires_triggers_at_their_points_in_order() -> None:
    rule = Rule("points", Act.FORWARD, before=("before",), answered=("answered",), delivered=("delivered",))
    order: list[tuple[str, int]] = []
    done = asyncio.Event()
    async with before_upstream(rule) as (faults, upstream, client):
        for name in ("before", "answered", "delivered"):

            async def note(hit: Hit, name: str = name) -> None:
                order.append((name, len(upstream.seen)))
                if name == "delivered":
                    done.set()

            faults.triggers[name] = note
        await (await client.post("/x", data="buy")).read()
        assert order[:2] == [("before", 0), ("answered", 1)]
        assert [hit.rule for hit in faults.hits] == ["points"]
        await asyncio.wait_for(done.wait(), 5)
        assert order[2][0] == "delivered"


def test_rule_refuses_a_field_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="colour"):
        Rule.from_json({"id": "x", "act": "cut", "colour": "red"})
