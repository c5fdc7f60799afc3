"""History of quiet pools: events in an hour in which nothing happens, renewals included.

A renewal happens once an hour (a region's sync) or once a day (a pool). Here both are made due once, soon
after a window without any, so that the events of the window and of one renewal each are counted apart, and
an hour is worked out from the two counts.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from domain.contracts.settings import PoolSettings, SyncSettings
from tests.bench.rig import BenchError, Rig, now, running, tell, wait_until
from workflows.messages import POOL_WORKFLOW, REGION_SYNC_WORKFLOW

POOLS = 10
SETTLE_SECONDS = 90.0
"""From the start of the stack until every pool is served and the last sync has said so."""
RENEWAL_SECONDS = 60.0
"""In which every renewal that is due takes place."""
_ACTIVITY_STARTED = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
_RENEWED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW


@dataclass(frozen=True)
class QuietResult:
    """Counts of events by workflow type and event type."""

    pools: int
    window_seconds: float
    window: dict[str, dict[str, int]]
    """Events in the window without renewals."""
    renewals: dict[str, int]
    """How many renewals were seen after the window."""
    renewal_seconds: float
    renewal_window: dict[str, dict[str, int]]
    """Events of the time in which the renewals fell."""
    pool_renewal_hours: float
    sync_renewal_hours: float

    def _steady(self, kind: str) -> float:
        """Events an hour of all workflows of a type, renewals apart."""
        return sum(self.window[kind].values()) * 3600 / self.window_seconds

    def _per_renewal(self, kind: str) -> float:
        # Without what also happens while nothing renews itself.
        quiet = self._steady(kind) * self.renewal_seconds / 3600
        return (sum(self.renewal_window[kind].values()) - quiet) / self.renewals[kind]

    @property
    def pool_events(self) -> float:
        """Events of one pool an hour."""
        return (
            self._steady(POOL_WORKFLOW) / self.pools
            + self._per_renewal(POOL_WORKFLOW) / self.pool_renewal_hours
        )

    @property
    def sync_events(self) -> float:
        """Events of the region's sync an hour."""
        return (
            self._steady(REGION_SYNC_WORKFLOW)
            + self._per_renewal(REGION_SYNC_WORKFLOW) / self.sync_renewal_hours
        )

    @property
    def events_per_hour(self) -> float:
        """Events of one quiet pool an hour with its share of the region's sync."""
        return self.pool_events + self.sync_events / self.pools

    @property
    def events_per_renewal(self) -> dict[str, float]:
        return {kind: self._per_renewal(kind) for kind in (POOL_WORKFLOW, REGION_SYNC_WORKFLOW)}


def measure(window_seconds: float, folder: Path) -> QuietResult:
    """Run ten pools with one machine each in one region, at the operator's usual intervals."""
    due = SETTLE_SECONDS + window_seconds
    settings = {"SPOTGPU_WATCH_SECONDS": f"{due:.0f}", "SPOTGPU_POOL__RENEW_AFTER_SECONDS": f"{due:.0f}"}
    with running(folder, settings) as rig:
        began = time.monotonic()
        rig.lift_stock()
        for number in range(POOLS):
            rig.apply_pool(f"quiet-{number}", minInstances=1, maxInstances=3)
        all_ready(rig, [f"quiet-{number}" for number in range(POOLS)], SETTLE_SECONDS)
        time.sleep(max(0.0, SETTLE_SECONDS - 10 - (time.monotonic() - began)))
        return asyncio.run(_count(rig, window_seconds - 5))


def all_ready(rig: Rig, names: Sequence[str], timeout_seconds: float) -> None:
    """Wait until each pool has its one machine."""

    def are_ready() -> bool:
        return all(rig.status(name).get("readyInstances") == 1 for name in names)

    wait_until(f"{len(names)} pools ready", are_ready, timeout_seconds)


async def _count(rig: Rig, window_seconds: float) -> QuietResult:
    client = await Client.connect(rig.stack.temporal.address)
    since = now()
    tell(f"  nothing happens for {window_seconds:.0f} s")
    await asyncio.sleep(window_seconds)
    until = now()
    tell("  renewals fall due")
    # A pool's run is younger than the sync's by as long as it took to apply and serve it.
    await asyncio.sleep(RENEWAL_SECONDS)
    end = now()
    window: dict[str, dict[str, int]] = {}
    later: dict[str, dict[str, int]] = {}
    for kind in (POOL_WORKFLOW, REGION_SYNC_WORKFLOW):
        events = await _events(client, kind)
        window[kind] = _count_types(events, since, until)
        later[kind] = _count_types(events, until, end)
    renewals = {kind: counts.get(_name(_RENEWED), 0) for kind, counts in later.items()}
    if 0 in renewals.values():
        raise BenchError(f"not every renewal fell due in {RENEWAL_SECONDS:.0f} s: {renewals}")
    return QuietResult(
        pools=POOLS,
        window_seconds=(until - since).total_seconds(),
        window=window,
        renewals=renewals,
        renewal_seconds=(end - until).total_seconds(),
        renewal_window=later,
        pool_renewal_hours=PoolSettings().renew_after_seconds / 3600,
        sync_renewal_hours=SyncSettings().run_seconds / 3600,
    )


async def _events(client: Client, kind: str) -> list[tuple[datetime, int]]:
    """Every event of every run of a workflow type: when it was written, and its type."""
    events: list[tuple[datetime, int]] = []
    async for execution in client.list_workflows(f"WorkflowType = '{kind}'"):
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        history = [event async for event in handle.fetch_history_events()]
        for event, following in zip(history, [*history[1:], history[-1]], strict=True):
            # The start of an activity is written with its end, dated back.
            dated_by = following if event.event_type == _ACTIVITY_STARTED else event
            events.append((dated_by.event_time.ToDatetime(UTC), event.event_type))
    return events


def _count_types(events: Iterable[tuple[datetime, int]], since: datetime, until: datetime) -> dict[str, int]:
    return dict(Counter(_name(kind) for written, kind in events if since <= written < until))


def _name(event_type: int) -> str:
    return EventType.Name(event_type).removeprefix("EVENT_TYPE_").lower()  # type: ignore[arg-type]  # an enum value
