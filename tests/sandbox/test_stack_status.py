"""What the sandbox says when a start was broken off or cannot begin; the next start is never barred."""

import os
from pathlib import Path

import pytest

from domain.contracts.offers import ProviderName
from sandbox.boot_script import JoinLine
from sandbox.commands import main, metrics_lines
from sandbox.control_plane.binaries import PROGRAMS
from sandbox.node_api import ApiAccess
from sandbox.operator_processes import Operator, OperatorConfig
from sandbox.run_folder import StackFolder, StackRecord
from sandbox.stack import Stack
from sandbox.world_config import CloudConfig, WorldConfig


@pytest.fixture
def broken_off(tmp_path: Path) -> Stack:
    """The record is the first thing that a start writes; here it is the only one."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).touch(mode=0o755)
    folder = StackFolder(tmp_path / "run")
    folder.make()
    ports = {"worker": 1, "bridge": 2}
    folder.save(StackRecord(1, "own", "", ports, through_proxies=False))
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(programs)}
    stack = Stack.attach(folder, environment, print)
    assert stack is not None
    return stack


def test_parts_that_were_never_started_do_not_answer(broken_off: Stack) -> None:
    parts = {part.name: (part.answers, part.where) for part in broken_off.status()}
    never = (False, "was not started")
    assert parts == dict.fromkeys(("kubernetes", "temporal", "world", "worker", "bridge"), never)


def test_sandbox_whose_start_was_broken_off_can_be_ended(broken_off: Stack) -> None:
    broken_off.down()


def test_missing_programs_are_told_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert main(["build"]) == 1
    assert f"spotgpu: KUBEBUILDER_ASSETS names {tmp_path}, which has no executable" in capsys.readouterr().err


def test_record_of_a_clone_that_is_gone_bars_nothing(broken_off: Stack, tmp_path: Path) -> None:
    lost = CloudConfig(
        provider=ProviderName.TENCENT,
        node_class=tmp_path / "gone" / "gpuspotnodeclass.yaml",
        access_key_id="k",
        access_key_secret="s",
        port=1,
        proxy_port=1,
    )
    world = WorldConfig(
        seed=1,
        clouds=(lost,),
        control_port=1,
        metadata_port=1,
        api=ApiAccess(server="https://127.0.0.1:1"),
        join=JoinLine("127.0.0.1:1", "a.b", "sha256:0"),
    )
    world.save(broken_off.folder.world)
    assert not any(part.answers for part in broken_off.status())


def test_metrics_of_every_process_are_shown(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    ports = {"worker": 1, "bridge": 2, "worker-2": 3}
    config = OperatorConfig({}, {}, {}, health_ports=ports, base={}, die_with_parent=True)
    lines = metrics_lines(Operator(config, folder.processes(), tmp_path))
    assert [line.split()[1:] for line in lines] == [
        [f"http://127.0.0.1:{port}/metrics", f"({name})"] for name, port in ports.items()
    ]
