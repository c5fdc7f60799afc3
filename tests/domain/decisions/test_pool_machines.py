"""One machine's life as clouds and cluster tell it: coming up or not, unknown outcomes, absence, notices."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from domain.contracts.facts import NodeFact, NodesSeen, RegionHealth, RegionObservation, RegionState
from domain.contracts.instances import InstanceState, LaunchRequest
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase
from domain.contracts.pools import ScaleStrategy
from domain.contracts.status import InstanceStatus
from domain.decisions import pool_interventions as people
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved, a_setting, in_one_region
from tests.domain.decisions.pool_world import Faults, PoolWorld
from tests.domain.decisions.world_cloud import CloudMachine, at


def a_world(plan: Callable[[LaunchRequest], str] | None = None, **fields: Any) -> PoolWorld:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1, **fields)))
    world.effects.plan = plan
    return world


def up(world: PoolWorld, count: int = 1) -> PoolWorld:
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing")
    return world


def the_machine(world: PoolWorld, instance_id: str = "") -> Machine:
    found = [m for m in world.machines if not instance_id or m.instance_id == instance_id]
    return found[0]


def failures(world: PoolWorld) -> list[str]:
    return [e.message for e in world.events if e.reason.value == "LaunchFailed"]


# Coming up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason", "limit"),
    [
        ("never_runs", "PendingTimeout", 60),
        ("never_joins", "JoinTimeout", 900),
        ("few_gpus", "GpuNotReady", 600),
    ],
)
def test_pool_ends_and_replaces_a_machine_that_does_not_come_up(fault: str, reason: str, limit: int) -> None:
    world = a_world()
    world.faults = Faults(**{fault: 1})
    world.run_until(lambda: bool(world.living))
    failing = world.living[0]
    world.faults = Faults()
    world.run_until(lambda: bool(failures(world)), 2000)
    assert failures(world) == [f"{failing.id} in {failing.request.offer.zone}: {reason} after {limit} s"]
    up(world)
    assert not failing.is_alive(world.t), "ended, not forgotten"
    assert "Draining" not in world.reasons(), "nothing runs there that could be drained"


def test_pool_does_not_judge_a_slow_start_by_what_it_cannot_see() -> None:
    world = a_world()
    world.run_until(lambda: world.status.current_instances == 1)
    machine = world.living[0]
    world.clouds.down = {str(GUANGZHOU)}
    world.run(600)
    assert machine.is_up(world.t), "it came up unseen"
    assert failures(world) == []
    world.clouds.down.clear()
    up(world)
    assert world.living == [machine]


def test_pool_asks_the_cluster_before_it_calls_a_machine_one_that_never_joined() -> None:
    world = a_world()
    world.watchers.bridge_down = True
    world.run(1200)
    assert failures(world) == []
    assert [m.phase for m in world.machines] == [MachinePhase.READY], "read when its time was over"


def test_pool_holds_the_offer_of_a_failed_launch_longer_each_time() -> None:
    world = a_world()
    world.faults = Faults(never_runs=1)
    world.run(1800)
    holds = [h for h in world.state.holds if h.strikes > 1]
    assert holds, "strikes are forgotten only when a machine comes up in full"
    assert len(world.clouds.creates) < 25


def test_pool_buys_less_and_less_often_from_a_cloud_that_drops_what_it_made() -> None:
    world = a_world()
    made = world.effects._make

    def make_and_drop(request: LaunchRequest) -> CloudMachine:
        machine = made(request)
        machine.ends_at = world.t + 2
        return machine

    world.effects._make = make_and_drop  # type: ignore[method-assign]  # a cloud that drops what it made
    world.run(1800)
    assert len(world.clouds.creates) < 25
    assert {m.leave_detail for m in world.machines if m.leave} <= {"VanishedWhilePending"}


def test_pool_stops_buying_when_machines_of_different_offers_do_not_join_and_goes_on_after_a_resync() -> None:
    world = a_world()
    world.faults = Faults(never_joins=1)
    world.run_until(lambda: world.condition("BootstrapUnhealthy")[0] == "True", 4000)
    assert world.condition("BootstrapUnhealthy") == ("True", "JoinFailures")
    bought = len(world.clouds.creates)
    assert bought == 3
    world.run(3600)
    assert len(world.clouds.creates) == bought
    assert "machines do not join" in world.now_waits_for
    world.faults = Faults()
    world.order(people.resync)
    up(world)
    assert world.condition("BootstrapUnhealthy")[0] == "False"


def test_pool_takes_a_single_join_as_proof_that_the_image_is_good() -> None:
    world = a_world()
    world.faults = Faults(never_joins=1)
    world.run_until(lambda: len(world.state.join_failures) == 2, 4000)
    world.faults = Faults()
    up(world)
    assert world.state.join_failures == ()


def test_pool_refills_a_slot_whose_node_was_deleted_and_never_came_back() -> None:
    world = up(a_world())
    machine = world.living[0]
    world.watchers.remove_node(machine.provider_id)
    world.run_until(lambda: bool(failures(world)), 1000)
    assert "NodeLost after 900 s" in failures(world)[0]
    assert world.state.join_failures == (), "it had joined: not the image's fault"
    up(world)
    assert not machine.is_alive(world.t)


def test_pool_keeps_a_machine_whose_node_comes_back_in_time() -> None:
    world = up(a_world())
    machine = world.living[0]
    node = world.nodes[machine.provider_id]
    world.watchers.remove_node(machine.provider_id)
    world.run(300)
    assert world.ready == 0
    world.nodes[machine.provider_id] = node
    node.tainted = True
    world.watchers.changed(node)
    up(world)
    assert world.living == [machine]
    assert not node.tainted, "opened again"


def test_pool_closes_a_node_again_that_lost_a_gpu_and_replaces_it_in_time() -> None:
    world = up(a_world())
    machine = world.living[0]
    node = world.nodes[machine.provider_id]
    node.gpus = 0
    world.watchers.changed(node)
    world.run(1)
    assert the_machine(world).phase is MachinePhase.JOINED
    assert world.condition("Ready") == ("False", "BelowLevel")
    world.run_until(lambda: bool(failures(world)), 700)
    assert "GpuNotReady" in failures(world)[0]
    up(world)


def test_pool_opens_a_node_again_when_somebody_puts_its_taint_back() -> None:
    world = up(a_world())
    node = next(iter(world.nodes.values()))
    node.tainted = True
    world.watchers.changed(node)
    world.run_until(lambda: not node.tainted, 60)


# Nodes out of order -------------------------------------------------------------------------------------


def seen(*nodes: NodeFact, t: float, complete: bool = False) -> NodesSeen:
    return NodesSeen(as_of=at(t), nodes=nodes, complete=complete)


def test_pool_does_not_lose_a_node_to_an_older_list() -> None:
    world = up(a_world())
    world.learn(seen(t=world.t - 600, complete=True))
    assert world.ready == 1
    fact = next(iter(world.nodes.values())).fact()
    world.learn(seen(fact.model_copy(update={"ready": False}), t=world.t - 600))
    world.learn(seen(fact.model_copy(update={"exists": False}), t=world.t - 600))
    assert world.ready == 1
    world.learn(seen(t=world.t, complete=True))
    assert world.ready == 0, "a newer one counts"


def test_pool_meets_a_node_that_joined_before_its_launch_was_answered() -> None:
    world = a_world(lambda request: "made")
    world.run_until(lambda: bool(world.living))
    machine = world.living[0]
    machine.listed_from = world.t + 50
    node = NodeFact(provider_id=machine.provider_id, name="early", ready=True, gpus_allocatable=1)
    world.learn(seen(node, t=world.t))
    assert world.state.strays == (node,)
    world.run_until(lambda: world.ready == 1)
    assert world.state.strays == ()


def test_pool_forgets_a_stray_node_that_went_away() -> None:
    world = up(a_world())
    stray = NodeFact(provider_id="qcloud:///100003/ins-foreign", name="foreign", ready=True)
    world.learn(seen(stray, t=world.t))
    assert len(world.state.strays) == 1
    world.learn(seen(stray.model_copy(update={"exists": False}), t=world.t))
    assert world.state.strays == ()


def test_pool_removes_a_dark_node_without_a_machine_only_after_its_regions_were_read() -> None:
    world = up(a_world())
    world.watchers.expect(world.living[0])
    from tests.domain.decisions.world_cloud import ClusterNode

    ghost = ClusterNode(provider_id="qcloud:///100003/ins-gone", name="ghost", ready=False)
    ready = ClusterNode(provider_id="qcloud:///100003/ins-other", name="other", ready=True)
    world.nodes |= {ghost.provider_id: ghost, ready.provider_id: ready}
    world.watchers.changed(ghost)
    world.watchers.changed(ready)
    world.run(50)
    assert "1 Nodes without a machine" in world.now_waits_for
    assert ghost.provider_id in world.nodes
    took = world.run_until(lambda: ghost.provider_id not in world.nodes)
    assert took < 20
    world.run(600)
    assert ready.provider_id in world.nodes, "a ready one has a machine that is somebody's"


# Unknown outcomes ---------------------------------------------------------------------------------------


def test_pool_finds_the_machine_of_a_launch_without_an_answer_and_buys_no_second() -> None:
    world = a_world(lambda request: "made")
    up(world)
    assert len(world.clouds.creates) == 1
    assert "LaunchUnresolved" in world.reasons()


def test_pool_resolves_a_launch_before_its_slot_is_used_again() -> None:
    endings = iter(["unmade"])
    world = a_world(lambda request: next(endings, ""))
    world.run_until(lambda: "LaunchUnresolved" in world.reasons(), 100)
    told = world.t
    world.run_until(lambda: len(world.clouds.creates) == 2)
    assert world.t - told >= 60 + 5, "a newborn's absence counts after 60 s, and twice"
    assert world.t - told <= 60 + 15 + 15 + 5
    up(world)


def test_pool_takes_in_a_machine_that_shows_up_late_for_its_launch() -> None:
    world = a_world(lambda request: "late")
    up(world)
    assert len(world.clouds.creates) == len(world.living) == 1


def test_pool_notices_that_an_unanswered_launch_made_a_machine_that_died() -> None:
    world = a_world(lambda request: "made" if not world.clouds.machines else "")
    world.run_until(lambda: "LaunchUnresolved" in world.reasons(), 100)
    machine = world.living[0]
    machine.told_at, machine.ends_at = world.t, world.t + 30
    up(world)
    assert not machine.is_alive(world.t)
    assert [m.leave_detail for m in world.machines if m.instance_id == machine.id] in ([], ["EndedByCloud"])


def test_pool_looks_for_a_launch_again_when_looking_fails() -> None:
    world = a_world(lambda request: "made")
    world.faults = Faults(read_fails=0.7)
    world.run_until(lambda: world.status.current_instances == 1, 3600)
    assert len(world.clouds.creates) == 1


# Absence ------------------------------------------------------------------------------------------------


def test_newborn_is_not_missed_until_a_minute_after_its_answer() -> None:
    world = a_world()
    world.run_until(lambda: world.status.current_instances == 1)
    answered = the_machine(world).answered_at
    assert answered is not None
    machine = world.living[0]
    machine.ends_at = world.t
    world.run_until(lambda: the_machine(world).phase is MachinePhase.GONE, 200)
    gone = the_machine(world).gone_at
    assert gone is not None
    assert timedelta(seconds=65) <= gone - answered <= timedelta(seconds=75)


def test_machine_is_gone_only_after_two_absent_readings_five_seconds_apart() -> None:
    world = up(a_world())
    world.run(600)
    machine = world.living[0]
    machine.ends_at = world.t
    world.run_until(lambda: the_machine(world).absent_at is not None, 60)
    first = the_machine(world).absent_at
    assert the_machine(world).phase is MachinePhase.READY
    world.run_until(lambda: any(m.phase is MachinePhase.GONE for m in world.machines), 30)
    gone = next(m for m in world.machines if m.phase is MachinePhase.GONE)
    assert first is not None
    assert gone.gone_at is not None
    assert gone.gone_at - first >= timedelta(seconds=5)
    assert gone.leave is LeaveReason.LOST


def test_machine_that_is_missing_once_and_seen_again_stays() -> None:
    world = up(a_world())
    world.run(600)
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t)))
    assert the_machine(world).absent_at is not None
    world.run(30)
    assert the_machine(world).absent_at is None
    assert world.ready == 1


def test_machine_that_was_seen_since_is_not_missed_by_an_older_reading() -> None:
    world = up(a_world())
    world.run(600)
    seen_now = RegionObservation(
        region=GUANGZHOU, as_of=at(world.t), instances=tuple(world.clouds.listed(GUANGZHOU, world.t))
    )
    world.learn(seen_now)
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t - 5)))
    assert the_machine(world).absent_at is None, "older than the region's newest: ignored as a whole"


def test_gone_machine_is_not_taken_over_again_from_a_reading_that_comes_late() -> None:
    world = up(a_world())
    world.run(600)
    machine = world.living[0]
    instance = machine.seen(world.t)
    as_of = at(world.t + 1)
    world.vanish(machine)
    world.run_until(lambda: not any(m.instance_id == machine.id for m in world.machines), 120)
    view = world.state.regions[str(GUANGZHOU)]
    world.state = world.state.model_copy(
        update={"regions": {str(GUANGZHOU): view.model_copy(update={"as_of": at(0)})}}
    )
    world.learn(RegionObservation(region=GUANGZHOU, as_of=as_of, instances=(instance,)))
    assert not any(m.instance_id == machine.id for m in world.machines)
    world.checks._shown.clear()  # its launch had ended for people, and is shown anew
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t), instances=(instance,)))
    assert any(m.instance_id == machine.id for m in world.machines), "a newer one is believed"


# Notices ------------------------------------------------------------------------------------------------


def test_notice_starts_the_replacement_at_once_and_drains_the_old_machine() -> None:
    world = up(a_world(maxInstances=1))
    marked = world.living[0]
    world.notice(marked, 300)
    world.run_until(lambda: "Interrupted" in world.reasons(), 60)
    assert {"Draining", "LaunchOrdered"} <= set(world.reasons())
    machine = the_machine(world, marked.id)
    assert machine.drain_deadline is not None
    assert machine.drain_deadline <= at(marked.deadline or 0) - timedelta(seconds=5)
    assert world.status.instances[0].interrupt_deadline == at(marked.deadline or 0)
    up(world)
    interrupted = world.status.interrupted_instances
    assert [(i.id, i.interrupt_reason) for i in interrupted] == [(marked.id, "Recycling")]
    assert world.status.interruptions_total == 1


def test_notice_seen_again_with_an_earlier_deadline_counts_once_and_takes_the_earlier() -> None:
    world = up(a_world())
    machine = world.living[0]
    machine.notice_at = world.t
    for deadline in (300.0, 200.0, 250.0):
        machine.deadline = world.t + deadline
        listed = tuple(world.clouds.listed(GUANGZHOU, world.t))
        world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t), instances=listed))
    assert the_machine(world, machine.id).interrupt_deadline == at(world.t + 200)
    assert world.status.interruptions_total == 1


def test_notice_for_a_machine_that_waits_for_its_replacement_ends_the_waiting() -> None:
    world = up(a_world(maxInstances=2))
    machine = world.living[0]
    world.order(people.replace_instance, machine.id)
    assert the_machine(world).wait_for_replacement
    world.notice(machine, 300)
    world.run_until(lambda: "Interrupted" in world.reasons(), 60)
    found = the_machine(world, machine.id)
    assert (found.wait_for_replacement, found.leave) == (False, LeaveReason.INTERRUPTED)
    up(world)


def test_machine_that_its_cloud_ends_without_notice_is_a_loss() -> None:
    world = up(a_world())
    machine = world.living[0]
    ended = machine.seen(world.t).model_copy(update={"state": InstanceState.TERMINATED, "reason": "Reclaim"})
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t), instances=(ended,)))
    assert "InstanceLost" in world.reasons()
    assert the_machine(world, machine.id).phase is MachinePhase.TERMINATING
    assert len([c for c in world.checks.ordered if c.kind == "launch"]) == 2, "refilled at once"


def test_interrupting_never_returns_to_running() -> None:
    world = up(a_world())
    machine = world.living[0]
    machine.notice_at = world.t
    world.run_until(lambda: the_machine(world, machine.id).shown is InstanceStatus.INTERRUPTING, 90)
    machine.notice_at = None
    world.run_until(lambda: not machine.is_alive(world.t), 300)
    up(world)


def test_public_states_keep_their_minimum_stay() -> None:
    world = PoolWorld(
        a_resolved(**in_one_region(minInstances=1)),
        a_setting(min_stay_seconds=300, terminate_recheck_seconds=5),
    )
    shown: list[tuple[str, float]] = []
    world.run_until(lambda: bool(world.machines))
    token = world.machines[0].token

    def watch() -> bool:
        machine = world.state.machines.get(token)
        if machine is not None and (not shown or shown[-1][0] != machine.shown.value):
            shown.append((machine.shown.value, world.t))
        return machine is None

    world.run_until(lambda: watch() or shown[-1][0] == "Running")
    world.order(people.terminate_instance, world.living[0].id)
    world.run_until(watch, 3600)
    assert [name for name, _ in shown] == ["Pending", "Running", "Interrupting", "Terminated"]
    stays = [later - since for (_, since), (_, later) in zip(shown, [*shown[1:], ("", world.t)], strict=True)]
    assert all(stay >= 299.9 for stay in stays), stays


# Adoption -----------------------------------------------------------------------------------------------


def test_new_chain_takes_over_the_machines_that_carry_the_pools_tags_and_buys_none() -> None:
    world = up(PoolWorld(a_resolved(minInstances=3, scaleStrategy={"scaleUpStep": 3})), 3)
    before = {m.id for m in world.living}
    world.restart_chain("badc0de1")
    up(world, 3)
    assert {m.id for m in world.living} == before
    assert world.reasons().count("InstanceAdopted") == 3
    assert {i.status for i in world.status.instances} == {InstanceStatus.RUNNING}


def test_new_chain_buys_nothing_in_place_of_machines_in_a_region_that_it_cannot_read() -> None:
    world = up(PoolWorld(a_resolved(minInstances=2, scaleStrategy={"scaleUpStep": 2})), 2)
    before = len(world.clouds.creates)
    world.clouds.down = {str(GUANGZHOU)}
    world.restart_chain("badc0de1")
    world.run(3600)
    assert len(world.clouds.creates) == before, "they may well live"
    world.clouds.down.clear()
    up(world, 2)
    assert len(world.clouds.creates) == before


def test_new_chain_gives_a_machine_that_is_too_young_to_be_listed_the_time_to_show_up() -> None:
    world = up(a_world())
    world.edit(min_instances=2, scale_strategy=ScaleStrategy(cooldown_seconds=0))
    world.run_until(lambda: world.status.current_instances == 2)
    young = world.living[-1]
    young.listed_from = world.t + 40
    world.restart_chain("badc0de1")
    up(world, 2)
    assert len(world.clouds.creates) == 2
    assert young in world.living


def test_new_chain_replaces_a_machine_that_the_status_named_and_no_region_shows() -> None:
    world = up(a_world())
    world.living[0].ends_at = world.t
    world.restart_chain("badc0de1")
    world.run(30)
    assert world.now_waits_for == "1 machines that the status named and no region has shown yet"
    took = world.run_until(lambda: len(world.clouds.creates) == 2, 120)
    assert 20 <= took <= 60
    up(world)


@pytest.mark.parametrize("behind", [20, -20])
def test_readers_whose_clocks_differ_from_the_pools_do_no_harm(behind: float) -> None:
    world = a_world()
    world.clocks_behind = behind
    up(world)
    world.vanish(world.living[0])
    world.run_until(lambda: len(world.clouds.creates) == 2, 120)
    up(world)
    world.delete()
    world.run_until(lambda: world.finalizer_removed, 600)


def test_readers_whose_clocks_are_far_behind_are_not_asked_without_a_pause() -> None:
    world = a_world()
    world.clocks_behind = 300
    world.run(600)
    reads = [c for c in world.checks.ordered if c.kind == "read-region"]
    assert len(reads) <= 600 / 5 + 1
    assert world.clouds.creates == [], "nothing is bought on old facts"
    assert "was not read lately" in world.message("ScaleUpFailed")


def test_new_chain_ends_what_is_above_the_level_by_steps_not_at_once() -> None:
    world = up(PoolWorld(a_resolved(minInstances=4, scaleStrategy={"scaleUpStep": 4})), 4)
    world.edit(min_instances=1, paused=world.resolved.spec.paused)
    world.restart_chain("badc0de1")
    world.run_until(lambda: world.reasons().count("InstanceAdopted") == 4)
    assert sum(1 for m in world.machines if m.leave is not None) <= 1
    up(world, 1)


def test_pool_ends_a_machine_that_it_takes_over_above_its_ceiling() -> None:
    world = up(a_world(maxInstances=1))
    copy = world.living[0]
    stranger = CloudMachine(
        id="ins-9999",
        request=copy.request.model_copy(
            update={"tags": {**copy.request.tags, "spotgpu-launch": "another-1"}}
        ),
        born=world.t,
        listed_from=world.t,
        runs_at=world.t,
        joins_at=None,
        gpus_at=None,
        gpus=1,
    )
    world.clouds.machines[stranger.id] = stranger
    world.run_until(lambda: not stranger.is_alive(world.t), 120)
    assert world.living == [copy]
    adopted = next(m for m in world.machines if m.instance_id == "ins-9999")
    assert adopted.leave is LeaveReason.SURPLUS


def test_pool_takes_over_a_second_machine_of_one_token_and_a_type_that_nobody_knows() -> None:
    world = up(a_world(maxInstances=2))
    first = world.living[0].seen(world.t)
    twin = first.model_copy(
        update={"id": "ins-twin", "provider_id": "qcloud:///100003/ins-twin", "instance_type": "GX1.SMALL"}
    )
    world.clouds.down = {str(GUANGZHOU)}  # only what this test says is seen
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t), instances=(first, twin)))
    adopted = the_machine(world, "ins-twin")
    assert adopted.offer.instance_type.gpu_type == "unknown-0G"
    assert adopted.offer.price is None


def test_price_of_a_machine_that_was_taken_over_is_unknown_until_offers_are_read() -> None:
    world = up(a_world())
    world.restart_chain("badc0de1")
    up(world)
    assert world.status.instances[0].price_per_hour is None
    assert world.status.hourly_cost == 0
    world.edit(min_instances=2)
    up(world, 2)
    assert all(i.price_per_hour is not None for i in world.status.instances)


# Regions out of order -----------------------------------------------------------------------------------


def test_older_word_on_a_regions_health_changes_nothing() -> None:
    world = up(a_world())
    base = world.t
    world.run(60)

    def say(health: RegionHealth, after: float) -> RegionHealth:
        world.learn(RegionState(region=GUANGZHOU, as_of=at(base + after), health=health, reason="test"))
        return world.state.regions[str(GUANGZHOU)].health

    def read(after: float) -> RegionHealth:
        listed = tuple(world.clouds.listed(GUANGZHOU, world.t))
        world.learn(RegionObservation(region=GUANGZHOU, as_of=at(base + after), instances=listed))
        return world.state.regions[str(GUANGZHOU)].health

    assert say(RegionHealth.CIRCUIT_OPEN, 10) is RegionHealth.CIRCUIT_OPEN
    assert say(RegionHealth.OK, 5) is RegionHealth.CIRCUIT_OPEN
    assert say(RegionHealth.STALE, 11) is RegionHealth.STALE
    assert read(10.5) is RegionHealth.STALE, "taken before it went stale"
    assert read(12) is RegionHealth.OK
    assert say(RegionHealth.STALE, 11.5) is RegionHealth.OK, "it was read since"
