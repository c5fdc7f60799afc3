"""Finding and building the programs, with a stand-in for Go that writes a file instead of compiling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sandbox.control_plane import binaries
from sandbox.control_plane.binaries import PROGRAMS, MissingProgramError, find_or_build
from sandbox.control_plane.compilation import CompilationError

REPOSITORY = Path(binaries.__file__).parents[2]

FAKE_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit 0; fi
echo "$@" >> "$FAKE_GO_CALLS"
if [ -n "$FAKE_GO_FAILS" ]; then echo "no such module" >&2; exit 1; fi
sleep "${FAKE_GO_SECONDS:-0}"
while [ "$1" != -o ]; do shift; done
echo program > "$2" && chmod +x "$2"
"""


@pytest.fixture
def build_env(tmp_path: Path) -> dict[str, str]:
    """An environment whose Go is the stand-in and whose cache is empty."""
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    return {
        "PATH": f"{go.parent}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "FAKE_GO_CALLS": str(tmp_path / "calls"),
    }


def go_calls(env: Mapping[str, str]) -> list[str]:
    """Return the builds the stand-in was asked for."""
    path = Path(env["FAKE_GO_CALLS"])
    return path.read_text().splitlines() if path.exists() else []


def cache_content(env: Mapping[str, str]) -> set[str]:
    """Return the kinds of entries in the cache: what is behind the key."""
    key = binaries.cache_key(binaries.MODULE_FOLDER)
    return {path.name.removeprefix(key) for path in binaries.cache_folder(env).iterdir()}


def silent(_line: str) -> None:
    """Progress that nobody reads."""


def assets(folder: Path, *names: str) -> Path:
    """Make a folder of executables."""
    folder.mkdir()
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_find_or_build_takes_the_assets_folder_as_it_is(tmp_path: Path) -> None:
    folder = assets(tmp_path / "assets", *PROGRAMS)
    found = find_or_build({"KUBEBUILDER_ASSETS": str(folder)}, silent)
    assert found.kube_controller_manager == folder / "kube-controller-manager"
    assert found.kwok == folder / "kwok"


def test_find_or_build_names_each_program_that_the_assets_folder_lacks(tmp_path: Path) -> None:
    folder = assets(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    (folder / "kwok").touch(mode=0o644)
    with pytest.raises(MissingProgramError) as caught:
        find_or_build({"KUBEBUILDER_ASSETS": str(folder)}, silent)
    message = str(caught.value)
    for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
        assert str(folder / name) in message
    assert str(folder / "etcd") not in message
    assert "unset KUBEBUILDER_ASSETS" in message


def test_find_or_build_says_that_the_assets_folder_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(MissingProgramError, match="which does not exist"):
        find_or_build({"KUBEBUILDER_ASSETS": str(tmp_path / "none")}, silent)


def test_find_or_build_builds_once_and_then_finds(build_env: dict[str, str]) -> None:
    lines: list[str] = []
    built = find_or_build(build_env, lines.append)
    assert find_or_build(build_env, silent) == built
    assert all(os.access(built.etcd.parent / name, os.X_OK) for name in PROGRAMS)
    assert len(go_calls(build_env)) == len(PROGRAMS)
    assert "building kwok (6 of 6)" in lines
    assert cache_content(build_env) == {"", ".lock", ".build.log"}


def test_find_or_build_tells_the_programs_their_version(build_env: dict[str, str]) -> None:
    find_or_build(build_env, silent)
    api_server = next(call for call in go_calls(build_env) if call.endswith("cmd/kube-apiserver"))
    version = binaries.kubernetes_version(binaries.MODULE_FOLDER)
    assert f"version.gitVersion={version}" in api_server


def test_find_or_build_shows_what_go_said_and_leaves_nothing_when_it_fails(build_env: dict[str, str]) -> None:
    with pytest.raises(CompilationError, match="no such module"):
        find_or_build({**build_env, "FAKE_GO_FAILS": "1"}, silent)
    assert cache_content(build_env) == {".lock", ".build.log"}
    find_or_build(build_env, silent)


def test_find_or_build_leaves_nothing_when_interrupted(build_env: dict[str, str]) -> None:
    def interrupt(line: str) -> None:
        if "3 of 6" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_or_build(build_env, interrupt)
    assert cache_content(build_env) == {".lock", ".build.log"}


def test_find_or_build_clears_up_after_a_builder_that_was_killed(build_env: dict[str, str]) -> None:
    code = (
        "import os; from sandbox.control_plane.binaries import find_or_build;"
        "find_or_build(os.environ, lambda line: None)"
    )
    slow = {**build_env, "FAKE_GO_SECONDS": "30"}
    builder = subprocess.Popen(  # noqa: S603 - this test's own code
        [sys.executable, "-c", code], env=slow, cwd=REPOSITORY, start_new_session=True
    )
    wait_for(lambda: bool(go_calls(build_env)))
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert any(name.startswith(".tmp-") for name in cache_content(build_env))

    find_or_build(build_env, silent)
    assert cache_content(build_env) == {"", ".lock", ".build.log"}


def test_find_or_build_waits_for_another_builder_and_uses_its_work(build_env: dict[str, str]) -> None:
    slow = {**build_env, "FAKE_GO_SECONDS": "0.2"}
    first = threading.Thread(target=find_or_build, args=(slow, silent))
    first.start()
    wait_for(lambda: bool(go_calls(build_env)))
    lines: list[str] = []
    find_or_build(build_env, lines.append)
    first.join()
    assert lines
    assert all("another process builds" in line for line in lines)
    assert len(go_calls(build_env)) == len(PROGRAMS)


def test_cache_key_names_the_version_and_changes_with_each_lock_file(tmp_path: Path) -> None:
    (tmp_path / "kwok").mkdir()
    names = ("go.mod", "go.sum", "kwok/go.mod", "kwok/go.sum")
    for name in names:
        (tmp_path / name).write_bytes((binaries.MODULE_FOLDER / name).read_bytes())
    keys = {binaries.cache_key(tmp_path)}
    assert keys == {binaries.cache_key(binaries.MODULE_FOLDER)}
    for name in names:
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        keys.add(binaries.cache_key(tmp_path))
    assert len(keys) == 1 + len(names)
    assert all(key.startswith("v1.") for key in keys)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/spotgpu/control-plane", id="xdg first"),
        pytest.param({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/spotgpu/control-plane", id="home"),
    ],
)
def test_cache_folder_is_the_users(env: dict[str, str], expected: str) -> None:
    assert binaries.cache_folder(env) == Path(expected)


def wait_for(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Poll until ``condition()`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
