"""The status that a running pool serves has the shape that its user knows: docs/examples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from domain.contracts.offers import ProviderName
from sandbox.expectation import expect
from sandbox.provision import EXAMPLES
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLE = yaml.safe_load((EXAMPLES / "gpuspotpool-status.yaml").read_text())["status"]
NOTICE_SECONDS = 60
"""Long enough for the status to be read between notice and power loss."""


def kind_of(value: Any) -> str:
    """A JSON type; numbers are one, since a price may be whole."""
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


def differences(wanted: Any, got: Any, place: str = "status") -> Iterator[str]:
    """Where ``got`` lacks a key of ``wanted`` or has another type; more keys and entries are welcome.

    Entries of a list are matched by what they are: an entry of the example must fit one of the served ones.
    """
    if kind_of(wanted) != kind_of(got):
        yield f"{place}: {kind_of(got)} instead of {kind_of(wanted)}"
    elif isinstance(wanted, dict):
        for key, value in wanted.items():
            if key in got:
                yield from differences(value, got[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} is missing"
    elif isinstance(wanted, list):
        for number, item in enumerate(wanted):
            attempts = [list(differences(item, other, f"{place}[{number}]")) for other in like(item, got)]
            yield from min(attempts, key=len, default=[f"{place}[{number}]: nothing like {item}"])


def like(item: Any, entries: list[Any]) -> list[Any]:
    """Entries of the same state or type as ``item``, all where it has neither."""
    for key in ("type", "status"):
        if key in item:
            return [entry for entry in entries if entry.get(key) == item[key]]
    return entries


@pytest.fixture(scope="module")
def pool(whole_stack: Stack) -> Iterator[WatchedPool]:
    """A pool at the cloud whose API shows its notices."""
    pool = WatchedPool(whole_stack, "status-shape", "shape")
    manifest = yaml.safe_load((EXAMPLES / "demo-pool.yaml").read_text())
    manifest["spec"]["providers"] = [{"name": "aliyun", "regions": ["cn-shenzhen"]}]
    pool.apply(manifest)
    expect("2 machines", lambda: pool.at_level(2), within_seconds=60)
    yield pool
    pool.delete()
    expect("the pool leaves nothing", lambda: pool.is_gone() or None, within_seconds=90)


def shape_now(pool: WatchedPool) -> list[str]:
    """How the status differs from the example at this moment."""
    resource = pool.observer.pool_resource(pool.namespace, pool.name) or {}
    return list(differences(EXAMPLE, resource.get("status", {})))


@pytest.mark.usefixtures("stack")
def test_status_has_the_shape_of_the_example(pool: WatchedPool) -> None:
    taken = pool.seen_soon().machines[0]
    pool.stack.cloud(ProviderName(taken.provider)).reclaim(taken.id, notice_seconds=NOTICE_SECONDS)
    deadline = time.monotonic() + NOTICE_SECONDS
    # One machine runs, one is under notice, a third is on order: that is what the example shows.
    while (found := shape_now(pool)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == []


def test_a_missing_key_and_another_type_are_differences() -> None:
    wanted = {"a": 1, "b": [{"status": "Running", "id": "x"}], "c": "text"}
    got = {"a": 1.5, "b": [{"status": "Pending", "id": "x"}, {"status": "Running"}], "c": None}
    assert list(differences(wanted, got, "s")) == ["s.b[0].id is missing", "s.c: NoneType instead of str"]
