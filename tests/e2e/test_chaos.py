"""A part of the chaos matrix: each part alone while a pool grows."""

from __future__ import annotations

import pytest

from sandbox.chaos import Case, Stage, matrix, row, run_cases, singles
from sandbox.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SEED = 1


def named(case: Case) -> str:
    return "-".join((*case.targets, case.stage))


@pytest.mark.parametrize("case", singles(matrix(SEED, stages=[Stage.SCALE_UP])), ids=named)
def test_chaos_leaves_the_pool_right_when_one_part_is_killed_in_scale_up(stack: Stack, case: Case) -> None:
    (verdict,) = run_cases(stack, [case], print)
    assert verdict.is_good, row(verdict)
