"""SIGKILL of the worker at ten exact points of purchases and terminations; then machines are counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.expectation import expect
from sandbox.kill_points import PURCHASE, TERMINATION, Deed, KillPoint, KillTrap
from sandbox.operator_processes import WORKER
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, small_pool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LEVEL_SECONDS = 120


@pytest.fixture(scope="module")
def pool(whole_stack: Stack) -> Iterator[WatchedPool]:
    pool = WatchedPool(whole_stack, "kill-points", "kills")
    slowly = {"scaleUpStep": 1, "scaleDownStep": 1, "cooldownSeconds": 1}
    pool.apply(small_pool(2, scaleStrategy=slowly))
    expect("2 machines at first", lambda: pool.at_level(2), within_seconds=LEVEL_SECONDS)
    yield pool
    pool.delete()
    expect("the pool leaves nothing", lambda: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)


def kill_in_the_middle(pool: WatchedPool, point: KillPoint, deed: Deed, target: int) -> str:
    trap = KillTrap(pool, point, deed)
    trap.arm()
    try:
        pool.patch(minInstances=target)
        proof = trap.wait()
    finally:
        trap.disarm()
    pool.stack.operator.start(WORKER)
    pool.stack.operator.wait_ready(WORKER)
    expect(f"{target} machines after the kill", lambda: pool.at_level(target), within_seconds=LEVEL_SECONDS)
    return proof


@pytest.mark.parametrize("point", [pytest.param(p, id=p.name.lower()) for p in KillPoint])
@pytest.mark.usefixtures("stack")
def test_p03_purchase_makes_one_machine_when_the_worker_is_killed(
    pool: WatchedPool, point: KillPoint
) -> None:
    target = pool.seen_soon().desired + 1
    before = {machine.id for machine in pool.bought()}
    proof = kill_in_the_middle(pool, point, PURCHASE, target)
    made = [machine.id for machine in pool.bought() if machine.id not in before]
    assert len(made) == 1, (proof, made)
    assert pool.doubles() == []
    assert pool.orphans() == []


@pytest.mark.parametrize("point", [pytest.param(p, id=p.name.lower()) for p in KillPoint])
@pytest.mark.usefixtures("stack")
def test_termination_ends_one_machine_when_the_worker_is_killed(pool: WatchedPool, point: KillPoint) -> None:
    target = pool.seen_soon().desired - 1
    before = {machine.id for machine in pool.live()}
    proof = kill_in_the_middle(pool, point, TERMINATION, target)
    after = {machine.id for machine in pool.live()}
    assert len(before - after) == 1, proof
    assert after <= before, proof
    assert pool.orphans() == []
