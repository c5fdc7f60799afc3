"""The HTTP server of one simulated cloud: the vendor's API at ``/`` and the switches below ``/_sandbox/``."""

import asyncio
import contextlib
import ipaddress
import logging
import threading
import uuid
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final

from aiohttp import web

from sandbox.clouds.admin import AdminApi
from sandbox.clouds.cloud import Call, Cloud, Result, VendorError, WireAnswer, WireRequest
from sandbox.clouds.faults import FaultKind
from sandbox.clouds.hooks import HookPoint
from sandbox.clouds.requests import Outcome, RequestRecord

_log = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 131_072
"""Alibaba sends every parameter in the request line: 32 KiB of user data make 46 KB."""
_MAX_BODY_BYTES: Final = 10 * 1024 * 1024
_TICK_SECONDS: Final = 0.05
_LONGEST_VALUE: Final = 200
_SECRET_PARAMETERS: Final = frozenset({"UserData", "Password"})


class CloudServer:
    """Serves one cloud on loopback, in the running event loop."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.base_url = ""
        self._runner: web.AppRunner | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the base address, for example ``http://127.0.0.1:40123``. Port 0 takes a free one.

        Raises:
            ValueError: the host is not a loopback address; the switches have no authentication.
            OSError: the port is taken.
        """
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"a simulated cloud listens on loopback only, not on {host}")
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        AdminApi(self.cloud).add_routes(app)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        bound_port = self._runner.addresses[0][1]
        self.base_url = f"http://{host}:{bound_port}"
        self._ticker = asyncio.create_task(self._tick(), name=f"{self.cloud.provider}-ledger")
        return self.base_url

    async def stop(self) -> None:
        """Stop listening; held and hanging requests end without an answer."""
        self._stopping.set()
        self.cloud.hooks.clear()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _tick(self) -> None:
        while True:
            try:
                self.cloud.ledger.advance()
            except Exception:  # noqa: BLE001 - a listener's failure must not stop the other machines
                _log.exception("A listener of the ledger failed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        wire = WireRequest(
            method=request.method,
            target=request.raw_path,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
        )
        record = self.cloud.log.open(self.cloud.action_of(wire), self.cloud.clock())
        try:
            return await self._proceed(request, wire, record)
        finally:
            record.finished_at = self.cloud.clock()

    async def _proceed(
        self, request: web.Request, wire: WireRequest, record: RequestRecord
    ) -> web.StreamResponse:
        request_id = str(uuid.uuid4())
        try:
            call = self.cloud.open(wire)
            _enter_call(record, call)
            await self.cloud.hooks.reach(HookPoint.RECEIVED, record)
            if self.cloud.faults.strike(call.target, FaultKind.DROP):
                record.outcome = Outcome.DROPPED
                return _cut(request)
            await self._check_load(call)
            result = self.cloud.carry_out(call)
        except VendorError as error:
            record.outcome, record.code = Outcome.REFUSED, error.code
            return await _send(request, self.cloud.refuse_to(wire, request_id, error))
        _enter_result(record, result)
        await self.cloud.hooks.reach(HookPoint.CARRIED_OUT, record)
        worded = partial(self.cloud.answer_to, wire, request_id)
        return await self._deliver(request, call, result, worded, record)

    async def _check_load(self, call: Call) -> None:
        faults = self.cloud.faults
        delay = faults.strike(call.target, FaultKind.DELAY)
        if delay is not None:
            await asyncio.sleep(delay.seconds)
        if faults.strike(call.target, FaultKind.FAIL):
            raise self.cloud.failed()
        told = faults.strike(call.target, FaultKind.ERROR)
        if told is not None:
            raise VendorError(told.code, told.message, status=told.status or self.cloud.refusal_status)
        scope = (call.access_key_id, call.region)
        admitted = self.cloud.rates.admit(call.action, scope, self.cloud.clock().timestamp())
        if faults.strike(call.target, FaultKind.THROTTLE) or not admitted:
            raise self.cloud.throttled(call)

    async def _deliver(
        self,
        request: web.Request,
        call: Call,
        result: Result,
        worded: Callable[[Mapping[str, object]], WireAnswer],
        record: RequestRecord,
    ) -> web.StreamResponse:
        fault = self.cloud.faults.strike(
            call.target,
            FaultKind.DROP_ANSWER,
            FaultKind.HANG,
            FaultKind.GARBLE,
            FaultKind.EMPTY,
            FaultKind.DELAY_ANSWER,
        )
        kind = fault.kind if fault else None
        if kind in (FaultKind.DROP_ANSWER, FaultKind.HANG):
            record.outcome = Outcome.UNANSWERED
            if kind is FaultKind.HANG:
                await self._hang(request)
            return _cut(request)
        if fault is not None and kind is FaultKind.DELAY_ANSWER:
            await asyncio.sleep(fault.seconds)
        answer = worded({} if kind is FaultKind.EMPTY else result.payload)
        if kind is FaultKind.GARBLE:
            answer = WireAnswer(answer.status, answer.headers, b"<html>bad gateway</html>")
        response = await _send(request, answer)
        record.outcome = Outcome.ANSWERED
        await self.cloud.hooks.reach(HookPoint.ANSWERED, record)
        return response

    async def _hang(self, request: web.Request) -> None:
        """Hold the connection until the caller gives up or the server stops."""
        while not self._stopping.is_set():
            if request.transport is None or request.transport.is_closing():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TICK_SECONDS)


@contextlib.contextmanager
def served(cloud: Cloud, port: int = 0) -> Generator[str]:
    """Serve a cloud from a thread of its own; yields the base address. For tests and synchronous callers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"{cloud.provider}-cloud", daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_made(cloud), loop).result()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(port=port), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _made(cloud: Cloud) -> CloudServer:
    return CloudServer(cloud)


def _cut(request: web.Request) -> web.Response:
    """Close the connection; what is returned never reaches the caller."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


async def _send(request: web.Request, answer: WireAnswer) -> web.Response:
    response = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
    await response.prepare(request)
    await response.write_eof()
    return response


def _enter_call(record: RequestRecord, call: Call) -> None:
    record.action, record.region = call.action, call.region
    record.access_key_id, record.client_token = call.access_key_id, call.client_token
    record.parameters = {name: _short(name, value) for name, value in call.parameters.items()}


def _enter_result(record: RequestRecord, result: Result) -> None:
    record.carried_out = True
    record.machine_ids, record.note = result.machine_ids, result.note


def _short(name: str, value: object) -> object:
    """A value for the log: boot scripts carry join tokens, so only their length is kept."""
    text = str(value)
    if name in _SECRET_PARAMETERS:
        return f"({len(text)} characters)"
    return value if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
