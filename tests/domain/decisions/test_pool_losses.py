"""How machines are missed, taken back and shown to people until they are gone."""

from datetime import timedelta

from domain.contracts.facts import RegionObservation
from domain.contracts.instances import InstanceState
from domain.contracts.pool_state import LeaveReason, MachinePhase
from domain.contracts.status import InstanceStatus
from domain.decisions import pool_interventions as people
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved, a_setting, in_one_region
from tests.domain.decisions.pool_lives import a_world, the_machine, up
from tests.domain.decisions.pool_world import PoolWorld
from tests.domain.decisions.world_cloud import at

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
