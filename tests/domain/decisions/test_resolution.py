"""Edits that come late, twice, or with parts missing."""

from domain.contracts.resolved import ResolvedPool, Unresolved
from domain.decisions.resolution import merge
from tests.domain.decisions.pool_inputs import a_node_class, a_profile, a_resolved, a_strategy_part


def an_edit(generation: int, **fields: object) -> ResolvedPool:
    return a_resolved(generation=generation).model_copy(update=fields)


def test_newer_generation_wins_and_a_repeat_changes_nothing() -> None:
    known = a_resolved(generation=1, minInstances=1)
    edit = a_resolved(generation=2, minInstances=3)
    merged = merge(known, edit)
    assert (merged.generation, merged.spec.min_instances) == (2, 3)
    assert merge(merged, edit) == merged


def test_older_generation_changes_nothing() -> None:
    known = a_resolved(generation=3, minInstances=3)
    assert merge(known, a_resolved(generation=2, minInstances=1)) == known


def test_part_of_a_newer_generation_counts_even_in_a_late_edit() -> None:
    known = an_edit(3, strategies={"s": a_strategy_part("s")}, spec=a_resolved(strategyRef="s").spec)
    newer = a_strategy_part("s", generation=2, mode="Balance")
    merged = merge(known, an_edit(2, strategies={"s": newer}))
    assert merged.strategies["s"] == newer
    assert merged.generation == 3


def test_late_edit_does_not_bring_back_an_object_that_was_made_anew() -> None:
    spec = a_resolved(strategyRef="s").spec
    anew = a_strategy_part("s", uid="second")
    known = an_edit(3, strategies={"s": anew}, spec=spec)
    late = an_edit(2, strategies={"s": a_strategy_part("s", uid="first", generation=9)}, spec=spec)
    assert merge(known, late).strategies == {"s": anew}
    timely = an_edit(3, strategies={"s": a_strategy_part("s", uid="third")}, spec=spec)
    assert merge(known, timely).strategies["s"].origin.uid == "third"


def test_strategy_that_cannot_be_found_leaves_the_last_good_one_in_force() -> None:
    day = a_strategy_part("day", mode="Balance")
    known = an_edit(1, strategies={"day": day}, spec=a_resolved(strategyRef="day").spec)
    missing = Unresolved(kind="GPUSpotStrategy", name="night", message="not found")
    renamed = an_edit(2, spec=a_resolved(strategyRef="night").spec, unresolved=(missing,))
    merged = merge(known, renamed)
    assert merged.strategies == {"night": day}
    assert merged.unresolved == (missing,)
    again = merge(merged, an_edit(3, spec=a_resolved(strategyRef="noon").spec, unresolved=(missing,)))
    assert again.strategies == {"noon": day}
    night = a_strategy_part("noon", mode="StableFirst")
    found = merge(again, an_edit(4, spec=a_resolved(strategyRef="noon").spec, strategies={"noon": night}))
    assert found.strategies == {"noon": night}
    assert found.unresolved == ()


def test_strategies_that_the_spec_does_not_name_any_more_are_forgotten() -> None:
    known = an_edit(1, strategies={"a": a_strategy_part("a")}, spec=a_resolved(strategyRef="a").spec)
    assert merge(known, an_edit(2)).strategies == {}


def test_strategies_of_the_schedule_are_kept() -> None:
    window = {"strategyRef": "night", "cron": "0 20 * * *", "durationMinutes": 600}
    spec = a_resolved(strategyRef="day", strategySchedule=[window]).spec
    parts = {"day": a_strategy_part("day"), "night": a_strategy_part("night")}
    assert set(merge(an_edit(1), an_edit(2, spec=spec, strategies=parts)).strategies) == {"day", "night"}


def test_node_class_that_went_missing_stays_as_it_was_last_seen() -> None:
    known = an_edit(1)
    merged = merge(known, an_edit(2, node_classes={"tencent": a_node_class("tencent", generation=2)}))
    assert merged.node_classes["tencent"].origin.generation == 2
    assert merged.node_classes["aliyun"] == known.node_classes["aliyun"]


def test_profiles_are_those_of_the_newest_edit_each_in_its_newest_version() -> None:
    first, second = a_profile("a", min_count=1), a_profile("b")
    newer = first.model_copy(update={"origin": first.origin.model_copy(update={"generation": 2})})
    known = an_edit(1, profiles=(newer,))
    assert merge(known, an_edit(2, profiles=(first, second))).profiles == (newer, second)
    assert merge(known, an_edit(2)).profiles == (), "not bound any more"


def test_late_edit_changes_no_binding_but_may_bring_a_newer_profile() -> None:
    first = a_profile("a")
    newer = first.model_copy(update={"origin": first.origin.model_copy(update={"generation": 2})})
    known = an_edit(3, profiles=(first,))
    assert merge(known, an_edit(2, profiles=(a_profile("b"),))).profiles == (first,)
    assert merge(known, an_edit(2, profiles=(newer,))).profiles == (newer,)


def test_deletion_is_taken_over_from_any_edit_and_never_taken_back() -> None:
    known = an_edit(3)
    dying = merge(known, an_edit(2, deleting=True))
    assert dying.deleting
    assert merge(dying, an_edit(4)).deleting
