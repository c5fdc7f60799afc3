"""Facts that come for nothing or too late: ends of launches, looks and effects that nobody waits for."""

from datetime import timedelta
from typing import Any

import pytest

from domain.contracts.commands import Launch
from domain.contracts.errors import ErrorCode
from domain.contracts.facts import Demand, DrainResult, NodeFact, NodesSeen, RegionObservation
from domain.contracts.instances import Created, Refusal, Rejected
from domain.contracts.offers import CapacityType
from domain.contracts.outcomes import (
    Described,
    Drained,
    DrainFailed,
    Fact,
    FinalizerRemoved,
    LaunchAnswered,
    LaunchLooked,
    LaunchUnanswered,
    LookFailed,
    NodesSettled,
    Retained,
)
from domain.contracts.pool_state import LeaveReason, MachinePhase, Market, OfferHold, PoolCarry
from domain.contracts.pools import DeletionPolicy
from domain.decisions.launch_requests import launch_request, subnets_of
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_facts import absorb
from domain.decisions.pool_judgement import judge
from domain.decisions.pool_refusals import absorb_refusal
from domain.decisions.pool_regions import _Wanted
from tests.domain.decisions.builders import NOON, an_offer
from tests.domain.decisions.pool_inputs import (
    GUANGZHOU,
    SHANGHAI,
    UID,
    a_node_class,
    a_profile,
    a_resolved,
    a_setting,
    a_state_of,
)
from tests.domain.decisions.pool_world import PoolWorld

TOKEN = f"{UID}-c0ffee00-1"
STOCK = Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="SoldOut")


def a_draft(state: PoolCarry | None = None, **fields: Any) -> Draft:
    return Draft(a_resolved(**fields), a_setting(), state or a_state_of(2), NOON)


