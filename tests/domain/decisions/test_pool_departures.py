"""How machines leave a living pool: drained, told, looked at, replaced first, given up; and their Nodes."""

from datetime import timedelta
from typing import Any

from domain.contracts.commands import Describe, Drain, Terminate
from domain.contracts.facts import DrainResult, RegionObservation
from domain.contracts.outcomes import DescribeFailed, Drained, NodesDeleted, TellFailed, Told
from domain.contracts.pool_state import DrainState, LeaveReason, Machine, MachinePhase
from domain.contracts.pools import PauseScope
from domain.decisions import pool_interventions as people
from domain.decisions.pool_judgement import judge
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved, a_setting, a_state_of, in_one_region
from tests.domain.decisions.pool_world import Faults, PoolWorld
from tests.domain.decisions.world_cloud import at


def up(world: PoolWorld, count: int = 1) -> PoolWorld:
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing", 7200)
    return world


def a_pool(count: int = 1, **fields: Any) -> PoolWorld:
    scale = {"scaleUpStep": 10, "scaleDownStep": 10, "cooldownSeconds": 0}
    resolved = a_resolved(**in_one_region(minInstances=count, scaleStrategy=scale, **fields))
    return up(PoolWorld(resolved), count)


def of(world: PoolWorld, instance_id: str) -> Machine:
    return next(m for m in world.machines if m.instance_id == instance_id)


def test_machine_is_drained_then_ended_then_looked_at_then_its_node_is_removed() -> None:
    world = a_pool(2)
    seen = len(world.checks.ordered)
    world.edit(min_instances=1)
    up(world, 1)
    kinds = [c.kind for c in world.checks.ordered[seen:] if c.kind != "read-region"]
    assert kinds[:2] == ["drain", "terminate"]
    assert kinds.count("terminate") == 1
    assert set(kinds[2:-1]) == {"describe"}
    assert kinds[-1] == "delete-nodes"
    assert len(world.nodes) == 1


def test_drain_has_the_workloads_grace_at_most() -> None:
    world = a_pool(1, interruptStrategy={"gracefulShutdownSeconds": 45})
    world.order(people.terminate_instance, world.living[0].id)
    drain = next(c for c in world.checks.ordered if isinstance(c, Drain))
    assert drain.deadline == at(world.t + 45)
    assert drain.grace_seconds == 45


def test_drain_that_is_blocked_ends_at_its_deadline_and_says_by_what() -> None:
    world = a_pool()
    world.faults = Faults(drain_blocks=1)
    machine = world.living[0]
    world.order(people.terminate_instance, machine.id)
    world.run_until(lambda: of(world, machine.id).drain is DrainState.DONE, 125)
    assert "DrainBlocked" in world.reasons()
    status, reason = world.condition("DrainBlocked")
    assert (status, reason) == ("True", "Blocked")
    assert "train/a-0: PodDisruptionBudget train/keep allows 0" in world.message("DrainBlocked")
    world.faults = Faults()
    up(world)
    assert world.condition("DrainBlocked") == ("False", "Free")


def test_drain_that_cannot_be_carried_out_is_tried_again_until_its_deadline() -> None:
    world = a_pool()
    world.faults = Faults(drain_fails=1)
    machine = world.living[0]
    started = world.t
    world.order(people.terminate_instance, machine.id)
    world.run_until(lambda: "Terminating" in world.reasons(), 300)
    drains = [c for c in world.checks.ordered if isinstance(c, Drain)]
    assert len(drains) > 3
    assert len({d.deadline for d in drains}) == 1, "the clock runs from the first"
    assert 115 <= world.t - started <= 135


def test_machine_for_the_level_is_not_drained_while_its_region_is_out_of_sight() -> None:
    world = a_pool(2)
    world.clouds.down = {str(GUANGZHOU)}
    world.run(600)
    world.edit(min_instances=1)
    world.run(600)
    assert "Draining" not in world.reasons()
    assert "a reading of its region" in world.now_waits_for
    world.clouds.down.clear()
    up(world, 1)


