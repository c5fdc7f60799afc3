from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.facts import OwnershipAnswer
from domain.contracts.pools import OrphanPolicy
from domain.decisions import orphans
from tests.activities.builders import NOW, a_machine, an_offer

AGE = timedelta(minutes=11)


def said(number: int, owned: bool) -> OwnershipAnswer:
    return OwnershipAnswer(instance_id=f"ins-{number:04d}", owned=owned, reason="")


@pytest.mark.parametrize(
    ("age", "judged"),
    [
        pytest.param(AGE - timedelta(seconds=1), False, id="younger than the limit"),
        pytest.param(AGE, False, id="exactly as old as the limit"),
        pytest.param(AGE + timedelta(seconds=1), True, id="older than the limit"),
        pytest.param(timedelta(days=-1), False, id="born in the future by a wrong clock"),
    ],
)
def test_p05_suspects_are_only_machines_older_than_any_create_call(age: timedelta, judged: bool) -> None:
    machine = a_machine(age=age)
    assert orphans.suspects([machine], min_age=AGE, now=NOW) == ((machine,) if judged else ())


def test_disowned_needs_an_explicit_no() -> None:
    machines = [a_machine(n) for n in (1, 2, 3)]
    assert orphans.disowned(machines, [said(1, False), said(2, True)]) == (machines[0],)


def test_disowned_believes_a_yes_whoever_else_says_no() -> None:
    assert orphans.disowned([a_machine(1)], [said(1, True), said(1, False)]) == ()
    assert orphans.disowned([a_machine(1)], [said(1, False), said(1, True)]) == ()


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans())), st.sets(st.integers(1, 6)))
def test_disowned_never_names_a_machine_that_was_owned_or_not_answered(
    answers: list[tuple[int, bool]], present: set[int]
) -> None:
    machines = [a_machine(n) for n in sorted(present)]
    found = orphans.disowned(machines, [said(n, owned) for n, owned in answers])
    for machine in found:
        words = [owned for n, owned in answers if f"ins-{n:04d}" == machine.instance_id]
        assert words
        assert not any(words)


def test_still_there_takes_the_second_sighting() -> None:
    later = a_machine(1, slot="s9")
    assert orphans.still_there([a_machine(1), a_machine(2)], [later, a_machine(3)]) == (later,)


def test_reclaim_follows_the_pool_before_the_operator() -> None:
    mine, other = a_machine(1, pool="a"), a_machine(2, pool="b")
    policies = {"a": OrphanPolicy.REPORT}
    assert orphans.to_reclaim([mine, other], policies, OrphanPolicy.RECLAIM) == (other,)
    assert orphans.to_reclaim([mine, other], {"a": OrphanPolicy.RECLAIM}, OrphanPolicy.REPORT) == (mine,)


def test_orphans_are_priced_by_zone_and_type_where_a_price_is_known() -> None:
    known, unknown = a_machine(1), a_machine(2, zone="ap-guangzhou-6")
    priced = orphans.priced([known, unknown], [an_offer("4.20"), an_offer(None, zone="ap-guangzhou-6")])
    assert [o.price_per_hour for o in priced] == [Decimal("4.20"), None]
    assert orphans.hourly_cost(priced) == Decimal("4.20")
    assert "4.20 an hour" in orphans.announce_orphan(priced[0], now=NOW).message


def test_orphan_events_have_one_key_per_machine() -> None:
    first = orphans.announce_orphan(a_machine(1), now=NOW)
    again = orphans.announce_orphan(a_machine(1), now=NOW + timedelta(hours=1))
    other = orphans.announce_orphan(a_machine(2), now=NOW)
    assert first.key == again.key != other.key
    assert orphans.announce_reclaimed(a_machine(1), now=NOW).key != first.key
