"""What a new chain takes over, and words that come out of order."""

import pytest

from domain.contracts.facts import RegionHealth, RegionObservation, RegionState
from domain.contracts.pool_state import LeaveReason
from domain.contracts.pools import ScaleStrategy
from domain.contracts.status import InstanceStatus
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved
from tests.domain.decisions.pool_lives import a_world, the_machine, up
from tests.domain.decisions.pool_world import PoolWorld
from tests.domain.decisions.world_cloud import CloudMachine, at

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


def test_machine_that_a_new_chain_looks_for_stays_named_for_the_chain_after_it() -> None:
    world = up(a_world())
    lost = world.living[0].id
    world.clouds.down = {str(GUANGZHOU)}
    for chain in ("badc0de1", "badc0de2", "badc0de3"):
        world.restart_chain(chain)
        world.run(200)
        assert [(i.id, i.phase) for i in world.status.instances] == [(lost, "NotSeenYet")]
    world.clouds.down.clear()
    up(world)
    assert len(world.clouds.creates) == 1


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
