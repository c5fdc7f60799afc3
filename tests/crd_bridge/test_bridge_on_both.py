"""The bridge under its own service account between a real API server and a real Temporal server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.cluster.base import NODES, POOLS, STRATEGIES
from activities.cluster.kube import Connection, KubeCluster
from crd_bridge.backoff import Backoff
from crd_bridge.bridge import BridgeSettings, run_bridge
from domain.contracts.errors import ClusterError
from domain.contracts.names import FINALIZER
from domain.contracts.settings import PoolSettings
from sandbox.control_plane.components import API_SERVER
from sandbox.control_plane.launcher import ControlPlane
from sandbox.temporal_server import TemporalServer, find_program
from tests.crd_bridge.builders import POOL_SPEC, a_node
from tests.crd_bridge.stand_in import RECORD, Record, StandInPool
from tests.crd_bridge.waiting import running, until_async
from workflows.messages import pool_workflow_id
from workflows.options import POOLS_QUEUE
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER

pytestmark = [pytest.mark.cluster, pytest.mark.temporal, pytest.mark.timeout(120)]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
API_VERSION = "spotgpu.zuoyang.cn/v1alpha1"


@pytest.fixture
def temporal_address(tmp_path: Path) -> Iterator[str]:
    server = TemporalServer(tmp_path / "temporal", find_program())
    server.start()
    yield server.address
    server.stop()


async def test_bridge_serves_a_pool_over_a_restart_of_the_api_server(
    plane_with_crds: ControlPlane, namespace: str, temporal_address: str
) -> None:
    plane = plane_with_crds
    for folder in ("manifests", "rbac"):
        plane.kubectl("apply", "-f", str(DEPLOY / folder))
    kubeconfig = plane.service_account_kubeconfig("spotgpu-system", "spotgpu-bridge")
    client = await Client.connect(temporal_address, data_converter=DATA_CONVERTER)
    settings = BridgeSettings(
        identity=namespace,
        pool_settings=PoolSettings(),
        namespaces=(namespace,),
        watch_backoff=Backoff(0.05, 0.5),
        answer_seconds=5,
    )
    stop = asyncio.Event()
    handle = client.get_workflow_handle(pool_workflow_id(namespace, "pool"))

    async def record() -> Record:
        return await handle.query(RECORD, result_type=Record)

    async with (
        await KubeCluster.connect(Connection(plane.kubeconfig)) as admin,
        await KubeCluster.connect(Connection(kubeconfig)) as cluster,
        Worker(client, task_queue=POOLS_QUEUE, workflows=[StandInPool], workflow_runner=WORKFLOW_RUNNER),
        running(run_bridge(cluster, client, settings, stop)) as bridge,
    ):
        pool = {"apiVersion": API_VERSION, "kind": "GPUSpotPool", "metadata": {"name": "pool"}}
        made = await admin.create(POOLS, pool | {"spec": POOL_SPEC | {"strategyRef": "s"}}, namespace)
        uid = made["metadata"]["uid"]

        async def applied(count: int) -> bool:
            stored = await admin.get(POOLS, "pool", namespace)
            return FINALIZER in stored["metadata"].get("finalizers", []) and (
                len((await record()).applied) >= count
            )

        await until_async(lambda: _true(applied, 1), seconds=30)
        plane.kill(API_SERVER)
        # In this thread: the server ends with the thread that started it.
        plane.restart(API_SERVER)
        strategy = {"apiVersion": API_VERSION, "kind": "GPUSpotStrategy", "metadata": {"name": "s"}}

        async def strategy_made() -> bool:
            await admin.create(STRATEGIES, strategy | {"spec": {"mode": "CostFirst"}}, namespace)
            return True

        await until_async(lambda: _true(strategy_made), seconds=30)
        await until_async(lambda: _true(applied, 2), seconds=30)
        assert "s" in (await record()).applied[-1].resolved.strategies
        node = a_node(f"n-{namespace}", pool_uid=uid, provider_id="qcloud:///1/ins-1")
        for part in ("uid", "resourceVersion"):
            node["metadata"].pop(part)
        await admin.create(NODES, node)

        async def node_seen() -> bool:
            return any(fact.exists for seen in (await record()).nodes for fact in seen.nodes)

        await until_async(lambda: _true(node_seen), seconds=30)
        await admin.delete(NODES, f"n-{namespace}")
        await admin.delete(POOLS, "pool", namespace=namespace)

        async def deletion_told() -> bool:
            return (await record()).applied[-1].resolved.deleting

        await until_async(lambda: _true(deletion_told), seconds=30)
        await admin.patch(POOLS, "pool", {"metadata": {"finalizers": None}}, namespace=namespace)
        stop.set()
        await asyncio.wait_for(asyncio.shield(bridge), 20)


async def _true(condition: Callable[..., Awaitable[bool]], *arguments: object) -> bool:
    """False while a server is down or the workflow is not there yet."""
    try:
        return await condition(*arguments)
    except (ClusterError, RPCError):
        return False
