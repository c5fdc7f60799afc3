"""How many machines a pool has: its level, its steps, its cool-down, and who goes first."""

from domain.contracts.pools import PauseScope, ScaleStrategy
from domain.decisions import pool_interventions as people
from domain.decisions.pool_interventions import scale_to
from tests.domain.decisions.pool_inputs import a_profile, a_resolved
from tests.domain.decisions.pool_world import PoolWorld
from tests.domain.decisions.world_cloud import ZONES


def a_world(**fields: object) -> PoolWorld:
    return PoolWorld(a_resolved(**fields))


def at_level(world: PoolWorld, level: int) -> PoolWorld:
    def is_there() -> bool:
        return world.ready == level == len(world.living) and world.now_waits_for == "nothing"

    world.run_until(is_there, 7200)
    return world


def test_pool_orders_its_minimum_at_once() -> None:
    world = a_world(minInstances=2)
    assert world.run_until(lambda: len(world.clouds.creates) == 2) < 10


def test_pool_goes_up_by_steps_with_the_cool_down_between() -> None:
    world = a_world(minInstances=5, scaleStrategy={"scaleUpStep": 2, "cooldownSeconds": 300})
    times = [world.run_until(lambda n=n: len(world.state.slots) >= n) for n in (2, 4, 5)]
    assert times[0] < 5
    assert 299 <= times[1] <= 305
    assert 299 <= times[2] <= 305
    at_level(world, 5)


def test_pool_goes_down_by_steps_with_the_cool_down_between() -> None:
    world = at_level(a_world(minInstances=4, scaleStrategy={"scaleUpStep": 4}), 4)
    world.edit(min_instances=1)
    assert len(world.state.slots) == 3
    times = [world.run_until(lambda n=n: len(world.state.slots) == n) for n in (2, 1)]
    assert all(299 <= took <= 301 for took in times)
    at_level(world, 1)


def test_pool_refills_a_lost_machine_whatever_the_cool_down() -> None:
    world = at_level(a_world(minInstances=2), 2)
    lost = world.living[0]
    world.edit(scale_strategy=ScaleStrategy(cooldown_seconds=86_400))
    world.vanish(lost)
    took = world.run_until(lambda: len(world.clouds.creates) == 3)
    assert took <= 30 + 1 + 5 + 5, "within one polling interval, two readings and a round"
    assert world.condition("RebuildInProgress")[0] in ("", "True", "False")
    at_level(world, 2)
    assert [i.id for i in world.status.interrupted_instances] == [lost.id]


def test_pool_waits_for_the_cool_down_when_rebuilding_at_once_is_switched_off() -> None:
    world = a_world(
        minInstances=2,
        interruptStrategy={"rebuildOnInterrupt": False},
        scaleStrategy={"scaleUpStep": 2, "cooldownSeconds": 600},
    )
    at_level(world, 2)
    world.notice(world.living[0])
    world.run_until(lambda: "Interrupted" in world.reasons())
    took = world.run_until(lambda: len(world.clouds.creates) == 3)
    assert 599 <= took <= 610
    at_level(world, 2)


def test_pool_closes_empty_slots_first_when_the_level_falls() -> None:
    world = a_world(minInstances=3, scaleStrategy={"scaleUpStep": 3, "scaleDownStep": 1})
    world.clouds.stock = {zone: 0 for zones in ZONES.values() for zone in zones}
    world.clouds.stock["ap-guangzhou-3"] = 1
    world.run_until(lambda: world.ready == 1 and world.condition("ScaleUpFailed")[0] == "True")
    world.edit(min_instances=1)
    assert [slot.token != "" for slot in world.state.slots] == [True], "all at once: nothing runs in them"
    assert not any(m.leave for m in world.machines)


