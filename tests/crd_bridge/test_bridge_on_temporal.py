"""The whole bridge between a cluster in memory and a real Temporal server with a stand-in pool workflow."""

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.cluster.base import NODES, PODS, POOLS, PROFILES, STRATEGIES, Object
from crd_bridge.backoff import Backoff
from crd_bridge.bridge import BridgeHooks, BridgeSettings, run_bridge
from crd_bridge.election import LeaseDurations
from crd_bridge.intents import resolve
from crd_bridge.keyed_tasks import Pace
from crd_bridge.nodes import SkipReason
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import DeliveryError, PoolWorkflows
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from sandbox.temporal_server import TemporalServer, find_program
from tests.crd_bridge.builders import a_node, a_pod, a_pool, a_profile, a_strategy
from tests.crd_bridge.stand_in import FINISH, RECORD, RENEW, STUCK, Record, StandInPool
from tests.crd_bridge.waiting import running, until, until_async
from tests.fakes.cluster import FakeCluster
from workflows.messages import pool_workflow_id
from workflows.options import POOLS_QUEUE
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER

pytestmark = pytest.mark.temporal

QUICK = Backoff(first_seconds=0.02, longest_seconds=0.1)
DOWN = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="test")


@pytest.fixture(scope="module")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = TemporalServer(Path(tmp_path_factory.mktemp("temporal")), find_program())
    server.start()
    yield server.address
    server.stop()


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=DATA_CONVERTER)


@asynccontextmanager
async def a_worker(client: Client) -> AsyncIterator[None]:
    async with Worker(
        client, task_queue=POOLS_QUEUE, workflows=[StandInPool], workflow_runner=WORKFLOW_RUNNER
    ):
        yield


@pytest.fixture
async def worker(client: Client) -> AsyncIterator[None]:
    async with a_worker(client):
        yield


_numbers = itertools.count(1)


