"""Composition root: adapters, activity objects and one Temporal worker per queue."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Final

from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.announce import AnnounceActivities
from activities.cluster.base import Cluster
from activities.directory import TemporalPools
from activities.instances import InstanceActivities
from activities.market import MarketActivities
from activities.nodes import NodeActivities
from activities.owners import OwnerActivities
from activities.pacing import LanePaces
from activities.pods import PodActivities
from activities.providers.registry import ProviderRegistry, build_adapter
from activities.regions import RegionActivities
from activities.sharers import Sharers
from activities.status import StatusActivities
from activities.turns import Turns
from domain.contracts.installation import Installation
from domain.contracts.lanes import Lane
from domain.contracts.offers import ProviderName, RegionKey
from workers.secrets import AccountCredentials, OperatorSecrets
from workers.settings import Settings
from workflows.options import CLUSTER_QUEUE, POOLS_QUEUE, SYNC_QUEUE
from workflows.orphan_sweep import OrphanSweep
from workflows.pool import GPUSpotPool
from workflows.region_sync import RegionSync
from workflows.runtime import WORKFLOW_RUNNER

WORKFLOWS: Final[Sequence[type]] = (GPUSpotPool, RegionSync, OrphanSweep)
"""Every workflow of the product; worker and replay register the same."""

# One interpreter runs one task at a time. Of many that are begun at once, as when a dead worker's pools are
# taken up, each would wait for all others, beyond the time that a task has, and be begun anew; what waits at
# the server has no such limit.
_WORKFLOW_TASKS: Final = 6
_WORKFLOW_POLLERS: Final = PollerBehaviorSimpleMaximum(_WORKFLOW_TASKS)
_QUIET_POLLERS: Final = PollerBehaviorSimpleMaximum(2)
# More than the four partitions of a queue, each of which has its share of the rate: two pollers reach 60 % of
# the rate, five reach 92 % (measured).
_BUSY_POLLERS: Final = PollerBehaviorSimpleMaximum(5)
# Beats reach the server this often, so that a cancellation is heard before the purchase leaves.
_BEAT_THROTTLE: Final = timedelta(seconds=1)

_PURCHASES: Final[Mapping[ProviderName, float]] = {ProviderName.AWS: 2.0}
"""Purchases a second that a cloud refills, where that is less than the setting.

