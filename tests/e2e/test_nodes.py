"""Machines and their Nodes parting: names used again (P01), Nodes removed while nobody looked (P41)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from domain.contracts.offers import ProviderName
from sandbox.expectation import expect
from sandbox.operator_processes import PROCESSES
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, small_pool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LEVEL_SECONDS = 90
JOIN_SECONDS = 10

MakePool = Callable[[str, int], WatchedPool]


@pytest.fixture
def make_pool(stack: Stack) -> Iterator[MakePool]:
    made: list[WatchedPool] = []

    def make(name: str, level: int) -> WatchedPool:
        pool = WatchedPool(stack, "nodes", name)
        made.append(pool)
        pool.apply(small_pool(level, timeouts={"joinSeconds": JOIN_SECONDS}))
        expect(f"{level} machines", lambda: pool.at_level(level), within_seconds=LEVEL_SECONDS)
        return pool

    yield make
    for pool in made:
        pool.delete()
    for pool in made:
        expect("nothing left", lambda pool=pool: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)


def test_p01_successor_of_the_same_name_joins_once_the_stale_node_is_removed(
    stack: Stack, make_pool: MakePool
) -> None:
    stack.switches.add_machine_fault({"node_name": "vm-reused", "count": 2})
    pool = make_pool("p01", 1)
    (first,) = pool.seen_soon().machines
    assert first.node == "vm-reused"
    stack.cloud(ProviderName(first.provider)).reclaim(first.id)

    def replaced() -> str | None:
        seen = pool.at_level(1)
        return seen.machines[0].id if seen and seen.machines[0].id != first.id else None

    second = expect("the slot is filled again", replaced, within_seconds=LEVEL_SECONDS)
    lives = {life["id"]: life for life in stack.switches.status()["machines"]}
    assert lives[second]["node"] == "vm-reused"
    assert first.id not in pool.joined()
    assert second in pool.joined()
    assert pool.orphans() == []


def test_p41_pools_heal_when_their_nodes_or_they_themselves_went_while_the_operator_was_down(
    stack: Stack, make_pool: MakePool
) -> None:
    kept, deleted = make_pool("p41-kept", 1), make_pool("p41-deleted", 1)
    (machine,) = kept.seen_soon().machines
    for name in PROCESSES:
        stack.operator.stop(name)
    stack.cluster.kubectl("delete", "node", machine.node)
    deleted.delete()
    stack.start_operator()

    expect("the deleted pool leaves nothing", lambda: deleted.is_gone() or None, within_seconds=LEVEL_SECONDS)
    # The machine whose Node was removed never registers again by itself: it is replaced.
    seen = expect(
        "the other pool has a joined machine again",
        lambda: kept.at_level(1),
        within_seconds=JOIN_SECONDS + LEVEL_SECONDS,
    )
    assert [m.id for m in seen.machines if m.status == "Running"] != [machine.id]
    assert machine.id not in {live.id for live in kept.live()}
    assert kept.orphans() == []
