"""Objects of a real control plane: made, read and waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from sandbox.control_plane.annotations import POWER, POWER_ON
from sandbox.control_plane.launcher import ControlPlane

GPU = "nvidia.com/gpu"
UNREACHABLE = "node.kubernetes.io/unreachable"

Object = dict[str, Any]


def eventually(condition: Callable[[], bool], *, seconds: float = 20.0) -> float:
    """Poll until ``condition()`` holds; return after how many seconds it did."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"did not happen within {seconds} s"
        time.sleep(0.2)
    return time.monotonic() - started


def get(plane: ControlPlane, *arguments: str) -> Object:
    """Return one object."""
    return json.loads(plane.kubectl("get", *arguments, "-o", "json"))


def exists(plane: ControlPlane, *arguments: str) -> bool:
    """Return whether there is such an object."""
    return bool(plane.kubectl("get", *arguments, "-o", "name", "--ignore-not-found"))


def apply(plane: ControlPlane, *objects: Object) -> None:
    """Create or update objects."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))


def a_node(name: str, *, gpus: int = 0, power: str = POWER_ON) -> Object:
    """A machine that only pods selecting it by name land on."""
    capacity = {"cpu": "96", "memory": "1Ti", "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
    annotations = {"kwok.x-k8s.io/node": "fake", POWER: power}
    metadata = {"name": name, "labels": {"machine": name}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": capacity}}


def a_pod_spec(node: str, *, gpus: int = 0, grace_seconds: int = 0) -> Object:
    """A pod for one machine, left to the scheduler."""
    container: Object = {"name": "main", "image": "none"}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    return {
        "nodeSelector": {"machine": node},
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [container],
    }


def a_pod(name: str, namespace: str, spec: Object, **annotations: str) -> Object:
    """Wrap a pod's spec."""
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def condition(item: Object, kind: str) -> str:
    """Return the status of one condition, empty when it has none."""
    found = [each["status"] for each in item["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else ""


def is_ready(plane: ControlPlane, *arguments: str) -> bool:
    """Return whether a node or pod says that it is ready."""
    return condition(get(plane, *arguments), "Ready") == "True"


def taint_effects(plane: ControlPlane, node: str) -> set[str]:
    """Return the effects of the ``unreachable`` taint on a node."""
    taints = get(plane, "node", node)["spec"].get("taints", [])
    return {taint["effect"] for taint in taints if taint["key"] == UNREACHABLE}
