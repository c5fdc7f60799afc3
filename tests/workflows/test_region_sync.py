"""The sync with its real activity on fakes, against a real Temporal server."""

import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle

from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.settings import SyncSettings
from tests.crd_bridge.waiting import until, until_async
from tests.fakes.provider import REGION
from tests.workflows.serving import StandingWorld, serving_standing_work
from workflows.messages import CONFIGURE, REGION_SYNC_WORKFLOW, RegionSyncInput
from workflows.options import POOLS_QUEUE

pytestmark = pytest.mark.temporal

LONG = SyncSettings(polling_interval_seconds=0.05, run_seconds=600)
SHORT = SyncSettings(polling_interval_seconds=0.05, run_seconds=0.2)


async def start(client: Client, settings: SyncSettings) -> WorkflowHandle[object, object]:
    return await client.start_workflow(
        REGION_SYNC_WORKFLOW,
        RegionSyncInput(region=REGION, settings=settings),
        id=f"sync-{uuid.uuid4()}",
        task_queue=POOLS_QUEUE,
        execution_timeout=timedelta(seconds=60),
    )


async def run_id(client: Client, handle: WorkflowHandle[object, object]) -> str:
    return (await client.get_workflow_handle(handle.id).describe()).run_id or ""


async def test_sync_tells_changes_to_pools_and_costs_no_history(client: Client) -> None:
    world = StandingWorld("a")
    world.cloud.add("a-1", pool="a")
    async with serving_standing_work(client, world):
        handle = await start(client, LONG)
        await until(lambda: world.pools.observations("a") == [["ins-0001"]])
        await until(lambda: world.cloud.count("list_tagged") > 5)
        history = await handle.fetch_history()
        await handle.terminate()
    assert len(history.events) <= 6, "polls leave no trace in the history"


async def test_sync_goes_on_in_a_new_run_each_time_its_activity_returns(client: Client) -> None:
    world = StandingWorld("a")
    world.cloud.add("a-1", pool="a")
    async with serving_standing_work(client, world):
        handle = await start(client, SHORT)
        first = handle.first_execution_run_id
        await until_async(lambda: _renewed(client, handle, str(first)))
        await client.get_workflow_handle(handle.id).terminate()
    assert world.pools.observations("a") == [["ins-0001"]], "the renewal told nothing twice"


async def _renewed(client: Client, handle: WorkflowHandle[object, object], before: str) -> bool:
    return await run_id(client, handle) != before


async def test_sync_takes_over_new_settings_at_once(client: Client) -> None:
    world = StandingWorld("a")
    async with serving_standing_work(client, world):
        handle = await start(client, SyncSettings(polling_interval_seconds=300, run_seconds=600))
        await until(lambda: world.cloud.count("list_tagged") == 1)
        before = await run_id(client, handle)
        await client.get_workflow_handle(handle.id).signal(CONFIGURE, LONG)
        await until(lambda: world.cloud.count("list_tagged") > 5, what="polls at the new interval")
        assert await run_id(client, handle) != before
        await client.get_workflow_handle(handle.id).terminate()


async def test_sync_is_not_disturbed_by_known_settings_or_bad_signals(client: Client) -> None:
    world = StandingWorld("a")
    async with serving_standing_work(client, world):
        handle = await start(client, LONG)
        await handle.signal(CONFIGURE)
        await handle.signal(CONFIGURE, {"polling_interval_seconds": "often"})
        await handle.signal("no_such_signal", "x")
        await handle.signal(CONFIGURE, LONG)
        seen = world.cloud.count("list_tagged")
        await until(lambda: world.cloud.count("list_tagged") > seen + 5)
        description = await handle.describe()
        await handle.terminate()
    assert description.status is WorkflowExecutionStatus.RUNNING
    assert description.run_id == handle.first_execution_run_id, "nothing was restarted"


async def test_sync_outlives_a_failure_that_no_retry_mends(client: Client) -> None:
    world = StandingWorld("a")

    class Broken:
        def provider(self, key):  # as the port
            raise KeyError("a bug")

    world.hands.regions._providers = Broken()  # type: ignore[assignment]  # fails outside of every known fault
    async with serving_standing_work(client, world):
        handle = await start(client, LONG)
        await until_async(lambda: _failing(handle))
        description = await handle.describe()
        await handle.terminate()
    assert description.status is WorkflowExecutionStatus.RUNNING


async def _failing(handle: WorkflowHandle[object, object]) -> bool:
    pending = (await handle.describe()).raw_description.pending_activities
    return bool(pending) and pending[0].attempt > 1


async def test_sync_tells_pools_that_their_region_cannot_be_seen(client: Client) -> None:
    world = StandingWorld("a")
    fault = ProviderError(ErrorCode.UNAVAILABLE, "down", provider="tencent", operation="DescribeInstances")
    async with serving_standing_work(client, world):
        handle = await start(client, LONG)
        await until(lambda: world.pools.healths("a") == ["ok"])
        world.cloud.faults["list_tagged"] = [fault for _ in range(7)]
        await until(lambda: world.pools.healths("a")[-1] == "ok" and len(world.pools.healths("a")) > 1)
        await handle.terminate()
    assert world.pools.healths("a") == ["ok", "stale", "circuit-open", "ok"]
