"""Liveness, readiness and metrics of one process over HTTP."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from activities.telemetry import metrics
from workers.errors import ConfigurationError

_BEAT_SECONDS: Final = 1.0
_STUCK_SECONDS: Final = 30.0
"""An event loop that did not turn for this long does no work: better to be started again."""
_TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """What the process says of itself."""

    def __init__(self) -> None:
        self.waits_for = "start"
        """Why it is not ready; empty once it is."""
        self.before_metrics: Callable[[], Awaitable[None]] = _nothing
        """Brings up to date what the series are computed from."""
        self._turned_at = time.monotonic()

    async def beat(self) -> None:
        """Note for ever that the event loop turns."""
        while True:
            self._turned_at = time.monotonic()
            await asyncio.sleep(_BEAT_SECONDS)

    async def _live(self, _: web.Request) -> web.Response:
        silent = time.monotonic() - self._turned_at
        if silent > _STUCK_SECONDS:
            return web.Response(status=503, text=f"the event loop did not turn for {silent:.0f} s\n")
        return web.Response(text="live\n")

    async def _ready(self, _: web.Request) -> web.Response:
        if self.waits_for:
            return web.Response(status=503, text=f"waits for: {self.waits_for}\n")
        return web.Response(text="ready\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        await self.before_metrics()
        return web.Response(body=metrics.expose(), headers={"Content-Type": _TEXT_FORMAT})

    def routes(self) -> web.Application:
        """``/livez``, ``/readyz`` and ``/metrics``."""
        app = web.Application()
        app.router.add_get("/livez", self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        return app


async def _nothing() -> None:
    """Most processes compute their series from what they count."""


@asynccontextmanager
async def serve(health: Health, host: str, port: int) -> AsyncGenerator[str]:
    """Serve until the block ends.

    Yields:
        The address, for example ``http://127.0.0.1:8080``.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    runner = web.AppRunner(health.routes(), access_log=None)
    await runner.setup()
    beats = asyncio.create_task(health.beat())
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port} for health and metrics: {error.strerror or error}; "
                "change SPOTGPU_HEALTH_HOST or SPOTGPU_HEALTH_PORT"
            ) from error
        bound = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        beats.cancel()
        await asyncio.wait([beats])
        await runner.cleanup()
