"""The chaos matrix: complete, and the same for the same seed."""

from __future__ import annotations

import pytest

from domain.contracts.offers import ProviderName
from sandbox.chaos import Case, Stage, Verdict, matrix, pairs, row, singles
from sandbox.outages import TARGETS


def test_matrix_has_every_part_alone_and_every_pair_in_every_stage() -> None:
    cases = matrix(7)
    assert len(cases) == (5 + 10) * 3
    assert len({(case.targets, case.stage) for case in cases}) == len(cases)
    assert {case.targets[0] for case in singles(cases)} == set(TARGETS)
    assert {case.stage for case in cases} == set(Stage)


def test_matrix_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert matrix(7) == matrix(7)
    assert matrix(7) != matrix(8)
    assert pairs(matrix(7), 7, 2) == pairs(matrix(7), 7, 2)


def test_pairs_are_as_many_as_asked_for_and_never_more_than_there_are() -> None:
    assert len(pairs(matrix(7), 7, 2)) == 2
    assert len(pairs(matrix(7), 7, 100)) == 30
    assert all(len(case.targets) == 2 for case in pairs(matrix(7), 7, 100))


def a_verdict(end_state: str, orphans: tuple[str, ...], doubles: tuple[str, ...]) -> Verdict:
    case = Case(("worker", "cloud"), Stage.DELETION, 0.5, 2.0, ProviderName.ALIYUN)
    return Verdict(case, "nothing left", 3.0, end_state, orphans, doubles, most_live=3, restarts=1)


@pytest.mark.parametrize(
    ("verdict", "good"),
    [
        pytest.param(a_verdict("right", (), ()), True, id="all right"),
        pytest.param(a_verdict("not within 150 s", (), ()), False, id="wrong end state"),
        pytest.param(a_verdict("right", ("ins-1",), ()), False, id="an orphan"),
        pytest.param(a_verdict("right", (), ("slot s1 has 2",)), False, id="a double"),
    ],
)
def test_verdict_is_good_only_without_orphan_double_and_wrong_end(verdict: Verdict, good: bool) -> None:
    assert verdict.is_good is good


def test_row_says_what_was_killed_when_and_what_came_of_it() -> None:
    text = row(a_verdict("right", (), ()))
    for part in ("worker + aliyun", "deletion", "0.5 s after the order, for 2.0 s", "nothing left", "right"):
        assert part in text