Source: Amazon EC2 API throttling, RunInstances: bucket 5, refilled by 2 a second.
"""
_CALLS_OF_A_READING: Final[Mapping[ProviderName, int]] = {ProviderName.AWS: 2}
"""Machines, and the spot requests of those that live; one call elsewhere."""

Activity = Callable[..., Any]


@dataclass(frozen=True)
class Hands:
    """Every activity object of a worker, on live adapters."""

    registry: ProviderRegistry
    instances: InstanceActivities
    market: MarketActivities
    regions: RegionActivities
    owners: OwnerActivities
    nodes: NodeActivities
    pods: PodActivities
    status: StatusActivities
    announce: AnnounceActivities


def build_hands(
    settings: Settings,
    *,
    client: Client,
    cluster: Cluster,
    secrets: OperatorSecrets,
    installation: Installation,
    sharers: Sharers,
) -> Hands:
    """Bind the activities, in a running loop; adapters are built, and their SDKs imported, at first use.

    The calls of a lane take this worker's share of its budget.
    """
    paces = LanePaces(
        client, lambda region, lane: lane_rate(settings, region, lane), asyncio.get_running_loop()
    )
    turns = Turns(lambda region, lane: call_rate(settings, region, lane) * sharers.share(region, lane))
    registry = ProviderRegistry(
        settings.regions,
        lambda key: build_adapter(
            key, AccountCredentials(secrets, key), settings.endpoints, partial(turns.take, key)
        ),
        on_throttled=paces.throttled,
    )
    pools = TemporalPools(client)
    return Hands(
        registry=registry,
        instances=InstanceActivities(registry, installation, secrets),
        market=MarketActivities(registry),
        regions=RegionActivities(registry, installation, pools, ease=paces.ease),
        owners=OwnerActivities(cluster, pools),
        nodes=NodeActivities(cluster),
        pods=PodActivities(cluster),
        status=StatusActivities(cluster),
        announce=AnnounceActivities(cluster),
    )


def build_workers(settings: Settings, client: Client, hands: Hands) -> list[Worker]:
    """One worker per queue: workflows, cluster, sync, and one for each lane of a served region."""
    workers = [
        _workflow_worker(settings, client),
        _cluster_worker(settings, client, hands),
        _sync_worker(settings, client, hands),
    ]
    for region in settings.regions:
        workers += [_lane_worker(settings, client, hands, region, lane) for lane in Lane]
    return workers


def _workflow_worker(settings: Settings, client: Client) -> Worker:
    return Worker(
        client,
        task_queue=POOLS_QUEUE,
        workflows=WORKFLOWS,
        workflow_runner=WORKFLOW_RUNNER,
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=_WORKFLOW_TASKS,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_seconds),
        workflow_task_poller_behavior=_WORKFLOW_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def _cluster_worker(settings: Settings, client: Client, hands: Hands) -> Worker:
    activities: list[Activity] = [
        hands.owners.ask_owners,
        hands.owners.record_sweep,
        hands.nodes.list_pool_nodes,
        hands.nodes.settle_nodes,
        hands.nodes.delete_nodes,
        hands.status.patch_status,
        hands.status.remove_finalizer,
        hands.announce.publish_events,
    ]
    return Worker(
        client,
        task_queue=CLUSTER_QUEUE,
        activities=activities,
        max_concurrent_activities=settings.cluster_slots,
        activity_task_poller_behavior=_BUSY_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def _sync_worker(settings: Settings, client: Client, hands: Hands) -> Worker:
    return Worker(
        client,
        task_queue=SYNC_QUEUE,
        activities=[hands.regions.watch_region],
        # Room for every region twice: the renewal of one may overlap its end.
        max_concurrent_activities=2 * max(len(settings.regions), 1),
        activity_task_poller_behavior=_QUIET_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def _lane_worker(settings: Settings, client: Client, hands: Hands, region: RegionKey, lane: Lane) -> Worker:
    slots = settings.end_slots if lane is Lane.ENDS else settings.cloud_threads
    return Worker(
        client,
        task_queue=lane.queue(region),
        activities=_activities_of(lane, hands),
        activity_executor=ThreadPoolExecutor(slots, thread_name_prefix=f"{lane}-{region}"),
        max_concurrent_activities=slots,
        max_task_queue_activities_per_second=lane_rate(settings, region, lane),
        max_heartbeat_throttle_interval=_BEAT_THROTTLE,
        activity_task_poller_behavior=_BUSY_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def _activities_of(lane: Lane, hands: Hands) -> list[Activity]:
    match lane:
        case Lane.PURCHASES:
            return [hands.instances.create_instance]
        case Lane.READINGS:
            return [
                hands.instances.find_by_token,
                hands.instances.describe,
                hands.instances.list_pool,
                hands.market.list_offers,
                hands.regions.list_installation,
                hands.regions.sweep_leftovers,
            ]
        case Lane.ENDS:
            return [
                hands.instances.terminate_instances,
                hands.instances.retain_instances,
                hands.pods.drain_node,
            ]


def call_rate(settings: Settings, region: RegionKey, lane: Lane) -> float:
    """Calls a second of a lane of a region: the operator's budget, or less where the cloud admits less."""
    match lane:
        case Lane.PURCHASES:
            return min(settings.buy_calls_per_second, _PURCHASES.get(region.provider, inf))
        case Lane.READINGS:
            return settings.read_calls_per_second
        case Lane.ENDS:
            return settings.end_calls_per_second


def lane_rate(settings: Settings, region: RegionKey, lane: Lane) -> float:
    """Activities a second of a lane of a region, all workers together.

    An activity makes one call, a repeated purchase one more of another lane, a reading of offers some that
    it then serves to every pool; where a cloud takes more calls for each reading, the lane has fewer
    activities. The share of the region's sync, one reading per interval, is taken off first.
    """
    calls = call_rate(settings, region, lane)
    if lane is not Lane.READINGS:
        return calls
    reads = calls / _CALLS_OF_A_READING.get(region.provider, 1)
    return max(reads - 1 / settings.polling_interval_seconds, reads / 2)


def _grace(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.graceful_shutdown_seconds)
