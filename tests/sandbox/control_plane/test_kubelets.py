"""What kwok does for the real control plane: nodes, pods, Jobs and the power switch."""

from __future__ import annotations

import json
import time

import pytest

from sandbox.control_plane.annotations import POWER, POWER_OFF, POWER_ON, RUN_AS, RUN_SECONDS
from sandbox.control_plane.launcher import ControlPlane
from tests.sandbox.control_plane.plane_objects import (
    GPU,
    a_node,
    a_pod,
    a_pod_spec,
    apply,
    condition,
    eventually,
    exists,
    get,
    is_ready,
    taint_effects,
)

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_node_joins_ready_and_keeps_its_gpus(plane: ControlPlane) -> None:
    apply(plane, a_node("joins", gpus=8))
    eventually(lambda: is_ready(plane, "node", "joins"))
    eventually(lambda: "taints" not in get(plane, "node", "joins")["spec"])
    status = get(plane, "node", "joins")["status"]
    assert status["capacity"][GPU] == "8"
    assert status["allocatable"][GPU] == "8"
    assert {"type": "Hostname", "address": "joins"} in status["addresses"]


def test_node_sends_heartbeats_also_when_it_changes_all_the_time(plane: ControlPlane) -> None:
    apply(plane, a_node("busy"))
    eventually(lambda: is_ready(plane, "node", "busy"))

    def heartbeat() -> str:
        plane.kubectl("annotate", "node", "busy", f"at={time.monotonic()}", "--overwrite")
        conditions = get(plane, "node", "busy")["status"]["conditions"]
        return next(each["lastHeartbeatTime"] for each in conditions if each["type"] == "Ready")

    first = heartbeat()
    eventually(lambda: heartbeat() > first, seconds=10)


def test_gpus_that_show_later_are_kept(plane: ControlPlane) -> None:
    apply(plane, a_node("late"))
    eventually(lambda: is_ready(plane, "node", "late"))
    more = json.dumps({"status": {"capacity": {GPU: "7"}, "allocatable": {GPU: "7"}}})
    plane.kubectl("patch", "node", "late", "--subresource=status", "--type=merge", "-p", more)
    time.sleep(6)  # one heartbeat
    assert get(plane, "node", "late")["status"]["allocatable"][GPU] == "7"


def test_gpu_pod_is_scheduled_and_runs(plane: ControlPlane, namespace: str) -> None:
    apply(
        plane,
        a_node("gpus", gpus=8),
        a_pod("fits", namespace, a_pod_spec("gpus", gpus=8)),
    )
    eventually(lambda: is_ready(plane, "pod", "fits", "-n", namespace))
    fits = get(plane, "pod", "fits", "-n", namespace)
    assert fits["spec"]["nodeName"] == "gpus"
    assert fits["status"]["phase"] == "Running"

    apply(plane, a_pod("waits", namespace, a_pod_spec("gpus", gpus=1)))
    waits = ("pod", "waits", "-n", namespace)
    eventually(lambda: condition(get(plane, *waits), "PodScheduled") == "False")
    plane.kubectl("delete", "pod", "fits", "-n", namespace)
    eventually(lambda: is_ready(plane, *waits))


def test_job_completes_after_its_seconds(plane: ControlPlane, namespace: str) -> None:
    template = {
        "metadata": {"annotations": {RUN_SECONDS: "4"}},
        "spec": a_pod_spec("jobs") | {"restartPolicy": "Never"},
    }
    metadata = {"name": "train", "namespace": namespace}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    apply(plane, a_node("jobs"), job)
    eventually(lambda: get(plane, "job", "train", "-n", namespace)["status"].get("ready") == 1)
    seconds = eventually(lambda: condition(get(plane, "job", "train", "-n", namespace), "Complete") == "True")
    assert seconds >= 2


def test_deletion_honours_grace(plane: ControlPlane, namespace: str) -> None:
    apply(plane, a_node("grace"), a_pod("leaves", namespace, a_pod_spec("grace", grace_seconds=5)))
    leaves = ("pod", "leaves", "-n", namespace)
    eventually(lambda: is_ready(plane, *leaves))
    plane.kubectl("delete", *leaves, "--wait=false")
    assert get(plane, *leaves)["metadata"]["deletionGracePeriodSeconds"] == 5
    assert 3 <= eventually(lambda: not exists(plane, *leaves)) <= 9


def test_pod_that_runs_as_process_is_left_alone(plane: ControlPlane, namespace: str) -> None:
    apply(plane, a_node("real"), a_pod("real", namespace, a_pod_spec("real"), **{RUN_AS: "process"}))
    eventually(lambda: condition(get(plane, "pod", "real", "-n", namespace), "PodScheduled") == "True")
    time.sleep(2)
    assert get(plane, "pod", "real", "-n", namespace)["status"]["phase"] == "Pending"


def test_dark_node_falls_silent_and_comes_back(plane: ControlPlane, namespace: str) -> None:
    apply(
        plane,
        a_node("bright"),  # with every node dark, the node lifecycle controller taints none
        a_node("dark", gpus=8),
        a_pod("runs", namespace, a_pod_spec("dark")),
        a_pod("leaves", namespace, a_pod_spec("dark", grace_seconds=6)),
    )
    runs, leaves, late = (("pod", name, "-n", namespace) for name in ("runs", "leaves", "late"))
    eventually(lambda: is_ready(plane, *runs) and is_ready(plane, *leaves))
    plane.kubectl("delete", *leaves, "--wait=false")

    plane.kubectl("annotate", "node", "dark", f"{POWER}={POWER_OFF}", "--overwrite")
    plane.kubectl("annotate", "pods", "--all", "-n", namespace, f"{POWER}={POWER_OFF}", "--overwrite")
    apply(plane, a_pod("late", namespace, a_pod_spec("dark"), **{POWER: POWER_OFF}))

    silent_after = eventually(lambda: condition(get(plane, "node", "dark"), "Ready") == "Unknown", seconds=60)
    assert 12 <= silent_after <= 40
    eventually(lambda: taint_effects(plane, "dark") == {"NoSchedule", "NoExecute"}, seconds=30)
    assert is_ready(plane, "node", "bright")
    assert get(plane, *late)["status"]["phase"] == "Pending"
    assert get(plane, *leaves)["metadata"]["deletionTimestamp"]  # its grace is long over
    eventually(lambda: not is_ready(plane, *runs))
    assert get(plane, *runs)["status"]["phase"] == "Running"
    plane.kubectl("delete", *runs, "--wait=false", "--grace-period=1")
    time.sleep(3)
    assert exists(plane, *runs)

    plane.kubectl("annotate", "node", "dark", f"{POWER}={POWER_ON}", "--overwrite")
    plane.kubectl("annotate", "pods", "--all", "-n", namespace, f"{POWER}-")
    eventually(lambda: is_ready(plane, "node", "dark") and not taint_effects(plane, "dark"))
    eventually(lambda: not exists(plane, *runs) and not exists(plane, *leaves))
    eventually(lambda: is_ready(plane, *late))
    assert get(plane, "node", "dark")["status"]["allocatable"][GPU] == "8"
