"""Pools over all four clouds: three misbehave at the same time, then all four refuse the operator's keys.

Both on one sandbox, so that secrets are looked for in what it did in its bad times, too. Durations are
shortened by 15, as the sandbox shortens the polling interval: an outage of ten minutes is 40 s.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from domain.contracts.lanes import Lane
from domain.contracts.names import GROUP
from domain.contracts.offers import ProviderName, RegionKey
from sandbox.accounts import NODE_CLASSES
from sandbox.audit import audit, create_action
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.expectation import expect
from sandbox.operator_processes import BRIDGE, process_names
from sandbox.provision import OPERATOR_NAMESPACE, account_of
from sandbox.run_folder import StackFolder
from sandbox.stack import Stack, StackOptions
from sandbox.watched_pool import WatchedPool, sell_nothing, small_pool
from sandbox.world_config import CloudConfig
from tests.busiest import busiest
from tests.e2e.secret_places import (
    WRONG_ID,
    WRONG_KEY,
    kept,
    key_ids,
    requests,
    secrets_of,
    visible_now,
)
from tests.e2e.secret_search import Place, Secret, search
from workers.settings import Settings
from workers.wiring import call_rate

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

WORKERS = [name for name in process_names(workers=2) if name != BRIDGE]
SHORTENED_BY = 15
DOWN_SECONDS = 600 / SHORTENED_BY
LEVEL_SECONDS = 180
KEYS_SECONDS = 60

TENCENT, ALIYUN, HUAWEI, AWS = NODE_CLASSES
THROTTLING, DOWN, TIMING_OUT, WELL = TENCENT, ALIYUN, HUAWEI, AWS
TYPES = {
    TENCENT: "GN7.2XLARGE32",
    ALIYUN: "ecs.gn6i-c4g1.xlarge",
    HUAWEI: "pi2.2xlarge.4",
    AWS: "g4dn.xlarge",
}
REGIONS = {TENCENT: "ap-guangzhou", ALIYUN: "cn-shenzhen", HUAWEI: "cn-north-4", AWS: "us-west-2"}
ENDING = {"TerminateInstances", "DeleteInstances", "DeleteServers"}


@pytest.fixture(scope="module")
def four_clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    options = StackOptions(os.environ, seed=4, clouds=tuple(NODE_CLASSES), workers=2)
    stack = Stack(StackFolder(tmp_path_factory.mktemp("four")), options, print)
    stack.up()
    yield stack
    stack.down()


def manifest(level: int) -> dict[str, Any]:
    """A pool of T4s at all four, which can buy all that it wants at once."""
    where = [
        {"name": name.value, "regions": [REGIONS[name]], "instanceTypes": [TYPES[name]]}
        for name in NODE_CLASSES
    ]
    at_once = {"scaleUpStep": 12, "scaleDownStep": 12, "cooldownSeconds": 1}
    kind = {"gpuTypes": ["T4-16G"], "maxPricePerHour": 4, "providers": where}
    return small_pool(level, maxInstances=12, scaleStrategy=at_once, **kind)


def sell(stack: Stack, free: dict[ProviderName, int]) -> None:
    """So many machines of the pool's type can be bought at each cloud, and nothing else."""
    for name in NODE_CLASSES:
        sell_nothing(stack, name)
        zone = next(zone for zone in stack.zones(name) if zone.startswith(REGIONS[name]))
        stack.cloud(name).set_free(zone, TYPES[name], free.get(name, 0))


def by_cloud(pool: WatchedPool) -> dict[ProviderName, int]:
    tags = {"spotgpu-pool": pool.uid}
    return {name: len(pool.stack.cloud(name).machines(live=True, tags=tags)) for name in NODE_CLASSES}


@contextmanager
def misbehaving(stack: Stack) -> Generator[None]:
    """One cloud throttles every third call, one is away, one accepts every second purchase in silence.

    It lasts for as long as the block needs, and for ten (shortened) minutes at least.
    """
    over = time.monotonic() + DOWN_SECONDS
    stack.cloud(THROTTLING).set_fault(Fault(kind=FaultKind.THROTTLE, every=3))
    action = create_action(TIMING_OUT)
    stack.cloud(TIMING_OUT).set_fault(Fault(kind=FaultKind.HANG, action=action, every=2))
    stack.switches.switch(DOWN, "refuse")
    try:
        yield
        expect("time is up", lambda: time.monotonic() > over or None, within_seconds=2 * DOWN_SECONDS)
    finally:
        stack.switches.switch(DOWN, "accept")
        for name in (THROTTLING, TIMING_OUT):
            stack.cloud(name).clear_faults()


