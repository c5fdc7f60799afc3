"""Task queues, time-outs and retry policies: one entry per activity.

Activities of a cloud run on the queues of their region, so their options are functions of it; all others
are constants. Unpack them: ``workflow.execute_activity(signatures.describe, request, **describe(region))``.
"""

from datetime import timedelta
from typing import Final, TypedDict

from temporalio.common import Priority, RetryPolicy
from temporalio.workflow import ActivityCancellationType

from domain.contracts.lanes import Lane
from domain.contracts.offers import RegionKey
from domain.contracts.settings import SyncSettings

POOLS_QUEUE: Final = "pools"
"""Workflows only."""
CLUSTER_QUEUE: Final = "cluster"
"""Short calls to the Kubernetes API, and questions to other workflows."""
SYNC_QUEUE: Final = "sync"
"""One long watching activity per region."""


def pool_task_timeout(max_instances: int) -> timedelta:
    """Longest workflow task of a pool, 10 to 100 s (Temporal allows 120).

    A worker that takes a run up again judges all of it in one task, and what hundreds of machines did at once
    takes it longer than Temporal's 10 s: such a task would be begun anew for ever. The price is that a worker
    which is killed within a task of so large a pool is missed later.
    """
    return timedelta(seconds=min(max(10.0, max_instances / 10), 100.0))


class ActivityOptions(TypedDict, total=False):
    """Keyword arguments of ``workflow.start_activity`` and ``execute_activity``."""

    task_queue: str
    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType
    priority: Priority


# 1 is first. Effects of an interruption and terminations go before purchases, sweeps come last.
URGENT: Final = 1
REPLACEMENT: Final = 2
PURCHASE: Final = 3
SWEEP: Final = 5

# Four attempts are the call and three repeats: after that the caller knows better what to do next.
_CLOUD_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=4
)
# A machine that must end is told so until it does.
_END_RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_interval=timedelta(minutes=5))
_WATCH_RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=5), backoff_coefficient=1)
_CLUSTER_RETRY: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=15)
)


def create_instance(
    region: RegionKey,
    *,
    heartbeat: timedelta = timedelta(seconds=10),
    priority: int = PURCHASE,
    fairness_key: str = "",
) -> ActivityOptions:
    """One purchase; after any failure the outcome is unknown until the launch's tag was looked for.

    Args:
        region: Where to buy.
        heartbeat: How soon a killed worker is noticed; the activity beats three times as often.
        priority: ``REPLACEMENT`` or ``PURCHASE``.
        fairness_key: The pool's uid, so that one big pool does not hold up the others.
    """
    return ActivityOptions(
        task_queue=Lane.PURCHASES.queue(region),
        start_to_close_timeout=timedelta(seconds=90),
        schedule_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=heartbeat,
        retry_policy=_CLOUD_RETRY,
        # The caller must learn what was bought in spite of its cancellation.
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=Priority(priority_key=priority, fairness_key=fairness_key or None),
    )


def find_by_token(region: RegionKey) -> ActivityOptions:
    """Look for a launch of unknown outcome."""
    return _reading(region, within=timedelta(minutes=10))


def describe(region: RegionKey) -> ActivityOptions:
    """Read machines by id."""
    return _reading(region, within=timedelta(minutes=2))


def list_pool(region: RegionKey) -> ActivityOptions:
    """Read every machine of one pool."""
    return _reading(region, within=timedelta(minutes=2))


def list_offers(region: RegionKey) -> ActivityOptions:
    """Read price and stock: up to four calls per type, each of which waits for its turn in the lane."""
    return ActivityOptions(
        task_queue=Lane.READINGS.queue(region),
        start_to_close_timeout=timedelta(minutes=2),
        schedule_to_close_timeout=timedelta(minutes=2),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=_CLOUD_RETRY,
    )


def list_installation(region: RegionKey) -> ActivityOptions:
    """Read every machine of the installation, for a sweep."""
    return ActivityOptions(
        task_queue=Lane.READINGS.queue(region),
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(minutes=5),
        retry_policy=_CLOUD_RETRY,
        priority=Priority(priority_key=SWEEP),
    )


