"""Public reports about systems that do this job, as far as they concern the pool's pure judgement.

Each test carries the number of its case; the same cases are told at other levels where they need a cloud, a
cluster or a worker.
"""

from datetime import timedelta
from typing import Any

import pytest

from domain.contracts.commands import Launch, RemoveFinalizer
from domain.contracts.facts import Demand, NodeFact, NodesSeen, OwnedMachine, OwnershipQuestion, ProfileDemand
from domain.contracts.pool_state import MachinePhase, Market, PoolCarry
from domain.decisions import pool_interventions as people
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_judgement import judge
from domain.decisions.pool_ownership import answer
from tests.domain.decisions.builders import NOON, an_offer
from tests.domain.decisions.pool_inputs import (
    a_profile,
    a_resolved,
    a_setting,
    a_state_of,
    in_one_region,
)
from tests.domain.decisions.pool_world import Faults, PoolWorld
from tests.domain.decisions.world_cloud import ClusterNode, at

FAST = {"scaleUpStep": 1000, "scaleDownStep": 1000, "cooldownSeconds": 0}


def up(world: PoolWorld, count: int, within: float = 7200) -> PoolWorld:
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing", within)
    return world


def a_pool(count: int, **fields: Any) -> PoolWorld:
    return up(PoolWorld(a_resolved(**in_one_region(minInstances=count, scaleStrategy=FAST, **fields))), count)


def test_p01_stale_node_of_a_dead_machine_goes_and_its_successor_with_the_same_name_takes_the_slot() -> None:
    world = a_pool(1)
    dead = world.living[0]
    name = world.nodes[dead.provider_id].name
    world.vanish(dead)
    world.run_until(lambda: len(world.living) == 1)
    successor = world.living[0]
    node = ClusterNode(provider_id=successor.provider_id, name=name, gpus=1)
    world.nodes[successor.provider_id] = node
    world.watchers.changed(node)
    up(world, 1)
    assert set(world.nodes) == {successor.provider_id}, "told apart by provider id, never by name"
    assert world.machines[0].node_name in (name, successor.request.name)


def test_p02_mass_launch_with_lost_answers_leaks_nothing() -> None:
    count = 50
    resolved = a_resolved(**in_one_region(minInstances=count, maxInstances=count, scaleStrategy=FAST))
    world = PoolWorld(resolved, faults=Faults(unanswered_made=0.1, late_made=0.05))
    world.reports_every = 100
    world.run_until(lambda: world.ready == count)
    assert len(world.living) == count
    world.edit(min_instances=0)
    world.run_until(lambda: not world.machines and not world.living)
    assert world.nodes == {}


def test_p05_newborn_of_a_launch_in_flight_is_never_called_an_orphan() -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.effects.plan = lambda request: "made"
    world.run_until(lambda: bool(world.living))
    newborn = world.living[0]
    assert world.machines[0].instance_id == "", "the record was not updated yet"
    tags = newborn.request.tags
    question = OwnershipQuestion(
        machines=(
            OwnedMachine(
                region=newborn.region,
                instance_id=newborn.id,
                pool_uid=tags["spotgpu-pool"],
                slot=tags["spotgpu-slot"],
                launch=tags["spotgpu-launch"],
                created_at=at(newborn.born),
                instance_type="GT4.4XLARGE96",
            ),
        )
    )
    assert [a.owned for a in answer(world.draft(), question)] == [True]
    up(world, 1)
    assert [a.owned for a in answer(world.draft(), question)] == [True]


@pytest.mark.parametrize("seed", range(8))
def test_p08_purchase_in_a_dying_pool_is_called_back_or_ended_before_the_resource_goes(seed: int) -> None:
    """Before the call leaves, while it is on its way, and after it was carried out."""
    world = PoolWorld(a_resolved(minInstances=2), seed=seed, faults=Faults(slow_answer=0.5, list_lag=10))
    world.run_until(lambda: bool(world.checks.ordered) and world.checks.ordered[-1].kind == "launch")
    world.run(seed / 2)
    world.delete()
    world.run_until(lambda: world.finalizer_removed)  # the world's checks refuse to let go of a living one
    assert world.living == []


@pytest.mark.parametrize("renews", [True, False])
def test_p10_restarts_during_start_up_continue_the_started_purchases(renews: bool) -> None:
    """Renewed at any moment; begun anew, as after a termination, while no call is on its way."""
    world = PoolWorld(a_resolved(minInstances=3, maxInstances=4, scaleStrategy={"scaleUpStep": 3}))
    for number in range(3):
        world.run_until(lambda started=number: len(world.living) > started)
        if renews:
            world.carry_over()
        else:
            world.run_until(lambda: not world.effects.creating)
            world.restart_chain(f"badc0de{number}")
        assert len(world.living) <= 3
    up(world, 3)
    assert len(world.clouds.machines) == 3, "none was ever bought twice"


def test_p14_each_purchase_of_a_pass_takes_from_the_room_that_is_left() -> None:
    resolved = a_resolved(
        profiles=(a_profile(),), **in_one_region(minInstances=0, maxInstances=8, scaleStrategy=FAST)
    )
    market = Market(offers=(an_offer("4.20"),), started_at=NOON, read_at=NOON)
    state = a_state_of(6).model_copy(update={"market": market})
    demand = Demand(
        as_of=NOON, profiles=(ProfileDemand(profile="ddp", pods=20, gpus=20, max_gpus_per_pod=1),)
    )
    first = judge(resolved, a_setting(), state, (demand,), now=NOON)
    second = judge(resolved, a_setting(), first.state, (demand,), now=NOON)
    assert [len([c for c in j.commands if isinstance(c, Launch)]) for j in (first, second)] == [2, 0]


