"""Random lives of a pool in a simulated outside; every step is checked against what must always hold.

``POOL_WALKS=2000`` walks that many; a failure prints its seed's schedule.
"""

import os

import pytest

from tests.domain.decisions.pool_walk import Walk

# At a desk fewer than in CI, as with the examples of properties.
WALKS = int(os.environ.get("POOL_WALKS", "40" if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else "20"))
_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, WALKS, _PER_TEST))
def test_pool_walk_keeps_every_invariant_and_comes_to_rest(first: int) -> None:
    for seed in range(first, first + _PER_TEST):
        Walk(seed).live()
