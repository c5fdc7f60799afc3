"""The sweep with its real activities on fakes, against a real Temporal server."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowFailureError

from activities.cluster.base import POOLS
from domain.contracts.errors import ClusterError, ErrorCode, ProviderError
from domain.contracts.installation import Installation
from domain.contracts.leftovers import Leftover, LeftoverKind
from domain.contracts.names import TAG_EPOCH, TAG_INSTALLATION, TAG_POOL, TAG_RETAINED
from domain.contracts.pools import OrphanPolicy
from domain.contracts.settings import SweepSettings
from domain.contracts.sweeps import SweepReport
from tests.activities.builders import an_offer
from tests.fakes.provider import REGION
from tests.workflows.serving import StandingWorld, serving_standing_work
from workflows.messages import ORPHAN_SWEEP_WORKFLOW, OrphanSweepInput
from workflows.options import POOLS_QUEUE

pytestmark = pytest.mark.temporal

OLD = datetime.now(UTC) - timedelta(hours=1)


async def sweep(
    client: Client,
    world: StandingWorld,
    *,
    policy: OrphanPolicy = OrphanPolicy.RECLAIM,
    min_age_seconds: float = 660,
) -> SweepReport:
    settings = SweepSettings(
        orphan_policy=policy, confirm_after_seconds=0.05, min_age_seconds=min_age_seconds
    )
    async with serving_standing_work(client, world):
        return await client.execute_workflow(
            ORPHAN_SWEEP_WORKFLOW,
            OrphanSweepInput(region=REGION, settings=settings),
            id=f"sweep-{uuid.uuid4()}",
            task_queue=POOLS_QUEUE,
            result_type=SweepReport,
            execution_timeout=timedelta(seconds=30),
        )


async def test_sweep_ends_what_nobody_owns_and_says_so(client: Client) -> None:
    world = StandingWorld("a")
    owned = world.cloud.add("a-1", pool="a", created_at=OLD)
    orphan = world.cloud.add("gone-1", pool="gone", created_at=OLD)
    world.pools.owned["a"] = {owned.id}
    world.cloud.market = [an_offer("4.20")]
    report = await sweep(client, world)
    assert list(world.cloud.machines) == [owned.id]
    assert [o.instance_id for o in report.orphans] == [orphan.id] == list(report.reclaimed)
    assert str(report.orphans[0].price_per_hour) == "4.20"
    assert world.events() == ["OrphanFound", "OrphanReclaimed"]


async def test_sweep_only_reports_when_told_so(client: Client) -> None:
    world = StandingWorld()
    orphan = world.cloud.add("gone-1", pool="gone", created_at=OLD)
    report = await sweep(client, world, policy=OrphanPolicy.REPORT)
    again = await sweep(client, world, policy=OrphanPolicy.REPORT)
    assert [o.instance_id for o in report.orphans] == [orphan.id]
    assert report.reclaimed == again.reclaimed == ()
    assert orphan.id in world.cloud.machines
    assert world.events() == ["OrphanFound"], "one Event for as long as the cluster keeps it"


async def test_sweep_follows_the_policy_of_the_pool(client: Client) -> None:
    world = StandingWorld("a")
    body = {"metadata": {"name": "a", "uid": "a"}, "spec": {"orphanPolicy": "Report"}}
    await world.cluster.create(POOLS, body, "default")
    orphan = world.cloud.add("a-1", pool="a", created_at=OLD)
    report = await sweep(client, world)
    assert len(report.orphans) == 1
    assert orphan.id in world.cloud.machines


async def test_sweep_leaves_machines_of_a_silent_pool(client: Client) -> None:
    world = StandingWorld("a")
    world.pools.silent = {"a"}
    machine = world.cloud.add("a-1", pool="a", created_at=OLD)
    report = await sweep(client, world)
    assert (report.seen, report.orphans) == (1, ())
    assert machine.id in world.cloud.machines


async def test_p05_sweep_leaves_a_newborn_until_its_call_is_over_and_it_was_denied_twice(
    client: Client,
) -> None:
    """A retried creation is visible in the cloud before its pool was told."""
    world = StandingWorld("a")
    newborn = world.cloud.add("a-1", pool="a", created_at=datetime.now(UTC))
    assert (await sweep(client, world)).orphans == (), "its create call may be in flight"
    assert newborn.id in world.cloud.machines

    world.pools.owned["a"] = {newborn.id}
    assert (await sweep(client, world, min_age_seconds=0)).orphans == (), "its pool knows the token"
    assert newborn.id in world.cloud.machines

    world.pools.owned["a"] = set()
    report = await sweep(client, world, min_age_seconds=0)
    assert list(report.reclaimed) == [newborn.id]
    assert world.cloud.count("list_tagged") >= 2 * 2, "two sightings of the last sweep alone"


async def test_p05_machine_that_is_claimed_at_the_second_sighting_lives(client: Client) -> None:
    world = StandingWorld("a")
    machine = world.cloud.add("a-1", pool="a", created_at=OLD)
    asked = world.pools.ask_ownership
    questions = 0

    async def ask(workflow_id, question):  # as the method that it stands for
        nonlocal questions
        questions += 1
        if questions == 2:
            world.pools.owned["a"] = {machine.id}
        return await asked(workflow_id, question)

    world.pools.ask_ownership = ask  # type: ignore[method-assign]  # the answer changes in between
    report = await sweep(client, world)
    assert questions == 2
    assert report.orphans == ()
    assert machine.id in world.cloud.machines


@pytest.mark.parametrize("highest", [2, 9])
async def test_p06_sweep_of_a_lost_epoch_ends_nothing_and_says_why(client: Client, highest: int) -> None:
    """Two installations share a tag; the first lost its epoch."""
    world = StandingWorld()
    tags = {TAG_INSTALLATION: "inst-1", TAG_POOL: "gone"}
    world.cloud.add(created_at=OLD, tags={**tags, TAG_EPOCH: "1"})
    world.cloud.add(created_at=OLD, tags={**tags, TAG_EPOCH: str(highest)})
    report = await sweep(client, world)
    assert world.cloud.count("terminate") == 0
    assert len(world.cloud.machines) == 2
    assert f"epoch {highest} is above our 1" in report.note
    assert world.events() == ["EpochLost"]


async def test_p06_sweep_stands_down_when_the_epoch_is_lost_between_the_sightings(client: Client) -> None:
    world = StandingWorld()
    tags = {TAG_INSTALLATION: "inst-1", TAG_POOL: "gone"}
    world.cloud.add(created_at=OLD, tags={**tags, TAG_EPOCH: "1"})
    listed = world.cloud.list_tagged

    def list_tagged(wanted):  # as the method that it stands for
        if world.cloud.count("list_tagged") == 2:
            world.cloud.add(created_at=OLD, tags={**tags, TAG_EPOCH: "2"})
        return listed(wanted)

    world.cloud.list_tagged = list_tagged  # type: ignore[method-assign]  # the other one comes in between
    report = await sweep(client, world)
    assert world.cloud.count("terminate") == 0
    assert report.note


async def test_p06_the_higher_epoch_sweeps_on(client: Client) -> None:
    world = StandingWorld(epoch=2)
    assert Installation(id="x").epoch == 1
    tags = {TAG_INSTALLATION: "inst-1", TAG_POOL: "gone", TAG_EPOCH: "1"}
    world.cloud.add(created_at=OLD, tags=tags)
    report = await sweep(client, world)
    assert len(report.reclaimed) == 1


async def test_sweep_only_reminds_of_retained_machines(client: Client) -> None:
    world = StandingWorld()
    kept = world.cloud.add(created_at=OLD, tags={TAG_RETAINED: "inst-1"})
    report = await sweep(client, world)
    assert report.retained == 1
    assert list(world.cloud.machines) == [kept.id]
    assert world.events() == ["InstanceRetained"]


async def test_sweep_reclaims_more_than_one_call_takes(client: Client) -> None:
    world = StandingWorld()
    for number in range(130):
        world.cloud.add(f"gone-{number}", pool="gone", created_at=OLD)
    report = await sweep(client, world)
    assert len(report.reclaimed) == 130
    assert world.cloud.machines == {}
    assert world.cloud.count("terminate") == 2


async def test_sweep_that_cannot_tell_of_orphans_ends_them_all_the_same(client: Client) -> None:
    world = StandingWorld()
    orphan = world.cloud.add("gone-1", pool="gone", created_at=OLD)
    refused = ClusterError(ErrorCode.FORBIDDEN, "no rights", operation="create events", status=403)
    world.cluster.fail_next("create events", refused, times=10)
    report = await sweep(client, world)
    assert report.reclaimed == (orphan.id,)
    assert world.cloud.machines == {}
    assert world.events() == []


async def test_sweep_that_is_cancelled_while_it_tells_of_orphans_ends_none(client: Client) -> None:
    world = StandingWorld()
    orphan = world.cloud.add("gone-1", pool="gone", created_at=OLD)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def create(*_: object) -> None:
        asked.set()
        await answer.wait()

    world.cluster.create = create  # type: ignore[method-assign,assignment]  # no answer before the cancellation
    async with serving_standing_work(client, world):
        handle = await client.start_workflow(
            ORPHAN_SWEEP_WORKFLOW,
            OrphanSweepInput(region=REGION, settings=SweepSettings(confirm_after_seconds=0.05)),
            id=f"sweep-{uuid.uuid4()}",
            task_queue=POOLS_QUEUE,
        )
        await asyncio.wait_for(asked.wait(), 20)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        answer.set()
    assert list(world.cloud.machines) == [orphan.id]


def a_disk(name: str, **tags: str) -> Leftover:
    return Leftover(region=REGION, kind=LeftoverKind.DISK, id=name, ours=TAG_INSTALLATION in tags, tags=tags)


async def test_p12_sweep_releases_what_outlived_our_machines_and_only_tells_of_the_rest(
    client: Client,
) -> None:
    world = StandingWorld()
    world.cloud.left = [a_disk("disk-ours", **{TAG_INSTALLATION: "inst-1"}), a_disk("disk-other", team="x")]
    report = await sweep(client, world, min_age_seconds=0)
    assert report.released == ("disk-ours",)
    assert [each.id for each in world.cloud.left] == ["disk-other"]
    assert world.events() == ["LeftoverReleased", "LeftoversFound"]


async def test_p12_sweep_that_only_reports_releases_nothing(client: Client) -> None:
    world = StandingWorld()
    world.cloud.left = [a_disk("disk-ours", **{TAG_INSTALLATION: "inst-1"})]
    report = await sweep(client, world, policy=OrphanPolicy.REPORT, min_age_seconds=0)
    assert (report.released, len(world.cloud.left)) == ((), 1)
    assert world.events() == ["LeftoversFound"]


async def test_sweep_that_may_not_list_leftovers_judges_the_machines_all_the_same(client: Client) -> None:
    world = StandingWorld()
    world.cloud.faults["leftovers"] = [
        ProviderError(ErrorCode.FORBIDDEN, "no rights", provider="tencent", operation="leftovers")
    ]
    orphan = world.cloud.add("gone-1", pool="gone", created_at=OLD)
    report = await sweep(client, world)
    assert report.reclaimed == (orphan.id,)
    assert "addresses and disks were not swept" in report.note
    assert "no rights" in report.note
