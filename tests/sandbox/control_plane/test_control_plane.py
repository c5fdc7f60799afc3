"""The real control plane: nodes, pods, Jobs, the power switch, crashes and clean ends."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from sandbox.control_plane import binaries, components
from sandbox.control_plane.annotations import POWER, POWER_OFF, POWER_ON, RUN_AS, RUN_SECONDS
from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.components import API_SERVER, KWOK, START_ORDER
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

REPOSITORY = Path(binaries.__file__).parents[2]
GPU = "nvidia.com/gpu"
UNREACHABLE = "node.kubernetes.io/unreachable"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Generator[ControlPlane]:
    """One control plane for all tests of this module; each test has machines and a namespace of its own."""
    programs = find_or_build(os.environ, lambda line: sys.stderr.write(f"{line}\n") and None)
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"), programs)
    plane.start()
    plane.wait_ready()
    yield plane
    plane.stop()


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace in which pods can be made."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:60].rstrip("-")
    plane.kubectl("create", "namespace", name)
    eventually(lambda: "default" in plane.kubectl("get", "sa", "-n", name, "-o", "name"))
    return name


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


def test_service_account_has_its_own_rights_only(plane: ControlPlane, namespace: str) -> None:
    plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    plane.kubectl("create", "role", "reads", "--verb=get,list", "--resource=pods", "-n", namespace)
    account = f"{namespace}:reader"
    plane.kubectl(
        "create", "rolebinding", "reads", "--role=reads", f"--serviceaccount={account}", "-n", namespace
    )
    path = plane.service_account_kubeconfig(namespace, "reader")
    assert "no pods" not in plane.kubectl(f"--kubeconfig={path}", "get", "pods", "-n", namespace)
    with pytest.raises(
        ControlPlaneError, match=f'system:serviceaccount:{account}" cannot list resource "nodes"'
    ):
        plane.kubectl(f"--kubeconfig={path}", "get", "nodes")


def test_nobody_gets_in_without_a_token(plane: ControlPlane) -> None:
    context = ssl.create_default_context(cafile=plane.ca_file)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{plane.server}/api/v1/nodes", context=context)  # noqa: S310 - https
    caught.value.close()
    assert caught.value.code == 403


def test_api_server_keeps_its_data_and_port_when_killed(plane: ControlPlane, namespace: str) -> None:
    plane.kubectl("create", "configmap", "kept", "-n", namespace, "--from-literal=a=1")
    server = plane.server
    plane.kill(API_SERVER)
    assert not plane.is_alive(API_SERVER)
    with pytest.raises(ControlPlaneError, match="refused"):
        plane.kubectl("get", "nodes")
    plane.restart(API_SERVER)
    plane.wait_ready()
    assert plane.server == server
    assert get(plane, "configmap", "kept", "-n", namespace)["data"] == {"a": "1"}
    assert set(plane.pids()) == set(START_ORDER)

    apply(plane, a_node("after"), a_pod("after", namespace, a_pod_spec("after")))
    eventually(lambda: is_ready(plane, "pod", "after", "-n", namespace), seconds=30)


def test_kwok_goes_on_when_killed(plane: ControlPlane, namespace: str) -> None:
    apply(plane, a_node("orphan"))
    plane.kill(KWOK)
    apply(plane, a_pod("later", namespace, a_pod_spec("orphan")))
    plane.restart(KWOK)
    eventually(lambda: is_ready(plane, "pod", "later", "-n", namespace))


def test_detached_control_plane_is_found_and_ended_by_another_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from sandbox.control_plane.binaries import find_or_build\n"
        "from sandbox.control_plane.components import Options\n"
        "from sandbox.control_plane.launcher import ControlPlane\n"
        "programs = find_or_build(os.environ, print)\n"
        "ControlPlane(Path(sys.argv[1]), programs, Options(die_with_parent=False)).start()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, check=True)  # noqa: S603 - ours
    plane = ControlPlane.attach(tmp_path)
    plane.wait_ready()
    assert set(plane.pids()) == set(START_ORDER)
    with pytest.raises(ControlPlaneError, match="a control plane runs already"):
        plane.start()
    plane.stop()
    plane.stop()
    assert plane.pids() == {}
    assert processes_of(tmp_path) == []


def test_start_after_stop_goes_on_with_the_data(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, find_or_build(os.environ, lambda _line: None))
    plane.start()
    plane.kubectl("create", "namespace", "kept")
    server, token = plane.server, plane.admin_token
    plane.stop()
    assert processes_of(tmp_path) == []
    plane.start()
    assert exists(plane, "namespace", "kept")
    assert (plane.server, plane.admin_token) == (server, token)
    plane.stop()


def processes_of(run_folder: Path) -> list[str]:
    """Return the command lines on this machine that name the run folder or one of its ports."""
    ports = vars(components.Settings.load(run_folder / "control-plane.json").ports).values()
    marks = [str(run_folder), *(f"127.0.0.1:{port}" for port in ports)]
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(mark in line for mark in marks):
            found.append(line)
    return found
