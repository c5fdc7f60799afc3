"""Hundreds of variants against everything at once: each is refused by name or served; nobody waits for it.

A pool is served when its workflow has written the generation that it observed; a strategy when a pool that
names it says that it is in force; a profile when the workflow of its pool has it in its input.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import Client

from crd_bridge.kinds import POOL, PROFILE, STRATEGY
from sandbox.expectation import expect
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, small_pool
from tests.crd_bridge.raw_api import Answer, RawApi, collection
from tests.e2e.conftest import revive
from tests.variants.judgement import BY_KIND, judge
from tests.variants.resources import Variant, variants

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEED, COUNT = 7, 520
NAMESPACE = "variants"
EVERY = 130
"""After so many variants the healthy pool is told to change its level."""
SERVED_SECONDS = 90
CHANGED_SECONDS = 45
GONE_SECONDS = 90


@dataclass
class Trial:
    """All variants with what the API server said, and what the healthy pool did meanwhile."""

    api: RawApi
    answers: list[tuple[Variant, Answer]] = field(default_factory=list[tuple[Variant, Answer]])
    changes: list[float] = field(default_factory=list[float])
    """Seconds that each change of the healthy pool's level took."""

    def taken(self, kind: str) -> list[Answer]:
        """Objects of a kind that were accepted."""
        return [answer for variant, answer in self.answers if answer.ok and variant.kind == kind]

    def pools(self) -> dict[str, dict[str, Any]]:
        """Every pool there is now, by name."""
        found = self.api.send("GET", collection(NAMESPACE, POOL.plural)).body["items"]
        return {pool["metadata"]["name"]: pool for pool in found}

    def delete(self, plural: str, name: str) -> None:
        """Delete one object; what is gone is gone."""
        self.api.send("DELETE", f"{collection(NAMESPACE, plural)}/{name}")


def a_pool(name: str, **spec: object) -> dict[str, Any]:
    """A pool that is right and wants nothing; ``spec`` wins over what it has."""
    usual = {
        "maxInstances": 2,
        "providers": [{"name": "tencent"}],
        "scaleStrategy": {"cooldownSeconds": 0},
    }
    return {**small_pool(0, **{**usual, **spec}), "metadata": {"name": name}}


def name_of(answer: Answer) -> str:
    return str(answer.body["metadata"]["name"])


@pytest.fixture(scope="module")
def healthy(whole_stack: Stack) -> Iterator[WatchedPool]:
    """A pool among the variants that has a machine."""
    revive(whole_stack)
    pool = WatchedPool(whole_stack, NAMESPACE, "healthy")
    pool.apply(a_pool("healthy", minInstances=1))
    expect("the healthy pool's machine", lambda: pool.at_level(1), within_seconds=60)
    yield pool
    pool.delete()
    expect("the healthy pool leaves nothing", lambda: pool.is_gone() or None, within_seconds=60)


@pytest.fixture(scope="module")
def trial(healthy: WatchedPool) -> Iterator[Trial]:
    """Apply all variants; now and then change the level of the healthy pool and wait for it."""
    access = healthy.stack.cluster.machine_access()
    assert access.ca is not None
    with RawApi(access.server, access.ca, access.token) as api:
        trial = Trial(api)
        for number, variant in enumerate(variants(SEED, COUNT), start=1):
            answer = api.create(NAMESPACE, BY_KIND[variant.kind].plural, variant.text)
            trial.answers.append((variant, answer))
            if number % EVERY == 0:
                trial.changes.append(change_level(healthy))
        yield trial


def change_level(pool: WatchedPool) -> float:
    """Let the pool have one machine instead of two or the other way round; the seconds that it took."""
    target = 3 - pool.seen_soon().desired
    began = time.monotonic()
    pool.patch(minInstances=target)
    expect(f"{target} machines", lambda: pool.at_level(target), within_seconds=CHANGED_SECONDS)
    return time.monotonic() - began


