"""A reverse proxy of HTTP that misbehaves on demand before the Kubernetes API or a cloud.

It passes requests byte for byte (signatures stay valid), and a ``Rule`` says what goes wrong with which
request: an answer of the proxy's own (429 with Retry-After, 500, 410), a delay, a cut before or after the
server has acted, a watch that breaks. For connections without regard to their content: ``tcp_faults``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from sandbox.clouds.server import MAX_LINE_BYTES
from sandbox.ports import HOST
from sandbox.tcp_faults import reset


class Act(StrEnum):
    """What happens to a request that a rule hits."""

    FORWARD = "forward"
    """Nothing but the rule's delay and triggers."""
    ANSWER = "answer"
    """The proxy answers; the server never sees the request."""
    CUT = "cut"
    """The connection is cut; the server never sees the request."""
    FORWARD_THEN_CUT = "forward-then-cut"
    """The server carries it out, its answer is thrown away and the connection is cut."""
    FORWARD_THEN_HANG = "forward-then-hang"
    """The server carries it out and the client never gets an answer."""
    DROP_STREAM = "drop-stream"
    """The answer is passed on for ``seconds``, then cut: a watch that breaks."""
    EXPIRE_WATCH = "expire-watch"
    """A watch is answered as Kubernetes answers a version that is too old: 200 and one ERROR event, 410."""


@dataclass(frozen=True)
class Rule:
    """Which requests go wrong, and how. All conditions must hold; an empty one always does."""

    id: str
    act: Act
    method: str = ""
    path: str = ""
    """Regular expression searched in path and query."""
    contains: str = ""
    """Text in a header's value or in the body, for example the name of a cloud's action."""
    times: int | None = 1
    """How many requests it hits before it is spent; None for all until it is removed."""
    seconds: float = 0.0
    """Delay before anything else; with ``DROP_STREAM`` how long the answer flows."""
    status: int = 500
    headers: Mapping[str, str] | None = None
    body: str = ""
    kill_pid: int | None = None
    """Send SIGKILL to this process when the request has arrived, before it is passed on."""
    before: tuple[str, ...] = ()
    """Triggers fired when the request has arrived, before it is passed on."""
    answered: tuple[str, ...] = ()
    """Triggers fired when the server has answered, before the client gets a byte of it."""
    delivered: tuple[str, ...] = ()
    """Triggers fired when the client has got the answer."""

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Rule:
        """Read a rule of the admin interface.

        Raises:
            ValueError: An unknown field or act, or no id.
        """
        known = {**fields}
        for name in ("before", "answered", "delivered"):
            if name in known:
                known[name] = tuple(known[name])  # pyright: ignore[reportArgumentType]  # checked by use
        try:
            known["act"] = Act(str(known.get("act", Act.FORWARD)))
            return cls(**known)  # pyright: ignore[reportArgumentType]  # the dataclass refuses unknown names
        except TypeError as error:
            raise ValueError(f"not a fault rule: {error}; fields are those of sandbox.faults.Rule") from error


@dataclass(frozen=True)
class Hit:
    """One request that a rule hit."""

    at: datetime
    rule: str
    act: Act
    method: str
    path: str


Trigger = Callable[[Hit], Awaitable[None]]

_KEPT_HITS = 10_000
_HOP_HEADERS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"})
_FRAMING = frozenset({"transfer-encoding", "content-length"})
_EXPIRED_EVENT = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    },
}


