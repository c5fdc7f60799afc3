"""One machine's life as clouds and cluster tell it: coming up or not, its Node, unknown outcomes."""

import pytest

from domain.contracts.facts import NodeFact, NodesSeen
from domain.contracts.instances import LaunchRequest
from domain.contracts.pool_state import MachinePhase
from domain.decisions import pool_interventions as people
from tests.domain.decisions.pool_inputs import GUANGZHOU
from tests.domain.decisions.pool_lives import a_world, the_machine, up
from tests.domain.decisions.pool_world import Faults, PoolWorld
from tests.domain.decisions.world_cloud import CloudMachine, at


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


def test_pool_does_not_take_an_older_word_for_the_state_of_a_stray_node() -> None:
    world = up(a_world())
    stray = NodeFact(provider_id="qcloud:///100003/ins-gone", name="gone")
    bright = stray.model_copy(update={"ready": True})
    world.learn(seen(stray, t=world.t))
    facts = tuple(node.fact() for node in world.nodes.values())
    world.learn(seen(bright, *facts, t=world.t - 1, complete=True))
    assert world.state.strays == (stray,)
    world.learn(seen(bright, *facts, t=world.t, complete=True))
    assert world.state.strays == (bright,)
    world.learn(seen(*facts, t=world.t, complete=True))
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
    world.run_until(lambda: not world.machines)
    assert len(world.clouds.creates) == 1
    assert world.t - told >= 60 + 5, "a newborn's absence counts after 60 s, and twice"
    assert world.t - told <= 60 + 15 + 15 + 5
    up(world)
    assert len(world.clouds.creates) == 2


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
