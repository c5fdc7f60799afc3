"""The product's own workers, with its real activities on fakes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from temporalio.client import Client
from temporalio.worker import Worker

from activities.announce import AnnounceActivities
from activities.directory import PoolDirectory
from activities.instances import InstanceActivities
from activities.market import MarketActivities
from activities.nodes import NodeActivities
from activities.owners import OwnerActivities
from activities.pods import PodActivities
from activities.regions import RegionActivities
from activities.status import StatusActivities
from domain.contracts.installation import Installation
from tests.activities.builders import JOIN
from tests.fakes.cluster import FakeCluster
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION, FakeClouds, FakeProvider, FakeSecrets
from workers.settings import Settings
from workers.wiring import Hands, build_workers

SETTINGS = Settings(
    regions=(REGION,),
    buy_calls_per_second=10_000,
    read_calls_per_second=10_000,
    end_calls_per_second=10_000,
    graceful_shutdown_seconds=0,
)
"""As a worker has them; no rate is the limit, and nothing is waited for at the end."""


class StandingWorld:
    """One region, some pools, one cluster, and every activity on them."""

    def __init__(self, *uids: str, epoch: int = 1, directory: PoolDirectory | None = None) -> None:
        """Pools are fakes with these uids, or what ``directory`` finds."""
        self.cloud = FakeProvider()
        self.pools = FakePools(*uids)
        self.cluster = FakeCluster()
        clouds, installation = FakeClouds(self.cloud), Installation(id="inst-1", epoch=epoch)
        pools = directory or self.pools
        self.hands = Hands(
            registry=clouds,  # type: ignore[arg-type]  # the workers do not look at it
            instances=InstanceActivities(clouds, installation, FakeSecrets(**{"cluster-join": JOIN})),
            market=MarketActivities(clouds),
            regions=RegionActivities(clouds, installation, pools),
            owners=OwnerActivities(self.cluster, pools),
            nodes=NodeActivities(self.cluster),
            pods=PodActivities(self.cluster),
            status=StatusActivities(self.cluster),
            announce=AnnounceActivities(self.cluster),
        )

    def events(self) -> list[str]:
        """Reasons of the Events that were published, in order."""
        return [
            body["reason"] for (kind, _, _), body in self.cluster.objects.items() if kind.plural == "events"
        ]


@asynccontextmanager
async def serving_standing_work(client: Client, world: StandingWorld) -> AsyncIterator[Sequence[Worker]]:
    """Workers for every queue, until the block ends."""
    workers = build_workers(SETTINGS, client, world.hands)
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield workers
    finally:
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        await asyncio.gather(*running)