def test_pool_ends_machines_that_are_not_ready_before_ready_ones() -> None:
    world = at_level(a_world(minInstances=2, scaleStrategy={"cooldownSeconds": 0}), 2)
    world.edit(min_instances=3)
    world.run_until(lambda: world.status.current_instances == 3)
    newborn = world.living[-1]
    world.edit(min_instances=2)
    assert [m.instance_id for m in world.machines if m.leave] == [newborn.id]


def test_pool_ends_machines_in_a_held_zone_then_the_dearest() -> None:
    world = a_world(minInstances=3, scaleStrategy={"scaleUpStep": 3, "cooldownSeconds": 60})
    world.clouds.stock = dict.fromkeys(("ap-guangzhou-3", "ap-guangzhou-6", "ap-shanghai-5"), 1)
    at_level(world, 3)
    world.run(4000)  # holds of zones that were sold out have ended
    placed = {m.request.offer.zone: m.id for m in world.living}
    assert set(placed) == {"ap-guangzhou-3", "ap-guangzhou-6", "ap-shanghai-5"}
    world.order(people.quarantine_zone, "tencent", "ap-shanghai-5", 60)
    world.edit(min_instances=1)
    world.run_until(lambda: world.ready == 1)
    ended = [e.message for e in world.events if e.reason.value == "Terminating"]
    assert placed["ap-shanghai-5"] in ended[0], "in a zone that is held"
    assert placed["ap-guangzhou-6"] in ended[1], "a tenth dearer than ap-guangzhou-3"


def test_pool_follows_demand_and_keeps_its_minimum() -> None:
    world = PoolWorld(
        a_resolved(minInstances=1, maxInstances=4, profiles=(a_profile(),), scaleStrategy={"scaleUpStep": 9})
    )
    at_level_with(world, gpus=3, level=3)
    at_level_with(world, gpus=9, level=4)
    at_level_with(world, gpus=0, level=1)


def at_level_with(world: PoolWorld, gpus: int, level: int) -> None:
    world.demand(gpus)
    at_level(world, level)
    assert world.status.desired_instances == level


def test_pool_ends_nothing_for_its_level_before_it_has_heard_of_demand() -> None:
    world = at_level(PoolWorld(a_resolved(minInstances=2, profiles=(a_profile(),))), 2)
    world.edit(min_instances=1)
    world.run(3600)
    assert len(world.living) == 2
    assert "demand of the bound workloads is not known yet" in world.now_waits_for
    world.demand(1)
    at_level(world, 1)


def test_pool_holds_a_manual_level_until_it_expires() -> None:
    world = at_level(a_world(minInstances=1, scaleStrategy={"scaleUpStep": 9, "cooldownSeconds": 10}), 1)
    world.order(scale_to, 3, 600, by="ann", reason="test")
    at_level(world, 3)
    world.run(700)
    at_level(world, 1)


def test_pool_neither_buys_nor_ends_while_it_is_paused() -> None:
    world = at_level(a_world(minInstances=2), 2)
    world.edit(paused=PauseScope.ALL, min_instances=3)
    world.run(900)
    assert len(world.living) == 2
    assert "launches are paused" in world.now_waits_for
    world.edit(min_instances=1)
    world.run(900)
    assert len(world.living) == 2
    assert "disruptions are paused" in world.now_waits_for
    world.edit(paused=PauseScope.NONE)
    at_level(world, 1)


def test_pool_drains_an_interrupted_machine_even_while_everything_is_paused() -> None:
    world = at_level(a_world(minInstances=1), 1)
    world.edit(paused=PauseScope.ALL)
    world.notice(world.living[0])
    world.run_until(lambda: "Draining" in world.reasons(), 60)
    world.run(600)
    assert world.living == []
    assert len(world.clouds.creates) == 1, "launches stay paused"


def test_pool_stays_at_rest_when_nothing_happens() -> None:
    world = at_level(a_world(minInstances=2), 2)
    world.run(3600)  # timers that were set on the way up have fired in vain
    before = world.judgements
    world.run(6 * 3600)
    assert world.judgements == before, "a quiet pool costs nothing"