def test_every_variant_is_refused_by_name_or_taken(trial: Trial) -> None:
    assert [wrong for variant, answer in trial.answers if (wrong := judge(variant, answer))] == []
    kinds = Counter((variant.kind, answer.ok) for variant, answer in trial.answers)
    assert {kind: number for kind, number in kinds.items() if number < 5} == {}
    assert len(kinds) == 6


def test_healthy_pool_changes_its_level_among_the_variants(trial: Trial) -> None:
    assert len(trial.changes) == COUNT // EVERY


def test_every_taken_pool_is_served(trial: Trial) -> None:
    wanted = {name_of(answer) for answer in trial.taken(POOL.kind)}

    def all_served() -> bool | None:
        pools = trial.pools()
        assert wanted <= pools.keys()
        behind = [name for name in wanted if not is_served(pools[name])]
        return None if behind else True

    expect("every pool has observed its generation", all_served, within_seconds=SERVED_SECONDS)


def is_served(pool: dict[str, Any]) -> bool:
    """Whether the workflow has written the generation that is there."""
    return pool.get("status", {}).get("observedGeneration", 0) == pool["metadata"]["generation"]


def test_every_taken_strategy_comes_into_force(trial: Trial) -> None:
    wanted = {f"takes-{name_of(answer)}": name_of(answer) for answer in trial.taken(STRATEGY.kind)}
    for pool, strategy in wanted.items():
        assert trial.api.create(NAMESPACE, POOL.plural, json.dumps(a_pool(pool, strategyRef=strategy))).ok

    def all_in_force() -> bool | None:
        pools = trial.pools()
        shown = {name: pools[name].get("status", {}).get("strategy", "") for name in wanted}
        behind = [name for name, strategy in wanted.items() if not shown[name].startswith(f"{strategy} (")]
        return None if behind else True

    expect("every strategy is in force in its pool", all_in_force, within_seconds=SERVED_SECONDS)


async def test_every_taken_profile_reaches_its_pool(trial: Trial, whole_stack: Stack) -> None:
    by_pool: dict[str, set[str]] = {}
    for answer in trial.taken(PROFILE.kind):
        by_pool.setdefault(answer.body["spec"]["poolRef"], set()).add(name_of(answer))
    for pool in by_pool:
        answer = trial.api.create(NAMESPACE, POOL.plural, json.dumps(a_pool(pool)))
        assert answer.ok, answer.message
    expect(
        "the pools of the profiles are served",
        lambda: all(is_served(trial.pools()[pool]) for pool in by_pool) or None,
        within_seconds=SERVED_SECONDS,
    )
    client = await Client.connect(whole_stack.temporal.address)
    assert {pool: await profiles_in_input(client, pool) for pool in by_pool} == by_pool


async def profiles_in_input(client: Client, pool: str) -> set[str]:
    """Names of the profiles in the start input of a pool's workflow."""
    handle = client.get_workflow_handle(f"pool:{NAMESPACE}:{pool}")
    async for event in handle.fetch_history_events():
        start = event.workflow_execution_started_event_attributes
        resolved = json.loads(start.input.payloads[0].data)["resolved"]
        return {profile["origin"]["name"] for profile in resolved["profiles"]}
    raise AssertionError(f"the workflow of pool {pool} has no history")


def test_variants_leave_nothing(trial: Trial, healthy: WatchedPool) -> None:
    for kind in (STRATEGY, PROFILE):
        for answer in trial.taken(kind.kind):
            trial.delete(kind.plural, name_of(answer))
    for name in trial.pools().keys() - {healthy.name}:
        trial.delete(POOL.plural, name)
    expect(
        "only the healthy pool is left",
        lambda: set(trial.pools()) == {healthy.name} or None,
        within_seconds=GONE_SECONDS,
    )
    assert healthy.seen_soon().desired == len(healthy.live())
