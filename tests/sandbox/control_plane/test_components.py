"""Command lines, settings and stage files, without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.control_plane import annotations, components
from sandbox.control_plane.binaries import Binaries
from sandbox.control_plane.components import START_ORDER, Options, Ports, RunFolder, Settings

PORTS = Ports(1, 2, 3, 4, 5, 6)


def some_settings(options: Options | None = None) -> Settings:
    """Settings that nothing listens to."""
    return Settings(PORTS, options or Options(), Binaries.in_folder(Path("/bin")))


def stages() -> list[dict[str, object]]:
    """All stage documents."""
    return [stage for path in components.STAGE_FILES for stage in yaml.safe_load_all(path.read_text())]


def test_ports_are_six_different_ones() -> None:
    ports = Ports.pick()
    assert len(set(vars(ports).values())) == 6


def test_settings_survive_saving(tmp_path: Path) -> None:
    settings = some_settings(Options(node_monitor_grace_seconds=7, extra_arguments={"kwok": ["--v=4"]}))
    settings.save(tmp_path / "settings.json")
    assert Settings.load(tmp_path / "settings.json") == settings


@pytest.mark.parametrize("component", START_ORDER)
def test_command_ends_with_the_extra_arguments_of_its_component(component: str, tmp_path: Path) -> None:
    settings = some_settings(Options(extra_arguments={component: ["--v=4"]}))
    command = components.command(component, RunFolder(tmp_path), settings)
    assert command[0] == f"/bin/{component}"
    assert command[-1] == "--v=4"


@pytest.mark.parametrize("component", START_ORDER)
def test_command_listens_on_loopback_only(component: str, tmp_path: Path) -> None:
    command = components.command(component, RunFolder(tmp_path), some_settings())
    listening = [
        flag for flag in command if flag.startswith(("--bind-address=", "--server-address=", "--listen-"))
    ]
    assert listening
    assert all("127.0.0.1" in flag for flag in listening)


def test_controller_manager_waits_as_long_as_asked(tmp_path: Path) -> None:
    settings = some_settings(Options(node_monitor_grace_seconds=7))
    command = components.command(components.CONTROLLER_MANAGER, RunFolder(tmp_path), settings)
    assert "--node-monitor-grace-period=7s" in command


def test_every_stage_asks_for_power() -> None:
    assert stages()
    assert all(annotations.POWER in yaml.safe_dump(stage["spec"]) for stage in stages())


def test_every_pod_stage_but_the_dark_one_spares_real_processes() -> None:
    spared = {
        str(yaml.safe_load(yaml.safe_dump(stage["metadata"]))["name"])
        for stage in stages()
        if annotations.RUN_AS in yaml.safe_dump(stage["spec"])
    }
    assert spared == {"pod-ready", "pod-ready-again", "pod-complete", "pod-delete"}


def test_run_folder_is_private(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.make()
    assert folder.path.stat().st_mode & 0o077 == 0
