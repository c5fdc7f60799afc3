"""A dead worker's pools: how long a new worker takes until each of them has carried out an order."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import Client, WorkflowHandle

from sandbox.operator_processes import WORKER
from tests.bench.quiet import all_ready
from tests.bench.rig import Rig, running, tell
from workflows.messages import pool_workflow_id
from workflows.runtime import DATA_CONVERTER

POOLS = 24
ORDERS = 25
"""Each makes its pool read cloud and cluster anew, which writes about twenty events."""
_APART_SECONDS = 1.5
_SETTLE_SECONDS = 60.0
_ORDER = {"by": "bench", "reason": "to be measured"}

Handle = WorkflowHandle[object, object]


@dataclass(frozen=True)
class TakeoverResult:
    """One takeover of all pools."""

    pools: int
    events: float
    """Median length of the histories, in events, at the worker's death."""
    answered_seconds: list[float]
    """From the new worker's start to each pool's answer, sorted."""
    timed_out: int
    """Workflow tasks that were not completed in time; those that waited for the dead worker do not count."""

    @property
    def median_seconds(self) -> float:
        return median(self.answered_seconds)


def measure(folder: Path) -> TakeoverResult:
    """Give each pool a history, kill the worker, and order something from each as the next one starts."""
    with running(folder, {"SPOTGPU_POLLING_INTERVAL_SECONDS": "5"}) as rig:
        rig.lift_stock()
        rig.lift_cloud_rates()
        names = [f"taken-{number}" for number in range(POOLS)]
        for name in names:
            rig.apply_pool(name, minInstances=1, maxInstances=3)
        all_ready(rig, names, _SETTLE_SECONDS)
        return asyncio.run(_take_over(rig, names))


async def _take_over(rig: Rig, names: list[str]) -> TakeoverResult:
    client = await Client.connect(rig.stack.temporal.address, data_converter=DATA_CONVERTER)
    handles: list[Handle] = [client.get_workflow_handle(pool_workflow_id("default", n)) for n in names]
    tell(f"  {ORDERS} orders to each of {len(names)} pools")
    for _ in range(ORDERS):
        await asyncio.gather(*(handle.signal("resync", _ORDER) for handle in handles))
        await asyncio.sleep(_APART_SECONDS)
    await asyncio.sleep(2 * _APART_SECONDS)
    lengths = [(await handle.describe()).history_length for handle in handles]
    timed_out = await _timed_out(handles)
    # In this thread: the worker ends with the thread that started it.
    rig.stack.operator.kill(WORKER)
    rig.stack.operator.start(WORKER)
    began = time.monotonic()
    answered = await asyncio.gather(*(_answered(handle, began) for handle in handles))
    return TakeoverResult(
        len(names), median(lengths), sorted(answered), await _timed_out(handles) - timed_out
    )


async def _answered(handle: Handle, began: float) -> float:
    await handle.execute_update("resync", _ORDER)
    return time.monotonic() - began


async def _timed_out(handles: list[Handle]) -> int:
    count = 0
    for handle in handles:
        async for event in handle.fetch_history_events():
            told = event.workflow_task_timed_out_event_attributes
            count += told.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    return count
