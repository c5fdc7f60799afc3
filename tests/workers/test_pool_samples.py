from datetime import UTC, datetime, timedelta
from decimal import Decimal

from activities.cluster.base import POOLS, Object
from domain.contracts.errors import ClusterError, ErrorCode
from tests.crd_bridge.waiting import running, until
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


async def test_reader_keeps_the_last_complete_reading() -> None:
    cluster = FakeCluster(page_size=1)
    for name in ("a", "b"):
        await cluster.create(POOLS, a_pool(name), "default")
    await cluster.create(POOLS, {"metadata": {"name": "broken"}, "spec": {}}, "default")
    reader = PoolReader(cluster)
    async with running(reader.run(timedelta(milliseconds=5))):
        await until(lambda: len(reader.samples) == 2)
        cluster.fail_next("list", ClusterError(ErrorCode.UNAVAILABLE, "down", operation="list"), times=3)
        await until(lambda: cluster.calls.count("list gpuspotpools") > 12)
        assert [sample.name for sample in reader.samples] == ["a", "b"]
        await cluster.delete(POOLS, "a", namespace="default")
        await until(lambda: [sample.name for sample in reader.samples] == ["b"])
