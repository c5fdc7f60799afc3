from decimal import Decimal

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.base import POOLS
from activities.owners import OwnerActivities
from activities.signatures import AskOwnersAnswer, AskOwnersRequest, SweepRecord
from activities.telemetry import metrics
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.facts import OwnedMachine
from domain.contracts.pools import OrphanPolicy
from tests.activities.builders import a_machine, an_attempt
from tests.fakes.cluster import FakeCluster
from tests.fakes.directory import FakePools
from tests.fakes.provider import REGION


async def ask(cluster: FakeCluster, pools: FakePools, *machines: OwnedMachine) -> AskOwnersAnswer:
    hands = OwnerActivities(cluster, pools)
    return await an_attempt().run(hands.ask_owners, AskOwnersRequest(region=REGION, machines=machines))


async def a_pool(cluster: FakeCluster, uid: str, **spec: object) -> None:
    body = {"metadata": {"name": f"pool-{uid}", "uid": uid}, "spec": dict(spec)}
    await cluster.create(POOLS, body, "default")


def verdicts(answer: AskOwnersAnswer) -> dict[str, bool]:
    return {one.instance_id: one.owned for one in answer.answers}


async def test_owners_answer_for_their_machines() -> None:
    pools = FakePools("a")
    pools.owned["a"] = {"ins-0001"}
    answer = await ask(FakeCluster(), pools, a_machine(1, pool="a"), a_machine(2, pool="a"))
    assert verdicts(answer) == {"ins-0001": True, "ins-0002": False}


async def test_pool_that_does_not_answer_says_nothing_about_its_machines() -> None:
    pools = FakePools("a", "b")
    pools.silent = {"a"}
    answer = await ask(FakeCluster(), pools, a_machine(1, pool="a"), a_machine(2, pool="b"))
    assert verdicts(answer) == {"ins-0002": False}


async def test_machine_is_nobodys_when_its_pool_has_neither_workflow_nor_resource() -> None:
    answer = await ask(FakeCluster(), FakePools(), a_machine(1, pool="gone"), a_machine(2, pool=""))
    assert verdicts(answer) == {"ins-0001": False, "ins-0002": False}


async def test_pool_whose_workflow_is_not_there_yet_says_nothing() -> None:
    cluster = FakeCluster(page_size=1)
    await a_pool(cluster, "other")
    await a_pool(cluster, "starting")
    answer = await ask(cluster, FakePools(), a_machine(1, pool="starting"))
    assert answer.answers == ()


async def test_owners_tell_the_policies_of_their_pools() -> None:
    cluster = FakeCluster()
    await a_pool(cluster, "a", orphanPolicy="Report")
    await a_pool(cluster, "b")
    answer = await ask(cluster, FakePools("a", "b"), a_machine(1, pool="a"), a_machine(2, pool="b"))
    assert answer.policies == {"a": OrphanPolicy.REPORT}


async def test_owners_are_not_judged_when_the_cluster_cannot_be_read() -> None:
    cluster = FakeCluster()
    cluster.fail_next("list", ClusterError(ErrorCode.UNAVAILABLE, "down", operation="list"))
    with pytest.raises(ApplicationError) as failure:
        await ask(cluster, FakePools(), a_machine(1, pool="gone"))
    assert failure.value.type == "Unavailable"


async def test_sweep_result_becomes_metrics() -> None:
    hands = OwnerActivities(FakeCluster(), FakePools())
    record = SweepRecord(region=REGION, orphans=2, reclaimed=1, cost_per_hour=Decimal("8.40"))
    await an_attempt().run(hands.record_sweep, record)
    text = metrics.expose().decode()
    labels = '{account="tencent-credentials",provider="tencent",region="ap-guangzhou"}'
    assert f"spotgpu_orphans{labels} 2.0" in text
    assert f"spotgpu_orphan_hourly_cost{labels} 8.4" in text
