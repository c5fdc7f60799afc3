"""A part of the chaos matrix: two pairs of parts by seed."""

from __future__ import annotations

import pytest

from sandbox.chaos import Case, matrix, pairs, row, run_cases
from sandbox.stack import Stack
from tests.e2e.conftest import CHAOS_SEED, named

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.parametrize("case", pairs(matrix(CHAOS_SEED), CHAOS_SEED, 2), ids=named)
def test_chaos_leaves_the_pool_right_when_two_parts_are_killed(stack: Stack, case: Case) -> None:
    (verdict,) = run_cases(stack, [case], print)
    assert verdict.is_good, row(verdict)
