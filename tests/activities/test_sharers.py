"""Workers of a region are counted by their polls, whatever the server's clock says."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from activities.sharers import Sharers
from domain.contracts.lanes import Lane
from tests.fakes.provider import REGION

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Server:
    """Stands for a client and its server: tells when each worker polled last."""

    def __init__(self, **polled: datetime) -> None:
        self.polled = polled
        self.identity = "own"
        self.namespace = "default"
        self.workflow_service = self
        self.is_away = False
        self.asked: list[str] = []
        self.limits: dict[str, float] = {}
        """Queue to the calls a second that the server lets through."""

    async def describe_task_queue(self, request: DescribeTaskQueueRequest) -> DescribeTaskQueueResponse:
        self.asked.append(request.task_queue.name)
        if self.is_away:
            raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
        answer = DescribeTaskQueueResponse()
        if request.task_queue.name in self.limits:
            limit = self.limits[request.task_queue.name]
            answer.config.queue_rate_limit.rate_limit.requests_per_second = limit
        for name, at in self.polled.items():
            poller = PollerInfo(identity=name)
            poller.last_access_time.FromDatetime(at)
            answer.pollers.append(poller)
        return answer


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def sharers_of(server: Any, clock: Clock | None = None) -> Sharers:
    """Of a region whose lanes have a full rate of 8."""
    return Sharers(server, [REGION], lambda *_: 8.0, clock=clock or Clock())


async def counts(server: Any, *steps: tuple[float, Mapping[str, datetime]]) -> list[int]:
    """Workers counted at the beginning, and after each step: so many seconds, then these polls are new."""
    clock = Clock()
    sharers = sharers_of(server, clock)
    await sharers.look()
    found = [sharers.count(REGION)]
    for seconds, polled in steps:
        clock.now += seconds
        server.polled |= polled
        await sharers.look()
        found.append(sharers.count(REGION))
    return found


async def test_worker_counts_itself_before_it_was_ever_seen() -> None:
    server = Server()
    assert await counts(server) == [1]
    assert await counts(Server(other=NOON)) == [2]
    assert server.asked == [lane.queue(REGION) for lane in Lane]


@pytest.mark.parametrize("skew", [timedelta(), timedelta(hours=-3), timedelta(hours=3)])
async def test_worker_that_polls_no_more_counts_for_a_little_longer_than_a_poll(skew: timedelta) -> None:
    at = NOON + skew

    def later(seconds: float) -> dict[str, datetime]:
        return {"own": at + timedelta(seconds=seconds)}

    steps = [(seconds, later(total)) for seconds, total in ((40, 40), (34, 74), (2, 76))]
    assert await counts(Server(own=at, other=at), *steps) == [2, 2, 2, 1]


async def test_worker_that_comes_back_counts_again() -> None:
    steps = [(80, {"own": NOON + timedelta(seconds=80)}), (5, {"other": NOON + timedelta(seconds=85)})]
    assert await counts(Server(own=NOON, other=NOON), *steps) == [2, 1, 2]


async def test_worker_that_was_gone_long_before_this_one_began_is_not_counted() -> None:
    gone = NOON - timedelta(seconds=76)
    assert await counts(Server(third=NOON, gone=gone)) == [2]
    # What is left of the time is all that it counts for.
    lately = NOON - timedelta(seconds=60)
    steps = [(16, {"third": NOON + timedelta(seconds=16)})]
    assert await counts(Server(third=NOON, lately=lately), *steps) == [3, 2]


async def test_last_number_stands_while_the_server_is_away() -> None:
    server = Server(other=NOON)
    sharers = sharers_of(server)
    await sharers.look()
    server.is_away, server.polled = True, {}
    await sharers.look()
    assert sharers.count(REGION) == 2
    server.is_away = False
    await sharers.look()
    assert sharers.count(REGION) == 1


async def test_share_is_less_while_the_lane_is_slowed_and_never_nothing() -> None:
    server = Server(other=NOON)
    sharers = sharers_of(server)
    assert sharers.share(REGION, Lane.READINGS) == 1
    shares: list[float] = []
    for limit in (8.0, 2.0, 0.0, 80.0):
        server.limits = {Lane.READINGS.queue(REGION): limit}
        await sharers.look()
        shares.append(sharers.share(REGION, Lane.READINGS))
        assert sharers.share(REGION, Lane.PURCHASES) == 1 / 2
    assert shares == [1 / 2, 1 / 8, 1 / 16, 1 / 2]
    server.limits = {}
    await sharers.look()
    assert sharers.share(REGION, Lane.READINGS) == 1 / 2
