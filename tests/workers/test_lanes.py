"""A cloud that throttles purchases: its lane is slowed for all workers, the other lanes notice nothing."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueueConfig
from temporalio.api.workflowservice.v1 import UpdateTaskQueueConfigRequest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.instances import InstanceActivities
from activities.pacing import REASON, LanePaces, lane_of
from activities.providers.instrumented import InstrumentedProvider
from activities.sharers import Sharers
from activities.signatures import InstancesRequest
from activities.task_queues import SLOWEST, describe
from activities.turns import Turns
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.installation import Installation
from domain.contracts.instances import LaunchAnswer, LaunchRequest, LaunchResult
from domain.contracts.lanes import Lane
from tests.activities.builders import a_request
from tests.busiest import busiest
from tests.crd_bridge.waiting import until_async
from tests.fakes.provider import REGION, FakeClouds, FakeProvider, FakeSecrets
from tests.workers.lane_calls import OneEnd, OneReading
from tests.workers.one_purchase import OnePurchase
from workflows.options import POOLS_QUEUE
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER

pytestmark = pytest.mark.temporal

RATE = 40.0
"""Calls a second of each lane: eight times the usual, as the 45 s of throttling are shortened eightfold."""
THROTTLED_SECONDS = 45 / 8
PURCHASES = 100


class ThrottlingCloud(FakeProvider):
    """Takes no purchase while it throttles; the other calls have limits of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.throttles = False
        self.asked_at: list[float] = []

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        self.asked_at.append(monotonic())
        if self.throttles:
            raise ProviderError(
                ErrorCode.THROTTLED, "slow down", provider="tencent", operation="RunInstances"
            )
        return super().launch(request, user_data)


class WayOfOneWorker(InstrumentedProvider):
    """A worker's own way to the cloud: each purchase takes its turn, as the adapters let them."""

    def __init__(self, cloud: FakeProvider, paces: LanePaces, sharers: Sharers, rate: float) -> None:
        super().__init__(cloud, on_throttled=paces.throttled)
        self._turns = Turns(lambda region, lane: rate * sharers.share(region, lane))

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        self._turns.take(REGION, Lane.PURCHASES)
        return super().launch(request, user_data)


@asynccontextmanager
async def lanes(
    client: Client, cloud: FakeProvider, paces: LanePaces, rate: float = RATE
) -> AsyncIterator[None]:
    """Two workers that share the purchases, one for each other lane, and a sync that eases."""
    target = client.service_client.config.target_host
    # The same names in each test: those of the one before do not count beside them.
    clients = [
        await Client.connect(target, data_converter=DATA_CONVERTER, identity=name)
        for name in ("worker-one", "worker-two")
    ]
    within = timedelta(seconds=30)
    sharers = [Sharers(each, [REGION], lambda *_: rate, silent_after=within) for each in clients]
    one, two = (
        InstanceActivities(
            FakeClouds(WayOfOneWorker(cloud, paces, who, rate)),
            Installation(id="inst-1"),
            FakeSecrets(**{"cluster-join": {"server": "s", "token": "t", "caCertHash": "h"}}),
        )
        for who in sharers
    )
    served: list[tuple[Client, Lane, Sequence[Callable[..., Any]]]] = [
        (clients[0], Lane.PURCHASES, [one.create_instance]),
        (clients[1], Lane.PURCHASES, [two.create_instance]),
        (client, Lane.READINGS, [one.describe]),
        (client, Lane.ENDS, [one.terminate_instances]),
    ]
    with ThreadPoolExecutor(40) as threads:
        workers = [
            Worker(
                connection,
                task_queue=lane.queue(REGION),
                activities=activities,
                activity_executor=threads,
                max_concurrent_activities=10,
                max_task_queue_activities_per_second=rate,
            )
            for connection, lane, activities in served
        ]
        workers.append(
            Worker(
                client,
                task_queue=POOLS_QUEUE,
                workflows=[OnePurchase, OneReading, OneEnd],
                workflow_runner=WORKFLOW_RUNNER,
            )
        )
        running = [asyncio.create_task(worker.run()) for worker in workers]
        easing = asyncio.create_task(ease_for_ever(paces))
        try:
            await until_async(lambda: count_all(sharers), what="both workers know of each other")
            yield
        finally:
            easing.cancel()
            with suppress(asyncio.CancelledError):
                await easing
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            await asyncio.gather(*running)


async def count_all(sharers: Sequence[Sharers]) -> bool:
    """Let each worker count once; true when each found both, and those of earlier tests that linger."""
    for who in sharers:
        await who.look()
    return all(who.count(REGION) >= len(sharers) for who in sharers)


async def ease_for_ever(paces: LanePaces) -> None:
    while True:
        await paces.ease(REGION)
        await asyncio.sleep(0.3)


async def configuration(client: Client, lane: Lane) -> TaskQueueConfig:
    return (await describe(client, lane.queue(REGION))).config


async def limit(client: Client, lane: Lane) -> float | None:
    """Calls a second that the server lets through by a set limit, None without one."""
    found = (await configuration(client, lane)).queue_rate_limit
    return found.rate_limit.requests_per_second if found.HasField("rate_limit") else None


async def buy(client: Client, number: int) -> LaunchAnswer:
    return await client.execute_workflow(
        OnePurchase.run,
        a_request(f"uid-1-abcd1234-{number}"),
        id=f"buy-{uuid.uuid4()}",
        task_queue=POOLS_QUEUE,
    )


