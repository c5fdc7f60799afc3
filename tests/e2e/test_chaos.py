"""A part of the chaos matrix: each part alone while a pool grows."""

from __future__ import annotations

import pytest

from sandbox.chaos import Case, Stage, matrix, row, run_cases, singles
from sandbox.stack import Stack
from tests.e2e.conftest import CHAOS_SEED, named

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.parametrize("case", singles(matrix(CHAOS_SEED, stages=[Stage.SCALE_UP])), ids=named)
def test_chaos_leaves_the_pool_right_when_one_part_is_killed_in_scale_up(stack: Stack, case: Case) -> None:
    (verdict,) = run_cases(stack, [case], print)
    assert verdict.is_good, row(verdict)
