"""How a pool ends: the door first, then the house, then the resource; and what a human may force."""

from typing import Any

import pytest

from domain.contracts.facts import RegionObservation
from domain.contracts.pool_state import PoolCarry
from domain.decisions import pool_interventions as people
from domain.decisions.pool_judgement import judge
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import (
    GUANGZHOU,
    REGIONS,
    SHANGHAI,
    a_resolved,
    a_setting,
    in_one_region,
)
from tests.domain.decisions.pool_world import Faults, PoolWorld
from tests.domain.decisions.world_cloud import ClusterNode, at


def a_pool(count: int = 2, **fields: Any) -> PoolWorld:
    world = PoolWorld(a_resolved(minInstances=count, scaleStrategy={"scaleUpStep": 10}, **fields))
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing")
    return world


def deleted(world: PoolWorld, within: float = 600) -> float:
    return world.run_until(lambda: world.finalizer_removed, within)


def test_deletion_drains_ends_confirms_and_lets_go() -> None:
    world = a_pool()
    seen = len(world.checks.ordered)
    world.delete()
    assert world.condition("Deleting") == ("True", "Drain")
    assert world.condition("Ready") == ("False", "Deleting")
    assert deleted(world) < 120
    kinds = [c.kind for c in world.checks.ordered[seen:]]
    assert kinds[-1] == "remove-finalizer"
    assert kinds.index("drain") < kinds.index("terminate") < kinds.index("delete-nodes")
    reasons = world.reasons()
    assert reasons.count("InstanceTerminated") == 2
    assert reasons[-1] == "Deleted"


def test_deletion_of_a_pool_that_bought_nothing_makes_no_call() -> None:
    resolved = a_resolved().model_copy(update={"deleting": True})
    judgement = judge(resolved, a_setting(), PoolCarry(chain="c0ffee00"), (), now=NOON)
    assert [c.kind for c in judgement.commands] == ["remove-finalizer"]


def test_deletion_by_a_new_chain_searches_every_region_for_machines_that_the_status_named() -> None:
    resolved = a_resolved().model_copy(update={"deleting": True, "known_machines": ("ins-1",)})
    judgement = judge(resolved, a_setting(), PoolCarry(chain="c0ffee00"), (), now=NOON)
    assert sorted(c.kind for c in judgement.commands) == ["read-nodes", *["read-region"] * 4]
    assert "a reading of" in judgement_waits(resolved, judgement.state)


def judgement_waits(resolved: Any, state: PoolCarry) -> str:
    world = PoolWorld(resolved)
    world.state = state
    return world.now_waits_for


def test_deletion_by_a_new_chain_ends_what_the_old_one_left() -> None:
    world = a_pool()
    world.restart_chain("badc0de1")
    world.delete()
    deleted(world)
    assert world.living == []


def test_deletion_ends_a_machine_whose_create_call_is_still_under_way() -> None:
    world = PoolWorld(a_resolved(minInstances=2))
    world.run_until(lambda: "launch" in world.effects.in_flight.values())
    world.delete()
    assert {"cancel-launch"} == {c.kind for c in world.checks.ordered[-2:]}
    deleted(world)
    assert world.living == []


def test_deletion_waits_for_the_outcome_of_a_launch_without_an_answer() -> None:
    world = PoolWorld(a_resolved(minInstances=1))
    world.effects.plan = lambda request: "late"
    world.run_until(lambda: "LaunchUnresolved" in world.reasons())
    world.delete()
    assert "the confirmed absence of 1 machines" in world.now_waits_for
    deleted(world)
    assert len(world.clouds.machines) == 1, "it was made after the door closed, and ended"
    assert world.living == []


def test_deletion_ends_a_machine_that_turns_up_while_it_searches() -> None:
    world = a_pool()
    copy = world.living[0]
    world.delete()
    stranger = copy.seen(world.t).model_copy(
        update={"id": "ins-x", "tags": {"spotgpu-pool": world.resolved.uid}}
    )
    world.learn(
        RegionObservation(region=copy.region, as_of=at(world.t), instances=(copy.seen(world.t), stranger))
    )
    found = next(m for m in world.machines if m.instance_id == "ins-x")
    assert found.leave is not None
    assert found.leave.value == "PoolDeleted"
    world.learn(RegionObservation(region=copy.region, as_of=at(world.t + 1), instances=(copy.seen(world.t),)))
    deleted(world)


def test_deletion_ends_a_machine_that_waits_for_its_replacement() -> None:
    world = a_pool()
    world.order(people.replace_instance, world.living[0].id)
    world.delete()
    deleted(world)


def test_deletion_searches_a_region_that_an_edit_took_away() -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.ready == 1)
    world.edit(
        providers=a_resolved(providers=[{"name": "tencent", "regions": ["ap-shanghai"]}]).spec.providers
    )
    world.run_until(lambda: world.state.regions.get(str(SHANGHAI)) is not None)
    world.delete()
    deleted(world)
    read = {str(c.region) for c in world.checks.ordered if c.kind == "read-region"}
    assert read >= {str(GUANGZHOU), str(SHANGHAI)}


