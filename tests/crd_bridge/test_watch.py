"""The reflector against programmable faults, and as a walk of random steps."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from activities.cluster.base import CONFIG_MAPS, Object
from crd_bridge.backoff import Backoff
from crd_bridge.collection import Collection
from crd_bridge.keyed_queue import Key, KeyedQueue
from crd_bridge.watch import Change, Reflector, Scope, key_of
from domain.contracts.errors import ClusterError, ErrorCode
from tests.crd_bridge.waiting import running, until
from tests.fakes.cluster import FakeCluster

QUICK = Backoff(first_seconds=0.001, longest_seconds=0.002)
DOWN = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="test")


def a_map(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "data": {}}


def a_reflector(cluster: FakeCluster, *, label_selector: str = "", namespace: str = "") -> Reflector:
    return Reflector(cluster, Scope(CONFIG_MAPS, namespace, label_selector), backoff=QUICK)


def names(reflector: Reflector | Collection) -> list[str]:
    return sorted(key_of(item)[1] for item in reflector.objects())


async def test_reflector_lists_all_pages_then_follows() -> None:
    cluster = FakeCluster(page_size=2)
    for name in "abcde":
        await cluster.create(CONFIG_MAPS, a_map(name), "ns")
    reflector = a_reflector(cluster)
    queue = reflector.subscribe()
    async with running(reflector.run()):
        await reflector.wait_synced()
        assert names(reflector) == list("abcde")
        assert {(await queue.take())[1].type for _ in "abcde"} == {"ADDED"}
        await cluster.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace="ns")
        key, change = await queue.take()
        assert (key, change.type, change.object["data"]) == (("ns", "a"), "MODIFIED", {"x": "1"})
        await cluster.delete(CONFIG_MAPS, "b", namespace="ns")
        key, change = await queue.take()
        assert (key, change.type) == (("ns", "b"), "DELETED")
        assert reflector.get(("ns", "b")) is None
    assert [call for call in cluster.calls if call.startswith("list")] == ["list configmaps"] * 3


async def test_reflector_makes_up_what_it_missed_when_its_version_expired() -> None:
    cluster = FakeCluster()
    for name in ("kept", "changed", "removed"):
        await cluster.create(CONFIG_MAPS, a_map(name), "ns")
    reflector = a_reflector(cluster)
    queue = reflector.subscribe()
    async with running(reflector.run()):
        await until(lambda: len(queue) == 3)
        for _ in range(3):
            await queue.take()
        cluster.fail_next("watch", DOWN, times=3)
        await cluster.drop_watches()
        await cluster.delete(CONFIG_MAPS, "removed", namespace="ns")
        await cluster.patch(CONFIG_MAPS, "changed", {"data": {"x": "1"}}, namespace="ns")
        await cluster.create(CONFIG_MAPS, a_map("added"), "ns")
        cluster.expire()
        await until(lambda: len(queue) == 3)
        seen = {key[1]: change.type for key, change in [await queue.take() for _ in range(3)]}
    assert seen == {"removed": "DELETED", "changed": "MODIFIED", "added": "ADDED"}


async def test_reflector_resumes_without_a_list_when_the_connection_drops() -> None:
    cluster = FakeCluster()
    reflector = a_reflector(cluster)
    async with running(reflector.run()):
        await reflector.wait_synced()
        await until(lambda: cluster.calls.count("watch configmaps") == 1)
        await cluster.drop_watches()
        await cluster.create(CONFIG_MAPS, a_map("late"), "ns")
        await until(lambda: names(reflector) == ["late"])
    assert cluster.calls.count("list configmaps") == 1


async def test_reflector_lists_again_when_its_version_is_refused_without_the_word_expired() -> None:
    cluster = FakeCluster()
    reflector = a_reflector(cluster)
    async with running(reflector.run()):
        await until(lambda: cluster.calls.count("watch configmaps") == 1)
        too_new = ClusterError(ErrorCode.UNAVAILABLE, "Too large resource version", operation="", status=504)
        cluster.fail_next("watch", too_new, times=5)
        await cluster.drop_watches()
        await until(lambda: cluster.calls.count("list configmaps") >= 2)


async def test_reflector_survives_a_server_that_is_down_from_the_start() -> None:
    cluster = FakeCluster()
    await cluster.create(CONFIG_MAPS, a_map("a"), "ns")
    cluster.fail_next("list", DOWN, times=7)
    reflector = a_reflector(cluster)
    async with running(reflector.run()):
        await asyncio.wait_for(reflector.wait_synced(), 5)
    assert names(reflector) == ["a"]


async def test_reflector_sees_an_object_that_leaves_the_selector_as_deleted() -> None:
    cluster = FakeCluster()
    await cluster.create(CONFIG_MAPS, a_map("in", team="a"), "ns")
    await cluster.create(CONFIG_MAPS, a_map("out"), "ns")
    reflector = a_reflector(cluster, label_selector="team")
    queue = reflector.subscribe()
    async with running(reflector.run()):
        assert (await queue.take())[0] == ("ns", "in")
        await cluster.patch(CONFIG_MAPS, "in", {"metadata": {"labels": {"team": None}}}, namespace="ns")
        key, change = await queue.take()
        assert (key, change.type, change.object["metadata"]["labels"]) == (
            ("ns", "in"), "DELETED", {"team": "a"},
        )  # fmt: skip
        assert names(reflector) == []


async def test_reflector_ends_when_cancelled_while_its_subscriber_is_full() -> None:
    cluster = FakeCluster()
    for name in "abc":
        await cluster.create(CONFIG_MAPS, a_map(name), "ns")
    reflector = a_reflector(cluster)
    queue = reflector.subscribe(capacity=1)
    task = asyncio.ensure_future(reflector.run())
    await until(lambda: len(queue) == 1)
    assert not reflector.is_synced, "the second key waits for room"
    task.cancel()
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled()


async def test_reflector_does_not_hammer_a_server_that_ends_every_watch_at_once() -> None:
    class Ending(FakeCluster):
        async def watch(self, *args: Any, **kwargs: Any) -> Any:
            self.calls.append("watch")
            return
            yield

    cluster = Ending()
    reflector = Reflector(cluster, Scope(CONFIG_MAPS), backoff=Backoff(10, 10))
    async with running(reflector.run()):
        # The first follows a list and so is no sign of trouble.
        await until(lambda: cluster.calls.count("watch") == 2)
        for _ in range(50):
            await asyncio.sleep(0)
    assert cluster.calls.count("watch") == 2


async def test_p62_objects_created_and_deleted_at_once_do_not_wedge_the_cache() -> None:
    cluster = FakeCluster()
    reflector = a_reflector(cluster)
    queue = reflector.subscribe()
    async with running(reflector.run()):
        await reflector.wait_synced()
        for number in range(1_000):
            await cluster.create(CONFIG_MAPS, a_map(f"m{number}"), "ns")
            await cluster.delete(CONFIG_MAPS, f"m{number}", namespace="ns")
            if number % 100 == 50:
                await cluster.drop_watches()
            if number % 100 == 70:
                cluster.expire()
        await cluster.create(CONFIG_MAPS, a_map("real"), "ns")
        await until(lambda: names(reflector) == ["real"], seconds=10)
        seen: dict[Key, Change] = {}
        while ("ns", "real") not in seen:
            key, change = await asyncio.wait_for(queue.take(), 10)
            seen[key] = change
    assert [key[1] for key, change in seen.items() if change.type != "DELETED"] == ["real"]


async def test_keyed_queue_keeps_the_newest_value_in_the_first_place() -> None:
    queue: KeyedQueue[int] = KeyedQueue()
    for key, value in ((("", "a"), 1), (("", "b"), 2), (("", "a"), 3)):
        await queue.put(key, value)
    assert len(queue) == 2
    assert await queue.take() == (("", "a"), 3)
    assert await queue.take() == (("", "b"), 2)


async def test_keyed_queue_makes_a_new_key_wait_when_full_but_not_a_known_one() -> None:
    queue: KeyedQueue[int] = KeyedQueue(capacity=1)
    await queue.put(("", "a"), 1)
    await asyncio.wait_for(queue.put(("", "a"), 2), 1)
    waiting = asyncio.ensure_future(queue.put(("", "b"), 3))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await queue.take() == (("", "a"), 2)
    await asyncio.wait_for(waiting, 1)
    assert await queue.take() == (("", "b"), 3)


@pytest.mark.parametrize("failures", [1, 2, 5, 100])
def test_backoff_stays_between_half_and_whole_of_its_ceiling(failures: int) -> None:
    backoff = Backoff(first_seconds=0.5, longest_seconds=30)
    ceiling = min(30, 0.5 * 2 ** (failures - 1))
    assert all(ceiling / 2 <= backoff.pause(failures) <= ceiling for _ in range(50))
    assert backoff.pause(1, at_least=99) == 99


class ReflectorWalk(RuleBasedStateMachine):
    """Whatever happens to the server and the connection, cache and subscriber end where the server is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.cluster = FakeCluster(page_size=2)
        self.reflector = a_reflector(self.cluster)
        self.queue = self.reflector.subscribe(capacity=3)
        self.view: dict[Key, str] = {}
        self.tasks = [
            self.loop.create_task(self.reflector.run()),
            self.loop.create_task(self.consume()),
        ]

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(work)

    async def consume(self) -> None:
        async for key, change in self.queue:
            if change.type == "DELETED":
                self.view.pop(key, None)
            else:
                self.view[key] = change.object["metadata"]["resourceVersion"]

    def truth(self) -> dict[Key, str]:
        return {
            (namespace, name): body["metadata"]["resourceVersion"]
            for (_, namespace, name), body in self.cluster.objects.items()
        }

    @rule(name=st.sampled_from("abcdef"))
    def put(self, name: str) -> None:
        if (CONFIG_MAPS, "ns", name) in self.cluster.objects:
            value = str(random.random())
            self.do(self.cluster.patch(CONFIG_MAPS, name, {"data": {"x": value}}, namespace="ns"))
        else:
            self.do(self.cluster.create(CONFIG_MAPS, a_map(name), "ns"))

    @rule(name=st.sampled_from("abcdef"))
    def remove(self, name: str) -> None:
        self.do(self.cluster.delete(CONFIG_MAPS, name, namespace="ns"))

    @rule()
    def drop(self) -> None:
        self.do(self.cluster.drop_watches())

    @rule()
    def expire(self) -> None:
        self.cluster.expire()

    @rule(operation=st.sampled_from(["list", "watch"]), times=st.integers(1, 6))
    def fail(self, operation: str, times: int) -> None:
        self.cluster.fail_next(operation, DOWN, times=times)

    @rule()
    def expire_in_the_middle_of_a_list(self) -> None:
        gone = ClusterError(ErrorCode.CONFLICT, "Expired", operation="list", status=410)
        self.cluster.fail_next("list", gone)

    @rule(turns=st.integers(0, 20))
    def let_it_run(self, turns: int) -> None:
        async def wait() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.do(wait())

    @rule()
    def settle(self) -> None:
        async def settled() -> None:
            def agrees() -> bool:
                cached = {
                    key_of(item): item["metadata"]["resourceVersion"] for item in self.reflector.objects()
                }
                return self.reflector.is_synced and cached == self.view == self.truth()

            await until(agrees, what="cache and subscriber agree with the server")

        self.do(settled())

    @invariant()
    def runs(self) -> None:
        assert not any(task.done() for task in self.tasks)

    def teardown(self) -> None:
        self.settle()
        for task in self.tasks:
            task.cancel()
        self.do(asyncio.wait(self.tasks))
        self.loop.close()


TestReflectorWalk = ReflectorWalk.TestCase
TestReflectorWalk.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
