"""Every activity is registered on the queue that the workflows' options name."""

import asyncio
import inspect
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities import signatures
from activities.sharers import Sharers
from domain.contracts.installation import Installation
from domain.contracts.lanes import Lane
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.settings import SyncSettings
from tests.fakes.cluster import FakeCluster
from tests.fakes.provider import REGION, FakeProvider
from workers import wiring
from workers.secrets import OperatorSecrets
from workers.settings import Settings
from workers.wiring import Hands, build_hands, build_workers, call_rate, lane_rate
from workflows import options

pytestmark = pytest.mark.temporal


def expected_queues() -> dict[str, str]:
    """Activity name to the queue that its options name."""
    drain = options.drain_node(REGION, timedelta())
    watch = options.watch_region(SyncSettings())
    special = {"k8s.drain_node": drain.get("task_queue"), "cloud.watch_region": watch.get("task_queue")}
    found: dict[str, str] = {}
    for name, stub in inspect.getmembers(signatures, inspect.isfunction):
        definition = activity._Definition.from_callable(stub)
        if definition is None or definition.name is None:
            continue
        chosen = getattr(options, name, None) or getattr(options, name.upper(), None)
        if definition.name in special:
            found[definition.name] = special[definition.name]
        elif callable(chosen):
            found[definition.name] = chosen(REGION)["task_queue"]
        else:
            assert chosen is not None, f"{name} has no options"
            found[definition.name] = chosen["task_queue"]
    return found


class Store:
    async def read_secret(self, name: str, namespace: str) -> dict[str, str]:
        return {}


def hands_of(client: Client, settings: Settings, sharers: Sharers) -> Hands:
    return build_hands(
        settings,
        client=client,
        cluster=FakeCluster(),
        secrets=OperatorSecrets(Store(), "ops", asyncio.get_running_loop(), max_age_seconds=1),
        installation=Installation(id="i"),
        sharers=sharers,
    )


@pytest.fixture
async def workers(client: Client) -> list[Worker]:
    settings = Settings(regions=(REGION,))
    hands = hands_of(
        client,
        settings,
        Sharers(client, settings.regions, partial(lane_rate, settings)),
    )
    return build_workers(settings, client, hands)


async def test_every_activity_is_served_on_the_queue_of_its_options(workers: list[Worker]) -> None:
    served: dict[str, str] = {}
    for worker in workers:
        registered = worker._activity_worker._activities if worker._activity_worker else {}
        served |= dict.fromkeys(registered, worker.task_queue)
    assert served == expected_queues()


async def test_workflows_have_a_queue_without_activities(workers: list[Worker]) -> None:
    pools = [worker for worker in workers if worker.task_queue == options.POOLS_QUEUE]
    assert len(pools) == 1
    assert pools[0]._activity_worker is None
    assert {worker.task_queue for worker in workers} == {
        options.POOLS_QUEUE,
        options.CLUSTER_QUEUE,
        options.SYNC_QUEUE,
        *(lane.queue(REGION) for lane in Lane),
    }


async def test_calls_of_an_adapter_take_this_workers_share_of_the_budget(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Half(Sharers):
        def share(self, region: RegionKey, lane: Lane) -> float:
            return 1 / 2

    turns: list[Any] = []
    monkeypatch.setattr(wiring, "build_adapter", lambda *given: turns.append(given[-1]) or FakeProvider())
    settings = Settings(regions=(REGION,))
    hands_of(client, settings, Half(client, [REGION], lambda *_: 1.0)).registry.provider(REGION)
    (turn,) = turns
    began = monotonic()
    for _ in range(4):
        await asyncio.to_thread(turn, Lane.PURCHASES)
    assert monotonic() - began >= 3 / (settings.buy_calls_per_second / 2)


@pytest.mark.parametrize(
    ("calls", "interval", "rate"),
    [
        pytest.param(5, 30, 5 - 1 / 30, id="the sync's share is taken off"),
        pytest.param(0.1, 1, 0.05, id="never below half the budget"),
    ],
)
def test_lane_of_readings_leaves_room_for_the_sync(calls: float, interval: float, rate: float) -> None:
    settings = Settings(read_calls_per_second=calls, polling_interval_seconds=interval)
    assert lane_rate(settings, REGION, Lane.READINGS) == pytest.approx(rate)
    assert call_rate(settings, REGION, Lane.READINGS) == calls
    assert lane_rate(settings, REGION, Lane.PURCHASES) == call_rate(settings, REGION, Lane.PURCHASES) == 9
    assert lane_rate(settings, REGION, Lane.ENDS) == call_rate(settings, REGION, Lane.ENDS) == 5


def test_lanes_of_aws_count_two_calls_a_reading_and_its_own_limit_of_purchases() -> None:
    aws = RegionKey(provider=ProviderName.AWS, account="aws-credentials", region="us-west-2")
    assert lane_rate(Settings(), aws, Lane.READINGS) == pytest.approx(9 / 2 - 1 / 30)
    assert lane_rate(Settings(), aws, Lane.PURCHASES) == call_rate(Settings(), aws, Lane.PURCHASES) == 2
    assert lane_rate(Settings(buy_calls_per_second=1), aws, Lane.PURCHASES) == 1
