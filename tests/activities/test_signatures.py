"""The stubs that workflows name, against what is really registered."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from temporalio import activity

from activities import signatures
from activities.announce import AnnounceActivities
from activities.instances import InstanceActivities
from activities.market import MarketActivities
from activities.nodes import NodeActivities
from activities.owners import OwnerActivities
from activities.pods import PodActivities
from activities.regions import RegionActivities
from activities.status import StatusActivities

CLASSES = (
    AnnounceActivities,
    InstanceActivities,
    MarketActivities,
    NodeActivities,
    OwnerActivities,
    PodActivities,
    RegionActivities,
    StatusActivities,
)


def definitions(owner: object) -> dict[str, Callable[..., Any]]:
    """Activity name to function."""
    found: dict[str, Callable[..., Any]] = {}
    for _, member in inspect.getmembers(owner, inspect.isfunction):
        definition = activity._Definition.from_callable(member)
        if definition is not None and definition.name:
            assert definition.name not in found, f"{definition.name} is defined twice"
            found[definition.name] = member
    return found


STUBS = definitions(signatures)
IMPLEMENTATIONS = {name: function for owner in CLASSES for name, function in definitions(owner).items()}


def test_signatures_and_implementations_are_the_same_set() -> None:
    assert set(STUBS) == set(IMPLEMENTATIONS)


@pytest.mark.parametrize("name", sorted(STUBS))
def test_signature_matches_its_implementation(name: str) -> None:
    stub, real = STUBS[name], IMPLEMENTATIONS[name]
    parameters = [p for p in inspect.signature(real).parameters if p != "self"]
    assert parameters == list(inspect.signature(stub).parameters)
    assert get_type_hints(real) == get_type_hints(stub)
    assert inspect.iscoroutinefunction(real) == inspect.iscoroutinefunction(stub)
    assert real.__name__ == stub.__name__
