"""The bridge process: the bridge itself, its health, and the pool metrics."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

from activities.cluster.base import Resource
from activities.telemetry import metrics
from crd_bridge.bridge import BridgeHooks, BridgeSettings, run_bridge
from crd_bridge.election import LeaseDurations
from crd_bridge.nodes import SkipReason
from domain.contracts.installation import Installation
from workers import search_attributes
from workers.connections import connect_cluster, connect_temporal
from workers.health import Health, serve
from workers.installation import read_or_make
from workers.pool_samples import PoolReader
from workers.settings import Settings

_log = logging.getLogger(__name__)


async def run_bridge_process(settings: Settings, stop: asyncio.Event) -> None:
    """Bridge until ``stop`` is set; the Lease is given back before this returns.

    Raises:
        ConfigurationError: Something that must be there is not; one clear line.
    """
    async with AsyncExitStack() as stack:
        health = Health()
        address = await stack.enter_async_context(serve(health, settings.health_host, settings.health_port))
        # The name of a pod comes back after a crash; the holder of a Lease must not.
        identity = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        health.waits_for = "Kubernetes API"
        cluster = await stack.enter_async_context(await connect_cluster(settings))
        health.waits_for = "Temporal"
        client = await connect_temporal(settings, f"spotgpu-bridge@{identity}")
        await search_attributes.check(client)
        installation = await read_or_make(cluster, settings.operator_namespace)
        reader = PoolReader(cluster, timedelta(seconds=settings.status_read_seconds))
        collector = metrics.PoolCollector(lambda: reader.samples)
        metrics.REGISTRY.register(collector)
        stack.callback(metrics.REGISTRY.unregister, collector)
        health.before_metrics = reader.refresh
        health.waits_for = ""
        _log.info("Bridge runs", extra={"address": address, "identity": identity})
        await run_bridge(cluster, client, bridge_settings(settings, installation, identity), stop)


def bridge_settings(settings: Settings, installation: Installation, identity: str) -> BridgeSettings:
    """What the bridge gets of the operator's settings."""
    return BridgeSettings(
        identity=identity,
        pool_settings=settings.for_pools(),
        operator_namespace=settings.operator_namespace,
        installation=installation.id,
        lease=LeaseDurations.within(settings.lease_seconds),
        hooks=BridgeHooks(
            on_leading=lambda leading: metrics.BRIDGE_LEADING.set(int(leading)),
            on_watch=_count_watch,
            on_skipped_nodes=_show_skipped,
            on_served=_observe_lag,
        ),
    )


def _count_watch(resource: Resource, event: str) -> None:
    metrics.BRIDGE_WATCHES.labels(resource.plural, event).inc()


def _show_skipped(nodes: Mapping[SkipReason, int]) -> None:
    for reason in SkipReason:
        metrics.BRIDGE_SKIPPED_NODES.labels(reason.value).set(nodes.get(reason, 0))


def _observe_lag(work: str, success: bool, seconds: float) -> None:  # noqa: FBT001  # the hook's signature
    metrics.RECONCILE_LAG_SECONDS.labels(work, "ok" if success else "failed").observe(seconds)