class World:
    """A cluster in memory with one namespace of its own, and bridges on it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cluster = FakeCluster()
        self.namespace = f"ns{next(_numbers)}"
        self.skipped: dict[SkipReason, int] = {}

    def settings(self, identity: str = "one", **more: Any) -> BridgeSettings:
        defaults: dict[str, Any] = {
            "identity": identity,
            "pool_settings": PoolSettings(),
            "installation": "here",
            "namespaces": (self.namespace,),
            # Long enough that a busy machine is not read as a dead leader, whose successor tells all again.
            "lease": LeaseDurations(lease_seconds=4, renew_deadline_seconds=3, retry_seconds=0.05),
            "answer_seconds": 10.0,
            "node_gather_seconds": 0.05,
            "demand_gather_seconds": 0.05,
            "pool_pace": Pace(lanes=4, repair_lanes=2, backoff=QUICK),
            "watch_backoff": QUICK,
            "hooks": BridgeHooks(on_skipped_nodes=lambda counts: self.skipped.update(counts)),
        }
        return BridgeSettings(**defaults | more)

    @asynccontextmanager
    async def bridge(self, identity: str = "one", **more: Any) -> AsyncIterator[None]:
        stop = asyncio.Event()
        settings = self.settings(identity, **more)
        async with running(run_bridge(self.cluster, self.client, settings, stop)) as task:
            yield
            stop.set()
            await asyncio.wait_for(asyncio.shield(task), 10)

    async def put(self, body: Object) -> Object:
        resource = {
            "GPUSpotPool": POOLS, "GPUSpotStrategy": STRATEGIES, "GPUWorkloadProfile": PROFILES,
        }[body["kind"]]  # fmt: skip
        body["metadata"].pop("uid")
        return await self.cluster.create(resource, body, self.namespace)

    async def patch_pool(self, name: str, patch: Object) -> None:
        await self.cluster.patch(POOLS, name, patch, namespace=self.namespace)

    def pool(self, name: str = "pool") -> Object | None:
        return self.cluster.objects.get((POOLS, self.namespace, name))

    def uid(self, name: str = "pool") -> str:
        return str(self.cluster.objects[POOLS, self.namespace, name]["metadata"]["uid"])

    def handle(self, name: str = "pool") -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(pool_workflow_id(self.namespace, name))

    async def record(self, name: str = "pool") -> Record:
        return await self.handle(name).query(RECORD, result_type=Record)

    async def status(self, name: str = "pool") -> WorkflowExecutionStatus | None:
        try:
            return (await self.handle(name).describe()).status
        except RPCError:
            return None

    async def served(self, name: str = "pool", *, updates: int = 1) -> Record:
        """The record once so many updates came in."""

        async def enough() -> bool:
            return await self.status(name) is not None and len((await self.record(name)).applied) >= updates

        await until_async(enough, what=f"{updates} updates of {name}")
        return await self.record(name)

    def resolved(self, name: str = "pool") -> ResolvedPool:
        body = self.cluster.objects[POOLS, self.namespace, name]
        return resolve(body, Parts(), operator_namespace="spotgpu-system")


@pytest.fixture
def world(client: Client) -> World:
    return World(client)


# Start, update, delete -------------------------------------------------------------------------------


async def test_bridge_adds_the_finalizer_and_then_starts_the_workflow(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge():
        record = await world.served()
        description = await world.handle().describe()
    assert record.start.uid == world.uid()
    assert [sent.resolved.uid for sent in record.applied] == [world.uid()]
    assert world.pool()["metadata"]["finalizers"] == [FINALIZER]
    patched = world.cluster.calls.index("patch gpuspotpools/pool")
    assert "create" not in world.cluster.calls[patched:]
    assert await description.memo() == {"pool": f"{world.namespace}/pool", "installation": "here"}
    attributes = description.typed_search_attributes
    wanted = {"PoolUid": world.uid(), "PoolNamespace": world.namespace, "PoolName": "pool"}
    assert {name: attributes.get(SearchAttributeKey.for_keyword(name)) for name in wanted} == wanted
    assert await description.static_summary() == f"GPU spot pool {world.namespace}/pool"


async def test_bridge_starts_nothing_while_the_finalizer_cannot_be_added(world: World, worker: None) -> None:
    await world.put(a_pool())
    world.cluster.fail_next("patch gpuspotpools", DOWN, times=3)
    async with world.bridge():
        await until(lambda: world.cluster.calls.count("patch gpuspotpools/pool") == 3)
        assert await world.status() is None
        await world.served()


def a_lost_pool(world: World) -> ResolvedPool:
    """A pool without a resource."""
    names = {"uid": "lost", "namespace": world.namespace, "name": "lost", "generation": 1}
    return ResolvedPool.model_validate(names | {"spec": a_pool()["spec"]})


async def test_answer_that_never_came_leaves_no_complaint_of_an_unseen_failure(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    workflows = PoolWorkflows(world.client, PoolSettings(), installation="here", answer_seconds=0.3)
    lost = a_lost_pool(world)
    with pytest.raises(DeliveryError, match=r"no answer within 0.3 s. Does a worker run\?"):
        await workflows.apply(lost, edit="1")
    gc.collect()
    await asyncio.sleep(0)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_bridge_starts_pools_without_a_worker_and_delivers_when_one_comes(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.put(a_pool(name))
    async with world.bridge(answer_seconds=0.5, pool_pace=Pace(lanes=1, repair_lanes=1, backoff=QUICK)):
        for name in ("a", "b", "c"):
            await until_async(lambda name=name: world.status(name), what=f"{name} is started")
        async with a_worker(world.client):
            for name in ("a", "b", "c"):
                record = await world.served(name)
                assert record.start.name == name


async def test_bridge_sends_an_edit_and_not_a_status(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
        await world.patch_pool("pool", {"status": {"currentInstances": 1}})
        await world.patch_pool("pool", {"spec": {"minInstances": 4}})
        record = await world.served(updates=2)
        assert [sent.resolved.spec.min_instances for sent in record.applied] == [2, 4]


async def test_bridge_fans_a_strategy_and_a_profile_out_to_the_pools_that_refer_to_them(
    world: World, worker: None
) -> None:
    await world.put(a_pool("uses", strategyRef="s"))
    await world.put(a_pool("other"))
    async with world.bridge():
        first = await world.served("uses")
        assert [one.name for one in first.applied[0].resolved.unresolved] == ["tencent", "s"][::-1]
        await world.put(a_strategy("s"))
        assert "s" in (await world.served("uses", updates=2)).applied[1].resolved.strategies
        await world.put(a_profile("p", pool="uses"))
        third = (await world.served("uses", updates=3)).applied[2]
        assert [part.origin.name for part in third.resolved.profiles] == ["p"]
        move = {"spec": {"poolRef": "other"}}
        await world.cluster.patch(PROFILES, "p", move, namespace=world.namespace)
        assert (await world.served("uses", updates=4)).applied[3].resolved.profiles == ()
        assert (await world.served("other", updates=2)).applied[1].resolved.profiles != ()


async def test_bridge_tells_of_a_deletion_and_starts_nothing_after_it(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
        await world.cluster.delete(POOLS, "pool", namespace=world.namespace)
        record = await world.served(updates=2)
        assert record.applied[1].resolved.deleting
        await world.patch_pool("pool", {"metadata": {"finalizers": []}})
        assert world.pool() is None
        await world.handle().signal(FINISH)
        await world.handle().result()
        await world.put(a_pool("next"))
        await world.served("next")
        assert await world.status() is WorkflowExecutionStatus.COMPLETED


async def test_bridge_starts_a_workflow_for_a_deletion_that_nobody_carries_out(
    world: World, worker: None
) -> None:
    await world.put(a_pool(meta={"finalizers": [FINALIZER]}))
    await world.cluster.delete(POOLS, "pool", namespace=world.namespace)
    async with world.bridge():
        assert (await world.served()).start.deleting


async def test_bridge_tells_of_a_resource_whose_finalizer_was_forced_off(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
        uid = world.uid()
        await world.patch_pool("pool", {"metadata": {"finalizers": []}})
        await world.cluster.delete(POOLS, "pool", namespace=world.namespace)
        record = await world.served(updates=2)
    assert (record.applied[-1].resolved.uid, record.applied[-1].resolved.deleting) == (uid, True)


async def test_p41_resource_that_vanished_while_the_bridge_was_down_is_told_at_its_start(
    world: World, worker: None
) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
    uid = world.uid()
    await world.patch_pool("pool", {"metadata": {"finalizers": []}})
    await world.cluster.delete(POOLS, "pool", namespace=world.namespace)
    await until_async(lambda: _is_listed(world), what="visible in the list of open workflows")
    async with world.bridge("two"):
        record = await world.served(updates=2)
    assert (record.applied[-1].resolved.uid, record.applied[-1].resolved.deleting) == (uid, True)


async def _is_listed(world: World) -> bool:
    workflows = PoolWorkflows(world.client, PoolSettings(), installation="here")
    return (world.namespace, "pool") in await workflows.open_pools()


async def test_p40_full_pass_heals_a_deletion_that_was_missed(world: World, worker: None) -> None:
    async with world.bridge(resync_interval=timedelta(seconds=0.3)):
        # A workflow that was started behind the bridge's back, for a resource that never was here.
        lost = a_lost_pool(world)
        await PoolWorkflows(world.client, PoolSettings(), installation="here").apply(lost, edit="1")
        record = await world.served("lost", updates=2)
    assert record.applied[-1].resolved.deleting


async def test_p40_full_pass_starts_again_what_a_human_terminated(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge(resync_interval=timedelta(seconds=0.3)):
        await world.served()
        await world.handle().terminate("by hand")
        await until_async(lambda: _runs(world), what="runs again")
        await world.served()


async def test_p40_terminated_workflow_does_not_wait_for_the_full_pass(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge(revive_interval=timedelta(seconds=0.3)):
        await world.served()
        await world.handle().terminate("by hand")
        await until_async(lambda: _runs(world), what="runs again")
        await world.served()


async def _runs(world: World) -> bool:
    return await world.status() is WorkflowExecutionStatus.RUNNING


async def test_full_pass_costs_a_quiet_pool_no_history(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge(resync_interval=timedelta(seconds=0.1)):
        await world.served()
        await until_async(lambda: _has_nodes(world), what="the nodes of the first run")
        before = (await world.handle().describe()).history_length
        calls = world.cluster.calls.count("get leases/bridge")
        await until(lambda: world.cluster.calls.count("update leases/spotgpu-bridge") >= calls + 20)
        after = await world.handle().describe()
    assert after.history_length == before


async def _has_nodes(world: World) -> bool:
    record = await world.record()
    return bool(record.nodes and record.demands)


async def test_bridge_retires_the_workflow_of_an_earlier_resource_of_the_same_name(
    world: World, worker: None
) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
        old = world.uid()
    await world.patch_pool("pool", {"metadata": {"finalizers": []}})
    await world.cluster.delete(POOLS, "pool", namespace=world.namespace)
    await world.put(a_pool(minInstances=7))
    assert world.uid() != old
    async with world.bridge("two"):
        record = await world.served(updates=2)
        assert (record.applied[-1].resolved.uid, record.applied[-1].resolved.deleting) == (old, True)
        await world.handle().signal(FINISH)

        async def serves_the_new_one() -> bool:
            return (await world.record()).start.uid == world.uid()

        await until_async(serves_the_new_one, what="the new resource has a workflow of its own")
        assert (await world.served()).start.spec.min_instances == 7


async def test_bridge_leaves_workflows_of_another_installation_alone(world: World, worker: None) -> None:
    theirs = ResolvedPool.model_validate(
        {"uid": "theirs", "namespace": world.namespace, "name": "theirs", "generation": 1}
        | {"spec": a_pool()["spec"]}
    )
    await PoolWorkflows(world.client, PoolSettings(), installation="there").apply(theirs, edit="1")
    await world.put(a_pool("ours"))
    async with world.bridge(resync_interval=timedelta(seconds=0.1)):
        await world.served("ours")
        before = world.cluster.calls.count("update leases/spotgpu-bridge")
        await until(lambda: world.cluster.calls.count("update leases/spotgpu-bridge") >= before + 10)
        assert not any(sent.resolved.deleting for sent in (await world.record("theirs")).applied)


# Many pools, many bridges ----------------------------------------------------------------------------


async def test_bridge_serves_others_while_one_pool_is_stuck_or_unreadable(world: World, worker: None) -> None:
    await world.put(a_pool(STUCK))
    await world.put(a_pool("unreadable", minInstances="two"))
    async with world.bridge(
        answer_seconds=0.5, pool_pace=Pace(lanes=1, repair_lanes=1, backoff=Backoff(0.01, 0.01))
    ):
        await until_async(lambda: world.status(STUCK), what="started")
        for number in range(5):
            await world.put(a_pool(f"good{number}"))
            await world.served(f"good{number}")
    assert await world.status("unreadable") is None


async def test_p13_two_bridges_make_one_workflow_and_apply_each_edit_once(world: World, worker: None) -> None:
    await world.put(a_pool(meta={"finalizers": [FINALIZER]}))
    senders = [PoolWorkflows(world.client, PoolSettings(), installation="here") for _ in range(2)]
    answers = await asyncio.gather(*(sender.apply(world.resolved(), edit="1") for sender in senders))
    assert len({answer.run_id for answer in answers}) == 1
    record = await world.record()
    assert len(record.applied) == 1, "the second was answered from the first outcome"


async def test_second_bridge_takes_over_and_nothing_is_lost_or_doubled(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge("two"):
        async with world.bridge("one"):
            await world.served()
        await world.patch_pool("pool", {"spec": {"minInstances": 3}})
        record = await world.served(updates=2)
        assert [sent.resolved.spec.min_instances for sent in record.applied] == [2, 3]


async def test_bridge_resumes_after_its_watches_broke(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge():
        await world.served()
        world.cluster.fail_next("watch", DOWN, times=20)
        await world.cluster.drop_watches()
        await world.patch_pool("pool", {"spec": {"minInstances": 3}})
        world.cluster.expire()
        record = await world.served(updates=2)
    assert record.applied[-1].resolved.spec.min_instances == 3


# Nodes and demand ------------------------------------------------------------------------------------


async def test_bridge_signals_all_nodes_first_and_then_what_changes(world: World, worker: None) -> None:
    await world.put(a_pool())
    await world.cluster.create(NODES, a_node("n1", pool_uid=world.uid()))
    async with world.bridge():
        await until_async(lambda: _nodes_seen(world, 1))
        first = (await world.record()).nodes[0]
        assert (first.complete, [fact.name for fact in first.nodes]) == (True, ["n1"])
        await world.cluster.patch(NODES, "n1", {"status": {"allocatable": {"nvidia.com/gpu": "7"}}})
        await until_async(lambda: _nodes_seen(world, 2))
        # A heartbeat changes the object but no fact.
        await world.cluster.patch(NODES, "n1", {"metadata": {"annotations": {"beat": "1"}}})
        await world.cluster.delete(NODES, "n1")
        await until_async(lambda: _nodes_seen(world, 3))
        nodes = (await world.record()).nodes
    assert [(seen.complete, seen.nodes[0].gpus_allocatable, seen.nodes[0].exists) for seen in nodes] == [
        (True, 8, True),
        (False, 7, True),
        (False, 0, False),
    ]
    assert [seen.as_of for seen in nodes] == sorted(seen.as_of for seen in nodes)


async def _nodes_seen(world: World, count: int) -> bool:
    if await world.status() is None:
        return False
    return len((await world.record()).nodes) >= count


async def test_p41_node_removed_while_the_bridge_was_down_is_missing_from_the_first_signal(
    world: World, worker: None
) -> None:
    await world.put(a_pool())
    await world.cluster.create(NODES, a_node("n1", pool_uid=world.uid()))
    async with world.bridge():
        await until_async(lambda: _nodes_seen(world, 1))
    await world.cluster.delete(NODES, "n1")
    async with world.bridge("two"):
        await until_async(lambda: _nodes_seen(world, 2))
    last = (await world.record()).nodes[-1]
    assert (last.complete, last.nodes) == (True, ())


async def test_bridge_gathers_a_burst_of_nodes_into_few_signals(world: World, worker: None) -> None:
    await world.put(a_pool())
    async with world.bridge(node_gather_seconds=0.3):
        await until_async(lambda: _nodes_seen(world, 1))
        for number in range(50):
            node = a_node(f"n{number}", pool_uid=world.uid(), provider_id=f"qcloud:///1/ins-{number}")
            await world.cluster.create(NODES, node)

        async def all_seen() -> bool:
            return sum(len(seen.nodes) for seen in (await world.record()).nodes) >= 50

        await until_async(all_seen)
        assert len((await world.record()).nodes) <= 4


async def test_p63_foreign_and_half_made_nodes_are_skipped_and_counted(world: World, worker: None) -> None:
    await world.put(a_pool())
    await world.cluster.create(NODES, a_node("half-made", pool_uid=world.uid(), provider_id=""))
    await world.cluster.create(NODES, a_node("foreign", pool_uid=""))
    await world.cluster.create(NODES, a_node("ours", pool_uid=world.uid(), provider_id="qcloud:///1/ins-9"))
    async with world.bridge():
        await until_async(lambda: _nodes_seen(world, 1))
        assert [fact.name for fact in (await world.record()).nodes[0].nodes] == ["ours"]
        await until(lambda: world.skipped == {SkipReason.NO_PROVIDER_ID: 1, SkipReason.FOREIGN: 1})


async def test_bridge_gives_a_run_that_continued_as_new_all_nodes_and_the_demand(
    world: World, worker: None
) -> None:
    await world.put(a_pool())
    await world.cluster.create(NODES, a_node("n1", pool_uid=world.uid()))
    async with world.bridge(resync_interval=timedelta(seconds=0.2)):
        await until_async(lambda: _has_nodes_once_started(world))
        run = (await world.handle().describe()).run_id
        await world.handle().signal(RENEW)

        async def renewed() -> bool:
            return (await world.handle().describe()).run_id != run and await _has_nodes(world)

        await until_async(renewed)
        assert (await world.record()).nodes[0].complete
        description = await world.handle().describe()
    assert (await description.memo())["installation"] == "here"


async def _has_nodes_once_started(world: World) -> bool:
    return await world.status() is not None and await _has_nodes(world)


async def test_bridge_signals_demand_when_it_changes(world: World, worker: None) -> None:
    await world.put(a_pool())
    await world.put(a_profile("p"))
    await world.put(a_profile("q", podSelector={"app": "batch"}))
    pod = a_pod("a", gpus="8", profile="p")
    await world.cluster.create(PODS, pod, world.namespace)
    async with world.bridge():

        async def demands() -> list[dict[str, int]]:
            record = await world.record()
            return [{one.profile: one.gpus for one in demand.profiles} for demand in record.demands]

        async def is_now(wanted: dict[str, int]) -> bool:
            return await world.status() is not None and (await demands())[-1:] == [wanted]

        await until_async(lambda: is_now({"p": 8, "q": 0}))
        selected = a_pod("b", gpus="2", profile=None, meta={"labels": {"app": "batch"}})
        await world.cluster.create(PODS, selected, world.namespace)
        await until_async(lambda: is_now({"p": 8, "q": 2}))
        count = len(await demands())
        await world.cluster.patch(PODS, "a", {"status": {"phase": "Running"}}, namespace=world.namespace)
        await world.cluster.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, namespace=world.namespace)
        await until_async(lambda: is_now({"p": 0, "q": 2}))
        assert len(await demands()) == count + 1, "a pod that only got its node asks for nothing new"
        await world.cluster.delete(PROFILES, "q", namespace=world.namespace)
        await until_async(lambda: is_now({"p": 0}))


async def test_bridge_stops_within_seconds_and_gives_the_lease_back(world: World) -> None:
    await world.put(a_pool())
    async with world.bridge(answer_seconds=30):
        await until_async(lambda: world.status(), what="started without a worker")
    lease = next(body for place, body in world.cluster.objects.items() if place[2] == "spotgpu-bridge")
    assert lease["spec"]["holderIdentity"] == ""