def sweep_leftovers(region: RegionKey) -> ActivityOptions:
    """Release what survived machines, for a sweep: up to 100 calls, which are safe to repeat."""
    return ActivityOptions(
        task_queue=Lane.READINGS.queue(region),
        start_to_close_timeout=timedelta(minutes=5),
        schedule_to_close_timeout=timedelta(minutes=10),
        retry_policy=_CLOUD_RETRY,
        priority=Priority(priority_key=SWEEP),
    )


def _reading(region: RegionKey, *, within: timedelta) -> ActivityOptions:
    return ActivityOptions(
        task_queue=Lane.READINGS.queue(region),
        start_to_close_timeout=timedelta(seconds=30),
        schedule_to_close_timeout=within,
        retry_policy=_CLOUD_RETRY,
    )


def terminate_instances(
    region: RegionKey, *, priority: int = URGENT, heartbeat: timedelta = timedelta(seconds=10)
) -> ActivityOptions:
    """End machines, for as long as it takes; ``heartbeat`` is how soon a killed worker is noticed."""
    return ActivityOptions(
        task_queue=Lane.ENDS.queue(region),
        # One that spoils a batch costs calls for each of it, and every call waits for its turn in the lane.
        # Each has a time-out of its own, so this one only bounds how many there may be.
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=heartbeat,
        retry_policy=_END_RETRY,
        priority=Priority(priority_key=priority),
    )


def retain_instances(region: RegionKey, *, heartbeat: timedelta = timedelta(seconds=10)) -> ActivityOptions:
    """Give machines up, for as long as it takes."""
    return terminate_instances(region, heartbeat=heartbeat)


def drain_node(region: RegionKey, drain: timedelta) -> ActivityOptions:
    """Empty a Node.

    Args:
        region: Region of the machine.
        drain: Time from now to the deadline of the request.
    """
    return ActivityOptions(
        task_queue=Lane.ENDS.queue(region),
        # Pods that were deleted at the deadline still get the grace that is left.
        start_to_close_timeout=max(drain, timedelta()) + timedelta(minutes=5),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=_CLUSTER_RETRY,
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        priority=Priority(priority_key=URGENT),
    )


def watch_region(settings: SyncSettings) -> ActivityOptions:
    """Watch a region for ``run_seconds``, again and again."""
    # Two polls missed tell that the watcher is gone; never below 10 s, so that load is not read as death.
    heartbeat = min(max(2 * settings.polling_interval_seconds, 10), 60)
    return ActivityOptions(
        task_queue=SYNC_QUEUE,
        start_to_close_timeout=timedelta(seconds=settings.run_seconds) + timedelta(minutes=5),
        heartbeat_timeout=timedelta(seconds=heartbeat),
        retry_policy=_WATCH_RETRY,
    )


def _on_cluster(start_to_close: timedelta, within: timedelta | None) -> ActivityOptions:
    options = ActivityOptions(
        task_queue=CLUSTER_QUEUE, start_to_close_timeout=start_to_close, retry_policy=_CLUSTER_RETRY
    )
    if within is not None:
        options["schedule_to_close_timeout"] = within
    return options


ASK_OWNERS: Final = _on_cluster(timedelta(seconds=60), timedelta(minutes=5))
RECORD_SWEEP: Final = _on_cluster(timedelta(seconds=10), timedelta(minutes=1))
LIST_POOL_NODES: Final = _on_cluster(timedelta(seconds=15), timedelta(minutes=2))
SETTLE_NODES: Final = _on_cluster(timedelta(seconds=30), timedelta(minutes=10))
DELETE_NODES: Final = _on_cluster(timedelta(seconds=30), None)
PATCH_STATUS: Final = _on_cluster(timedelta(seconds=10), timedelta(minutes=5))
REMOVE_FINALIZER: Final = _on_cluster(timedelta(seconds=10), None)
PUBLISH_EVENTS: Final = _on_cluster(timedelta(seconds=15), timedelta(minutes=5))
TELL_OF_SWEEP: Final = _on_cluster(timedelta(seconds=15), timedelta(seconds=30))
"""Events that go before what they tell of: an end must not wait long for them."""
