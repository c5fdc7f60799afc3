"""The reconciler against a cluster in memory and workflows that only write down what they are told."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from activities.cluster.base import POOLS
from crd_bridge.collection import Collection
from crd_bridge.keyed_queue import Key
from crd_bridge.keyed_tasks import PostponedError
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import Delivered, DeliveryError, PoolWorkflows, UidMismatchError
from crd_bridge.reconcile import Reconciler
from crd_bridge.watch import Reflector, Scope
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from tests.crd_bridge.builders import a_pool
from tests.crd_bridge.waiting import running, until
from tests.fakes.cluster import FakeCluster
from workflows.messages import SpecEnvelope

KEY = ("train", "pool")


class Told:
    """Stands where ``PoolWorkflows`` stands; ``answers`` are raised or returned in turn."""

    def __init__(self) -> None:
        self.applied: list[tuple[ResolvedPool, str]] = []
        self.told: list[ResolvedPool] = []
        self.open: ResolvedPool | None = None
        self.failures: list[DeliveryError] = []
        self.run_id = "run-1"

    def envelope(self, resolved: ResolvedPool) -> SpecEnvelope:
        return SpecEnvelope(resolved=resolved, settings=PoolSettings())

    async def apply(self, resolved: ResolvedPool, *, edit: str) -> Delivered:
        self.applied.append((resolved, edit))
        if self.failures:
            raise self.failures.pop(0)
        self.open = resolved
        return Delivered(self.run_id, accepted=True)

    async def apply_if_open(self, resolved: ResolvedPool, *, edit: str) -> bool:
        if self.open is None:
            return False
        self.told.append(resolved)
        return True

    async def last_resolved(self, pool: Key) -> ResolvedPool | None:
        return self.open


class Bench:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.workflows = Told()
        self.pools = Collection([Reflector(self.cluster, Scope(POOLS))])
        self.new_runs: list[Key] = []
        self.reconciler = Reconciler(
            self.cluster,
            self.pools,
            Parts(),
            cast("PoolWorkflows", self.workflows),
            operator_namespace="ops",
            on_new_run=self.new_runs.append,
        )

    async def put(self, **spec: Any) -> str:
        body = a_pool(**spec)
        body["metadata"].pop("uid")
        made = await self.cluster.create(POOLS, body, "train")
        await self.caught_up()
        return str(made["metadata"]["uid"])

    async def patch(self, patch: dict[str, Any]) -> None:
        await self.cluster.patch(POOLS, "pool", patch, namespace="train")
        await self.caught_up()

    async def caught_up(self) -> None:
        def same() -> bool:
            stored = self.cluster.objects.get((POOLS, *KEY))
            cached = self.pools.get(KEY)
            return (stored or {}).get("metadata") == (cached or {}).get("metadata")

        await until(same)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with running(bench.pools.run()):
        await bench.pools.wait_synced()
        yield bench


async def test_reconciler_sends_once_and_then_nothing(bench: Bench) -> None:
    await bench.put()
    for _ in range(3):
        await bench.reconciler.serve(KEY)
        await bench.caught_up()
    assert len(bench.workflows.applied) == 1
    assert bench.new_runs == [KEY]


async def test_reconciler_repeats_an_unanswered_edit_under_the_same_name(bench: Bench) -> None:
    await bench.put()
    bench.workflows.failures = [DeliveryError("no answer"), DeliveryError("no answer")]
    for _ in range(2):
        with pytest.raises(DeliveryError):
            await bench.reconciler.serve(KEY)
        await bench.caught_up()
    await bench.reconciler.serve(KEY)
    assert len({edit for _, edit in bench.workflows.applied}) == 1


async def test_reconciler_sends_a_reversal_even_when_the_change_was_never_answered(bench: Bench) -> None:
    await bench.put()
    await bench.reconciler.serve(KEY)
    await bench.caught_up()
    await bench.patch({"spec": {"minInstances": 5}})
    bench.workflows.failures = [DeliveryError("no answer")]  # but it may have been accepted
    with pytest.raises(DeliveryError):
        await bench.reconciler.serve(KEY)
    await bench.patch({"spec": {"minInstances": 2}})
    await bench.reconciler.serve(KEY)
    assert [sent.spec.min_instances for sent, _ in bench.workflows.applied] == [2, 5, 2]
    assert len({edit for _, edit in bench.workflows.applied}) == 3


async def test_reconciler_sends_again_when_forced_and_as_a_new_edit_when_nothing_runs(bench: Bench) -> None:
    await bench.put()
    await bench.reconciler.serve(KEY)
    await bench.caught_up()
    bench.reconciler.force(KEY)
    await bench.reconciler.serve(KEY)
    bench.reconciler.force(KEY, restart=True)
    await bench.reconciler.serve(KEY)
    first, second, third = (edit for _, edit in bench.workflows.applied)
    assert first == second != third


async def test_reconciler_tells_of_a_new_run_once(bench: Bench) -> None:
    await bench.put()
    for run_id in ("run-1", "run-1", "run-2", "run-2"):
        bench.workflows.run_id = run_id
        bench.reconciler.force(KEY)
        await bench.reconciler.serve(KEY)
        await bench.caught_up()
    assert bench.new_runs == [KEY, KEY]


async def test_reconciler_starts_nothing_when_the_finalizer_is_refused(bench: Bench) -> None:
    await bench.put()
    conflict = ClusterError(ErrorCode.CONFLICT, "modified", operation="patch", status=409)
    bench.cluster.fail_next("patch gpuspotpools", conflict)
    with pytest.raises(ClusterError):
        await bench.reconciler.serve(KEY)
    assert bench.workflows.applied == []
    await bench.reconciler.serve(KEY)
    assert len(bench.workflows.applied) == 1


async def test_reconciler_adds_the_finalizer_under_a_version_check_beside_those_of_others(
    bench: Bench,
) -> None:
    await bench.put(meta={"finalizers": ["other/one"]})
    stale = bench.pools.get(KEY)
    assert stale is not None
    await bench.cluster.patch(POOLS, "pool", {"metadata": {"labels": {"a": "b"}}}, namespace="train")
    with pytest.raises(ClusterError, match="modified"):  # the cache has not seen the label yet
        await bench.reconciler.serve(KEY)
    await bench.caught_up()
    await bench.reconciler.serve(KEY)
    stored = bench.cluster.objects[POOLS, *KEY]["metadata"]
    assert (stored["finalizers"], stored["labels"]) == (["other/one", FINALIZER], {"a": "b"})


async def test_reconciler_tells_the_predecessor_and_waits_for_its_end(bench: Bench) -> None:
    old = await bench.put()
    await bench.reconciler.serve(KEY)
    await bench.caught_up()
    predecessor = bench.workflows.open
    await bench.patch({"metadata": {"finalizers": []}})
    await bench.cluster.delete(POOLS, "pool", namespace="train")
    new = await bench.put()
    bench.workflows.open = predecessor
    bench.workflows.failures = [UidMismatchError("another uid")]
    with pytest.raises(UidMismatchError):
        await bench.reconciler.serve(KEY)
    assert [(one.uid, one.deleting) for one in bench.workflows.told] == [(old, True)]
    await bench.caught_up()
    await bench.reconciler.serve(KEY)
    assert bench.workflows.applied[-1][0].uid == new
    assert bench.new_runs == [KEY, KEY]


async def gone_from_the_cache(bench: Bench) -> None:
    """A workflow runs, and the cache has no resource for it."""
    bench.workflows.open = ResolvedPool.model_validate(
        {"uid": "uid-x", "namespace": "train", "name": "pool", "generation": 3, "spec": a_pool()["spec"]}
    )


async def test_reconciler_tells_a_workflow_whose_resource_is_no_more(bench: Bench) -> None:
    await gone_from_the_cache(bench)
    await bench.reconciler.serve(KEY)
    assert [(one.uid, one.deleting) for one in bench.workflows.told] == [("uid-x", True)]


async def test_reconciler_does_not_believe_a_404_that_a_list_does_not_confirm(bench: Bench) -> None:
    await gone_from_the_cache(bench)
    body = a_pool(meta={"uid": "uid-x"})
    bench.cluster.objects[POOLS, *KEY] = body  # on the server, but not in the cache
    not_served = ClusterError(ErrorCode.NOT_FOUND, "404 page not found", operation="get", status=404)
    bench.cluster.fail_next("get gpuspotpools", not_served, times=2)
    with pytest.raises(PostponedError):
        await bench.reconciler.serve(KEY)
    bench.cluster.fail_next("list gpuspotpools", not_served)
    with pytest.raises(ClusterError):
        await bench.reconciler.serve(KEY)
    await bench.reconciler.serve(KEY)
    assert bench.workflows.told == []


async def test_reconciler_reads_every_page_before_it_believes(bench: Bench) -> None:
    await gone_from_the_cache(bench)
    bench.cluster.page_size = 1
    for name in ("a", "b", "z"):
        bench.cluster.objects[POOLS, "train", name] = a_pool(name)
    bench.cluster.objects[POOLS, "train", "z"]["metadata"]["uid"] = "uid-x"
    with pytest.raises(PostponedError):
        await bench.reconciler.serve(KEY)


async def test_reconciler_deletes_even_a_pool_that_cannot_be_read(bench: Bench) -> None:
    uid = await bench.put()
    await bench.reconciler.serve(KEY)
    await bench.caught_up()
    await bench.patch({"spec": {"minInstances": "two"}})
    await bench.reconciler.serve(KEY)
    assert len(bench.workflows.applied) == 1
    await bench.cluster.delete(POOLS, "pool", namespace="train")
    await bench.caught_up()
    await bench.reconciler.serve(KEY)
    assert [(one.uid, one.deleting) for one in bench.workflows.told] == [(uid, True)]
