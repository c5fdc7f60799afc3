"""What is said of a pool's machines at its end: one that its cloud stopped and kept is left, too."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from domain.contracts.offers import ProviderName
from sandbox.audit import audit
from sandbox.clouds.aliyun import AliyunCloud
from sandbox.clouds.control import CloudControl
from sandbox.clouds.server import served
from sandbox.expectation import ExpectationError
from sandbox.watched_pool import WatchedPool
from tests.sandbox.clouds.aliyun_builders import a_cloud, purchase, signed

UID = "uid-1"
TOKEN = f"{UID}-aaaa-1"


@dataclass
class Books:
    """A served cloud, and as much of a stack as books need: its clouds."""

    cloud: AliyunCloud
    address: str
    stack: Any

    def buy(self) -> str:
        """A machine of the pool that a reclaim stops."""
        query = purchase(SpotInterruptionBehavior="Stop", ClientToken=TOKEN)
        request = signed("RunInstances", query, at=datetime.now(UTC))
        wire = urllib.request.Request(self.address + request.target, data=b"", headers=dict(request.headers))  # noqa: S310 - http
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(wire, timeout=5).close()
        return self.cloud.ledger.all()[-1].id

    def pool(self) -> WatchedPool:
        """The pool when its resource and its workflow are gone."""
        pool = WatchedPool(self.stack, "default", "pool")
        pool.uid = UID
        pool.observer = SimpleNamespace(  # type: ignore[assignment]  # nothing else of it is asked
            pool_resource=lambda *_: None, workflow_status=lambda _: "X_COMPLETED", nodes=dict[str, Any]
        )
        return pool


@pytest.fixture
def books() -> Iterator[Books]:
    cloud = a_cloud()
    with served(cloud) as address:
        stack = SimpleNamespace(
            world=SimpleNamespace(clouds=[SimpleNamespace(provider=ProviderName.ALIYUN)]),
            cloud=lambda _: CloudControl(address),
            cluster=SimpleNamespace(
                machine_access=lambda: SimpleNamespace(server="http://127.0.0.1:1", ca="", token="")
            ),
            temporal=SimpleNamespace(http_url="http://127.0.0.1:1"),
        )
        yield Books(cloud, address, stack)


def test_machine_that_its_cloud_stopped_and_keeps_is_left_and_an_orphan_until_it_is_ended(
    books: Books,
) -> None:
    bought, pool = books.buy(), books.pool()
    books.cloud.ledger.reclaim(bought, notice_seconds=None)
    assert (pool.live(), pool.clouds_used()) == ([], []), "it holds no capacity"
    assert (pool.orphans(), pool.is_gone()) == ([bought], False)
    with pytest.raises(ExpectationError, match=f"{bought} is left"):
        audit(books.stack, UID)
    books.cloud.ledger.terminate([bought])
    assert (pool.orphans(), pool.is_gone()) == ([], True)
    (line,) = audit(books.stack, UID)
    assert "1 machines by 1 purchases (1 create requests), all ended, 0 left" in line