def series(stack: Stack, name: str, provider: ProviderName) -> list[float]:
    """What the workers say under this name of the provider's region that the pool uses."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    wanted = {"provider": provider.value, "region": REGIONS[provider]}.items()
    found: list[float] = []
    for worker in WORKERS:
        with direct.open(stack.operator.metrics_url(worker), timeout=5) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = (sample for family in families for sample in family.samples if sample.name == name)
        found += [sample.value for sample in samples if wanted <= sample.labels.items()]
    return found


def is_circuit(stack: Stack, state: float) -> bool | None:
    """True when the circuit of the cloud that is away is open (1) or closed (0)."""
    return series(stack, "spotgpu_provider_circuit_open", DOWN) == [state] or None


def is_slowed(stack: Stack) -> bool | None:
    """True when a lane of the throttling cloud may make fewer calls than its setting says."""
    lowest = min(series(stack, "spotgpu_lane_calls_per_second", THROTTLING))
    return lowest < min(budgets(THROTTLING).values()) or None


def unavailable(pool: WatchedPool, status: str) -> bool | None:
    """True when the pool's condition ``ProviderUnavailable`` has this status."""
    return pool.condition("ProviderUnavailable").get("status", "False") == status or None


def told(pool: WatchedPool, reason: str) -> list[str]:
    """Messages of the pool's Kubernetes Events with this reason."""
    found = pool.observer.resource(f"/api/v1/namespaces/{pool.namespace}/events") or {"items": []}
    return [str(event["message"]) for event in found["items"] if event["reason"] == reason]


def budgets(provider: ProviderName) -> dict[Lane, float]:
    """Calls a second and region of each class, as the operator is set."""
    region = RegionKey(provider=provider, account=f"{provider}-credentials", region=REGIONS[provider])
    return {lane: call_rate(Settings(), region, lane) for lane in Lane}


def over_budget(stack: Stack) -> list[str]:
    """Regions and call classes with more calls than the operator's rates allow, by the clouds' own logs.

    Calls leave evenly spaced; on a busy machine some arrive closer together than they left.
    """
    found: list[str] = []
    for name in NODE_CLASSES:
        rates = budgets(name)
        calls: dict[tuple[str, Lane], list[float]] = defaultdict(list)
        for record in stack.cloud(name).requests():
            calls[(record.region, lane_of(name, record.action))].append(record.at.timestamp())
        for (region, lane), moments in calls.items():
            second, longer = busiest(moments), busiest(moments, 10)
            if second > rates[lane] + 3 or longer > 10 * rates[lane] + 3:
                found.append(f"{name} {region} {lane}: {second} in 1 s, {longer} in 10 s")
    return found


def lane_of(provider: ProviderName, action: str) -> Lane:
    """The call class of a vendor's action."""
    if action == create_action(provider):
        return Lane.PURCHASES
    return Lane.ENDS if action in ENDING else Lane.READINGS


def test_pool_keeps_its_level_while_three_of_four_clouds_misbehave(four_clouds: Stack) -> None:
    pool = WatchedPool(four_clouds, "four", "four")
    shared = [2.0] * len(WORKERS)
    for name in NODE_CLASSES:
        expect(
            f"both workers know that they share {name}",
            lambda each=name: series(four_clouds, "spotgpu_region_workers", each) == shared or None,
            within_seconds=30,
        )
    sell(four_clouds, dict.fromkeys(NODE_CLASSES, 1))
    pool.apply(manifest(4))
    expect("4 machines", lambda: pool.at_level(4), within_seconds=LEVEL_SECONDS)
    assert by_cloud(pool) == dict.fromkeys(NODE_CLASSES, 1)
    assert unavailable(pool, "False")

    sell(four_clouds, {THROTTLING: 1, TIMING_OUT: 4, WELL: 3, DOWN: 6})
    with misbehaving(four_clouds):
        pool.patch(minInstances=10)
        expect("the circuit opens", lambda: is_circuit(four_clouds, 1), within_seconds=DOWN_SECONDS)
        expect("the condition says so", lambda: unavailable(pool, "True"), within_seconds=DOWN_SECONDS)
        expect("a lane is slowed", lambda: is_slowed(four_clouds), within_seconds=DOWN_SECONDS)
        expect("10 machines", lambda: pool.at_level(10), within_seconds=LEVEL_SECONDS)
        where = by_cloud(pool)
        assert where[DOWN] == 1
        assert where[TIMING_OUT] >= 3

    # Probes become rarer while it is open, so that closing it takes up to as long as the cloud was away.
    expect("the circuit closes", lambda: is_circuit(four_clouds, 0), within_seconds=LEVEL_SECONDS)
    expect("the condition says so", lambda: unavailable(pool, "False"), within_seconds=DOWN_SECONDS)
    for reason in ("ProviderUnavailable", "ProviderAvailable"):
        expect(f"an Event says {reason}", lambda why=reason: told(pool, why) or None, within_seconds=10)
        assert any(f"{DOWN} {REGIONS[DOWN]}" in text for text in told(pool, reason))
    assert pool.doubles() == []
    assert pool.orphans() == []
    log = four_clouds.cloud(TIMING_OUT).requests(create_action(TIMING_OUT))
    assert "unanswered" in {record.outcome for record in log}
    assert any(record.code for record in four_clouds.cloud(THROTTLING).requests())

    pool.delete()
    expect("nothing left", lambda: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)
    assert [line.partition("'")[0] for line in audit(four_clouds, pool.uid)] == list(NODE_CLASSES)
    assert over_budget(four_clouds) == []


