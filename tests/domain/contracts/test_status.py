"""The status as the API carries it, and what is worth a write."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from domain.contracts.status import (
    MAX_REPORTS,
    Condition,
    InstanceReport,
    InstanceStatus,
    InterruptedInstance,
    PoolStatus,
    WorkflowRef,
    ZoneReport,
)

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "gpuspotpool-status.yaml"
NOON = datetime(2026, 11, 29, 12, 0, 30, 123456, tzinfo=UTC)


def a_report(machine: str = "ins-1", **changes: Any) -> InstanceReport:
    known: dict[str, Any] = {
        "id": machine,
        "provider": "tencent",
        "region": "ap-guangzhou",
        "gpu_type": "A100-40G",
        "status": InstanceStatus.RUNNING,
    }
    return InstanceReport(**(known | changes))


def contains(part: Any, whole: Any) -> bool:
    """Whether ``whole`` has everything that ``part`` has, with the same values; lists of the same length."""
    match part:
        case dict():
            return all(key in whole and contains(value, whole[key]) for key, value in part.items())
        case list():
            return len(part) == len(whole) and all(map(contains, part, whole))
        case _:
            return part == whole


def test_status_of_the_public_example_renders_as_it_is_written() -> None:
    example = yaml.safe_load(EXAMPLE.read_text())["status"]
    rendered = PoolStatus.model_validate(example).rendered()
    assert contains(example, rendered)


def test_rendered_instance_leaves_out_what_is_empty() -> None:
    rendered: Any = PoolStatus(instances=(a_report(),)).rendered()
    assert rendered["instances"] == [
        {
            "id": "ins-1",
            "provider": "tencent",
            "region": "ap-guangzhou",
            "gpuType": "A100-40G",
            "status": "Running",
        }
    ]


def test_rendered_status_keeps_counts_of_zero_and_empty_lists() -> None:
    rendered = PoolStatus().rendered()
    assert rendered["currentInstances"] == 0
    assert rendered["totalCostThisMonth"] == 0
    assert rendered["instances"] == []
    assert rendered["conditions"] == []
    assert not {"observedGeneration", "workflow", "lastSyncTime", "strategy"} & rendered.keys()


def test_rendered_times_are_utc_with_seconds() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=8)))
    rendered: Any = PoolStatus(last_sync_time=east, instances=(a_report(created_at=NOON),)).rendered()
    assert rendered["lastSyncTime"] == "2026-11-29T12:00:30Z"
    assert rendered["instances"][0]["createdAt"] == "2026-11-29T12:00:30Z"


def test_rendered_money_is_a_number_and_totals_are_cents() -> None:
    status = PoolStatus(
        instances=(a_report(price_per_hour=Decimal("4.2155")),),
        hourly_cost=Decimal("4.2155"),
        total_cost_this_month=Decimal("2150.60"),
        savings_this_month=Decimal("10.005"),
    )
    assert json.loads(json.dumps(status.rendered())) == {
        **PoolStatus().rendered(),
        "instances": [{**_only(PoolStatus(instances=(a_report(),))), "pricePerHour": 4.2155}],
        "hourlyCost": 4.22,
        "totalCostThisMonth": 2150.6,
        "savingsThisMonth": 10.0,
    }


def _only(status: PoolStatus) -> dict[str, Any]:
    rendered: Any = status.rendered()
    return rendered["instances"][0]


def test_rendered_condition_carries_reason_generation_and_time() -> None:
    condition = Condition(
        type="Ready", status="False", reason="Launching", observed_generation=3, last_transition_time=NOON
    )
    rendered: Any = PoolStatus(observed_generation=3, conditions=(condition,)).rendered()
    assert rendered["observedGeneration"] == 3
    assert rendered["conditions"] == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Launching",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-11-29T12:00:30Z",
        }
    ]


def test_rendered_status_stays_within_the_bounds_of_its_schema() -> None:
    status = PoolStatus(
        instances=tuple(a_report(f"ins-{number}") for number in range(MAX_REPORTS + 5)),
        interrupted_instances=tuple(
            InterruptedInstance(id=f"i-{number}", interrupt_reason="x" * 5000) for number in range(25)
        ),
        workflow=WorkflowRef(id="pool:a:b"),
    )
    rendered: Any = status.rendered()
    assert len(rendered["instances"]) == MAX_REPORTS
    assert [item["id"] for item in rendered["interruptedInstances"]] == [f"i-{n}" for n in range(5, 25)]
    assert len(rendered["interruptedInstances"][0]["interruptReason"]) == 1024
    assert rendered["workflow"] == {"id": "pool:a:b"}
    assert len(json.dumps(rendered)) < 1_000_000


def test_rendered_refuses_a_value_that_has_no_place_in_a_status() -> None:
    status = PoolStatus.model_construct(strategy=b"bytes")
    with pytest.raises(TypeError, match="no place for bytes"):
        status.rendered()


BASE = PoolStatus(
    observed_generation=1,
    current_instances=1,
    instances=(a_report(price_per_hour=Decimal("4.2")),),
    zones=(
        ZoneReport(provider="tencent", region="r", zone="z", health="CoolingDown", recent_interruptions=2),
    ),
    hourly_cost=Decimal("4.2"),
    total_cost_this_month=Decimal(100),
    cost_as_of=NOON,
    last_sync_time=NOON,
    conditions=(Condition(type="Ready", status="True", message="1 of 1 ready"),),
)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"last_sync_time": NOON + timedelta(seconds=30)}, id="sync time"),
        pytest.param({"total_cost_this_month": Decimal(101), "cost_as_of": NOON}, id="cost of the month"),
        pytest.param({"hourly_cost": Decimal(5)}, id="cost per hour"),
        pytest.param({"instances": (a_report(price_per_hour=Decimal("4.3")),)}, id="a price moved"),
        pytest.param(
            {"zones": (BASE.zones[0].model_copy(update={"recent_interruptions": 1}),)},
            id="an old interruption",
        ),
    ],
)
def test_status_is_not_worth_a_write_when_only_what_ages_moved(changes: dict[str, Any]) -> None:
    assert not BASE.model_copy(update=changes).differs_from(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"observed_generation": 2}, id="generation"),
        pytest.param({"current_instances": 2}, id="level"),
        pytest.param({"instances": ()}, id="a machine less"),
        pytest.param({"instances": (a_report(node_name="n1", price_per_hour=Decimal(1)),)}, id="node name"),
        pytest.param({"instances": (a_report(),)}, id="a price that is unknown now"),
        pytest.param({"zones": ()}, id="a zone is healthy again"),
        pytest.param({"conditions": (Condition(type="Ready", status="False"),)}, id="condition"),
        pytest.param({"strategy": "night"}, id="strategy"),
    ],
)
def test_status_is_worth_a_write_when_it_says_something_new(changes: dict[str, Any]) -> None:
    changed = BASE.model_copy(update=changes)
    assert changed.differs_from(BASE)
    assert BASE.differs_from(changed)


def test_status_survives_its_own_json() -> None:
    assert PoolStatus.model_validate_json(BASE.model_dump_json()) == BASE
