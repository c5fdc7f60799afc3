"""A worker is killed, another takes its pools over, and somebody asks a pool in between."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError

from domain.contracts.resolved import ResolvedPool
from tests.workflows.conftest import pool_worker, serving
from tests.workflows.outside import Outside
from tests.workflows.pool_worker import STICKY_SECONDS
from tests.workflows.starts import a_resolved, start
from tests.workflows.test_pool import at_rest, delete, ready, replays
from workflows import messages as m

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]


@contextmanager
def a_pool_worker(address: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own, killed at the end of the block."""
    command = [sys.executable, "-m", "tests.workflows.pool_worker", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # our own module
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serves\n"
            yield process
        finally:
            process.kill()


async def a_pool_at_rest(
    client: Client, outside: Outside, resolved: ResolvedPool
) -> WorkflowHandle[Any, str]:
    """Ready with two machines. Its last task reported: what comes at its time puts the next report off."""
    handle = await start(client, resolved)
    await outside.until(lambda: len(outside.machines) == 2)
    await handle.signal(m.NODE_SEEN, outside.seen_nodes())
    await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
    await outside.until(lambda: ready(outside, 2))
    await at_rest(handle, pause=2.5)
    return handle


async def test_news_that_come_with_a_query_are_judged_in_their_own_task(
    client: Client, outside: Outside, temporal_address: str
) -> None:
    """The query waits for the dead worker first, so that the history that it brings along has the signals."""
    resolved = a_resolved()
    async with serving(client, outside, pools=False):
        with a_pool_worker(temporal_address):
            handle = await a_pool_at_rest(client, outside, resolved)
        with a_pool_worker(temporal_address):
            await asyncio.sleep(STICKY_SECONDS)  # until the server has missed the dead one
            question = asyncio.create_task(handle.query(m.STATE_QUERY))
            await asyncio.sleep(0.1)
            for _ in range(2):
                await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
            try:
                await question
            except WorkflowQueryFailedError as error:
                assert "ask again" in str(error)  # noqa: PT017  # whether it is refused depends on the server
            await at_rest(handle)
            assert await handle.query(m.STATE_QUERY)
            await delete(handle, resolved)
    await replays(handle)


async def test_update_that_meets_a_cold_worker_is_served_after_what_was_recorded(
    client: Client, outside: Outside
) -> None:
    """Without an order in any of the last tasks the SDK would serve update and signal before them."""
    resolved = a_resolved()
    async with serving(client, outside, pools=False):
        async with pool_worker(client):
            handle = await a_pool_at_rest(client, outside, resolved)
            for _ in range(3):  # the first reports, the second puts its report off, the third orders nothing
                await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
                await asyncio.sleep(0.05)
            await at_rest(handle)  # the put-off report has nothing to say
        order = m.Resync(by="ann", reason="a test")
        updated = asyncio.create_task(handle.execute_update("resync", order))
        await asyncio.sleep(0.3)
        await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
        async with pool_worker(client):
            await updated
            await delete(handle, resolved)
    await replays(handle)