def test_p15_machines_that_never_join_count_against_the_limit() -> None:
    resolved = a_resolved(
        profiles=(a_profile(),),
        **in_one_region(minInstances=0, maxInstances=4, scaleStrategy=FAST, timeouts={"joinSeconds": 120}),
    )
    world = PoolWorld(resolved, faults=Faults(never_joins=1))
    most = 0
    for toggle in range(10):
        world.demand(8 if toggle % 2 == 0 else 0)
        for _ in range(30):
            world.run(10)
            most = max(most, len(world.living))
    assert most == 4
    assert world.condition("BootstrapUnhealthy")[0] == "True"


def test_p37_machine_without_a_node_is_ended_at_once_without_a_drain() -> None:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1)))
    world.run_until(lambda: world.status.current_instances == 1)
    world.delete()
    took = world.run_until(lambda: any(c.kind == "terminate" for c in world.checks.ordered), 60)
    assert took <= 5
    assert not any(c.kind == "drain" for c in world.checks.ordered)
    world.run_until(lambda: world.finalizer_removed)


def test_p39_letting_go_names_nothing_of_the_object_that_could_be_written_back() -> None:
    assert set(RemoveFinalizer.model_fields) == {"kind"}


def test_p40_confirmed_absence_ends_a_deletion_within_a_minute() -> None:
    world = a_pool(1)
    machine = world.living[0]
    world.run(600)
    world.vanish(machine)
    world.watchers.remove_node(machine.provider_id)
    world.run(1)
    world.delete()
    assert world.run_until(lambda: world.finalizer_removed, 60) <= 60


def test_p40_deletion_that_takes_more_than_ten_minutes_says_what_it_waits_for() -> None:
    world = a_pool(1)
    world.clouds.down.add(str(world.living[0].region))
    world.delete()
    world.run(150 + 600 + 5)
    stuck = [e for e in world.events if e.reason.value == "DeletionStuck"]
    assert len(stuck) == 1
    assert world.living[0].id in stuck[0].message


def test_p41_node_deleted_while_nobody_watched_is_noticed_at_the_start() -> None:
    world = a_pool(2)
    orphaned = world.living[0]
    world.watchers.bridge_down = True
    world.watchers.remove_node(orphaned.provider_id)
    world.run(3600)
    assert world.ready == 2, "nobody said so"
    world.watchers.bridge_down = False
    world.watchers.tell_everything()
    world.run(1)
    assert world.ready == 1
    world.run_until(lambda: not orphaned.is_alive(world.t), 900 + 60)
    up(world, 2)


def test_p41_pool_deleted_after_its_node_was_deleted_by_hand_leaves_nothing() -> None:
    world = a_pool(1)
    world.watchers.bridge_down = True
    world.watchers.remove_node(world.living[0].provider_id)
    world.run(60)
    world.restart_chain("badc0de1")
    world.delete()
    world.run_until(lambda: world.finalizer_removed, 300)
    assert world.living == []


def test_p62_thousand_slots_opened_and_cancelled_at_once_do_not_delay_the_next_demand() -> None:
    resolved = a_resolved(**in_one_region(minInstances=0, maxInstances=1000, scaleStrategy=FAST))
    world = PoolWorld(resolved)
    world.run(60)
    world.order(people.scale_to, 1000, None, by="ann", reason="test")
    assert len(world.state.slots) == 1000
    world.run(0.2)
    world.order(people.scale_to, 0, None, by="ann", reason="test")
    assert world.state.slots == ()
    world.run(0.1)
    world.order(people.scale_to, 2, None, by="ann", reason="test")
    assert world.run_until(lambda: len(world.clouds.creates) == 2, 60) <= 10


def test_p62_thousand_launches_ordered_and_called_back_leave_room_for_what_is_wanted_next() -> None:
    resolved = a_resolved(**in_one_region(minInstances=0, maxInstances=1000, scaleStrategy=FAST))
    settings = a_setting()
    market = Market(offers=(an_offer("4.20"),), started_at=NOON, read_at=NOON)
    state = a_state_of(0).model_copy(update={"market": market})
    draft = Draft(resolved, settings, state, NOON)
    people.scale_to(draft, 900, None, by="ann", reason="test")
    opened = judge(resolved, settings, draft.state, (), now=NOON)
    assert len([c for c in opened.commands if isinstance(c, Launch)]) == 900
    draft = Draft(resolved, settings, opened.state, NOON + timedelta(milliseconds=300))
    people.scale_to(draft, 0, None, by="ann", reason="test")
    cancelled = judge(resolved, settings, draft.state, (), now=draft.now)
    assert len([c for c in cancelled.commands if c.kind == "cancel-launch"]) == 900
    draft = Draft(resolved, settings, cancelled.state, draft.now)
    people.scale_to(draft, 100, None, by="ann", reason="test")
    wanted = judge(resolved, settings, draft.state, (), now=draft.now)
    assert len([c for c in wanted.commands if isinstance(c, Launch)]) == 100, (
        "exactly what the ceiling leaves"
    )
    assert PoolCarry.model_validate_json(wanted.state.model_dump_json()) == wanted.state


def test_p63_node_without_a_provider_id_is_ignored_and_stops_nothing() -> None:
    world = a_pool(1)
    foreign = NodeFact(provider_id="", name="half-made", ready=True)
    world.learn(NodesSeen(as_of=at(world.t), nodes=(foreign,)))
    facts = tuple(node.fact() for node in world.nodes.values())
    world.learn(NodesSeen(as_of=at(world.t), nodes=(foreign, *facts), complete=True))
    assert world.ready == 1
    assert world.state.strays == ()
    world.edit(min_instances=2)
    up(world, 2)
    assert all(m.phase is MachinePhase.READY for m in world.machines)