def test_cloud_is_told_again_when_the_machine_still_runs_after_five_minutes() -> None:
    world = a_pool()
    machine = world.living[0]
    ends = world.effects._end
    deaf = [True]
    world.effects._end = lambda m: None if deaf[0] else ends(m)  # type: ignore[method-assign]  # a deaf cloud
    world.order(people.terminate_instance, machine.id)
    world.run(900)
    told = [c for c in world.checks.ordered if isinstance(c, Terminate)]
    assert len(told) == 3
    looks = [c for c in world.checks.ordered if isinstance(c, Describe)]
    assert 50 < len(looks) < 80, "looked at every 15 s"
    deaf[0] = False
    up(world)


def test_failed_order_to_end_is_repeated_after_a_rest() -> None:
    world = a_pool()
    world.faults = Faults(tell_fails=1)
    machine = world.living[0]
    world.order(people.terminate_instance, machine.id)
    world.run(120)
    told = [c for c in world.checks.ordered if isinstance(c, Terminate)]
    assert 3 <= len(told) <= 8
    world.faults = Faults()
    up(world)


def test_node_that_cannot_be_removed_is_tried_again() -> None:
    world = a_pool(2)
    world.faults = Faults(delete_fails=1)
    world.edit(min_instances=1)
    world.run(300)
    assert len(world.nodes) == 2
    world.faults = Faults()
    up(world, 1)
    assert len(world.nodes) == 1


def test_node_that_cannot_be_opened_is_tried_again_and_the_pool_says_so() -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)), faults=Faults(settle_fails=1))
    world.run_until(lambda: world.ready == 1)
    world.run(100)
    assert world.now_waits_for == "1 x its Node to be opened"
    world.faults = Faults()
    up(world)


# Replacing ----------------------------------------------------------------------------------------------


def test_replacement_is_ready_before_the_old_machine_is_touched() -> None:
    world = a_pool(1, maxInstances=2)
    old = world.living[0]
    answer = world.order(people.replace_instance, old.id)
    assert "once its replacement is ready" in answer
    assert world.status.instances[0].phase == "AwaitingReplacement"
    world.run_until(lambda: "Draining" in world.reasons())
    new = next(m for m in world.machines if m.instance_id != old.id)
    assert new.phase is MachinePhase.READY
    up(world)
    assert not old.is_alive(world.t)


def test_replacement_that_cannot_be_bought_leaves_the_old_machine_alone() -> None:
    world = a_pool(1, maxInstances=2)
    old = world.living[0]
    world.clouds.stock = {"ap-guangzhou-3": 0, "ap-guangzhou-6": 0}
    world.order(people.replace_instance, old.id)
    world.run(1800)
    assert old.is_up(world.t)
    assert "Draining" not in world.reasons()
    assert "its replacement" in world.now_waits_for


def test_replacement_asked_for_twice_is_refused_the_second_time() -> None:
    world = a_pool(1, maxInstances=2)
    world.order(people.replace_instance, world.living[0].id)
    assert "is being replaced already" in world.order(people.replace_instance, world.living[0].id)


def test_replacement_at_the_ceiling_ends_the_old_machine_first() -> None:
    world = a_pool(1, maxInstances=1)
    answer = world.order(people.replace_instance, world.living[0].id)
    assert "since the pool is at maxInstances" in answer
    up(world)
    assert len(world.clouds.creates) == 2


def test_replacement_does_not_wait_for_ever_when_the_ceiling_comes_down() -> None:
    world = a_pool(2, maxInstances=3)
    world.clouds.stock = {"ap-guangzhou-3": 0, "ap-guangzhou-6": 0}
    old = world.living[0]
    world.order(people.replace_instance, old.id)
    world.run(200)
    world.edit(max_instances=2)
    world.run_until(lambda: not old.is_alive(world.t), 300)
    world.clouds.stock.clear()
    up(world, 2)


def test_replacing_a_machine_above_the_level_ends_it_after_a_reading_of_its_region() -> None:
    world = a_pool(2, maxInstances=3)
    world.order(people.pause, PauseScope.DISRUPTIONS)
    world.edit(min_instances=1)
    world.run(600)
    old = world.living[0]
    world.order(people.replace_instance, old.id)
    world.run_until(lambda: not old.is_alive(world.t), 120)


