"""Work by key."""

import asyncio
from collections import Counter

import pytest

from crd_bridge.backoff import Backoff
from crd_bridge.keyed_tasks import KeyedTasks, Pace, PostponedError
from tests.crd_bridge.waiting import until

QUICK = Backoff(0.001, 0.002)


async def test_tasks_serve_a_key_again_that_is_marked_while_it_is_served() -> None:
    served, may_go = Counter[str](), asyncio.Event()

    async def work(key: str) -> None:
        served[key] += 1
        await may_go.wait()

    async with KeyedTasks("test", work) as tasks:
        tasks.mark("a")
        await until(lambda: served["a"] == 1)
        for _ in range(5):
            tasks.mark("a")
        may_go.set()
        await until(lambda: tasks.unfinished == 0)
    assert served["a"] == 2


async def test_tasks_never_serve_one_key_twice_at_a_time_and_keep_to_their_lanes() -> None:
    now, most = Counter[int](), 0

    async def work(key: int) -> None:
        nonlocal most
        now[key] += 1
        most = max(most, now.total())
        assert now[key] == 1
        await asyncio.sleep(0)
        now[key] -= 1

    async with KeyedTasks("test", work, Pace(lanes=3)) as tasks:
        for turn in range(100):
            tasks.mark(turn % 20)
            if turn % 30 == 29:
                await asyncio.sleep(0)
        await until(lambda: tasks.unfinished == 0)
    assert most == 3


@pytest.mark.parametrize("error", [PostponedError("not yet"), RuntimeError("a bug")])
async def test_tasks_repeat_what_failed_until_it_succeeds(error: Exception) -> None:
    attempts = 0
    outcomes: list[bool] = []

    async def work(_: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise error

    pace = Pace(backoff=QUICK)
    async with KeyedTasks("test", work, pace, lambda _, success, __: outcomes.append(success)) as tasks:
        tasks.mark("a")
        await until(lambda: tasks.unfinished == 0)
    assert outcomes == [False, False, False, True]


async def test_tasks_serve_good_keys_while_bad_ones_fail_and_hang() -> None:
    served: set[str] = set()
    hanging = asyncio.Event()

    async def work(key: str) -> None:
        if key.startswith("bad"):
            await asyncio.wait_for(hanging.wait(), 0.01)
        served.add(key)

    async with KeyedTasks("test", work, Pace(lanes=1, repair_lanes=1, backoff=QUICK)) as tasks:
        for number in range(10):
            tasks.mark(f"bad{number}")
        for number in range(10):
            tasks.mark(f"good{number}")
        await until(lambda: len(served) == 10)
        assert tasks.unfinished == 10
        hanging.set()
        await until(lambda: tasks.unfinished == 0)


async def test_tasks_end_the_pause_when_the_key_is_marked_anew() -> None:
    attempts = 0

    async def work(_: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise PostponedError("not yet")

    async with KeyedTasks("test", work, Pace(backoff=Backoff(3600, 3600))) as tasks:
        tasks.mark("a")
        await until(lambda: attempts == 1)
        tasks.mark("a")
        await until(lambda: tasks.unfinished == 0)


async def test_tasks_are_cancelled_and_awaited_at_the_end() -> None:
    ended = asyncio.Event()
    began = asyncio.Event()

    async def work(_: str) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async with KeyedTasks("test", work) as tasks:
        tasks.mark("a")
        await began.wait()
    assert ended.is_set()
