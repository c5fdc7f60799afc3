"""The real control plane: rights, crashes and clean ends."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sandbox.control_plane import binaries, components
from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.components import API_SERVER, KWOK, START_ORDER
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from tests.sandbox.control_plane.plane_objects import (
    a_node,
    a_pod,
    a_pod_spec,
    apply,
    eventually,
    exists,
    get,
    is_ready,
)

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

REPOSITORY = Path(binaries.__file__).parents[2]


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
