"""What the launcher says before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.control_plane.binaries import Binaries
from sandbox.control_plane.components import Options
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from sandbox.control_plane.processes import ProcessError


def test_attach_says_that_nothing_was_started_there(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match=f"no control plane was started in {tmp_path}"):
        ControlPlane.attach(tmp_path)


def test_stop_does_nothing_when_nothing_was_started(tmp_path: Path) -> None:
    ControlPlane(tmp_path / "none", Binaries.in_folder(tmp_path)).stop()
    assert not (tmp_path / "none").exists()


def test_kill_names_the_components_when_it_does_not_know_one(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="no component 'kubelet': choose from etcd, kube-apiserver"):
        ControlPlane(tmp_path, Binaries.in_folder(tmp_path)).kill("kubelet")


@pytest.mark.parametrize("leashed", [True, False])
def test_start_ends_with_the_log_of_a_component_that_ends_at_once(tmp_path: Path, leashed: bool) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "etcd").write_text("#!/bin/sh\necho no space left\nexit 1\n")
    (programs / "etcd").chmod(0o755)
    plane = ControlPlane(tmp_path / "run", Binaries.in_folder(programs), Options(die_with_parent=leashed))
    with pytest.raises(
        ControlPlaneError, match=r"etcd is not running; the end of its log .*\n.*no space left"
    ):
        plane.start()
    assert plane.pids() == {}


def test_start_names_a_program_that_is_not_there(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "run", Binaries.in_folder(tmp_path), Options(die_with_parent=False))
    with pytest.raises(ProcessError, match="cannot start etcd"):
        plane.start()
