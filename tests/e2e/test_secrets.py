"""No secret leaves the places that are made for it, from a pool's birth to its end, wrong keys included."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from temporalio.client import Client, WorkflowExecution

from domain.contracts.names import GROUP
from sandbox.audit import audit
from sandbox.control_plane.kubeconfigs import read_token
from sandbox.expectation import expect
from sandbox.operator_processes import PROCESSES
from sandbox.provision import OPERATOR_NAMESPACE, account_of
from sandbox.stack import Stack
from sandbox.temporal_server import PROGRAM
from sandbox.watched_pool import WatchedPool
from sandbox.world_config import CloudConfig
from tests.e2e.secret_search import Place, Secret, search

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LEVEL_SECONDS = 60
KEYS_SECONDS = 60
KINDS = ("gpuspotpools", "gpuspotnodeclasses", "gpuspotstrategies", "gpuworkloadprofiles")
LISTS = (
    *(f"/apis/{GROUP}/v1alpha1/{kind}" for kind in KINDS),
    *(f"/api/v1/{kind}" for kind in ("events", "configmaps", "nodes", "pods")),
    "/apis/coordination.k8s.io/v1/leases",
)
"""What the operator writes in the cluster, or what others may read there."""
MANIFEST: Mapping[str, Any] = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "GPUSpotPool",
    "metadata": {},
    "spec": {
        "minInstances": 2,
        "maxInstances": 9,
        "gpuTypes": ["A100-40G"],
        "providers": [{"name": "tencent"}, {"name": "aliyun"}],
        "scaleStrategy": {"scaleUpStep": 2, "scaleDownStep": 2, "cooldownSeconds": 1},
    },
}
WRONG_ID = "AKIDwrong/marked+0123456789=="
WRONG_KEY = "wrong/marked+secret=0123456789abcdef"


# Keys and secrets -----------------------------------------------------------------------------------


def rotate(stack: Stack, cloud: CloudConfig, key_id: str, secret: str) -> None:
    """Write other keys into the account's Secret."""
    body = {"stringData": {"accessKeyId": key_id, "accessKeySecret": secret}}
    patch = ("patch", "secret", account_of(cloud), "--type=merge", "--patch-file=/dev/stdin")
    stack.cluster.kubectl(*patch, f"--namespace={OPERATOR_NAMESPACE}", stdin=json.dumps(body))


@pytest.fixture
def pool(stack: Stack) -> Iterator[WatchedPool]:
    pool = WatchedPool(stack, "guarded", "guarded")
    yield pool
    for cloud in stack.world.clouds:
        rotate(stack, cloud, cloud.access_key_id, cloud.access_key_secret)
    pool.delete()


def spoil_keys(stack: Stack) -> None:
    """One account gets keys that nobody knows, the others a wrong secret beside the right id."""
    first, *others = stack.world.clouds
    rotate(stack, first, WRONG_ID, WRONG_KEY)
    for cloud in others:
        rotate(stack, cloud, cloud.access_key_id, WRONG_KEY)


def mend_keys(stack: Stack) -> None:
    for cloud in stack.world.clouds:
        rotate(stack, cloud, cloud.access_key_id, cloud.access_key_secret)


def key_ids(stack: Stack) -> list[Secret]:
    """Half of a pair of keys: each signed request carries it, nothing else may."""
    ids = [Secret(f"{cloud.provider} key id", cloud.access_key_id) for cloud in stack.world.clouds]
    return [*ids, Secret("wrong key id", WRONG_ID)]


def secrets_of(stack: Stack) -> list[Secret]:
    """Everything that opens something."""
    files = {name: stack.folder.kubeconfig(name) for name in PROCESSES}
    return [
        *(Secret(f"{cloud.provider} key", cloud.access_key_secret) for cloud in stack.world.clouds),
        Secret("wrong key", WRONG_KEY),
        Secret("join token", stack.world.join.token.partition(".")[2]),
        *(Secret(f"token of the {name}", read_token(path)) for name, path in files.items()),
        *(Secret(f"signature of the {name}", read_token(path).split(".")[2]) for name, path in files.items()),
        Secret("token of the administrator", stack.cluster.machine_access().token),
    ]