@pytest.mark.parametrize(
    "fact",
    [
        LaunchAnswered(token="nobody", result=Created(instance_id="ins-x", zone="z")),
        LaunchUnanswered(token="nobody", error="late"),
        LaunchLooked(token="nobody", as_of=NOON, instances=()),
        LookFailed(token="nobody", error="late"),
        Described(region=GUANGZHOU, asked=("ins-x",), as_of=NOON, instances=()),
        Drained(token="nobody", result=DrainResult(done=True)),
        DrainFailed(token="nobody", error="late"),
        NodesSettled(tokens=("nobody",)),
        Retained(region=GUANGZHOU, instance_ids=("ins-x",)),
        FinalizerRemoved(),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_fact_about_what_the_pool_does_not_know_changes_nothing(fact: Fact) -> None:
    draft = a_draft()
    absorb(draft, fact)
    assert draft.state == a_state_of(2)


@pytest.mark.parametrize(
    "fact",
    [
        LaunchAnswered(token=TOKEN, result=Created(instance_id="ins-0001", zone="z")),
        LaunchUnanswered(token=TOKEN, error="late"),
        LaunchAnswered(token=TOKEN, result=STOCK),
    ],
    ids=["answered", "unanswered", "refused"],
)
def test_end_of_a_create_call_whose_machine_was_seen_before_only_frees_it(fact: Fact) -> None:
    state = a_state_of(2)
    flying = state.machines[TOKEN].model_copy(update={"in_flight": "launch"})
    draft = a_draft(state.model_copy(update={"machines": {**state.machines, TOKEN: flying}}))
    absorb(draft, fact)
    assert draft.state == state


def test_look_for_a_launch_whose_machine_was_named_meanwhile_changes_nothing() -> None:
    draft = a_draft()
    absorb(draft, LaunchLooked(token=TOKEN, as_of=NOON, instances=()))
    absorb(draft, LookFailed(token=TOKEN, error="late"))
    assert draft.state == a_state_of(2)


def test_older_demand_changes_nothing() -> None:
    draft = a_draft(profiles=(a_profile(),))
    newer = Demand(as_of=NOON)
    absorb(draft, newer)
    absorb(draft, Demand(as_of=NOON - timedelta(seconds=1)))
    assert draft.state.demand is newer


@pytest.mark.parametrize("answer", [STOCK, Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="NoImage")])
def test_refusal_of_a_launch_whose_slot_is_gone_or_filled_again_frees_nothing(answer: Any) -> None:
    state = a_state_of(2)
    ordered = state.machines[TOKEN].model_copy(
        update={"phase": MachinePhase.ORDERED, "instance_id": "", "in_flight": "launch", "token": "old"}
    )
    draft = a_draft(state.model_copy(update={"machines": {**state.machines, "old": ordered}}))
    absorb(draft, LaunchAnswered(token="old", result=answer))
    assert draft.state.machines == state.machines
    assert draft.state.slots == state.slots, "the slot is filled by another launch"
    draft = a_draft(state.model_copy(update={"machines": {**state.machines, "old": ordered}, "slots": ()}))
    absorb(draft, LaunchAnswered(token="old", result=answer))
    assert draft.state.slots == ()
    assert draft.state.holds


def test_refusal_counts_for_an_offer_whose_node_class_went_away() -> None:
    draft = Draft(a_resolved(node_classes=()), a_setting(), a_state_of(1), NOON)
    absorb_refusal(draft, draft.state_of(TOKEN), STOCK)
    assert draft.state.slots[0].excluded == (f"{an_offer().key}#again",)


@pytest.mark.parametrize(("ends_after", "stays"), [(60, True), (-60, False)], ids=["in force", "over"])
def test_machine_that_came_up_in_full_ends_old_strikes_and_no_hold_in_force(
    ends_after: float, stays: bool
) -> None:
    state = a_state_of(1)
    joined = state.machines[TOKEN].model_copy(update={"phase": MachinePhase.JOINED, "joined_at": NOON})
    hold = OfferHold(prefix=an_offer().key, until=NOON + timedelta(seconds=ends_after), reason="stock")
    draft = a_draft(state.model_copy(update={"machines": {TOKEN: joined}, "holds": (hold,)}))
    node = NodeFact(provider_id=joined.provider_id, name="node-1", ready=True, gpus_allocatable=1)
    absorb(draft, NodesSeen(as_of=NOON, nodes=(node,)))
    assert draft.state_of(TOKEN).phase is MachinePhase.READY
    assert (draft.state.holds == (hold,)) is stays


def test_retained_machine_is_forgotten() -> None:
    draft = a_draft(deletionPolicy=DeletionPolicy.RETAIN)
    absorb(draft, Retained(region=GUANGZHOU, instance_ids=("ins-0001",)))
    assert set(draft.state.machines) == {f"{UID}-c0ffee00-2"}


def test_deletion_that_turns_up_again_in_a_judgement_ends_what_was_seen_since() -> None:
    resolved = a_resolved().model_copy(update={"deleting": True})
    first = judge(resolved, a_setting(), a_state_of(1), (), now=NOON)
    again = judge(resolved, a_setting(), first.state, (), now=NOON)
    assert again.commands == (), "everything is under way"
    assert all(m.leave is LeaveReason.POOL_DELETED for m in again.state.machines.values())


def test_machine_is_not_looked_at_where_nobody_would_answer() -> None:
    state = a_state_of(1)
    due = state.machines[TOKEN].model_copy(update={"next_check_at": NOON})
    state = state.model_copy(update={"machines": {TOKEN: due}})
    served = judge(a_resolved(minInstances=1), a_setting(), state, (), now=NOON)
    assert [c.kind for c in served.commands] == ["describe"]
    settings = a_setting(served_regions=(SHANGHAI,))
    assert not judge(a_resolved(minInstances=1), settings, state, (), now=NOON).commands


def test_observation_of_a_region_leaves_machines_of_others_alone() -> None:
    draft = a_draft()
    absorb(draft, RegionObservation(region=SHANGHAI, as_of=NOON))
    assert draft.state.machines == a_state_of(2).machines


def test_region_without_an_image_boots_nothing() -> None:
    spec = a_node_class("tencent").spec
    assert subnets_of(spec, "ap-guangzhou") == {
        "ap-guangzhou-3": ("subnet-3aa2bb3c",),
        "ap-guangzhou-6": ("subnet-6aa2bb3c",),
    }
    assert subnets_of(spec.model_copy(update={"images": ()}), "ap-guangzhou") == {}


def test_on_demand_machine_is_bought_without_a_bid_and_without_the_spot_taint() -> None:
    offer = an_offer().model_copy(update={"capacity_type": CapacityType.ON_DEMAND})
    resolved = a_resolved()
    spec = resolved.node_classes["tencent"].spec
    request = launch_request(resolved, spec, offer, token=TOKEN, slot="s1", number=1)
    assert request.max_price_per_hour is None
    assert request.taints == ("node.alpha.spotgpu.zuoyang.io/gpu-not-ready=true:NoSchedule",)


def test_token_that_a_reset_workflow_would_use_again_is_passed_over() -> None:
    market = Market(offers=(an_offer(),), started_at=NOON, read_at=NOON)
    state = a_state_of(2).model_copy(update={"launch_counter": 0, "market": market})
    judgement = judge(a_resolved(minInstances=3), a_setting(), state, (), now=NOON)
    assert [c.token for c in judgement.commands if isinstance(c, Launch)] == [f"{UID}-c0ffee00-3"]


def test_notice_about_a_machine_that_is_being_ended_is_no_interruption() -> None:
    state = a_state_of(1)
    told = state.machines[TOKEN].model_copy(
        update={
            "leave": LeaveReason.SCALE_DOWN,
            "phase": MachinePhase.TERMINATING,
            "terminate_told_at": NOON,
        }
    )
    world = PoolWorld(a_resolved(minInstances=1))
    world.run_until(lambda: world.ready == 1)
    machine = world.living[0]
    machine.notice_at = world.t
    seen = machine.seen(world.t).model_copy(update={"id": "ins-0001"})
    draft = a_draft(state.model_copy(update={"machines": {TOKEN: told}, "slots": ()}))
    absorb(draft, RegionObservation(region=GUANGZHOU, as_of=NOON, instances=(seen,)))
    assert draft.state.interruptions_total == 0
    assert draft.state_of(TOKEN).notice_at is None


def test_inputs_are_told_apart_by_identity_only() -> None:
    resolved, settings = a_resolved(), a_setting()
    assert _Wanted(resolved, settings) == _Wanted(resolved, settings)
    assert _Wanted(resolved, settings) != _Wanted(a_resolved(), settings)
    assert _Wanted(resolved, settings) != object()
