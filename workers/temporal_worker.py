"""One worker process: every queue of the served regions, until a signal, then drained."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.sharers import Sharers
from workers import search_attributes
from workers.connections import connect_cluster, connect_temporal
from workers.health import Health, serve
from workers.installation import read_or_make
from workers.secrets import OperatorSecrets, SecretStore, check_account
from workers.settings import Settings
from workers.standing_work import revive_sync, schedule_sweep, start_sync
from workers.wiring import build_hands, build_workers, lane_rate

_REVIVE_EVERY: Final = timedelta(seconds=60)
_COUNT_EVERY: Final = timedelta(seconds=5)

_log = logging.getLogger(__name__)


async def run_worker(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then let running activities end within the grace.

    Raises:
        ConfigurationError: Something that must be there is not; one clear line.
        Exception: A worker failed for good; the process should be started again.
    """
    async with AsyncExitStack() as stack:
        health = Health()
        address = await stack.enter_async_context(serve(health, settings.health_host, settings.health_port))
        # Of the workers of a host each has a port of its own, and has it again when it is started again.
        identity = f"spotgpu-worker@{socket.gethostname()}:{urlsplit(address).port}"
        health.waits_for = "Kubernetes API"
        cluster = await stack.enter_async_context(await connect_cluster(settings))
        health.waits_for = "Temporal"
        client = await connect_temporal(settings, identity)
        await search_attributes.check(client)
        installation = await read_or_make(cluster, settings.operator_namespace)
        sharers = Sharers(client, settings.regions, partial(lane_rate, settings))
        await sharers.look()
        secrets = _secrets(settings, cluster)
        await tell_of_accounts(settings, secrets)
        hands = build_hands(
            settings,
            client=client,
            cluster=cluster,
            secrets=secrets,
            installation=installation,
            sharers=sharers,
        )
        stack.callback(hands.registry.close)
        workers = build_workers(settings, client, hands)
        running = [asyncio.create_task(worker.run(), name=worker.task_queue) for worker in workers]
        keeping = _begin_keeping(client, settings, sharers, stack)
        try:
            await _begin_standing_work(client, settings)
            health.waits_for = ""
            regions = [str(region) for region in settings.regions]
            of = {"installation": installation.id, "epoch": installation.epoch}
            _log.info("Worker serves", extra={"address": address, **of, "regions": regions})
            await _until(stop, [*running, *keeping])
        finally:
            health.waits_for = "shutdown"
            await _drain(workers, running)


def _secrets(settings: Settings, store: SecretStore) -> OperatorSecrets:
    return OperatorSecrets(
        store,
        settings.operator_namespace,
        asyncio.get_running_loop(),
        max_age_seconds=settings.secret_max_age_seconds,
    )


async def tell_of_accounts(settings: Settings, secrets: OperatorSecrets) -> None:
    """Log each account whose Secret is of no use yet.

    The worker starts all the same: it serves the other accounts, the pools say which Secret is wrong, and
    one that is mended is used without a restart.
    """
    for name in sorted({region.account for region in settings.regions}):
        problem = await check_account(secrets, name)
        if problem:
            _log.error("Account cannot be used until its Secret is right", extra={"problem": problem})


def _begin_keeping(
    client: Client, settings: Settings, sharers: Sharers, stack: AsyncExitStack
) -> "list[asyncio.Task[None]]":
    """What goes on beside the queues until the stack is left."""
    keeping = [
        asyncio.create_task(keep_syncs(client, settings), name="looking after syncs"),
        asyncio.create_task(keep_counting(sharers), name="counting workers"),
    ]
    for task in keeping:
        stack.callback(task.cancel)
    return keeping


async def _begin_standing_work(client: Client, settings: Settings) -> None:
    for region in settings.regions:
        await start_sync(client, region, settings)
        await schedule_sweep(client, region, settings)


async def keep_syncs(client: Client, settings: Settings, every: timedelta = _REVIVE_EVERY) -> None:
    """Start syncs again that somebody cancelled or terminated: without one nobody sees a loss soon."""
    while True:
        await asyncio.sleep(every.total_seconds())
        for region in settings.regions:
            try:
                if await revive_sync(client, region, settings):
                    _log.warning("Sync was ended by somebody and runs again", extra={"region": str(region)})
            except RPCError as error:
                _log.warning("Sync not looked after", extra={"region": str(region), "reason": error.message})


async def keep_counting(sharers: Sharers, every: timedelta = _COUNT_EVERY) -> None:
    """Count the workers of the regions again and again: they come and go.

    The first time soon after this one began to poll: others may have begun with it.
    """
    await asyncio.sleep(every.total_seconds() / 5)
    while True:
        await sharers.look()
        await asyncio.sleep(every.total_seconds())


async def _until(stop: asyncio.Event, running: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for the signal, or for a part of this worker that ends by itself, which none should."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await asyncio.wait({stopping})
    for task in done - {stopping}:
        task.result()
        raise RuntimeError(f"{task.get_name()} ended by itself")


async def _drain(workers: Sequence[Worker], running: Sequence["asyncio.Task[None]"]) -> None:
    """Stop polling everywhere at once; activities end or are broken off when the grace is over."""
    _log.info("Worker drains")
    live = [w for w, task in zip(workers, running, strict=True) if not task.done()]
    results = await asyncio.gather(*(worker.shutdown() for worker in live), return_exceptions=True)
    for result in [*results, *await asyncio.gather(*running, return_exceptions=True)]:
        if isinstance(result, BaseException):
            _log.error("Worker did not end cleanly", exc_info=result)
