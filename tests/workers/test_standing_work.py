"""Search attributes, syncs and Schedules on a real Temporal server."""

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client, ScheduleOverlapPolicy, WorkflowExecutionStatus

from domain.contracts.names import SEARCH_BOOLS, SEARCH_INTS, SEARCH_KEYWORD_LISTS, SEARCH_KEYWORDS
from domain.contracts.offers import ProviderName, RegionKey
from tests.crd_bridge.waiting import until_async
from workers import search_attributes
from workers.errors import ConfigurationError
from workers.settings import Settings
from workers.standing_work import revive_sync, schedule_sweep, start_sync
from workers.temporal_worker import keep_syncs
from workflows.messages import orphan_sweep_id, region_sync_id

pytestmark = pytest.mark.temporal


@pytest.fixture
def region() -> RegionKey:
    return RegionKey(provider=ProviderName.TENCENT, account="a", region=f"r-{uuid.uuid4().hex[:8]}")


async def test_search_attributes_are_registered_and_found(client: Client) -> None:
    await search_attributes.register(client)
    assert await search_attributes.register(client) == [], "a second time there is nothing to do"
    await search_attributes.check(client)


async def test_missing_search_attributes_are_named_with_the_command_that_helps(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await search_attributes.register(client)
    wanted = {**search_attributes._WANTED, "PoolElephant": 1}
    monkeypatch.setattr(search_attributes, "_WANTED", wanted)
    with pytest.raises(ConfigurationError, match="PoolElephant; run: spotgpu search-attributes register"):
        await search_attributes.check(client)


async def test_search_attribute_of_another_type_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await search_attributes.register(client)
    monkeypatch.setattr(search_attributes, "_WANTED", {**search_attributes._WANTED, "PoolUid": 3})
    with pytest.raises(ConfigurationError, match="another type: PoolUid"):
        await search_attributes.check(client)


def test_every_search_attribute_of_the_contract_is_wanted() -> None:
    names = {*SEARCH_KEYWORDS, *SEARCH_BOOLS, *SEARCH_INTS, *SEARCH_KEYWORD_LISTS}
    assert set(search_attributes._WANTED) == names


async def test_sync_is_started_once_and_told_the_settings_ever_after(
    client: Client, region: RegionKey
) -> None:
    await start_sync(client, region, Settings())
    handle = client.get_workflow_handle(region_sync_id(region))
    first = await handle.describe()
    await start_sync(client, region, Settings(polling_interval_seconds=5))
    assert (await handle.describe()).run_id == first.run_id
    history = await handle.fetch_history()
    signals = [
        event.workflow_execution_signaled_event_attributes
        for event in history.events
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert [signal.signal_name for signal in signals] == ["configure", "configure"]
    assert b'"polling_interval_seconds":5.0' in signals[-1].input.payloads[0].data
    await handle.terminate()


async def test_sync_that_somebody_cancelled_runs_again_and_a_running_one_notices_nothing(
    client: Client, region: RegionKey
) -> None:
    await start_sync(client, region, Settings())
    handle = client.get_workflow_handle(region_sync_id(region))
    before = len((await handle.fetch_history()).events)
    settings = Settings(regions=(region,))
    keeping = asyncio.create_task(keep_syncs(client, settings, timedelta(seconds=0.05)))
    try:
        assert not await revive_sync(client, region, settings)
        assert len((await handle.fetch_history()).events) == before
        await handle.terminate()

        async def runs_again() -> bool:
            return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

        await until_async(runs_again, what="the sync runs again")
    finally:
        keeping.cancel()
    await client.get_workflow_handle(region_sync_id(region)).terminate()


async def test_sweep_schedule_is_made_then_updated_and_a_pause_of_a_human_stays(
    client: Client, region: RegionKey
) -> None:
    await schedule_sweep(client, region, Settings())
    handle = client.get_schedule_handle(orphan_sweep_id(region))
    schedule = (await handle.describe()).schedule
    assert schedule.spec.intervals[0].every == timedelta(minutes=10)
    assert schedule.policy.overlap is ScheduleOverlapPolicy.SKIP

    await handle.pause(note="looking into it")
    await schedule_sweep(client, region, Settings(sweep_interval_seconds=20))
    schedule = (await handle.describe()).schedule
    assert schedule.spec.intervals[0].every == timedelta(seconds=20)
    assert (schedule.state.paused, schedule.state.note) == (True, "looking into it")
    await handle.delete()
