"""A cluster of the user's: the sandbox brings a kubelet and a way to the API, and takes them away again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.clusters import CurrentCluster, identity_kubeconfig, join_hash
from sandbox.control_plane.annotations import MANAGED_BY_KWOK, POWER
from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.components import KWOK
from sandbox.control_plane.launcher import ControlPlane
from sandbox.machines import MACHINE
from sandbox.node_api import NodeApi

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

PATIENCE_SECONDS = 30


@pytest.fixture
def current(shared_control_plane: ControlPlane, tmp_path: Path) -> Iterator[CurrentCluster]:
    """The shared control plane without its own kwok stands for the user's cluster."""
    shared_control_plane.kill(KWOK)
    kubeconfig = shared_control_plane.kubeconfig
    cluster = CurrentCluster(
        tmp_path, kubeconfig, find_or_build({"HOME": str(Path.home())}, print), die_with_parent=True
    )
    cluster.start()
    yield cluster
    cluster.stop()
    shared_control_plane.restart(KWOK)


async def test_current_cluster_keeps_a_machines_node(current: CurrentCluster) -> None:
    annotations = {MANAGED_BY_KWOK: "fake", POWER: "on", MACHINE: "ins-1"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "current-1", "annotations": annotations}}
    api = NodeApi(current.machine_access())
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    await api.create_node(node)
    while not _is_ready(await api.node("current-1") or {}):
        assert asyncio.get_running_loop().time() < deadline, "kwok makes the Node Ready"
        await asyncio.sleep(0.2)
    await api.close()
    await asyncio.to_thread(current.stop)
    assert "current-1" not in await asyncio.to_thread(current.kubectl, "get", "nodes", "-o", "name")


def test_current_cluster_gives_the_operator_an_identity(current: CurrentCluster, tmp_path: Path) -> None:
    assert current.answers()
    assert join_hash(current).startswith("sha256:")
    identity_kubeconfig(current, tmp_path / "kubeconfig", "default", "default", current.server)
    assert "system:serviceaccount:default:default" in (tmp_path / "kubeconfig").read_text()


def _is_ready(node: dict[str, object]) -> bool:
    conditions = json.loads(json.dumps(node)).get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
