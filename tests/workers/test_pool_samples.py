import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from activities.cluster.base import POOLS, Object
from domain.contracts.errors import ClusterError, ErrorCode
from tests.fakes.cluster import FakeCluster
from workers.pool_samples import PoolReader, sample_of


def a_pool(name: str, **changes: object) -> Object:
    return {"metadata": {"name": name}, "spec": {"minInstances": 2, "maxInstances": 20}, **changes}


def test_sample_takes_what_the_resource_says() -> None:
    body = a_pool(
        "p",
        spec={"minInstances": 2, "maxInstances": 20, "budget": {"hourly": {"amount": 50.5}}},
        status={
            "currentInstances": 3,
            "interruptionsTotal": 7,
            "hourlyCost": 12.6,
            "totalCostThisMonth": 100.1,
            "costAsOf": "2026-07-01T12:00:00Z",
        },
    )
    body["metadata"]["namespace"] = "default"
    sample = sample_of(body)
    assert (sample.current_instances, sample.interruptions_total) == (3, 7)
    assert (sample.hourly_cost, sample.max_hourly_cost) == (Decimal("12.6"), Decimal("50.5"))
    assert sample.cost_as_of == datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
async def cluster() -> FakeCluster:
    cluster = FakeCluster(page_size=1)
    for name in ("a", "b"):
        await cluster.create(POOLS, a_pool(name), "default")
    await cluster.create(POOLS, {"metadata": {"name": "broken"}, "spec": {}}, "default")
    return cluster


def names(reader: PoolReader) -> list[str]:
    return [sample.name for sample in reader.samples]


async def test_reader_reads_only_when_asked_and_not_too_often(cluster: FakeCluster) -> None:
    reader = PoolReader(cluster, timedelta(hours=1))
    assert cluster.calls.count("list gpuspotpools") == 0
    await asyncio.gather(*(reader.refresh() for _ in range(5)))
    assert names(reader) == ["a", "b"], "a resource that cannot be read hides no other"
    assert cluster.calls.count("list gpuspotpools") == 3, "one reading of three pages"


async def test_reader_keeps_the_last_complete_reading_when_the_cluster_fails(cluster: FakeCluster) -> None:
    reader = PoolReader(cluster, timedelta(0))
    await reader.refresh()
    cluster.fail_next("list", ClusterError(ErrorCode.UNAVAILABLE, "down", operation="list"))
    await reader.refresh()
    assert names(reader) == ["a", "b"]
    await cluster.delete(POOLS, "a", namespace="default")
    await reader.refresh()
    assert names(reader) == ["b"]
