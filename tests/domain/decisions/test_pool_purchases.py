"""How slots are filled: fresh facts, the ceiling, the ladder after a refusal, rounds, budgets, rejections."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from domain.contracts.commands import Launch, ReadOffers
from domain.contracts.facts import NodesSeen, RegionObservation
from domain.contracts.instances import LaunchRequest
from domain.contracts.money import ExchangeRate
from domain.contracts.node_classes import InstanceTypeOverride
from domain.contracts.offers import Interconnect
from domain.contracts.pool_state import PoolCarry
from domain.decisions import pool_interventions as people
from domain.decisions.pool_judgement import judge
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import (
    GUANGZHOU,
    REGIONS,
    SHANGHAI,
    SHENZHEN,
    a_node_class,
    a_resolved,
    a_setting,
    a_strategy_part,
    in_one_region,
)
from tests.domain.decisions.pool_world import PoolWorld


def a_world(plan: Callable[[LaunchRequest], str] | None = None, **fields: Any) -> PoolWorld:
    world = PoolWorld(a_resolved(**{"minInstances": 1, **fields}))
    world.effects.plan = plan
    return world


def tried(world: PoolWorld) -> list[str]:
    """``zone type`` of each create call, in order."""
    asked: list[str] = []
    plan = world.effects.plan

    def remember(request: LaunchRequest) -> str:
        asked.append(f"{request.offer.zone} {request.offer.instance_type.name}")
        return plan(request) if plan else ""

    world.effects.plan = remember
    return asked


def refuse(*zones: str) -> Callable[[LaunchRequest], str]:
    return lambda request: "refused" if request.offer.zone in zones or not zones else ""


# Facts first --------------------------------------------------------------------------------------------


def test_pool_orders_nothing_before_cloud_and_cluster_were_read() -> None:
    resolved, settings = a_resolved(), a_setting()
    first = judge(resolved, settings, PoolCarry(chain="c0ffee00"), (), now=NOON)
    assert sorted(c.kind for c in first.commands) == ["read-nodes", *["read-region"] * 4]
    nodes = NodesSeen(as_of=NOON, complete=True)
    second = judge(resolved, settings, first.state, (nodes,), now=NOON)
    assert second.commands == (), "the regions are still being read"
    readings = [RegionObservation(region=region, as_of=NOON) for region in REGIONS]
    third = judge(resolved, settings, second.state, readings, now=NOON)
    assert {c.kind for c in third.commands} == {"read-offers"}


def test_pool_buys_elsewhere_when_a_region_does_not_answer() -> None:
    world = a_world()
    world.clouds.down = {str(GUANGZHOU)}
    took = world.run_until(lambda: len(world.living) == 1)
    assert took < 60
    assert world.living[0].region != GUANGZHOU
    world.run_until(lambda: world.condition("ProviderUnavailable") == ("True", "Unreachable"), 60)
    assert "tencent ap-guangzhou" in world.message("ProviderUnavailable")


def test_pool_reads_a_region_again_before_it_buys_on_old_facts() -> None:
    world = a_world(**in_one_region())
    world.run_until(lambda: world.ready == 1)
    world.run(3600)
    world.edit(min_instances=2)
    world.run_until(lambda: world.ready == 2)  # the world's checks refuse a launch on old facts


def test_pool_buys_as_soon_as_a_region_answers_again() -> None:
    world = a_world(**in_one_region())
    world.clouds.down = {str(GUANGZHOU)}
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True", 120)
    failure = world.message("ScaleUpFailed")
    assert "no region can be used now: tencent:tencent-credentials:ap-guangzhou" in failure
    world.run(100)
    world.clouds.down.clear()
    assert world.run_until(lambda: len(world.living) == 1) <= 61
    world.run(5)
    assert world.condition("ScaleUpFailed")[0] == "False"


def test_pool_buys_nothing_in_a_region_with_an_open_circuit() -> None:
    world = a_world(**in_one_region())
    world.run_until(lambda: world.ready == 1)
    world.clouds.down = {str(GUANGZHOU)}
    world.run(400)
    world.edit(min_instances=2)
    world.run(60)
    assert len(world.clouds.creates) == 1
    assert "circuit-open" in world.message("ScaleUpFailed")
    assert not any(kind == "read-region" for kind in world.effects.in_flight.values()), "its sync probes it"
    world.clouds.down.clear()
    assert world.run_until(lambda: len(world.clouds.creates) == 2) < 120


def test_pool_says_that_no_region_is_left_when_nothing_is_served() -> None:
    world = PoolWorld(a_resolved(), a_setting(served_regions=()))
    world.run(10)
    assert world.clouds.creates == []
    assert "tencent: no region is served with account tencent-credentials" in world.message("ScaleUpFailed")
    assert world.condition("ProviderUnavailable") == ("True", "NotServed")


# The ladder ---------------------------------------------------------------------------------------------


def test_pool_tries_the_zone_again_then_its_next_zone_then_the_next_region() -> None:
    world = a_world(refuse("ap-guangzhou-3", "ap-guangzhou-6"))
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1)
    zones = [line.split()[0] for line in asked]
    assert zones == ["ap-guangzhou-3"] * 2 + ["ap-guangzhou-6"] * 2 + ["ap-shanghai-5"]


def test_pool_uses_the_next_subnet_of_the_zone_before_the_next_zone() -> None:
    part = a_node_class("tencent")
    network = part.spec.network[0]
    subnets = (*network.subnets, network.subnets[0].model_copy(update={"subnet_id": "subnet-second"}))
    changed = part.spec.model_copy(
        update={"network": (network.model_copy(update={"subnets": subnets}), *part.spec.network[1:])}
    )
    resolved = a_resolved(minInstances=1)
    classes = {**resolved.node_classes, "tencent": part.model_copy(update={"spec": changed})}
    world = PoolWorld(resolved.model_copy(update={"node_classes": classes}))
    used: list[str] = []

    def plan(request: LaunchRequest) -> str:
        used.append(request.subnet_id)
        return "refused" if request.offer.zone == "ap-guangzhou-3" else ""

    world.effects.plan = plan
    world.run_until(lambda: len(world.living) == 1)
    assert used == ["subnet-3aa2bb3c", "subnet-second", "subnet-6aa2bb3c"]


def test_pool_goes_on_to_other_providers_when_one_has_nothing() -> None:
    world = a_world(refuse("ap-guangzhou-3", "ap-guangzhou-6", "ap-shanghai-5"))
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1)
    assert asked[-1].startswith("cn-"), asked
    assert world.living[0].region in (SHENZHEN, REGIONS[3])


def test_pool_takes_the_next_type_before_another_provider_and_after_its_own_regions() -> None:
    world = a_world(
        lambda request: "refused" if request.offer.instance_type.name == "ecs.gn7-c12g1.3xlarge" else "",
        providers=[{"name": "aliyun"}],
    )
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1)
    types = [line.split()[1] for line in asked]
    assert types == ["ecs.gn7-c12g1.3xlarge"] * 8 + ["ecs.gn7e-c16g1.4xlarge"]


def test_pool_stays_with_its_type_when_fallback_is_switched_off() -> None:
    strict = a_strategy_part("strict", costFirst={"fallbackOnInsufficient": False})
    resolved = a_resolved(minInstances=1, providers=[{"name": "aliyun"}], strategyRef="strict")
    world = PoolWorld(resolved.model_copy(update={"strategies": {"strict": strict}}))
    cheap = "ecs.gn7-c12g1.3xlarge"
    world.effects.plan = lambda request: "refused" if request.offer.instance_type.name == cheap else ""
    asked = tried(world)
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    assert {line.split()[1] for line in asked} == {"ecs.gn7-c12g1.3xlarge"}


def test_pool_does_not_ask_again_where_the_type_is_not_sold() -> None:
    world = a_world(lambda request: "not-offered" if request.offer.zone == "ap-guangzhou-3" else "")
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1)
    assert [line.split()[0] for line in asked] == ["ap-guangzhou-3", "ap-guangzhou-6"]
    hold = next(h for h in world.state.holds if "ap-guangzhou-3" in h.prefix)
    assert (hold.until - NOON).total_seconds() > 86_000


def test_p18_pool_closes_the_family_for_an_hour_on_a_quota_answer_and_moves_on() -> None:
    world = a_world(lambda request: "quota" if request.offer.provider.value == "tencent" else "")
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1)
    assert [line.split()[0][:2] for line in asked] == ["ap", "ap", "cn"], (
        "one call a region, the next at once"
    )
    status, reason = world.condition("CapacityDegraded")
    assert (status, reason) == ("True", "QuotaExceeded")
    said = world.message("CapacityDegraded")
    assert "LimitExceeded.SpotQuota spot vCPU in ap-guangzhou-3: 64 of 64 used" in said
    assert all(3500 < (h.until - NOON).total_seconds() < 3700 for h in world.state.holds)
    world.run(3700)
    assert world.condition("CapacityDegraded")[0] == "False"


def test_pool_forgets_strikes_only_when_a_machine_came_up_in_full() -> None:
    world = a_world(**in_one_region())
    endings = iter(["refused"] * 2)
    world.effects.plan = lambda request: (
        next(endings, "") if request.offer.zone == "ap-guangzhou-3" else "refused"
    )
    world.run_until(lambda: len(world.living) == 1, 7200)
    assert any("ap-guangzhou-3" in h.prefix for h in world.state.holds), "created is not yet up"
    world.run_until(lambda: world.ready == 1)
    assert not any("ap-guangzhou-3" in h.prefix for h in world.state.holds)


# Rounds -------------------------------------------------------------------------------------------------


def test_pool_tries_every_minute_and_warns_after_three_rounds_without_an_offer() -> None:
    world = a_world(refuse(), **in_one_region())
    world.run_until(lambda: world.state.failed_rounds == 1)
    assert world.condition("ScaleUpFailed") == ("True", "NoOffer")
    failed = [e for e in world.events if e.reason.value == "ScaleUpFailed"]
    assert [e.type.value for e in failed] == ["Normal"]
    world.run_until(lambda: world.state.failed_rounds == 3)
    world.run(600)
    failed = [e for e in world.events if e.reason.value == "ScaleUpFailed"]
    assert [e.type.value for e in failed] == ["Normal", "Warning"], "a drought is not a flood of Events"
    assert world.condition("CapacityDegraded") == ("True", "BelowMinimum")
    assert len(world.clouds.creates) < 40, "offers without stock rest longer and longer"


def test_pool_clears_the_failure_with_the_first_success() -> None:
    world = a_world(refuse(), **in_one_region())
    world.run_until(lambda: world.state.failed_rounds == 3)
    world.effects.plan = None
    world.run_until(lambda: len(world.living) == 1, 7200)
    world.run(5)
    assert world.condition("ScaleUpFailed") == ("False", "OfferFound")
    assert world.state.failed_rounds == 0


def test_pool_fills_the_slots_that_it_can_when_another_gets_no_offer() -> None:
    world = a_world(minInstances=3, scaleStrategy={"scaleUpStep": 3}, **in_one_region())
    world.clouds.stock = {"ap-guangzhou-3": 1, "ap-guangzhou-6": 1}
    world.run_until(lambda: len(world.living) == 2)
    world.run(30)
    assert world.condition("ScaleUpFailed")[0] == "True"
    world.clouds.stock.clear()
    world.run_until(lambda: world.ready == 3, 7200)


def test_pool_does_not_wait_long_for_the_offers_of_a_slow_region() -> None:
    world = a_world()
    world.effects.never_answers = {str(SHANGHAI)}
    assert world.run_until(lambda: len(world.living) == 1) < 15


def test_pool_says_whose_offers_could_not_be_read() -> None:
    world = a_world(**in_one_region())
    world.run_until(lambda: world.ready == 1)
    world.run(1000)
    world.effects.offers_fail_with = "DescribeZoneInstanceConfigInfos: 503"
    world.edit(min_instances=2)
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    assert "offers not read: tencent:tencent-credentials:ap-guangzhou: DescribeZone" in world.message(
        "ScaleUpFailed"
    )


def test_pool_asks_for_the_types_that_its_node_class_adds() -> None:
    own = InstanceTypeOverride(
        name="GX9.LARGE", gpu_model="A100", gpu_count=1, gpu_memory_gb=40, interconnect=Interconnect.SINGLE
    )
    part = a_node_class("tencent", instance_types=(own,))
    resolved = a_resolved(**in_one_region()).model_copy(update={"node_classes": {"tencent": part}})
    world = PoolWorld(resolved)
    world.run(10)
    asked = [c for c in world.checks.ordered if isinstance(c, ReadOffers)]
    assert [row.name for row in asked[0].query.overrides] == ["GX9.LARGE"]
    assert "GX9.LARGE" in asked[0].query.instance_types


@pytest.mark.parametrize(
    ("lacks", "fields", "said"),
    [
        pytest.param({"images": ()}, {}, "has no image for it (it has none)", id="image"),
        pytest.param({"network": ()}, {}, "has no subnet in it (it has none)", id="network"),
        pytest.param(
            {},
            {"zones": ["ap-guangzhou-33"]},
            "has no subnet in ap-guangzhou-33 (it has ap-guangzhou-3, ap-guangzhou-6",
            id="zone",
        ),
        pytest.param({}, {"regions": ["ap-guangzho"]}, "not served with tencent-credentials", id="region"),
    ],
)
def test_pool_without_ground_says_which_node_class_lacks_what_where(
    lacks: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    entry = {"name": "tencent", "regions": ["ap-guangzhou"], **fields}
    resolved = a_resolved(providers=[entry]).model_copy(
        update={"node_classes": {"tencent": a_node_class("tencent", **lacks)}}
    )
    world = PoolWorld(resolved)
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    message = world.message("ScaleUpFailed")
    assert f"tencent {entry['regions'][0]}: " in message
    assert said in message


def test_pool_goes_elsewhere_when_every_purchase_of_a_region_fails_while_its_lists_work() -> None:
    world = a_world(lambda request: "unmade" if request.offer.provider.value == "tencent" else "")
    asked = tried(world)
    world.run_until(lambda: len(world.living) == 1, 600)
    assert [line.split()[0] for line in asked] == ["ap-guangzhou-3", "ap-shanghai-5", "cn-beijing-h"]
    assert world.condition("ProviderUnavailable") == ("True", "PurchasesFail")
    assert "tencent ap-guangzhou: purchases fail, Unanswered: " in world.message("ProviderUnavailable")
    world.run(600)
    assert world.condition("ProviderUnavailable")[0] == "False", "a rest has an end"


def test_pool_goes_elsewhere_at_once_when_a_purchase_was_certainly_never_carried_out() -> None:
    world = a_world(lambda request: "unsent" if request.offer.provider.value == "tencent" else "")
    world.run_until(lambda: len(world.living) == 1, 60)
    assert not any(command.kind == "find-launch" for command in world.checks.ordered)
    assert "tencent ap-guangzhou: purchases fail, Unanswered: nobody listens" in world.message(
        "ProviderUnavailable"
    )


def test_purchases_that_come_to_nothing_together_are_one_silence() -> None:
    fields = in_one_region(minInstances=4, scaleStrategy={"scaleUpStep": 4})
    world = a_world(lambda request: "unsent", **fields)
    world.run_until(lambda: len(world.clouds.creates) == 4, 60)
    world.run(10)
    (hold,) = (h for h in world.state.holds if h.reason.startswith("Unanswered"))
    assert hold.strikes == 1


def test_purchase_that_was_never_carried_out_holds_no_deletion_up() -> None:
    world = a_world(lambda request: "unsent")
    world.run_until(lambda: bool(world.clouds.creates))
    world.delete()
    world.run_until(lambda: world.finalizer_removed, 60)
    assert world.living == []


def test_region_that_answers_no_purchase_rests_longer_each_time_until_it_answers() -> None:
    world = a_world(lambda request: "unmade", **in_one_region())
    world.run(3600)
    assert 5 < len(world.clouds.creates) < 15
    world.effects.plan = None
    world.run_until(lambda: world.ready == 1, 7200)
    assert not any(hold.reason.startswith("Unanswered") for hold in world.state.holds)


# The ceiling and budgets --------------------------------------------------------------------------------


def test_pool_counts_a_machine_from_its_order_until_its_absence_is_confirmed() -> None:
    world = a_world(minInstances=2, maxInstances=2, scaleStrategy={"scaleUpStep": 2})
    world.run_until(lambda: world.ready == 2)
    world.order(people.terminate_instance, world.living[0].id)
    world.run_until(lambda: len(world.clouds.creates) == 3)
    ended = [e for e in world.events if e.reason.value == "InstanceTerminated"]
    assert len(ended) == 1, "bought only after the absence was confirmed"


def test_pool_goes_one_above_the_ceiling_for_a_machine_under_notice_only() -> None:
    world = a_world(minInstances=2, maxInstances=2, scaleStrategy={"scaleUpStep": 2})
    world.run_until(lambda: world.ready == 2)
    marked = world.living[0]
    world.notice(marked, 300)
    took = world.run_until(lambda: len(world.clouds.creates) == 3)
    assert marked.is_alive(world.t), "the replacement is ordered while the old machine lives"
    assert took <= 30 + 1 + 10
    world.run_until(lambda: len(world.living) == 3)
    world.run_until(lambda: world.ready == 2 and len(world.living) == 2)


def test_pool_stops_at_an_hourly_budget_that_stops_launches() -> None:
    world = a_world(
        minInstances=3,
        scaleStrategy={"scaleUpStep": 3},
        budget={"hourly": {"amount": 9, "action": "StopLaunches"}},
    )
    world.run_until(lambda: world.ready == 2)
    world.run(200)
    assert len(world.clouds.creates) == 2
    assert world.condition("BudgetExceeded") == ("True", "LaunchesStopped")
    assert "8.40 and 4.20 CNY/h" in world.message("BudgetExceeded")
    assert "over budget" in world.now_waits_for
    world.edit(budget=a_resolved(budget={"hourly": {"amount": 20}}).spec.budget)
    world.run_until(lambda: world.ready == 3)


def test_pool_buys_nothing_more_once_the_month_is_spent() -> None:
    world = a_world(budget={"monthly": {"amount": 10, "action": "StopLaunches"}})
    world.run_until(lambda: world.ready == 1)
    world.run(3 * 3600)
    assert world.condition("BudgetExceeded") == ("True", "Monthly")
    world.edit(min_instances=2)
    world.run(600)
    assert len(world.clouds.creates) == 1
    assert "of this month are spent" in world.message("BudgetExceeded")


def test_pool_only_tells_when_a_budget_does_not_stop_launches() -> None:
    world = a_world(minInstances=3, scaleStrategy={"scaleUpStep": 3}, budget={"hourly": {"amount": 9}})
    world.run_until(lambda: world.ready == 3)
    assert world.condition("BudgetExceeded") == ("True", "Hourly")


def test_pool_never_pays_more_than_its_ceiling() -> None:
    world = a_world(maxPricePerHour=4.25)
    world.clouds.stock = {"ap-guangzhou-3": 0, "ap-shanghai-5": 0}
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    said = world.message("ScaleUpFailed")
    assert "OverCeiling" in said
    assert "4.30 CNY is above the ceiling 4.25" in said, "the cheapest tells by how much"
    assert world.living == []


def test_pool_says_in_which_currency_its_offers_are_and_what_is_missing() -> None:
    world = a_world(currency="USD")
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    said = world.message("ScaleUpFailed")
    assert "priced in CNY, the pool counts in USD, and the operator has no rate of CNY/USD" in said


def test_pool_that_narrows_its_types_to_none_names_them() -> None:
    entry = {"name": "tencent", "regions": ["ap-guangzhou"], "instanceTypes": ["foo.bar"]}
    world = a_world(providers=[entry])
    world.run_until(lambda: world.condition("ScaleUpFailed")[0] == "True")
    assert "among its instanceTypes (foo.bar) has the wanted GPUs" in world.message("ScaleUpFailed")


# Rejections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "condition", "reason"),
    [
        ("rejected", "ConfigurationInvalid", "LaunchRejected"),
        ("forbidden", "ProviderUnavailable", "CredentialsRejected"),
    ],
)
def test_pool_names_what_was_rejected_and_goes_elsewhere(ending: str, condition: str, reason: str) -> None:
    world = a_world(lambda request: ending if request.offer.region == "ap-guangzhou" else "")
    world.run_until(lambda: len(world.living) == 1)
    assert world.condition(condition) == ("True", reason)
    if ending == "rejected":
        assert "launch by GPUSpotNodeClass tencent was rejected" in world.message(condition)
    other = "tencent" if ending == "rejected" else "aliyun"
    assert world.living[0].region.provider == other, "wrong keys are the whole provider's"
    assert "LaunchRejected" in world.reasons()
    world.run(301)
    assert world.condition(condition)[0] == "False", "tried again after a while"


def test_launch_request_carries_everything_but_a_secret() -> None:
    world = a_world()
    world.run(10)
    launches = [c for c in world.checks.ordered if isinstance(c, Launch)]
    request = launches[0].request
    uid = world.resolved.uid
    assert launches[0].token == request.token == f"{uid}-c0ffee00-1"
    assert len(request.token) <= 64
    assert request.name == "training-pool-a100-c0ffee00-1"
    assert request.tags == {
        "team": "training",
        "spotgpu-pool": uid,
        "spotgpu-slot": "s1",
        "spotgpu-launch": request.token,
    }
    assert request.taints == (
        "spotgpu.zuoyang.io/spot-instance=true:NoSchedule",
        "node.alpha.spotgpu.zuoyang.io/gpu-not-ready=true:NoSchedule",
    )
    assert request.image_id == "img-9qabwvbn"
    assert request.subnet_id == "subnet-3aa2bb3c"
    assert request.max_price_per_hour == Decimal("8.0")
    assert request.join_secret == "cluster-join"
    assert "{{ join.token }}" in request.user_data_template, "filled in where the call is made"


def test_pool_says_that_no_instance_type_has_the_wanted_gpus() -> None:
    world = PoolWorld(a_resolved(gpuTypes=["H9000-40G"]))
    world.run(60)
    assert "no instance type of" in world.message("ScaleUpFailed")
    assert "(H9000-40G)" in world.message("ScaleUpFailed")


def test_pool_sets_the_dead_man_switch_a_day_ahead_of_each_purchase() -> None:
    world = a_world()
    asked: list[datetime | None] = []
    world.effects.plan = lambda request: asked.append(request.dead_man_at) or ""
    world.run_until(lambda: len(world.living) == 1)
    assert asked
    assert all(at is not None and 86_400 <= (at - NOON).total_seconds() < 86_700 for at in asked)


def test_pool_bids_in_the_currency_of_the_cloud() -> None:
    dollars = ExchangeRate(base="USD", quote="CNY", rate=Decimal(8), as_of=NOON, source="operator setting")
    world = PoolWorld(a_resolved(minInstances=1, maxPricePerHour="80"), a_setting(exchange_rates=(dollars,)))
    bids: list[Decimal | None] = []
    world.effects.plan = lambda request: bids.append(request.max_price_per_hour) or ""
    world.clouds.currency = "USD"
    world.run_until(lambda: len(world.living) == 1)
    assert bids == [Decimal(10)], "80 CNY are 10 USD"
    (machine,) = world.state.machines.values()
    assert machine.offer.price is not None
    assert (machine.offer.price.currency, machine.offer.price.per_hour >= 8) == ("CNY", True)


def test_pool_says_once_that_a_circuit_opened_and_once_that_it_closed() -> None:
    world = a_world()
    world.run_until(lambda: len(world.living) == 1)
    world.clouds.down = {str(GUANGZHOU)}
    world.run(900)
    assert world.condition("ProviderUnavailable")[0] == "True"
    world.clouds.down = set()
    world.run(900)
    assert world.condition("ProviderUnavailable")[0] == "False"
    said = [e.message for e in world.events if e.reason.startswith("Provider")]
    assert said == [
        "tencent ap-guangzhou fails: nothing is bought there until it answers again (no answer)",
        "tencent ap-guangzhou answers again",
    ]


def test_pool_asks_the_same_zone_again_at_the_price_in_its_own_currency() -> None:
    dollars = ExchangeRate(base="USD", quote="CNY", rate=Decimal(8), as_of=NOON, source="operator setting")
    world = PoolWorld(a_resolved(minInstances=1, maxPricePerHour="80"), a_setting(exchange_rates=(dollars,)))
    world.clouds.currency = "USD"
    answers = iter(["refused"])
    world.effects.plan = lambda request: next(answers, "")
    world.run_until(lambda: len(world.living) == 1)
    (machine,) = world.state.machines.values()
    assert machine.offer.price is not None
    assert machine.subnet_index == 1, "the second try in the zone"
    assert machine.offer.price.currency == "CNY"
