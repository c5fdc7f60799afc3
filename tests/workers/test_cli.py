"""The command line as a person meets it: real processes, no server."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from workers.cli import run


def spotgpu(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPOTGPU_", "TEMPORAL_", "KUBECONFIG"))}
    return subprocess.run(  # noqa: S603  # our own module
        [sys.executable, "-m", "workers", *arguments],
        capture_output=True,
        text=True,
        env={**kept, "SPOTGPU_HEALTH_PORT": "0", "SPOTGPU_CONNECT_SECONDS": "0", **environment},
        timeout=50,
        check=False,
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("worker", "bridge", "crd", "search-attributes", "sandbox", "replay"):
        assert command in text


@pytest.mark.parametrize("command", ["worker", "bridge"])
def test_help_of_a_process_names_where_its_settings_are(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("TEMPORAL_ADDRESS", "KUBECONFIG", "docs/operations.md"))


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"spotgpu {version('spotgpu')}\n"


@pytest.mark.parametrize("arguments", [[], ["elephant"], ["crd"], ["crd", "burn"], ["replay"]])
def test_wrong_call_says_how_to_call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "usage: spotgpu" in capsys.readouterr().err


def test_crd_check_agrees_with_the_repository() -> None:
    assert run(["crd", "check"]) == 0


def test_replay_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"not": "a history"}')
    assert run(["replay", str(file)]) != 0
    assert run(["replay", str(tmp_path / "missing.json")]) == 2
    assert "missing.json is no recorded history" in capsys.readouterr().err


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_restored_logging")
@pytest.mark.parametrize("command", ["worker", "bridge"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param("SPOTGPU_REGIONS", "x", "setting SPOTGPU_REGIONS", id="wrong setting"),
        pytest.param("SPOTGPU_KUBECONFIG", "/no/such", "/no/such does not exist", id="no kubeconfig"),
    ],
)
def test_process_that_cannot_start_says_why_in_one_line(  # a case has three parts
    command: str,
    name: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPOTGPU_HEALTH_PORT", "0")
    monkeypatch.setenv(name, value)
    assert run([command]) == 2
    text = capsys.readouterr().err
    assert text.startswith("spotgpu: ")
    assert text.count("\n") == 1
    assert said in text


def test_process_without_a_kubernetes_api_says_so_in_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "contexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    )
    ended = spotgpu("worker", SPOTGPU_KUBECONFIG=str(kubeconfig))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "start the API server" in ended.stderr


def test_registration_without_a_temporal_server_says_so_in_one_line() -> None:
    ended = spotgpu("search-attributes", "register", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "no Temporal server at 127.0.0.1:1" in ended.stderr
