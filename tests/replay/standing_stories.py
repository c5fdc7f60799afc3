"""Stories of the standing workflows, with the real activities on fakes."""

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle

from domain.contracts.leftovers import Leftover, LeftoverKind
from domain.contracts.names import TAG_EPOCH, TAG_INSTALLATION, TAG_POOL, TAG_RETAINED
from domain.contracts.settings import SweepSettings, SyncSettings
from tests.crd_bridge.waiting import until
from tests.fakes.provider import REGION
from tests.workflows.serving import StandingWorld, serving_standing_work
from workflows.messages import (
    CONFIGURE,
    ORPHAN_SWEEP_WORKFLOW,
    REGION_SYNC_WORKFLOW,
    OrphanSweepInput,
    RegionSyncInput,
)
from workflows.options import POOLS_QUEUE

Story = Callable[[Client], Awaitable[list[WorkflowHandle[Any, Any]]]]


async def sweep_reclaims(client: Client) -> list[WorkflowHandle[Any, Any]]:
    """An orphan, an owned machine and a retained one."""
    world = StandingWorld("a")
    old = datetime.now(UTC) - timedelta(hours=1)
    world.pools.owned["a"] = {world.cloud.add("a-1", pool="a", created_at=old).id}
    world.cloud.add("gone-1", pool="gone", created_at=old)
    world.cloud.add(created_at=old, tags={TAG_RETAINED: "inst-1"})
    return [await _sweep(client, world)]


async def sweep_finds_leftovers(client: Client) -> list[WorkflowHandle[Any, Any]]:
    """A disk of another in the region, and an orphan."""
    world = StandingWorld()
    world.cloud.add("gone-1", pool="gone", created_at=datetime.now(UTC) - timedelta(hours=1))
    world.cloud.left = [Leftover(region=REGION, kind=LeftoverKind.DISK, id="disk-1", ours=False)]
    return [await _sweep(client, world)]


async def sweep_stands_down(client: Client) -> list[WorkflowHandle[Any, Any]]:
    """Another installation has the higher epoch."""
    world = StandingWorld()
    world.cloud.add(tags={TAG_INSTALLATION: "inst-1", TAG_POOL: "gone", TAG_EPOCH: "2"})
    return [await _sweep(client, world)]


async def _sweep(client: Client, world: StandingWorld) -> WorkflowHandle[Any, Any]:
    async with serving_standing_work(client, world):
        handle = await client.start_workflow(
            ORPHAN_SWEEP_WORKFLOW,
            OrphanSweepInput(region=REGION, settings=SweepSettings(confirm_after_seconds=0.05)),
            id=f"sweep-{uuid.uuid4()}",
            task_queue=POOLS_QUEUE,
        )
        await handle.result()
    return handle


async def sync_takes_new_settings(client: Client) -> list[WorkflowHandle[Any, Any]]:
    """A bad signal, then other settings, which end the run and begin another."""
    world = StandingWorld("a")
    slow, fast = (
        SyncSettings(polling_interval_seconds=300),
        SyncSettings(polling_interval_seconds=0.05, run_seconds=600),
    )
    async with serving_standing_work(client, world):
        handle = await client.start_workflow(
            REGION_SYNC_WORKFLOW,
            RegionSyncInput(region=REGION, settings=slow),
            id=f"sync-{uuid.uuid4()}",
            task_queue=POOLS_QUEUE,
        )
        await until(lambda: world.cloud.count("list_tagged") == 1, seconds=20)
        await handle.signal("no_such_signal")
        await client.get_workflow_handle(handle.id).signal(CONFIGURE, fast)
        await until(lambda: world.cloud.count("list_tagged") > 5, seconds=20)
        last = client.get_workflow_handle(handle.id)
        run_id = (await last.describe()).run_id
        await last.terminate()
    first = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
    return [first, client.get_workflow_handle(handle.id, run_id=run_id)]


STANDING_STORIES: dict[str, Story] = {
    "sweep_reclaims": sweep_reclaims,
    "sweep_stands_down": sweep_stands_down,
    "sweep_finds_leftovers": sweep_finds_leftovers,
    "sync_takes_new_settings": sync_takes_new_settings,
}
