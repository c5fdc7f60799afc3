"""One real control plane with the definitions of ``deploy/crds`` for the cluster tests of this room."""

import os
import sys
import time
from collections.abc import Iterator

import pytest

from crd_bridge.kinds import KINDS
from crd_bridge.schema import CRD_FOLDER
from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from tests.crd_bridge.raw_api import RawApi, collection


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@pytest.fixture(scope="session")
def plane_with_crds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that serves our four kinds."""
    plane = ControlPlane(tmp_path_factory.mktemp("crd-plane"), find_or_build(os.environ, _tell))
    plane.start()
    try:
        plane.wait_ready()
        plane.kubectl("apply", "-f", str(CRD_FOLDER))
        with RawApi(plane.server, plane.ca_file, plane.admin_token) as api:
            _wait_served(api)
        _wait_discovered(plane)
        yield plane
    finally:
        plane.stop()


def _wait_served(api: RawApi) -> None:
    """A fresh definition is established before its storage answers: 404 or 429 for a moment."""
    deadline = time.monotonic() + 30
    waiting = [kind.plural for kind in KINDS]
    while waiting:
        assert time.monotonic() < deadline, f"not served within 30 s: {waiting}"
        waiting = [plural for plural in waiting if not api.send("GET", collection("default", plural)).ok]
        time.sleep(0.1 if waiting else 0)


def _wait_discovered(plane: ControlPlane) -> None:
    """kubectl finds a kind by discovery and describes it by OpenAPI; both lag behind the storage."""
    deadline = time.monotonic() + 30
    waiting = [kind.short_name for kind in KINDS]
    while waiting:
        try:
            plane.kubectl("explain", waiting[-1])
            waiting.pop()
        except ControlPlaneError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


@pytest.fixture
def api(plane_with_crds: ControlPlane) -> Iterator[RawApi]:
    """The administrator's connection."""
    plane = plane_with_crds
    with RawApi(plane.server, plane.ca_file, plane.admin_token) as api:
        yield api


@pytest.fixture
def namespace(plane_with_crds: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"t{abs(hash(request.node.nodeid)):x}"
    plane_with_crds.kubectl("create", "namespace", name)
    return name
