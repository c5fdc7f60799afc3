"""Waiting for something to become true, never for a time to pass."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any


async def until(condition: Callable[[], object], *, seconds: float = 5.0, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(0.005)


async def until_async(
    condition: Callable[[], Awaitable[object]], *, seconds: float = 10.0, what: str = ""
) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Future[Any]]:
    """Run in the background; a failure of it fails the test, its cancellation at the end does not."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()