class HttpFaults:
    """One listening port that passes requests to one server, subject to rules.

    All methods belong to the event loop that called ``start``.
    """

    def __init__(
        self,
        name: str,
        upstream: str,
        *,
        upstream_ca: Path | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        """Describe a proxy.

        Args:
            name: For messages.
            upstream: URL of the server without a path, for example ``https://127.0.0.1:20001``.
            upstream_ca: What to trust when it is ``https``.
            tls: Certificate and key to listen with; plain HTTP when None.
        """
        self.name = name
        self.hits: deque[Hit] = deque(maxlen=_KEPT_HITS)
        """Newest last."""
        self.requests: Counter[str] = Counter()
        """Requests by method."""
        self.triggers: dict[str, Trigger] = {}
        """What rules may fire, by name."""
        self._upstream = upstream.rstrip("/")
        self._client_tls = ssl.create_default_context(cafile=upstream_ca) if upstream_ca else None
        self._server_tls = _server_tls(*tls) if tls else None
        self._rules: list[Rule] = []
        self._left: dict[str, int | None] = {}
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    @property
    def port(self) -> int:
        """The listening port on 127.0.0.1, the same after ``refuse`` and ``accept``."""
        return self._port

    @property
    def url(self) -> str:
        """What clients use instead of the server's own URL."""
        return f"{'https' if self._server_tls else 'http'}://{HOST}:{self._port}"

    def add(self, rule: Rule) -> None:
        """Let a rule act from the next request on; the one added first wins. An old one of the id goes."""
        self.remove(rule.id)
        self._rules.append(rule)
        self._left[rule.id] = rule.times

    def remove(self, rule_id: str) -> None:
        """Forget a rule; an unknown id is no error."""
        self._rules = [rule for rule in self._rules if rule.id != rule_id]

    def clear(self) -> None:
        """Forget all rules."""
        self._rules.clear()

    async def start(self, port: int = 0) -> int:
        """Listen on ``port`` (0: any free one) and return it."""
        self._port = port
        # One connection to the server for each request of a plain server: a kept one that the server closes
        # just then would look like a purchase of unknown outcome.
        connector = TCPConnector(limit=0, ssl=self._client_tls or True, force_close=self._client_tls is None)
        self._session = ClientSession(
            connector=connector,
            auto_decompress=False,
            timeout=ClientTimeout(total=None),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            trust_env=False,
        )
        await self.accept()
        return self._port

    async def accept(self) -> None:
        """Listen again on the same port. Does nothing when it listens."""
        if self._runner is not None:
            return
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.1,
            handler_cancellation=True,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )
        await runner.setup()
        await web.TCPSite(runner, HOST, self._port, ssl_context=self._server_tls).start()
        self._port = int(runner.addresses[0][1])

    async def refuse(self) -> None:
        """Look like a dead server: open connections are cut, new ones are refused by the kernel."""
        runner, self._runner = self._runner, None
        if runner is not None:
            for connection in list(runner.server.connections if runner.server else ()):
                if connection.transport is not None:
                    reset(connection.transport)
            await runner.cleanup()

    async def close(self) -> None:
        """Stop listening, cut everything and free the client."""
        await self.refuse()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method] += 1
        body = await request.read()
        rule = self._match(request, body)
        if rule is None:
            return await self._pass(request, body, None, None)
        hit = Hit(datetime.now(UTC), rule.id, rule.act, request.method, request.raw_path)
        self.hits.append(hit)
        if rule.kill_pid is not None:
            _kill(rule.kill_pid)
        await self._fire(rule.before, hit)
        if rule.act is not Act.DROP_STREAM and rule.seconds > 0:
            await asyncio.sleep(rule.seconds)
        match rule.act:
            case Act.ANSWER:
                return web.Response(status=rule.status, headers=rule.headers, text=rule.body)
            case Act.EXPIRE_WATCH:
                return web.Response(text=json.dumps(_EXPIRED_EVENT) + "\n", content_type="application/json")
            case Act.CUT:
                return _cut(request)
            case _:
                return await self._pass(request, body, rule, hit)

    def _match(self, request: web.Request, body: bytes) -> Rule | None:
        """Find the first rule that fits, and count its use."""
        for rule in self._rules:
            if not _fits(rule, request, body):
                continue
            left = self._left[rule.id]
            if left is not None:
                self._left[rule.id] = left - 1
                if left <= 1:
                    self.remove(rule.id)
            return rule
        return None

    async def _pass(
        self, request: web.Request, body: bytes, rule: Rule | None, hit: Hit | None
    ) -> web.StreamResponse:
        """Ask the server and hand its answer on as it comes."""
        if self._session is None:
            raise RuntimeError("start the proxy before it serves")
        url = URL(self._upstream + request.raw_path, encoded=True)
        headers = _passed_on(request.headers, drop=_HOP_HEADERS | _FRAMING)
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False
            ) as answer:
                if rule is not None and hit is not None:
                    return await self._pass_with_fault(request, answer, rule, hit)
                return await _stream(request, answer)
        except (ClientError, OSError):
            return _cut(request)  # a dead or broken server looks the same through us

    async def _pass_with_fault(
        self, request: web.Request, answer: ClientResponse, rule: Rule, hit: Hit
    ) -> web.StreamResponse:
        if rule.act in (Act.FORWARD_THEN_CUT, Act.FORWARD_THEN_HANG):
            await answer.read()
        await self._fire(rule.answered, hit)
        match rule.act:
            case Act.FORWARD_THEN_CUT:
                return _cut(request)
            case Act.FORWARD_THEN_HANG:
                await asyncio.Event().wait()  # until the client goes, which cancels this
            case Act.DROP_STREAM:
                await _stream_for(request, answer, rule.seconds)
                return _cut(request)
            case _:
                pass
        response = await _stream(request, answer)
        await self._fire(rule.delivered, hit)
        return response

    async def _fire(self, names: tuple[str, ...], hit: Hit) -> None:
        for name in names:
            await self.triggers[name](hit)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # what was to be dead is dead
        os.kill(pid, signal.SIGKILL)


def _fits(rule: Rule, request: web.Request, body: bytes) -> bool:
    if rule.method and rule.method != request.method:
        return False
    if rule.path and not re.search(rule.path, request.raw_path):
        return False
    wanted = rule.contains
    return (
        not wanted
        or wanted.encode() in body
        or wanted in request.raw_path
        or any(wanted in value for value in request.headers.values())
    )


def _passed_on(headers: Mapping[str, str], *, drop: frozenset[str]) -> CIMultiDict[str]:
    """Copy headers but those that belong to one connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in drop)


async def _stream(request: web.Request, answer: ClientResponse) -> web.StreamResponse:
    """Pass an answer on, chunk by chunk, so that a watch flows."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    length = answer.headers.get("Content-Length")
    response.headers.extend(_passed_on(answer.headers, drop=_HOP_HEADERS | _FRAMING))
    if length is not None and request.method != "HEAD":
        response.content_length = int(length)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


async def _stream_for(request: web.Request, answer: ClientResponse, seconds: float) -> None:
    try:
        await asyncio.wait_for(_stream(request, answer), seconds)
    except TimeoutError:
        return  # the stream still flowed, which is when it is to be cut


def _cut(request: web.Request) -> web.StreamResponse:
    """Reset the client's connection."""
    if request.transport is not None:
        reset(request.transport)
    return web.Response(status=499)  # goes nowhere: the connection is gone


def _server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
