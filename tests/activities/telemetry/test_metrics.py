import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from activities.telemetry import metrics
from activities.telemetry.metrics import PoolCollector, PoolSample
from tests.activities.builders import NOW

SAMPLE = PoolSample(
    namespace="default",
    name="pool",
    min_instances=2,
    max_instances=20,
    current_instances=3,
    desired_instances=4,
    ready_instances=1,
    interruptions_total=5,
    hourly_cost=Decimal("6.00"),
    max_hourly_cost=Decimal("50.00"),
    month_cost=Decimal("100.00"),
    cost_as_of=NOW,
)
LABELS = {"namespace": "default", "pool": "pool"}


def collected(*samples: PoolSample, later: timedelta = timedelta()) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PoolCollector(lambda: samples, now=lambda: NOW + later))
    return registry


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spotgpu_pool_current_instances", 3),
        ("spotgpu_pool_min_instances", 2),
        ("spotgpu_pool_interrupt_total", 5),
        ("spotgpu_pool_hourly_cost", 6),
        ("spotgpu_pool_max_hourly_cost", 50),
        ("spotgpu_pool_max_instances", 20),
        ("spotgpu_pool_desired_instances", 4),
        ("spotgpu_pool_ready_instances", 1),
        ("spotgpu_pool_month_cost", 100),
    ],
)
def test_pool_series_has_exactly_this_name(name: str, value: float) -> None:
    registry = collected(SAMPLE)
    assert registry.get_sample_value(name, LABELS) == value
    assert f"{name}{{" in generate_latest(registry).decode()


def test_pool_without_a_budget_has_no_budget_series() -> None:
    registry = collected(replace(SAMPLE, max_hourly_cost=None))
    assert registry.get_sample_value("spotgpu_pool_max_hourly_cost", LABELS) is None


@pytest.mark.parametrize(
    ("later", "cost"),
    [
        pytest.param(timedelta(minutes=90), 109, id="runs on by the hourly cost"),
        pytest.param(timedelta(days=31), 100, id="not across a month's end"),
        pytest.param(timedelta(hours=-1), 100, id="never backwards"),
    ],
)
def test_month_cost_is_extrapolated_from_its_writing(later: timedelta, cost: float) -> None:
    assert collected(SAMPLE, later=later).get_sample_value("spotgpu_pool_month_cost", LABELS) == cost


def test_month_cost_that_was_never_written_stands_still() -> None:
    registry = collected(replace(SAMPLE, cost_as_of=None, month_cost=Decimal(0)), later=timedelta(hours=5))
    assert registry.get_sample_value("spotgpu_pool_month_cost", LABELS) == 0


def test_every_series_of_the_module_is_documented() -> None:
    """A series that nobody explains is a series that nobody uses rightly."""
    text = Path("docs/operations.md").read_text()
    names = {family.name for family in metrics.REGISTRY.collect()}
    names |= {family.name for family in PoolCollector(lambda: [SAMPLE]).collect()}
    assert [name for name in sorted(names) if not re.search(rf"`{name}(_total)?`", text)] == []