async def call(client: Client, kind: type[OneReading] | type[OneEnd]) -> None:
    request = InstancesRequest(region=REGION, instance_ids=("ins-none",))
    await client.execute_workflow(kind.run, request, id=f"call-{uuid.uuid4()}", task_queue=POOLS_QUEUE)


@pytest.mark.timeout(120)
async def test_p64_hundred_purchases_through_a_throttle_stay_in_budget_and_hold_up_nobody(
    client: Client,
) -> None:
    cloud = ThrottlingCloud()
    paces = LanePaces(client, lambda *_: RATE, asyncio.get_running_loop(), ease_seconds=1)
    async with lanes(client, cloud, paces):
        cloud.throttles = True
        purchases = [asyncio.create_task(buy(client, number)) for number in range(PURCHASES)]
        throttled_until = monotonic() + THROTTLED_SECONDS

        async def is_slowed() -> bool:
            return (await limit(client, Lane.PURCHASES) or RATE) < RATE

        await until_async(is_slowed, what="the lane of purchases is slowed")
        # Readings and ends go through while no purchase does.
        others = [call(client, kind) for kind in (OneReading, OneEnd) for _ in range(10)]
        await asyncio.wait_for(asyncio.gather(*others), 30)
        assert not any(purchase.done() for purchase in purchases)
        assert await limit(client, Lane.READINGS) is await limit(client, Lane.ENDS) is None
        await asyncio.sleep(throttled_until - monotonic())
        cloud.throttles = False
        answers = await asyncio.gather(*purchases)

        async def is_free() -> bool:
            return await limit(client, Lane.PURCHASES) is None

        await until_async(is_free, seconds=30, what="the lane of purchases is as fast as ever")
    bought = {answer.result.instance_id for answer in answers if answer.result.kind == "created"}
    assert len(bought) == PURCHASES == len(cloud.machines), "no purchase is lost, and none was made twice"
    # Threads of a busy machine wake later than their turns, some of them together.
    assert busiest(cloud.asked_at) <= 1.3 * RATE


async def test_two_workers_stay_in_the_budget_of_one_from_the_first_second_on(client: Client) -> None:
    cloud, rate = ThrottlingCloud(), 10.0
    paces = LanePaces(client, lambda *_: rate, asyncio.get_running_loop())
    async with lanes(client, cloud, paces, rate):
        await asyncio.gather(*(buy(client, number) for number in range(40)))
    # Without shares both send at the full rate while the server lets twice as many through.
    assert busiest(cloud.asked_at) <= 1.3 * rate


async def test_one_burst_of_throttled_answers_is_an_accident_and_the_next_slows_the_lane(
    client: Client,
) -> None:
    seconds = iter((0.0, 1.5, 30.0, 33.0, 34.0, 36.0))
    paces = LanePaces(client, lambda *_: 8.0, asyncio.get_running_loop(), clock=lambda: next(seconds))
    limits: list[float | None] = []
    for _ in range(6):
        paces.throttled(REGION, "terminate")
        await asyncio.sleep(0)
        await asyncio.gather(*paces._tasks)
        limits.append(await limit(client, Lane.ENDS))
    assert limits == [None, None, None, 4, 4, 2]


async def test_lane_stays_slow_while_its_cloud_still_throttles(client: Client) -> None:
    now = [0.0]
    paces = LanePaces(client, lambda *_: 8.0, asyncio.get_running_loop(), clock=lambda: now[0])
    await paces._slow(REGION, Lane.READINGS)
    limits: list[float | None] = []
    for seconds, throttles in ((0, True), (21, True), (42, False)):
        now[0] = seconds
        if throttles:
            paces.throttled(REGION, "offers")
        await paces.ease(REGION)
        limits.append(await limit(client, Lane.READINGS))
    assert limits == [4, 4, None]


async def test_lane_keeps_a_share_of_its_rate_and_a_limit_that_a_person_set_stays(client: Client) -> None:
    paces = LanePaces(client, lambda *_: 8.0, asyncio.get_running_loop(), ease_seconds=0)
    queue = Lane.READINGS.queue(REGION)
    for _ in range(6):
        await paces._slow(REGION, Lane.READINGS)
    assert await limit(client, Lane.READINGS) == 8 * SLOWEST
    assert (await configuration(client, Lane.READINGS)).queue_rate_limit.metadata.reason == REASON
    for expected in (2, 4, None):
        await paces.ease(REGION)
        assert await limit(client, Lane.READINGS) == expected
    await client.workflow_service.update_task_queue_config(
        UpdateTaskQueueConfigRequest(
            namespace=client.namespace,
            task_queue=queue,
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            update_queue_rate_limit=UpdateTaskQueueConfigRequest.RateLimitUpdate(
                rate_limit=RateLimit(requests_per_second=3), reason="by hand"
            ),
        )
    )
    await paces._slow(REGION, Lane.READINGS)
    await paces.ease(REGION)
    assert await limit(client, Lane.READINGS) == 3


@pytest.mark.parametrize(
    ("operation", "lane"),
    [
        ("launch", Lane.PURCHASES),
        ("terminate", Lane.ENDS),
        ("retain", Lane.ENDS),
        ("list_tagged", Lane.READINGS),
        ("release", Lane.READINGS),
    ],
)
def test_lane_of_an_operation_is_where_its_activity_runs(operation: str, lane: Lane) -> None:
    assert lane_of(operation) is lane