def rotate(stack: Stack, cloud: CloudConfig, key_id: str, secret: str) -> None:
    """Write other keys into the account's Secret."""
    body = {"stringData": {"accessKeyId": key_id, "accessKeySecret": secret}}
    patch = ("patch", "secret", account_of(cloud), "--type=merge", "--patch-file=/dev/stdin")
    stack.cluster.kubectl(*patch, f"--namespace={OPERATOR_NAMESPACE}", stdin=json.dumps(body))


def spoil_keys(stack: Stack) -> None:
    """One account gets keys that nobody knows, the others a wrong secret beside the right id."""
    first, *others = stack.world.clouds
    rotate(stack, first, WRONG_ID, WRONG_KEY)
    for cloud in others:
        rotate(stack, cloud, cloud.access_key_id, WRONG_KEY)


def mend_keys(stack: Stack) -> None:
    for cloud in stack.world.clouds:
        rotate(stack, cloud, cloud.access_key_id, cloud.access_key_secret)


def rejected(pool: WatchedPool) -> str | None:
    """The message, once each account's Secret is named as rejected."""
    found = pool.condition("ProviderUnavailable")
    text = str(found.get("message", ""))
    named = all(account_of(cloud) in text for cloud in pool.stack.world.clouds)
    held = (found.get("status"), found.get("reason")) == ("True", "CredentialsRejected")
    return text if held and named else None


def test_pool_lives_through_wrong_keys_and_no_secret_is_told_anywhere(four_clouds: Stack) -> None:
    stack, pool = four_clouds, WatchedPool(four_clouds, "guarded", "guarded")
    pids = {name: stack.operator.pid(name) for name in stack.operator.names}
    sell(stack, dict.fromkeys(NODE_CLASSES, 1))
    pool.apply(manifest(4))
    expect("4 machines", lambda: pool.at_level(4), within_seconds=LEVEL_SECONDS)
    places = list(visible_now(stack, pool, "at its level"))

    spoil_keys(stack)
    expect("rejected keys are told", lambda: rejected(pool), within_seconds=KEYS_SECONDS)
    sell(stack, dict.fromkeys(NODE_CLASSES, 1))
    pool.patch(minInstances=5)
    expect("a round without a region", lambda: failed_round(pool), within_seconds=KEYS_SECONDS)
    places += visible_now(stack, pool, "with wrong keys")
    assert len(pool.live()) == 4

    mend_keys(stack)
    expect("keys are taken again", lambda: unavailable(pool, "False"), within_seconds=KEYS_SECONDS)
    expect("5 machines", lambda: pool.at_level(5), within_seconds=LEVEL_SECONDS)
    assert {name: stack.operator.pid(name) for name in pids} == pids, "nothing was restarted"
    places += visible_now(stack, pool, "with mended keys")

    pool.delete()
    expect("nothing left", lambda: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)
    assert audit(stack, pool.uid)
    places += visible_now(stack, pool, "after its end")
    lasting = list(kept(stack))

    assert search([*places, *lasting], [*secrets_of(stack), *key_ids(stack)]) == []
    assert search(requests(stack), secrets_of(stack)) == []
    assert_read([*places, *lasting, *requests(stack)], pool)


def failed_round(pool: WatchedPool) -> bool | None:
    """Whether the pool says that it found no region to buy in."""
    resource = pool.observer.pool_resource(pool.namespace, pool.name) or {}
    return "no region can be used now" in json.dumps(resource.get("status", {})) or None


def assert_read(places: list[Place], pool: WatchedPool) -> None:
    """The places were really read: what must stand there is found in the same way."""
    account = account_of(pool.stack.world.clouds[0])
    found = search(places, [Secret("mark", pool.uid), Secret("mark", account)])
    wanted = (
        f"/apis/{GROUP}/v1alpha1/gpuspotpools",
        "/api/v1/events",
        "/api/v1/nodes",
        "metrics of the worker",
        "log of the worker",
        "Temporal's temporal.db",
        f"history of {pool.workflow_id}",
        f"state of {pool.workflow_id}",
        *(f"requests at {cloud.provider}" for cloud in pool.stack.world.clouds),
    )
    missing = [name for name in wanted if not any(line.startswith(f"mark in {name}") for line in found)]
    assert missing == []
