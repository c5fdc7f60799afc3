"""A part of the chaos matrix: each part alone while a pool grows, and two pairs by seed."""

from __future__ import annotations

import pytest

from sandbox.chaos import Case, Stage, matrix, pairs, row, run_cases, singles
from sandbox.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SEED = 1


def named(case: Case) -> str:
    return "-".join((*case.targets, case.stage))


def check(stack: Stack, case: Case) -> None:
    (verdict,) = run_cases(stack, [case], print)
    assert verdict.is_good, row(verdict)


@pytest.mark.parametrize("case", singles(matrix(SEED, stages=[Stage.SCALE_UP])), ids=named)
def test_chaos_leaves_the_pool_right_when_one_part_is_killed_in_scale_up(stack: Stack, case: Case) -> None:
    check(stack, case)


@pytest.mark.parametrize("case", pairs(matrix(SEED), SEED, 2), ids=named)
def test_chaos_leaves_the_pool_right_when_two_parts_are_killed(stack: Stack, case: Case) -> None:
    check(stack, case)
