"""The water level and the demand that raises it."""

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.contracts.facts import Demand, ProfileDemand
from domain.contracts.pool_state import ManualLevel
from domain.contracts.profiles import ProfileSpec
from domain.contracts.resolved import Origin, ProfilePart
from domain.decisions.water_level import demand_instances, gpus_wanted, water_level
from tests.domain.decisions.builders import NOON, a_pool

CASES = tomllib.loads((Path(__file__).parents[2] / "cases" / "water_level.toml").read_text())["case"]


def a_manual_level(instances: int, ends_in_seconds: float | None = None) -> ManualLevel:
    until = None if ends_in_seconds is None else NOON + timedelta(seconds=ends_in_seconds)
    return ManualLevel(instances=instances, until=until, by="ann", reason="test")


def a_profile(name: str = "ddp", min_count: int = 1) -> ProfilePart:
    spec = ProfileSpec.model_validate({"poolRef": "p", "gpuRequirement": {"minCount": min_count}})
    return ProfilePart(origin=Origin(name=name, uid=name, generation=1), spec=spec)


def a_demand(**gpus: int) -> Demand:
    """Demand by profile; one pod for each profile whose GPUs are not negative, else none."""
    return Demand(
        as_of=NOON,
        profiles=tuple(
            ProfileDemand(profile=name, pods=0 if count < 0 else 1, gpus=max(count, 0))
            for name, count in gpus.items()
        ),
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_water_level_is_the_clamped_maximum(case: dict[str, Any]) -> None:
    manual = a_manual_level(case["manual"], case.get("manual_ends_in")) if "manual" in case else None
    pool = a_pool(**case.get("pool", {}))
    assert water_level(pool, case.get("demand", 0), manual, now=NOON) == case["level"]


@given(
    bounds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted),
    demand=st.integers(0, 10_000),
    manual=st.none() | st.integers(0, 10_000),
)
def test_water_level_stays_within_its_bounds(bounds: list[int], demand: int, manual: int | None) -> None:
    low, high = bounds
    by_hand = None if manual is None else a_manual_level(manual)
    level = water_level(a_pool(minInstances=low, maxInstances=high), demand, by_hand, now=NOON)
    assert low <= level <= high


@pytest.mark.parametrize(
    ("gpus", "size", "instances"),
    [(0, 8, 0), (1, 8, 1), (8, 8, 1), (9, 8, 2), (16, 8, 2), (3, 1, 3), (3, 0, 3)],
)
def test_demand_instances_divides_gpus_and_rounds_up(gpus: int, size: int, instances: int) -> None:
    assert demand_instances([a_profile()], a_demand(ddp=gpus), gpus_per_instance=size) == instances


def test_demand_instances_shares_machines_among_profiles() -> None:
    profiles = [a_profile("a"), a_profile("b")]
    assert demand_instances(profiles, a_demand(a=3, b=4), gpus_per_instance=8) == 1


@pytest.mark.parametrize(
    ("gpus", "wanted"),
    [
        pytest.param(1, 4, id="the first pod asks for the whole gang"),
        pytest.param(4, 4, id="the gang"),
        pytest.param(9, 9, id="more than the gang"),
    ],
)
def test_gpus_wanted_honours_the_gang(gpus: int, wanted: int) -> None:
    assert gpus_wanted([a_profile(min_count=4)], a_demand(ddp=gpus)) == {"ddp": wanted}


def test_gpus_wanted_ignores_profiles_without_pods_and_strangers() -> None:
    assert gpus_wanted([a_profile(min_count=4)], a_demand(ddp=-1, stranger=64)) == {}
    assert gpus_wanted([a_profile(min_count=4)], None) == {}


@pytest.mark.parametrize(
    ("live", "instances"),
    [
        pytest.param((8, 8), 2, id="covered by what lives"),
        pytest.param((8, 8, 8), 2, id="covered by a part of it"),
        pytest.param((1, 8), 9, id="seven GPUs more, one each"),
        pytest.param((), 16, id="nothing lives"),
    ],
)
def test_demand_instances_counts_live_machines_with_their_own_gpus(
    live: tuple[int, ...], instances: int
) -> None:
    found = demand_instances([a_profile()], a_demand(ddp=16), gpus_per_instance=1, live_gpus=live)
    assert found == instances


@given(
    gpus=st.integers(0, 500),
    size=st.integers(1, 16),
    live=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=30),
)
def test_demand_instances_always_covers_the_demand(gpus: int, size: int, live: list[int]) -> None:
    profiles, demand = [a_profile()], a_demand(ddp=gpus)
    found = demand_instances(profiles, demand, gpus_per_instance=size, live_gpus=live)
    kept = sorted(live, reverse=True)[:found]
    assert sum(kept) + size * (found - len(kept)) >= gpus
