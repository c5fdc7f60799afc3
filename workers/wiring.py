"""Composition root: adapters, activity objects and one Temporal worker per queue."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
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
from activities.pods import PodActivities
from activities.providers.registry import ProviderRegistry, build_adapter
from activities.regions import RegionActivities
from activities.status import StatusActivities
from domain.contracts.installation import Installation
from domain.contracts.offers import RegionKey
from workers.secrets import AccountCredentials, OperatorSecrets
from workers.settings import Settings
from workflows.options import CLUSTER_QUEUE, POOLS_QUEUE, SYNC_QUEUE, cloud_queue, end_queue
from workflows.orphan_sweep import OrphanSweep
from workflows.pool import GPUSpotPool
from workflows.region_sync import RegionSync
from workflows.runtime import WORKFLOW_RUNNER

WORKFLOWS: Final[Sequence[type]] = (GPUSpotPool, RegionSync, OrphanSweep)
"""Every workflow of the product; worker and replay register the same."""

_WORKFLOW_POLLERS: Final = PollerBehaviorSimpleMaximum(20)
# One interpreter runs one task at a time; more threads would only hold more memory.
_WORKFLOW_TASKS: Final = 40
_QUIET_POLLERS: Final = PollerBehaviorSimpleMaximum(2)
# More than the four partitions of a queue, each of which has its share of the rate: two pollers reach 60 % of
# the rate, five reach 92 % (measured).
_BUSY_POLLERS: Final = PollerBehaviorSimpleMaximum(5)
# Beats reach the server this often, so that a cancellation is heard before the purchase leaves.
_BEAT_THROTTLE: Final = timedelta(seconds=1)

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
) -> Hands:
    """Bind the activities; adapters are built, and their SDKs imported, at first use."""
    registry = ProviderRegistry(
        settings.regions,
        lambda key: build_adapter(key, AccountCredentials(secrets, key), settings.endpoints),
    )
    pools = TemporalPools(client)
    return Hands(
        registry=registry,
        instances=InstanceActivities(registry, installation, secrets),
        market=MarketActivities(registry),
        regions=RegionActivities(registry, installation, pools),
        owners=OwnerActivities(cluster, pools),
        nodes=NodeActivities(cluster),
        pods=PodActivities(cluster),
        status=StatusActivities(cluster),
        announce=AnnounceActivities(cluster),
    )


def build_workers(settings: Settings, client: Client, hands: Hands) -> list[Worker]:
    """One worker per queue: workflows, cluster, sync, and two for each served region."""
    workers = [
        _workflow_worker(settings, client),
        _cluster_worker(settings, client, hands),
        _sync_worker(settings, client, hands),
    ]
    for region in settings.regions:
        workers += [
            _cloud_worker(settings, client, hands, region),
            _end_worker(settings, client, hands, region),
        ]
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


def _cloud_worker(settings: Settings, client: Client, hands: Hands, region: RegionKey) -> Worker:
    activities: list[Activity] = [
        hands.instances.create_instance,
        hands.instances.find_by_token,
        hands.instances.describe,
        hands.instances.list_pool,
        hands.market.list_offers,
        hands.regions.list_installation,
        hands.regions.sweep_leftovers,
    ]
    return Worker(
        client,
        task_queue=cloud_queue(region),
        activities=activities,
        activity_executor=ThreadPoolExecutor(settings.cloud_threads, thread_name_prefix=f"cloud-{region}"),
        max_concurrent_activities=settings.cloud_threads,
        max_task_queue_activities_per_second=cloud_rate(settings),
        max_heartbeat_throttle_interval=_BEAT_THROTTLE,
        activity_task_poller_behavior=_BUSY_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def _end_worker(settings: Settings, client: Client, hands: Hands, region: RegionKey) -> Worker:
    activities: list[Activity] = [
        hands.instances.terminate_instances,
        hands.instances.retain_instances,
        hands.pods.drain_node,
    ]
    return Worker(
        client,
        task_queue=end_queue(region),
        activities=activities,
        activity_executor=ThreadPoolExecutor(settings.end_slots, thread_name_prefix=f"end-{region}"),
        max_concurrent_activities=settings.end_slots,
        max_task_queue_activities_per_second=settings.end_calls_per_second,
        max_heartbeat_throttle_interval=_BEAT_THROTTLE,
        activity_task_poller_behavior=_BUSY_POLLERS,
        graceful_shutdown_timeout=_grace(settings),
    )


def cloud_rate(settings: Settings) -> float:
    """Activities a second for purchases and readings: the budget less the share of the region's sync.

    An activity of this queue makes one call, a repeated purchase two, a reading of offers a few that it
    then serves to every pool; the sync makes one call per interval.
    """
    sync_share = 1 / settings.polling_interval_seconds
    return max(settings.cloud_calls_per_second - sync_share, settings.cloud_calls_per_second / 2)


def _grace(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.graceful_shutdown_seconds)
