"""What humans may order: what it does, what is refused, and what is said."""

from typing import Any

from domain.contracts.pools import PauseScope
from domain.contracts.status import InstanceStatus
from domain.decisions import pool_interventions as people
from tests.domain.decisions.pool_inputs import a_resolved
from tests.domain.decisions.pool_world import PoolWorld


def a_pool(count: int = 1, **fields: Any) -> PoolWorld:
    scale = {"scaleUpStep": 10, "cooldownSeconds": 0}
    world = PoolWorld(a_resolved(**{"minInstances": count, "scaleStrategy": scale, **fields}))
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing")
    return world


def scale(world: PoolWorld, instances: int, expires: int | None = None) -> str:
    return world.order(people.scale_to, instances, expires, by="ann", reason="test")


def test_pause_and_resume_by_hand_hold_beside_the_spec() -> None:
    world = a_pool()
    assert world.order(people.pause, PauseScope.LAUNCHES) == "Launches paused; interruption handling goes on"
    scale(world, 3)
    world.run(600)
    assert len(world.living) == 1
    assert "is not paused by hand (paused: Launches)" in world.order(people.resume, PauseScope.DISRUPTIONS)
    world.edit(paused=PauseScope.DISRUPTIONS)
    refused = world.order(people.resume, PauseScope.DISRUPTIONS)
    assert "spec.paused=Disruptions holds until the resource is edited" in refused
    world.edit(paused=PauseScope.NONE)
    world.edit(paused=PauseScope.LAUNCHES)
    assert (
        world.order(people.resume, PauseScope.LAUNCHES)
        == "Launches resumed; spec.paused=Launches still holds"
    )
    world.run(600)
    assert len(world.living) == 1
    world.edit(paused=PauseScope.NONE)
    world.run_until(lambda: world.ready == 3)


def test_resume_of_all_lifts_every_manual_pause() -> None:
    world = a_pool()
    world.order(people.pause, PauseScope.LAUNCHES)
    world.order(people.pause, PauseScope.DISRUPTIONS)
    assert world.order(people.resume, PauseScope.ALL) == "Disruptions, Launches resumed"
    assert world.state.manual_pauses == ()
    assert "paused: nothing" in world.order(people.resume, PauseScope.ALL)


def test_scale_to_stays_within_the_bounds_and_is_taken_back_by_zero() -> None:
    world = a_pool(2, maxInstances=4)
    assert "got 5" in scale(world, 5)
    assert "got 1" in scale(world, 1)
    assert scale(world, 3) == "level set to 3"
    world.run_until(lambda: world.ready == 3)
    assert scale(world, 0) == "manual level removed"
    world.run_until(lambda: world.status.current_instances == 2)


def test_scale_to_names_its_end() -> None:
    assert "level set to 2 until 2026-07-01T12:1" in scale(a_pool(), 2, 600)


def test_terminate_instance_drains_ends_and_refills() -> None:
    world = a_pool(1, maxInstances=1)
    old = world.living[0]
    assert "is drained and ended" in world.order(people.terminate_instance, old.id)
    assert "is leaving already (TerminatedByHand)" in world.order(people.terminate_instance, old.id)
    world.run_until(lambda: world.ready == 1 and not old.is_alive(world.t))
    assert world.status.instances[-1].status in (InstanceStatus.PENDING, InstanceStatus.RUNNING)


def test_terminate_instance_also_ends_one_that_waits_for_its_replacement() -> None:
    world = a_pool(1, maxInstances=2)
    old = world.living[0]
    world.order(people.replace_instance, old.id)
    world.order(people.terminate_instance, old.id)
    world.run_until(lambda: world.ready == 1 and not old.is_alive(world.t))


def test_orders_about_an_instance_that_the_pool_has_not_are_refused_and_name_those_that_it_has() -> None:
    world = a_pool()
    known = world.living[0].id
    for order in (people.replace_instance, people.terminate_instance):
        assert f"this pool has no instance ins-x (it has: {known})" in world.order(order, "ins-x")


def test_replace_instance_is_refused_while_launches_are_paused() -> None:
    world = a_pool()
    world.order(people.pause, PauseScope.ALL)
    assert "launches are paused" in world.order(people.replace_instance, world.living[0].id)


def test_quarantine_of_a_zone_holds_purchases_there_and_shows_in_the_status() -> None:
    world = a_pool()
    first = world.living[0].request.offer
    answer = world.order(people.quarantine_zone, "tencent", first.zone, 30)
    assert f"nothing is bought in tencent {first.zone} until" in answer
    zone = world.status.zones[0]
    assert (zone.provider, zone.region, zone.zone) == ("tencent", "ap-guangzhou", first.zone)
    assert zone.health == "Quarantined"
    scale(world, 3)
    world.run_until(lambda: world.ready == 3)
    assert {m.request.offer.zone for m in world.living[1:]} == {"ap-shanghai-5"}
    assert world.order(people.clear_zone, "tencent", first.zone) == f"1 holds of tencent {first.zone} lifted"
    assert world.status.zones == ()


def test_quarantine_put_on_twice_is_one_hold_with_the_newer_end() -> None:
    world = a_pool()
    for minutes in (30, 10):
        world.order(people.quarantine_zone, "tencent", "ap-guangzhou-3", minutes)
    assert len(world.state.holds) == 1


def test_clearing_a_zone_lifts_the_cool_downs_of_its_offers_and_buys_at_once() -> None:
    world = PoolWorld(a_resolved(minInstances=1, providers=[{"name": "tencent", "zones": ["ap-shanghai-5"]}]))
    world.clouds.stock = {"ap-shanghai-5": 0}
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    assert world.status.zones[0].health == "CoolingDown"
    world.clouds.stock.clear()
    world.order(people.clear_zone, "tencent", "ap-shanghai-5")
    assert world.run_until(lambda: len(world.living) == 1) < 10


def test_zone_that_no_node_class_knows_is_refused_with_those_that_are_known() -> None:
    answer = a_pool().order(people.quarantine_zone, "tencent", "ap-guangzhou-33", 5)
    assert "no zone ap-guangzhou-33 of tencent" in answer
    assert "zones: ap-guangzhou-3, ap-guangzhou-6, ap-shanghai-5" in answer
    assert "zones: none" in a_pool().order(people.clear_zone, "huawei", "cn-north-4a")


def test_resync_reads_clouds_and_cluster_before_the_next_decision() -> None:
    world = a_pool()
    world.run(1000)
    seen = len(world.checks.ordered)
    world.order(people.resync)
    kinds = [c.kind for c in world.checks.ordered[seen:]]
    assert kinds == ["read-nodes", *["read-region"] * 4]
    world.order(people.resync)
    assert len(world.checks.ordered) == seen + len(kinds), "what is being read is not read twice"
    scale(world, 2)
    world.run_until(lambda: world.ready == 2)


def test_orders_are_recorded_with_who_and_why_and_refusals_with_the_reason() -> None:
    world = a_pool()
    draft = world.draft()
    people.record(draft, "pause", "done", by="ann", reason="maintenance")
    people.record_refusal(draft, "scale_to", "got 99")
    said = [(e.reason.value, e.message, e.type.value) for e in draft.events]
    assert said == [
        ("Intervention", "pause by ann (maintenance): done", "Normal"),
        ("InterventionRefused", "scale_to refused: got 99", "Warning"),
    ]
