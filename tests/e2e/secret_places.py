"""Where a secret of a running stack could have got to: cluster, metrics, logs, all that Temporal keeps."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict

from google.protobuf.json_format import MessageToJson
from temporalio.client import Client, WorkflowExecution

from domain.contracts.names import GROUP
from sandbox.control_plane.kubeconfigs import read_token
from sandbox.operator_processes import PROCESSES
from sandbox.stack import Stack
from sandbox.temporal_server import PROGRAM
from sandbox.watched_pool import WatchedPool
from tests.e2e.secret_search import Place, Secret

KINDS = ("gpuspotpools", "gpuspotnodeclasses", "gpuspotstrategies", "gpuworkloadprofiles")
LISTS = (
    *(f"/apis/{GROUP}/v1alpha1/{kind}" for kind in KINDS),
    *(f"/api/v1/{kind}" for kind in ("events", "configmaps", "nodes", "pods")),
    "/apis/coordination.k8s.io/v1/leases",
)
"""What the operator writes in the cluster, or what others may read there."""
WRONG_ID = "AKIDwrong/marked+0123456789=="
WRONG_KEY = "wrong/marked+secret=0123456789abcdef"


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


def visible_now(stack: Stack, pool: WatchedPool, moment: str) -> Iterator[Place]:
    """What cluster and metrics show at this moment, every field of every object."""
    for path in LISTS:
        found = pool.observer.resource(path)
        assert found is not None, path
        yield Place.of(f"{path} {moment}", json.dumps(found))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for name in stack.operator.names:
        with direct.open(stack.operator.metrics_url(name), timeout=5) as answer:
            yield Place(f"metrics of the {name} {moment}", answer.read())


def kept(stack: Stack) -> Iterator[Place]:
    """Logs, and all that Temporal has written down."""
    for name in stack.operator.names:
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