def test_old_machine_goes_when_its_slot_is_not_wanted_any_more() -> None:
    world = a_pool(2, maxInstances=3)
    world.clouds.stock = {"ap-guangzhou-3": 0, "ap-guangzhou-6": 0}
    old = world.living[0]
    world.order(people.replace_instance, old.id)
    world.edit(min_instances=1)
    up(world, 1)
    assert not old.is_alive(world.t)


# Ends of effects that come late or for nobody -----------------------------------------------------------


def test_ends_of_effects_that_nobody_waits_for_change_nothing() -> None:
    world = a_pool()
    before = world.state
    machine = before.machines[next(iter(before.machines))]
    ids = (machine.instance_id, "ins-unknown")
    for fact in (
        Drained(token=machine.token, result=DrainResult(done=True)),
        Drained(token="nobody", result=DrainResult(done=True)),
        Told(region=GUANGZHOU, instance_ids=ids),
        NodesDeleted(provider_ids=(machine.provider_id,)),
    ):
        world.learn(fact)
    assert world.state == before
    world.learn(TellFailed(region=GUANGZHOU, instance_ids=ids, error="late"))
    assert world.state.machines == before.machines
    world.learn(DescribeFailed(region=GUANGZHOU, asked=("ins-unknown",), error="late"))
    assert world.state.machines == before.machines


def test_drain_that_ends_after_its_machine_was_lost_does_not_disturb_the_removal_of_its_node() -> None:
    world = a_pool()
    machine = world.living[0]
    world.faults = Faults(drain_blocks=1)
    world.order(people.terminate_instance, machine.id)
    world.vanish(machine)
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t)))
    world.t += 6
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t)))
    world.run_until(lambda: of(world, machine.id).in_flight == "delete-node", 30)
    world.learn(Drained(token=of(world, machine.id).token, result=DrainResult(done=True)))
    assert of(world, machine.id).in_flight == "delete-node"
    world.faults = Faults()
    up(world)


def test_machines_are_ended_and_looked_at_by_hundreds() -> None:
    resolved = a_resolved(minInstances=0, maxInstances=300, deletionPolicy="Force")
    doomed = resolved.model_copy(update={"deleting": True})
    ended = judge(doomed, a_setting(), a_state_of(230), (), now=NOON)
    told = [c for c in ended.commands if isinstance(c, Terminate)]
    assert [len(c.instance_ids) for c in told] == [100, 100, 30]
    facts = [Told(region=c.region, instance_ids=c.instance_ids) for c in told]
    later = NOON + timedelta(seconds=5)
    looked = judge(
        doomed, a_setting(), judge(doomed, a_setting(), ended.state, facts, now=NOON).state, (), now=later
    )
    assert [len(c.instance_ids) for c in looked.commands if isinstance(c, Describe)] == [100, 100, 30]


def test_machines_of_a_region_that_is_not_served_any_more_are_left_and_named() -> None:
    world = a_pool()
    world.settings = a_setting(served_regions=())
    orders = len(world.checks.ordered)
    world.order(people.terminate_instance, world.living[0].id)
    world.run(600)
    later = world.checks.ordered[orders:]
    assert not [c for c in later if c.kind in ("terminate", "describe", "read-region")], "nobody would answer"
    world.delete()
    world.run(60)
    assert "is not served by this operator" in world.now_waits_for
    world.settings = a_setting()
    world.judge()
    world.run_until(lambda: world.finalizer_removed)


def test_loss_of_a_machine_that_waits_for_its_replacement_is_a_loss() -> None:
    world = a_pool(1, maxInstances=2)
    world.clouds.stock = {"ap-guangzhou-3": 0, "ap-guangzhou-6": 0}
    old = world.living[0]
    world.order(people.replace_instance, old.id)
    world.vanish(old)
    world.run_until(lambda: "InstanceLost" in world.reasons())
    found = [m.leave for m in world.machines if m.instance_id == old.id]
    assert found == [LeaveReason.LOST]
    world.clouds.stock.clear()
    up(world)
