"""What a worker sets going when it starts: a sync and a sweep for each served region."""

from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from domain.contracts.offers import RegionKey
from workers.settings import Settings
from workflows.messages import (
    CONFIGURE,
    ORPHAN_SWEEP_WORKFLOW,
    REGION_SYNC_WORKFLOW,
    OrphanSweepInput,
    RegionSyncInput,
    orphan_sweep_id,
    region_sync_id,
)
from workflows.options import POOLS_QUEUE

_SWEEP_LIMIT: Final = timedelta(minutes=30)
"""A sweep of a region that nobody serves any more must not wait for ever."""


async def start_sync(client: Client, region: RegionKey, settings: Settings) -> None:
    """Start the region's sync, or tell the running one the settings that hold from now on."""
    await _start_sync(client, region, settings, configure=True)


async def revive_sync(client: Client, region: RegionKey, settings: Settings) -> bool:
    """Start the region's sync if none runs, as after a cancellation; costs a running one no history."""
    try:
        await _start_sync(client, region, settings, configure=False)
    except WorkflowAlreadyStartedError:
        return False
    return True


async def _start_sync(client: Client, region: RegionKey, settings: Settings, *, configure: bool) -> None:
    """Start the region's sync; one that runs is told the settings, or refuses another beside it."""
    sync_settings = settings.for_syncs()
    policy = WorkflowIDConflictPolicy.USE_EXISTING if configure else WorkflowIDConflictPolicy.FAIL
    await client.start_workflow(
        REGION_SYNC_WORKFLOW,
        RegionSyncInput(region=region, settings=sync_settings),
        id=region_sync_id(region),
        task_queue=POOLS_QUEUE,
        id_conflict_policy=policy,
        start_signal=CONFIGURE if configure else None,
        start_signal_args=[sync_settings] if configure else [],
        static_summary=f"watches {region}",
    )


async def schedule_sweep(client: Client, region: RegionKey, settings: Settings) -> None:
    """Make or update the Schedule of the region's orphan sweep, and let one run now."""
    schedule = _schedule(region, settings)
    try:
        await client.create_schedule(orphan_sweep_id(region), schedule, trigger_immediately=True)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(orphan_sweep_id(region))

        def replace(found: ScheduleUpdateInput) -> ScheduleUpdate:
            # A human may have paused it: the state is kept, the rest is ours.
            schedule.state = found.description.schedule.state
            return ScheduleUpdate(schedule=schedule)

        await handle.update(replace)
        await handle.trigger(overlap=ScheduleOverlapPolicy.SKIP)


def _schedule(region: RegionKey, settings: Settings) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            ORPHAN_SWEEP_WORKFLOW,
            OrphanSweepInput(region=region, settings=settings.for_sweeps()),
            id=orphan_sweep_id(region),
            task_queue=POOLS_QUEUE,
            execution_timeout=max(_SWEEP_LIMIT, 2 * timedelta(seconds=settings.sweep_confirm_seconds)),
            static_summary=f"looks for orphans in {region}",
        ),
        spec=ScheduleSpec(
            intervals=[ScheduleIntervalSpec(every=timedelta(seconds=settings.sweep_interval_seconds))]
        ),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
    )
