"""Workers that serve the standing workflows with the real activities on fakes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from activities.announce import AnnounceActivities
from activities.instances import InstanceActivities
from activities.market import MarketActivities
from activities.owners import OwnerActivities
from activities.regions import RegionActivities
from domain.contracts.installation import Installation
from domain.contracts.lanes import Lane
from tests.fakes.cluster import FakeCluster
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION, FakeClouds, FakeProvider, FakeSecrets
from workflows import options
from workflows.orphan_sweep import OrphanSweep
from workflows.region_sync import RegionSync
from workflows.runtime import WORKFLOW_RUNNER


class StandingWorld:
    """One region, some pools, one cluster, and every activity that syncs and sweeps use."""

    def __init__(self, *uids: str, epoch: int = 1) -> None:
        self.cloud = FakeProvider()
        self.pools = FakePools(*uids)
        self.cluster = FakeCluster()
        clouds, installation = FakeClouds(self.cloud), Installation(id="inst-1", epoch=epoch)
        self.regions = RegionActivities(clouds, installation, self.pools)
        self.instances = InstanceActivities(clouds, installation, FakeSecrets())
        self.market = MarketActivities(clouds)
        self.owners = OwnerActivities(self.cluster, self.pools)
        self.announce = AnnounceActivities(self.cluster)

    def by_queue(self) -> dict[str, Sequence[Callable[..., Any]]]:
        return {
            options.SYNC_QUEUE: [self.regions.watch_region],
            Lane.READINGS.queue(REGION): [
                self.regions.list_installation,
                self.regions.sweep_leftovers,
                self.market.list_offers,
            ],
            Lane.ENDS.queue(REGION): [self.instances.terminate_instances],
            options.CLUSTER_QUEUE: [
                self.owners.ask_owners,
                self.owners.record_sweep,
                self.announce.publish_events,
            ],
        }

    def events(self) -> list[str]:
        """Reasons of the Events that were published, in order."""
        return [
            body["reason"] for (kind, _, _), body in self.cluster.objects.items() if kind.plural == "events"
        ]


@asynccontextmanager
async def serving_standing_work(client: Client, world: StandingWorld) -> AsyncIterator[None]:
    with ThreadPoolExecutor(4) as threads:
        workers = [
            Worker(
                client,
                task_queue=queue,
                activities=activities,
                activity_executor=threads,
                max_concurrent_activities=4,
            )
            for queue, activities in world.by_queue().items()
        ]
        workers.append(
            Worker(
                client,
                task_queue=options.POOLS_QUEUE,
                workflows=[RegionSync, OrphanSweep],
                workflow_runner=WORKFLOW_RUNNER,
            )
        )
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            await asyncio.gather(*running)
