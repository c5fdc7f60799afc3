"""A cloud that lists its machines well and fails every purchase: the level is kept by another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domain.contracts.offers import ProviderName
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.expectation import expect
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, sell_as_usual, sell_nothing, small_pool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LEVEL_SECONDS = 90


@pytest.fixture
def pool(stack: Stack) -> Iterator[WatchedPool]:
    pool = WatchedPool(stack, "failing", "failing")
    yield pool
    sell_as_usual(stack, ProviderName.ALIYUN)
    pool.delete()
    expect("nothing left", lambda: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)


def _unavailable(pool: WatchedPool) -> str | None:
    """The message of the condition when purchases fail."""
    found = pool.condition("ProviderUnavailable")
    return found["message"] if found.get("reason") == "PurchasesFail" else None


def test_level_is_kept_elsewhere_when_a_cloud_fails_every_purchase_while_its_lists_work(
    stack: Stack, pool: WatchedPool
) -> None:
    stack.cloud(ProviderName.TENCENT).set_fault(Fault(kind=FaultKind.FAIL, action="RunInstances"))
    sell_nothing(stack, ProviderName.ALIYUN)
    pool.apply(small_pool(1))
    said = expect("the condition", lambda: _unavailable(pool), within_seconds=LEVEL_SECONDS)
    assert said.startswith("tencent ap-")
    sell_as_usual(stack, ProviderName.ALIYUN)
    seen = expect("1 machine", lambda: pool.at_level(1), within_seconds=LEVEL_SECONDS)
    assert seen.machines[0].provider == ProviderName.ALIYUN
    assert [machine.id for machine in pool.bought()] == [seen.machines[0].id]
    assert pool.orphans() == []
    assert pool.doubles() == []
