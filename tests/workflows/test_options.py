from collections.abc import Callable
from datetime import timedelta

import pytest

from domain.contracts.lanes import Lane
from domain.contracts.settings import SyncSettings
from tests.fakes.provider import REGION
from workflows import options
from workflows.options import ActivityOptions

OF_REGION: dict[str, Callable[[], ActivityOptions]] = {
    "create_instance": lambda: options.create_instance(REGION),
    "find_by_token": lambda: options.find_by_token(REGION),
    "describe": lambda: options.describe(REGION),
    "list_pool": lambda: options.list_pool(REGION),
    "list_offers": lambda: options.list_offers(REGION),
    "list_installation": lambda: options.list_installation(REGION),
    "sweep_leftovers": lambda: options.sweep_leftovers(REGION),
    "terminate_instances": lambda: options.terminate_instances(REGION),
    "retain_instances": lambda: options.retain_instances(REGION),
    "drain_node": lambda: options.drain_node(REGION, timedelta(minutes=2)),
}


LANES = {
    "create_instance": Lane.PURCHASES,
    "terminate_instances": Lane.ENDS,
    "retain_instances": Lane.ENDS,
    "drain_node": Lane.ENDS,
}


def test_queues_name_provider_account_region_and_lane() -> None:
    assert Lane.PURCHASES.queue(REGION) == "cloud.tencent.tencent-credentials.ap-guangzhou.buy"


@pytest.mark.parametrize("name", sorted(OF_REGION))
def test_purchases_and_endings_have_lanes_of_their_own(name: str) -> None:
    assert OF_REGION[name]().get("task_queue") == LANES.get(name, Lane.READINGS).queue(REGION)


@pytest.mark.parametrize("name", ["terminate_instances", "retain_instances"])
def test_endings_are_tried_for_ever(name: str) -> None:
    chosen = OF_REGION[name]()
    assert "schedule_to_close_timeout" not in chosen
    assert chosen["retry_policy"].maximum_attempts == 0  # type: ignore[reportTypedDictNotRequiredAccess]  # all have one


@pytest.mark.parametrize("name", ["DELETE_NODES", "REMOVE_FINALIZER"])
def test_removals_are_tried_for_ever(name: str) -> None:
    assert "schedule_to_close_timeout" not in getattr(options, name)


@pytest.mark.parametrize("name", ["create_instance", "describe", "list_offers", "list_pool", "find_by_token"])
def test_calls_of_a_cloud_are_repeated_three_times_and_bounded(name: str) -> None:
    chosen = OF_REGION[name]()
    assert chosen["retry_policy"].maximum_attempts == 4  # type: ignore[reportTypedDictNotRequiredAccess]  # all have one
    assert "schedule_to_close_timeout" in chosen


def test_purchase_is_noticed_to_be_dead_after_its_heartbeat() -> None:
    assert options.create_instance(REGION).get("heartbeat_timeout") == timedelta(seconds=10)
    shorter = options.create_instance(REGION, heartbeat=timedelta(seconds=3))
    assert shorter.get("heartbeat_timeout") == timedelta(seconds=3)


def test_reading_of_offers_may_wait_for_many_turns_and_is_noticed_to_be_dead_soon() -> None:
    chosen = options.list_offers(REGION)
    assert (
        chosen.get("start_to_close_timeout")
        == chosen.get("schedule_to_close_timeout")
        == timedelta(minutes=2)
    )
    assert chosen.get("heartbeat_timeout") == timedelta(seconds=10)


def test_purchases_of_one_pool_share_its_fairness_key() -> None:
    priority = options.create_instance(REGION, fairness_key="uid-1").get("priority")
    assert priority is not None
    assert (priority.priority_key, priority.fairness_key) == (options.PURCHASE, "uid-1")


@pytest.mark.parametrize(("drain", "limit"), [(120, 420), (-5, 300)])
def test_drain_has_time_for_the_grace_after_its_deadline(drain: int, limit: int) -> None:
    chosen = options.drain_node(REGION, timedelta(seconds=drain))
    assert chosen.get("start_to_close_timeout") == timedelta(seconds=limit)


@pytest.mark.parametrize(("interval", "heartbeat"), [(1, 10), (20, 40), (30, 60), (300, 60)])
def test_watch_is_noticed_to_be_dead_after_two_intervals(interval: float, heartbeat: int) -> None:
    chosen = options.watch_region(SyncSettings(polling_interval_seconds=interval))
    assert chosen.get("heartbeat_timeout") == timedelta(seconds=heartbeat)


@pytest.mark.parametrize(("machines", "seconds"), [(1, 10), (100, 10), (500, 50), (1000, 100)])
def test_task_of_a_large_pool_may_take_longer(machines: int, seconds: int) -> None:
    assert options.pool_task_timeout(machines) == timedelta(seconds=seconds)
