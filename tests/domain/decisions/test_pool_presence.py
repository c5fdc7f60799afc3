"""What a reading means for a machine that the pool itself ends: its cloud stops it because it was told to."""

import dataclasses

import pytest

from domain.contracts.facts import NodeFact, NodesSeen, RegionObservation
from domain.contracts.instances import InstanceState
from domain.contracts.pool_state import Machine, MachinePhase
from domain.decisions import pool_interventions as people
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved, in_one_region
from tests.domain.decisions.pool_world import PoolWorld
from tests.domain.decisions.world_cloud import at


def _stopping(world: PoolWorld, instance_id: str) -> None:
    """A list shows the machine as it stops, like one that its cloud takes back."""
    machine = world.clouds.machines[instance_id]
    changes = {"state": InstanceState.INTERRUPTING, "reason": "Stopping"}
    seen = machine.seen(world.t).model_copy(update=changes)
    others = tuple(i for i in world.clouds.listed(GUANGZHOU, world.t) if i.id != instance_id)
    world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t), instances=(*others, seen)))


def _ending() -> tuple[PoolWorld, str]:
    """A pool that just ordered the end of its machine and has no answer yet."""
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    instance_id = world.living[0].id
    world.order(people.terminate_instance, instance_id)
    world.run_until(lambda: _of(world, instance_id).in_flight == "terminate")
    return world, instance_id


def _of(world: PoolWorld, instance_id: str) -> Machine:
    return next(m for m in world.machines if m.instance_id == instance_id)


def test_machine_that_stops_before_the_cloud_has_answered_its_end_is_not_taken_back() -> None:
    world, instance_id = _ending()
    assert _of(world, instance_id).terminate_told_at is None
    _stopping(world, instance_id)
    assert "Interrupted" not in world.reasons()
    assert world.status.interruptions_total == 0
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    assert world.status.interruptions_total == 0


def test_machine_that_stops_while_its_cloud_is_told_again_is_not_taken_back() -> None:
    world, instance_id = _ending()
    world.run_until(lambda: _of(world, instance_id).terminate_told_at is not None)
    draft = world.draft()
    draft.set_machine(_of(world, instance_id).token, in_flight="", terminate_told_at=None)
    world.state = draft.state
    _stopping(world, instance_id)
    assert "Interrupted" not in world.reasons()


def test_machine_that_lists_by_tag_leave_out_is_asked_for_by_its_id_before_it_counts_as_gone() -> None:
    """Somebody took its tags away: it runs and costs, and a replacement would be one too many."""
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    world.run(100)
    (machine,) = world.living
    world.clouds.machines[machine.id] = dataclasses.replace(
        machine, request=machine.request.model_copy(update={"tags": {}})
    )
    for _ in range(4):
        world.learn(RegionObservation(region=GUANGZHOU, as_of=at(world.t)))
        world.t += 7
    world.run(60)
    assert [m.id for m in world.living] == [machine.id]
    assert _of(world, machine.id).leave is None
    assert len(world.clouds.creates) == 1
    told = [event.message for event in world.events if event.reason == "InstanceUntagged"]
    assert told
    assert machine.id in told[0]


def _node(world: PoolWorld, name: str, *, is_ready: bool) -> NodeFact:
    return NodeFact(
        provider_id=world.living[0].provider_id,
        name=name,
        ready=is_ready,
        gpus_allocatable=8 if is_ready else 0,
    )


@pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
def test_machine_whose_kubelet_came_back_under_another_name_counts_by_the_node_that_is_ready(
    order: int,
) -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    (machine,) = world.living
    old = _of(world, machine.id).node_name
    nodes = (_node(world, old, is_ready=False), _node(world, "renamed", is_ready=True))[::order]
    for _ in range(3):
        world.learn(NodesSeen(as_of=at(world.t), nodes=nodes, complete=True))
        world.t += 1
    found = _of(world, machine.id)
    assert (found.phase, found.node_name) == (MachinePhase.READY, "renamed")


def test_ready_machine_is_not_judged_by_a_second_node_that_claims_to_be_it() -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    (machine,) = world.living
    own = _of(world, machine.id).node_name
    stranger = _node(world, "stranger", is_ready=False)
    world.learn(
        NodesSeen(as_of=at(world.t), nodes=(_node(world, own, is_ready=True), stranger), complete=True)
    )
    assert (_of(world, machine.id).phase, _of(world, machine.id).node_name) == (MachinePhase.READY, own)
    world.learn(NodesSeen(as_of=at(world.t), nodes=(stranger,), complete=True))
    found = _of(world, machine.id)
    assert (found.phase, found.node_name) == (MachinePhase.JOINED, "stranger"), "its own Node is gone"


def test_level_that_the_cooldown_holds_back_is_not_called_met() -> None:
    world = PoolWorld(a_resolved(minInstances=1))
    world.run_until(lambda: world.ready == 1 and world.now_waits_for == "nothing")
    world.edit(min_instances=3)
    (found,) = (c for c in world.status.conditions if c.type == "ScaleUpInProgress")
    assert (found.status, found.reason) == ("False", "Waiting")
    assert found.message == "2 launches to order (the cool-down until 12:05:01Z)"
