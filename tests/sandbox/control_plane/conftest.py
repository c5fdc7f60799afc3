"""A real control plane for each module, and a namespace for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.launcher import ControlPlane
from tests.sandbox.control_plane.plane_objects import eventually


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
