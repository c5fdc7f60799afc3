"""Public report P02: a mass launch came and went, and the machines stayed whose record was not written."""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.cluster.base import POOLS
from activities.directory import TemporalPools
from domain.contracts.errors import ErrorCode
from domain.contracts.names import TAG_LAUNCH
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import SweepSettings, SyncSettings
from domain.contracts.sweeps import SweepReport
from tests.activities.builders import a_fault, an_offer
from tests.crd_bridge.waiting import running, until
from tests.fakes.provider import REGION
from tests.workflows.kubelets import Kubelets
from tests.workflows.serving import StandingWorld, serving_standing_work
from tests.workflows.starts import a_resolved, edit, settings, start
from workflows import messages as m
from workflows.options import POOLS_QUEUE, SYNC_QUEUE

pytestmark = pytest.mark.temporal

SIZE = 100
WANTED = 10 * SIZE
"""In ten pools, since each judgement looks at every machine of its pool: one of all would take minutes."""
LOST = 5
"""Machines for each pool that it has no record of; as many of each again are of a pool that is gone."""
OLD = datetime.now(UTC) - timedelta(hours=1)
ALL_AT_ONCE = {"scaleUpStep": SIZE, "scaleDownStep": SIZE, "cooldownSeconds": 0}
SYNC = SyncSettings(polling_interval_seconds=2)
# The sync alone reads regions: a pool would read its own after three of its intervals without a word.
POOL = settings(polling_interval_seconds=100, status_interval_seconds=1)
SWEEP = SweepSettings(confirm_after_seconds=0.05, min_age_seconds=0)
"""Without a least age: what saves a machine is its pool's word alone."""

Handles = Mapping[str, WorkflowHandle[Any, str]]


async def a_world(client: Client, pools: Sequence[ResolvedPool]) -> StandingWorld:
    """The API server rejects every tenth write; the cloud loses every tenth answer, and knows no tokens."""
    world = StandingWorld(directory=TemporalPools(client))
    world.cloud.market = [an_offer("4.20")]
    world.cloud.honours_tokens = False
    lost = a_fault(ErrorCode.UNKNOWN_OUTCOME)
    world.cloud.faults_after_buying = [None if number % 10 else lost for number in range(WANTED)]
    for pool in pools:
        body = {"metadata": {"name": pool.name, "uid": pool.uid}, "spec": {}}
        await world.cluster.create(POOLS, body, pool.namespace)
    world.cluster.reject_every = 10
    return world


def plant(world: StandingWorld, uid: str, count: int) -> set[str]:
    """Machines with a pool's tags and a launch that nobody has on record."""
    return {world.cloud.add(f"{uid}-lost-{n}", pool=uid, created_at=OLD).id for n in range(count)}


async def until_all_show(world: StandingWorld, pools: Sequence[ResolvedPool], **fields: int) -> None:
    """Wait until the resource of each pool says so: its status is written again until it is accepted."""

    def show() -> bool:
        bodies = (world.cluster.objects[POOLS, pool.namespace, pool.name] for pool in pools)
        return all(fields.items() <= body.get("status", {}).items() for body in bodies)

    await until(show, seconds=120, what=f"{fields} in every status")


async def start_sync(client: Client) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(
        m.REGION_SYNC_WORKFLOW,
        m.RegionSyncInput(region=REGION, settings=SYNC),
        id=f"sync-{uuid.uuid4()}",
        task_queue=POOLS_QUEUE,
    )


async def stop_sync(sync: WorkflowHandle[Any, Any], workers: Sequence[Worker]) -> None:
    await next(worker for worker in workers if worker.task_queue == SYNC_QUEUE).shutdown()
    await sync.terminate()


async def sweep(client: Client) -> SweepReport:
    return await client.execute_workflow(
        m.ORPHAN_SWEEP_WORKFLOW,
        m.OrphanSweepInput(region=REGION, settings=SWEEP),
        id=f"sweep-{uuid.uuid4()}",
        task_queue=POOLS_QUEUE,
        result_type=SweepReport,
        execution_timeout=timedelta(seconds=60),
    )


async def scale_to_zero(handles: Handles, pools: Sequence[ResolvedPool]) -> None:
    empty = [pool.spec.model_copy(update={"min_instances": 0}) for pool in pools]
    changed = [
        pool.model_copy(update={"generation": 2, "spec": spec})
        for pool, spec in zip(pools, empty, strict=True)
    ]
    await asyncio.gather(*(edit(handles[pool.uid], pool, POOL) for pool in changed))


@pytest.mark.timeout(300)
async def test_p02_mass_launch_under_rejected_writes_leaves_no_machine_behind(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything of the product is real but the bridge's word of Nodes.

    Three things stand for a record that was not written. Of every tenth purchase the answer is lost: the
    machine is there, and nobody was told. Every tenth write of the cluster fails, whoever makes it: status,
    labels and taints, Nodes to remove, Events. And some machines carry tags that nobody has on record: of a
    pool that is gone with its resource; and of pools that live, seen first when no sync watches the region
    any more, since pools adopt what it shows them.
    """
    # Hundreds of tracebacks of rejected writes would cost seconds.
    caplog.set_level(logging.ERROR, "temporalio.activity")
    pools = [
        a_resolved(minInstances=SIZE, maxInstances=SIZE, scaleStrategy=ALL_AT_ONCE)
        for _ in range(WANTED // SIZE)
    ]
    world = await a_world(client, pools)
    async with serving_standing_work(client, world) as workers:
        sync = await start_sync(client)
        handles = {pool.uid: await start(client, pool, POOL) for pool in pools}
        kubelets = Kubelets(world, handles)
        async with running(kubelets.run()):
            await until_all_show(world, pools, readyInstances=SIZE)
            of_no_pool = plant(world, "gone", LOST * len(pools))
            assert {*(await sweep(client)).reclaimed} == of_no_pool
            assert len(world.cloud.machines) == WANTED, "the sweep leaves alone what pools answer for"

            await scale_to_zero(handles, pools)
            await until_all_show(world, pools, currentInstances=0, desiredInstances=0)
            await until(lambda: kubelets.nodes == 0, seconds=120, what="no Node")
        await stop_sync(sync, workers)
        assert world.cloud.machines == {}
        of_pools = set[str]().union(*(plant(world, pool.uid, LOST) for pool in pools))
        reports = [await sweep(client), await sweep(client)]
        assert {name for report in reports for name in report.reclaimed} == of_pools
        assert world.cloud.machines == {}, "after two sweeps the cloud has nothing of ours"
        for handle in handles.values():
            shown = await handle.query(m.STATE_QUERY, result_type=m.PoolSnapshot)
            assert (shown.launches_total, shown.status.current_instances) == (SIZE, 0)
            await handle.terminate()
    assert max(Counter(machine.tags[TAG_LAUNCH] for machine in world.cloud.made).values()) == 1
    assert len(world.cloud.made) == WANTED + len(of_no_pool) + len(of_pools)
    assert 0.09 < len(world.cluster.rejected) / world.cluster.writes <= 0.1
    kinds = {record.partition("/")[0] for record in world.cluster.rejected}
    assert kinds >= {"patch gpuspotpools", "patch nodes", "delete nodes", "create events"}
