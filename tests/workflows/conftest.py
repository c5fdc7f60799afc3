"""A real Temporal dev server for the session, and a worker that serves one outside in memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from domain.contracts.lanes import Lane
from sandbox.temporal_server import TemporalServer, find_program
from tests.workflows.outside import GUANGZHOU, Outside
from workflows import options
from workflows.pool import GPUSpotPool
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER


@pytest.fixture(scope="session")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = TemporalServer(Path(tmp_path_factory.mktemp("temporal")), find_program())
    server.start()
    yield server.address
    server.stop()


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=DATA_CONVERTER)


def pool_worker(client: Client, *, cached: int = 100, sticky_seconds: float = 10) -> Worker:
    """A worker of the pools' workflows alone."""
    return Worker(
        client,
        task_queue=options.POOLS_QUEUE,
        workflows=[GPUSpotPool],
        workflow_runner=WORKFLOW_RUNNER,
        max_cached_workflows=cached,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=sticky_seconds),
    )


@asynccontextmanager
async def serving(
    client: Client, outside: Outside, *, cached: int = 100, pools: bool = True
) -> AsyncIterator[None]:
    """Workers for every queue of one region, until the block ends; without ``pools`` for activities alone."""
    queues = (options.CLUSTER_QUEUE, *(lane.queue(GUANGZHOU) for lane in Lane))
    workers = [
        Worker(client, task_queue=queue, activities=outside.activities(), max_concurrent_activities=20)
        for queue in queues
    ]
    if pools:
        workers.append(pool_worker(client, cached=cached))
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        await asyncio.gather(*running)


@pytest.fixture
def outside() -> Outside:
    return Outside()
