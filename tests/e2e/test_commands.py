"""The commands of the README as a user runs them: demo, up, status, down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.run_folder import StackFolder
from sandbox.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def spotgpu(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workers", "sandbox", *arguments]
    return subprocess.run(  # noqa: S603 - our own command, no shell
        command, capture_output=True, text=True, timeout=280, check=False
    )


def runs(pid: int | None) -> bool:
    """Whether a process runs; one that only waits for its parent to notice its end does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")


def test_demo_tells_a_true_story() -> None:
    done = spotgpu("demo", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    story = done.stdout
    for part in (
        "SPOTGPU_POLLING_INTERVAL_SECONDS",
        "worker restarted",
        "still one machine per slot",
        "minInstances 4",
        "seen after",
        "nothing left",
        "the ledgers have exactly",
    ):
        assert part in story


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stack = Stack.attach(StackFolder(tmp_path), os.environ, print)
    if stack is not None:
        stack.down()


def test_sandbox_comes_up_once_says_what_runs_and_goes(folder: Path) -> None:
    where = ("--folder", str(folder))
    nothing = spotgpu("status", *where)
    assert nothing.returncode == 1
    up = spotgpu("up", *where)
    assert up.returncode == 0, up.stdout + up.stderr
    assert all(word in up.stdout for word in ("Temporal UI", "KUBECONFIG", "metrics", "Try next"))
    second = spotgpu("up", *where)
    assert second.returncode == 1
    assert "runs already" in second.stderr
    assert f"spotgpu sandbox status --folder {folder}" in second.stderr
    status = spotgpu("status", *where)
    assert status.returncode == 0, status.stdout
    *parts, temporal_ui, temporal, kubeconfig, worker, bridge = status.stdout.splitlines()
    assert {line.split()[0] for line in parts} == {
        "kubernetes", "temporal", "world", "tencent", "aliyun", "worker", "bridge",
    }  # fmt: skip
    assert "\n".join((temporal_ui, temporal, kubeconfig, worker, bridge)) in up.stdout
    assert temporal_ui.startswith("Temporal UI")
    assert kubeconfig.startswith("KUBECONFIG")
    stack = Stack.attach(StackFolder(folder), os.environ, print)
    assert stack is not None
    pids = [stack.operator.pid("worker"), stack.operator.pid("bridge"), stack.temporal.pid]
    down = spotgpu("down", *where)
    assert down.returncode == 0
    assert f"logs are in {folder / 'logs'}, " in down.stdout
    assert not [pid for pid in pids if runs(pid)]
    assert spotgpu("status", *where).returncode == 1
    assert spotgpu("down", *where).returncode == 0