# Places ---------------------------------------------------------------------------------------------


def visible_now(stack: Stack, pool: WatchedPool, moment: str) -> Iterator[Place]:
    """What cluster and metrics show at this moment, every field of every object."""
    for path in LISTS:
        found = pool.observer.resource(path)
        assert found is not None, path
        yield Place.of(f"{path} {moment}", json.dumps(found))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for name in PROCESSES:
        with direct.open(stack.operator.metrics_url(name), timeout=5) as answer:
            yield Place(f"metrics of the {name} {moment}", answer.read())


def kept(stack: Stack) -> Iterator[Place]:
    """Logs, and all that Temporal has written down."""
    for name in PROCESSES:
        yield Place(f"log of the {name}", stack.operator.log_path(name).read_bytes())
    yield Place(f"log of {PROGRAM}", stack.temporal.log_path.read_bytes())
    for path in sorted(stack.folder.temporal.glob("temporal.db*")):
        yield Place(f"Temporal's {path.name}", path.read_bytes(), layers=0)
    yield from asyncio.run(histories(stack.temporal.address))


async def histories(address: str) -> list[Place]:
    """Every run of every workflow: its history, and how it stands."""
    client = await Client.connect(address)
    return [place async for run in client.list_workflows() for place in await run_of(client, run)]


async def run_of(client: Client, run: WorkflowExecution) -> list[Place]:
    handle = client.get_workflow_handle(run.id, run_id=run.run_id)
    history, state = await handle.fetch_history(), await handle.describe()
    return [
        Place.of(f"history of {run.id}", history.to_json()),
        Place.of(f"state of {run.id}", MessageToJson(state.raw_description)),
    ]


def requests(stack: Stack) -> Iterator[Place]:
    """What the clouds were asked, the id of the signing key apart."""
    for cloud in stack.world.clouds:
        records = [asdict(record) for record in stack.cloud(cloud.provider).requests()]
        yield Place.of(f"requests at {cloud.provider}", json.dumps(records, default=str))


# The life of a pool ---------------------------------------------------------------------------------


def unavailable(pool: WatchedPool) -> dict[str, Any]:
    """The condition ``ProviderUnavailable``; empty while there is none."""
    resource = pool.observer.pool_resource(pool.namespace, pool.name) or {}
    conditions: list[dict[str, Any]] = resource.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "ProviderUnavailable"), dict[str, Any]())


def rejected(pool: WatchedPool) -> str | None:
    """The message, once each account's Secret is named as rejected."""
    found = unavailable(pool)
    text = str(found.get("message", ""))
    named = all(account_of(cloud) in text for cloud in pool.stack.world.clouds)
    held = (found.get("status"), found.get("reason")) == ("True", "CredentialsRejected")
    return text if held and named else None


def healed(pool: WatchedPool) -> bool | None:
    return unavailable(pool).get("status", "False") == "False" or None


def test_pool_lives_through_wrong_keys_and_no_secret_is_told_anywhere(
    stack: Stack, pool: WatchedPool
) -> None:
    pids = {name: stack.operator.pid(name) for name in PROCESSES}
    pool.apply(MANIFEST)
    expect("2 machines", lambda: pool.at_level(2), within_seconds=LEVEL_SECONDS)
    places = list(visible_now(stack, pool, "at its level"))

    spoil_keys(stack)
    expect("rejected keys are told", lambda: rejected(pool), within_seconds=KEYS_SECONDS)
    pool.patch(minInstances=3)
    expect("a round without a region", lambda: failed_round(pool), within_seconds=KEYS_SECONDS)
    places += visible_now(stack, pool, "with wrong keys")
    assert len(pool.live()) == 2

    mend_keys(stack)
    expect("keys are taken again", lambda: healed(pool), within_seconds=KEYS_SECONDS)
    expect("3 machines", lambda: pool.at_level(3), within_seconds=LEVEL_SECONDS)
    assert {name: stack.operator.pid(name) for name in PROCESSES} == pids, "nothing was restarted"
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
