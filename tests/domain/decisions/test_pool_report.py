"""What a pool says of itself: the status in its public shape, its conditions, its details."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml

from domain.contracts.catalogue import known_gpu_types
from domain.contracts.errors import MAX_MESSAGE_CHARS, ErrorCode
from domain.contracts.instances import Refusal
from domain.contracts.offers import ProviderName
from domain.contracts.pool_state import OfferHold
from domain.contracts.resolved import ResolvedPool, Unresolved
from domain.contracts.settings import PoolSettings
from domain.contracts.status import ConditionType
from domain.decisions import pool_interventions as people
from domain.decisions.holds import with_refusal
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_report import details, report
from tests.domain.decisions.builders import NOON, an_offer
from tests.domain.decisions.pool_inputs import (
    EXAMPLES,
    GUANGZHOU,
    a_node_class,
    a_resolved,
    a_setting,
    a_state_of,
    a_strategy_part,
)
from tests.domain.decisions.pool_world import WORKFLOW, Faults, PoolWorld
from tests.domain.decisions.world_cloud import ZONES, at


def a_pool(count: int = 2, **fields: Any) -> PoolWorld:
    scale = {"scaleUpStep": 10, "scaleDownStep": 10, "cooldownSeconds": 0}
    world = PoolWorld(a_resolved(**{"minInstances": count, "scaleStrategy": scale, **fields}))
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing")
    return world


# The public shape ---------------------------------------------------------------------------------------


def test_status_has_every_name_of_the_public_example() -> None:
    example = yaml.safe_load((EXAMPLES / "gpuspotpool-status.yaml").read_text())["status"]
    world = a_pool()
    world.notice(world.living[0], 300)
    world.run_until(lambda: any(i.interrupt_notice_at for i in world.status.instances))
    served = world.status.rendered()
    assert set(example) <= set(served)
    for name in ("instances", "interruptedInstances", "conditions"):
        wanted = {key for entry in example[name] for key in entry}
        found = {key for entry in served[name] for key in entry}  # type: ignore[union-attr]  # lists of objects
        assert wanted <= found, name
    states = {entry["status"] for entry in example["instances"]}
    assert states <= {"Pending", "Running", "Interrupting", "Terminated"}


def test_status_counts_what_lives_and_what_is_ready() -> None:
    world = a_pool(2)
    world.edit(min_instances=3)
    world.run_until(lambda: world.status.current_instances == 3)
    status = world.status
    assert (status.current_instances, status.ready_instances, status.desired_instances) == (3, 2, 3)
    assert status.gpu_count == 3
    assert status.on_demand_instances == 0
    assert status.hourly_cost == Decimal("12.60")
    assert status.observed_generation == 2
    assert status.workflow == WORKFLOW
    assert status.last_sync_time is not None


def test_status_shows_a_launch_by_its_token_until_the_cloud_has_named_it() -> None:
    world = PoolWorld(a_resolved(minInstances=1))
    world.run_until(lambda: len(world.machines) == 1)
    report = world.status.instances[0]
    assert report.id.endswith("-c0ffee00-1")
    assert (report.status.value, report.phase) == ("Pending", "Ordered")
    assert world.status.current_instances == 0


def test_month_cost_goes_on_through_losses_and_starts_anew_with_the_month() -> None:
    world = a_pool(1)
    world.run(7200)
    lost = world.living[0]
    world.vanish(lost)
    world.run_until(lambda: not any(m.instance_id == lost.id for m in world.machines))
    world.run_until(lambda: world.ready == 1)
    cost = world.status.total_cost_this_month
    hours = Decimal(str(world.t)) / 3600 * Decimal("4.20")
    assert abs(cost - hours) < Decimal("0.6"), "one machine nearly all of the time"
    august = datetime(2026, 8, 1, 1, tzinfo=UTC)
    draft = Draft(world.resolved, world.settings, world.state, august)
    assert report(draft, WORKFLOW).total_cost_this_month == Decimal("4.20"), "one hour of the new month"


def test_status_names_the_strategy_in_force() -> None:
    resolved = a_resolved(strategyRef="night")
    assert a_status(resolved).strategy == "default (CostFirst)"
    part = a_strategy_part("night", mode="StableFirst")
    assert (
        a_status(resolved.model_copy(update={"strategies": {"night": part}})).strategy
        == "night (StableFirst)"
    )
    stand_in = a_strategy_part("day", mode="Balance")
    kept = resolved.model_copy(update={"strategies": {"night": stand_in}})
    assert a_status(kept).strategy == "day (Balance)", "the last good one, under its own name"


def a_status(resolved: ResolvedPool, count: int = 2) -> Any:
    return report(Draft(resolved, a_setting(), a_state_of(count), NOON), WORKFLOW)


def test_zones_show_cool_downs_and_the_interruptions_of_the_last_hour() -> None:
    world = a_pool(1)
    machine = world.living[0]
    world.notice(machine)
    world.run_until(lambda: "Interrupted" in world.reasons())
    zone = world.status.zones[0]
    assert (zone.zone, zone.health, zone.recent_interruptions) == (machine.request.offer.zone, "Healthy", 1)
    world.run(3700)
    assert world.status.zones == ()


def test_zones_do_not_show_holds_that_are_wider_than_a_zone() -> None:
    world = PoolWorld(a_resolved(minInstances=1))
    world.effects.plan = lambda request: "quota" if request.offer.provider == "tencent" else ""
    world.run_until(lambda: len(world.living) == 1)
    assert world.state.holds
    assert world.status.zones == ()


# Conditions ---------------------------------------------------------------------------------------------


def test_every_condition_of_the_contract_can_be_seen_true() -> None:
    """One story per condition: how it comes, with its reason."""
    assert set(STORIES) == set(ConditionType)
    for kind, (story, reason) in STORIES.items():
        world = story()
        assert world.condition(kind.value) == ("True", reason), kind


def drought() -> PoolWorld:
    world = PoolWorld(a_resolved(minInstances=2))
    world.clouds.stock = {zone: 0 for zones in ZONES.values() for zone in zones}
    world.run_until(lambda: world.state.failed_rounds > 0)
    return world


def growing() -> PoolWorld:
    world = PoolWorld(a_resolved(minInstances=2))
    world.run_until(lambda: len(world.living) == 2)
    return world


def shrinking() -> PoolWorld:
    world = a_pool(2)
    world.edit(min_instances=1)
    return world


def interrupted() -> PoolWorld:
    world = a_pool(1)
    world.notice(world.living[0])
    world.run_until(lambda: "Interrupted" in world.reasons())
    return world


def dear() -> PoolWorld:
    return a_pool(2, budget={"hourly": {"amount": 5}})


def dark() -> PoolWorld:
    world = PoolWorld(a_resolved(minInstances=1))
    world.clouds.down = set(ZONES)
    world.run(60)
    return world


def unjoinable() -> PoolWorld:
    world = PoolWorld(a_resolved(minInstances=1))
    world.faults = Faults(never_joins=1)
    world.run_until(lambda: len(world.state.join_failures) == 3, 4000)
    return world


def blocked() -> PoolWorld:
    world = a_pool(1)
    world.faults = Faults(drain_blocks=1)
    world.order(people.terminate_instance, world.living[0].id)
    world.run_until(lambda: "DrainBlocked" in world.reasons(), 130)
    return world


def misspelt() -> PoolWorld:
    return PoolWorld(a_resolved(gpuTypes=["A100-41G"]))


def dying() -> PoolWorld:
    world = a_pool(1)
    world.delete()
    return world


STORIES: dict[ConditionType, tuple[Callable[[], PoolWorld], str]] = {
    ConditionType.READY: (lambda: a_pool(1), "AtLevel"),
    ConditionType.SCALE_UP_IN_PROGRESS: (growing, "Launching"),
    ConditionType.SCALE_UP_FAILED: (drought, "NoOffer"),
    ConditionType.SCALE_DOWN_IN_PROGRESS: (shrinking, "Removing"),
    ConditionType.REBUILD_IN_PROGRESS: (interrupted, "Interrupted"),
    ConditionType.CAPACITY_DEGRADED: (drought, "BelowMinimum"),
    ConditionType.BUDGET_EXCEEDED: (dear, "Hourly"),
    ConditionType.PROVIDER_UNAVAILABLE: (dark, "Unreachable"),
    ConditionType.BOOTSTRAP_UNHEALTHY: (unjoinable, "JoinFailures"),
    ConditionType.DRAIN_BLOCKED: (blocked, "Blocked"),
    ConditionType.CONFIGURATION_INVALID: (misspelt, "UnknownGpuType"),
    ConditionType.DELETING: (dying, "Drain"),
}


def test_condition_that_never_held_is_not_shown_and_one_that_held_stays_as_false() -> None:
    world = a_pool(1)
    kinds = {c.type: c.status for c in world.status.conditions}
    assert kinds == {"Ready": "True", "ScaleUpInProgress": "False"}


def test_transition_time_changes_only_with_the_status() -> None:
    world = PoolWorld(a_resolved(minInstances=2))
    world.run_until(lambda: world.status.current_instances == 1)
    first = next(c for c in world.status.conditions if c.type == "ScaleUpInProgress")
    world.run_until(lambda: world.ready == 1)
    second = next(c for c in world.status.conditions if c.type == "ScaleUpInProgress")
    assert second.message != first.message
    assert second.last_transition_time == first.last_transition_time
    world.run_until(lambda: world.ready == 2)
    third = next(c for c in world.status.conditions if c.type == "ScaleUpInProgress")
    assert third.status == "False"
    assert third.last_transition_time == at(world.t)


def test_scale_up_condition_says_how_many_and_where() -> None:
    world = growing()
    assert world.message("ScaleUpInProgress") == "creating 2 instances on tencent ap-guangzhou"


def test_unknown_gpu_type_lists_the_known_ones_and_crashes_nothing() -> None:
    world = misspelt()
    world.run(200)
    text = world.message("ConfigurationInvalid")
    assert text.startswith("unknown GPU types A100-41G; known: ")
    assert known_gpu_types()[0] in text
    assert world.living == []


def test_unknown_gpu_type_beside_a_known_one_does_not_stop_the_pool() -> None:
    world = PoolWorld(a_resolved(minInstances=1, gpuTypes=["A100-40G", "Z9"]))
    world.run_until(lambda: world.ready == 1)
    assert world.condition("ConfigurationInvalid") == ("True", "UnknownGpuType")


def test_gpu_type_that_only_a_node_class_knows_is_known() -> None:
    part = a_node_class("tencent")
    own = part.spec.model_copy(update={"instance_types": (an_override(),)})
    resolved = a_resolved(gpuTypes=["H100-80G"]).model_copy(
        update={"node_classes": {"tencent": part.model_copy(update={"spec": own})}}
    )
    assert not [c for c in a_status(resolved).conditions if c.type == "ConfigurationInvalid"]


def an_override() -> Any:
    from domain.contracts.node_classes import InstanceTypeOverride

    return InstanceTypeOverride(name="GX9.LARGE", gpu_model="H100", gpu_count=1, gpu_memory_gb=80)


def test_reference_to_nothing_is_named() -> None:
    missing = Unresolved(kind="GPUSpotStrategy", name="night", message="not found in default")
    conditions = a_status(a_resolved().model_copy(update={"unresolved": (missing,)})).conditions
    found = next(c for c in conditions if c.type == "ConfigurationInvalid")
    assert (found.reason, found.message) == (
        "ReferenceMissing",
        "GPUSpotStrategy night: not found in default",
    )


@pytest.mark.parametrize(
    ("setting", "reason", "text"),
    [
        (
            {"enabled_providers": (ProviderName.TENCENT,)},
            "NotEnabled",
            "aliyun is not enabled in this operator",
        ),
        ({"enabled_providers": ()}, "NotEnabled", "(enabled: none)"),
        ({"served_regions": ()}, "NotServed", "tencent ap-guangzhou, ap-shanghai: not served with account"),
        ({"served_regions": ()}, "NotServed", "(served of tencent: none)"),
        (
            {"served_regions": ()},
            "NotServed",
            "ap-shanghai: not served with account tencent-credentials; add it to SPOTGPU_REGIONS",
        ),
        (
            {"served_regions": (GUANGZHOU,)},
            "NotServed",
            "add it to SPOTGPU_REGIONS (served of tencent: tencent:tencent-credentials:ap-guangzhou)",
        ),
    ],
)
def test_provider_that_the_operator_does_not_serve_is_named(
    setting: dict[str, Any], reason: str, text: str
) -> None:
    draft = Draft(a_resolved(), a_setting(**setting), a_state_of(2), NOON)
    found = next(c for c in report(draft, WORKFLOW).conditions if c.type == "ProviderUnavailable")
    assert found.reason == reason
    assert text in found.message


def test_p18_quota_condition_names_every_limit_however_long_the_vendors_texts_are() -> None:
    holds: tuple[OfferHold, ...] = ()
    for size in range(5):
        offer = an_offer(region="ap-chongqing", zone="ap-chongqing-1", type_name=f"GN10Xp{size}.20XLARGE320")
        numbers = f"spot vCPU in ap-chongqing-1: {size} of {size + 64} used"
        text = f"{numbers}; tencent RunInstances: {'not today ' * 60}"[:MAX_MESSAGE_CHARS]
        refusal = Refusal(code=ErrorCode.QUOTA, vendor_code="LimitExceeded.SpotQuota", message=text)
        holds = with_refusal(holds, refusal, offer, PoolSettings(), now=NOON)
    state = a_state_of(1).model_copy(update={"holds": holds})
    conditions = report(Draft(a_resolved(), a_setting(), state, NOON), WORKFLOW).conditions
    found = next(c for c in conditions if c.type == "CapacityDegraded")
    assert (found.status, found.reason) == ("True", "QuotaExceeded")
    for size in range(5):
        assert f"GN10Xp{size}" in found.message
        assert f"spot vCPU in ap-chongqing-1: {size} of {size + 64} used" in found.message
    assert len(found.message) <= 1024


def test_long_messages_are_cut() -> None:
    names = [f"X{number}-{'9' * 50}" for number in range(30)]
    found = next(
        c for c in a_status(a_resolved(gpuTypes=names)).conditions if c.type == "ConfigurationInvalid"
    )
    assert len(found.message) == 1024


# Details ------------------------------------------------------------------------------------------------


def test_details_say_what_the_pool_waits_for_and_list_its_slots() -> None:
    world = PoolWorld(a_resolved(minInstances=3))
    world.run_until(lambda: len(world.machines) == 2)
    text = details(world.draft())
    assert "**default/training-pool-a100** generation 1: desired 3, min 3, max 20" in text
    assert (
        "Waits for: 1 launches to order (the cool-down until 12:05:01Z); 2 x an answer of the cloud" in text
    )
    assert text.count("\n| s") == 3, "heading and two machines"
    world.order(people.terminate_instance, "ins-unknown")
    world.run_until(lambda: world.ready == 3)


def test_details_list_slots_without_a_machine() -> None:
    assert "waits for a launch" in details(drought().draft())


@pytest.mark.parametrize(
    ("story", "text"),
    [
        (drought, "the next round of offers is at"),
        (dark, "no region can be used now"),
        (lambda: a_pool(1), "nothing"),
        (interrupted, "its drain"),
        (dying, "the confirmed absence of 1 machines"),
    ],
)
def test_waiting_is_told_with_its_reason(story: Callable[[], PoolWorld], text: str) -> None:
    assert text in story().now_waits_for


def test_waiting_for_the_first_readings_and_offers_is_told() -> None:
    world = PoolWorld(a_resolved(minInstances=1))
    world.run(0)
    assert "the cluster was not read yet" in world.now_waits_for
    world.run_until(lambda: "read-offers" in world.effects.in_flight.values())
    assert "1 launches to order (offers of aliyun:aliyun-credentials:cn-beijing" in world.now_waits_for


def test_waiting_for_room_below_the_ceiling_is_told() -> None:
    world = a_pool(1, maxInstances=1)
    world.order(people.terminate_instance, world.living[0].id)
    assert "maxInstances counts every machine until it is confirmed gone" in world.now_waits_for


def test_savings_of_time_cost_no_write() -> None:
    world = a_pool(1)
    before = world.status
    world.run(600)
    assert not world.status.differs_from(before), "costs and sync times alone are no cause"
    assert world.status.cost_as_of == at(world.t)
    assert world.status.cost_as_of - (before.cost_as_of or NOON) == timedelta(seconds=600)
