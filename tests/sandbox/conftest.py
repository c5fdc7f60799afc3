"""One real control plane for all tests of this room that want it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sandbox.control_plane.binaries import find_or_build
from sandbox.control_plane.launcher import ControlPlane


@pytest.fixture(scope="session")
def shared_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), find_or_build(os.environ, print))
    plane.start()
    plane.wait_ready()
    yield plane
    plane.stop()