def test_deletion_is_not_held_up_by_a_region_that_belongs_to_another_account() -> None:
    other = GUANGZHOU.model_copy(update={"account": "someone-else"})
    world = PoolWorld(a_resolved(minInstances=1), a_setting(served_regions=(*REGIONS, other)))
    world.clouds.down.add(str(other))
    world.run_until(lambda: world.ready == 1)
    world.delete()
    deleted(world)


def test_deletion_with_policy_force_drains_nobody() -> None:
    world = a_pool(deletionPolicy="Force")
    world.faults = Faults(drain_blocks=1)
    world.delete()
    assert world.condition("Deleting") == ("True", "Terminate")
    deleted(world, 90)
    assert "Draining" not in world.reasons()


def test_deletion_with_policy_retain_leaves_its_machines_running_and_their_nodes_in_place() -> None:
    world = a_pool(deletionPolicy="Retain")
    machines = list(world.living)
    world.delete()
    deleted(world)
    assert all(m.retained and m.is_alive(world.t) for m in machines)
    assert len(world.nodes) == 2
    assert not [c for c in world.checks.ordered if c.kind == "terminate"]


def test_deletion_with_policy_retain_still_ends_a_machine_that_was_going_anyway() -> None:
    world = a_pool(deletionPolicy="Retain", maxInstances=3)
    going = world.living[0]
    world.order(people.terminate_instance, going.id)
    world.delete()
    deleted(world)
    assert not going.is_alive(world.t)
    assert not going.retained


def test_deletion_that_takes_too_long_is_said_once_per_stage_and_names_what_it_waits_for() -> None:
    world = a_pool()
    region = world.living[0].region
    world.clouds.down.add(str(region))
    world.delete()
    world.run(3000)
    stuck = [e for e in world.events if e.reason.value == "DeletionStuck"]
    assert len(stuck) == 1
    assert stuck[0].type.value == "Warning"
    assert "the confirmed absence of" in stuck[0].message
    assert f"{region}: down" in world.now_waits_for
    world.clouds.down.clear()
    deleted(world)


def test_deletion_tries_again_when_the_finalizer_cannot_be_removed() -> None:
    world = a_pool()
    world.faults = Faults(finalizer_fails=1)
    world.delete()
    world.run(600)
    assert world.now_waits_for == "the removal of the finalizer"
    assert world.condition("Deleting") == ("True", "Finalizer")
    orders = [c for c in world.checks.ordered if c.kind == "remove-finalizer"]
    assert 10 < len(orders) < 25
    world.faults = Faults()
    deleted(world, 60)


def test_deletion_removes_the_dark_node_of_a_machine_that_it_never_knew() -> None:
    world = a_pool()
    ghost = ClusterNode(provider_id="qcloud:///100003/ins-gone", name="ghost", ready=False)
    world.nodes[ghost.provider_id] = ghost
    world.watchers.changed(ghost)
    world.run(1)
    world.delete()
    deleted(world)
    assert world.nodes == {}


@pytest.mark.parametrize("stage", ["Drain", "Terminate", "Nodes"])
def test_forcing_a_stage_ends_what_does_not_end_by_itself(stage: str) -> None:
    world = a_pool()
    world.faults = {
        "Drain": Faults(drain_blocks=1),
        "Terminate": Faults(tell_fails=1),
        "Nodes": Faults(delete_fails=1),
    }[stage]
    world.delete()
    if stage != "Drain":
        world.run(400)
    assert world.condition("Deleting") == ("True", stage)
    answer = world.order(people.force_delete, stage)
    assert answer.startswith(f"stage {stage} forced")
    assert deleted(world, 60) < 60
    assert (stage == "Terminate") == ("DeletionStuck" in world.reasons())
    (farewell,) = (event.message for event in world.events if event.reason == "Deleted")
    told = {
        "Drain": "Every machine is confirmed gone",
        "Terminate": "left to the orphan sweep",
        "Nodes": "Nodes",
    }
    assert told[stage] in farewell, "nothing is called gone that is not"
    if stage == "Nodes":
        assert all(node.name in farewell for node in world.nodes.values()), "what is left behind is named"


def test_forcing_the_nodes_ahead_of_their_stage_gives_up_none_that_can_be_removed() -> None:
    world = a_pool()
    world.faults = Faults(drain_blocks=1)
    world.delete()
    assert world.condition("Deleting") == ("True", "Drain")
    world.order(people.force_delete, "Nodes")
    world.order(people.force_delete, "Drain")
    deleted(world)
    assert world.nodes == {}


def test_forcing_is_refused_while_the_pool_is_not_being_deleted() -> None:
    assert "not being deleted" in a_pool(1).order(people.force_delete, "Drain")


def test_scaling_is_refused_while_the_pool_is_being_deleted() -> None:
    world = a_pool(1)
    world.delete()
    assert "being deleted" in world.order(people.scale_to, 2, None, by="ann", reason="test")


def test_deletion_is_never_taken_back() -> None:
    world = a_pool(1)
    world.delete()
    world.apply(world.resolved.model_copy(update={"deleting": False}))
    assert world.resolved.deleting
    deleted(world)
