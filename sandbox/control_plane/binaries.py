"""The six programs of the control plane: found where the user says, in the cache, or built into it once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.control_plane import compilation
from sandbox.control_plane.go_toolchain import find_go

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
"""Kubernetes' own convention (envtest) for a folder with ready-made programs."""

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")

MODULE_FOLDER = Path(__file__).parent
"""Holds go.mod and go.sum of Kubernetes and etcd; kwok's are in its subfolder."""

_WAIT_REPORT_SECONDS = 10.0
_LOCK_FILES = ("go.mod", "go.sum", "kwok/go.mod", "kwok/go.sum")


class MissingProgramError(Exception):
    """The folder the user named lacks a program; the message names the file and what to do."""


@dataclass(frozen=True)
class Binaries:
    """Paths of executables, all of one release."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    kwok: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Binaries:
        """Name the programs in ``folder`` without looking whether they are there."""
        return cls(*(folder / name for name in PROGRAMS))


def find_or_build(env: Mapping[str, str], progress: Callable[[str], None]) -> Binaries:
    """Return the programs of ``KUBEBUILDER_ASSETS``, else those of the cache, built first when it has none.

    A build takes about five minutes on two cores, once. A second process that wants the same build waits for
    the first; an interrupted build leaves nothing behind that looks finished.

    Args:
        env: Environment to read (``KUBEBUILDER_ASSETS``, ``XDG_CACHE_HOME``, ``HOME``, ``PATH``) and to
            build in.
        progress: Told in one line what is being done; called every few seconds during a build.

    Raises:
        MissingProgramError: ``KUBEBUILDER_ASSETS`` is set and its folder lacks a program.
        GoToolchainError: There is no Go and none can be installed.
        CompilationError: Go could not build a program.
    """
    assets = env.get(ASSETS_VARIABLE, "")
    if assets:
        return _check_assets(Path(assets))
    target = cache_folder(env) / cache_key(MODULE_FOLDER)
    if not target.exists():
        with _exclusive(target.with_name(f"{target.name}.lock"), progress):
            if not target.exists():
                _build(target, env, progress)
    return Binaries.in_folder(target)


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return the user's cache folder for builds: ``$XDG_CACHE_HOME`` or ``~/.cache``, and our name below."""
    given = env.get("XDG_CACHE_HOME")
    base = Path(given) if given else Path(env.get("HOME") or Path.home()) / ".cache"
    return base / "spotgpu" / "control-plane"


def cache_key(module_folder: Path) -> str:
    """Return ``<version>-<hash>``: another lock file, platform or build option is another build."""
    digest = hashlib.sha256()
    for name in _LOCK_FILES:
        digest.update(name.encode() + b"\0" + (module_folder / name).read_bytes() + b"\0")
    digest.update(f"{platform.system()} {platform.machine()} {compilation.OPTIONS}".encode())
    return f"{kubernetes_version(module_folder)}-{digest.hexdigest()[:12]}"


def kubernetes_version(module_folder: Path) -> str:
    """Return the pinned version, such as ``v1.36.3``, from go.mod."""
    return _required_version(module_folder / "go.mod", "k8s.io/kubernetes")


def _required_version(go_mod: Path, module: str) -> str:
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{go_mod} does not require {module}: restore the file from the repository")
    return match[1]


def _check_assets(folder: Path) -> Binaries:
    """Take the user's folder as it is, if every program is in it."""
    paths = [folder / name for name in PROGRAMS]
    missing = [path for path in paths if not (path.is_file() and os.access(path, os.X_OK))]
    if not missing:
        return Binaries.in_folder(folder)
    names = ", ".join(path.name for path in missing)
    state = "does not exist" if not folder.is_dir() else f"has no executable {names}"
    raise MissingProgramError(
        f"{ASSETS_VARIABLE} names {folder}, which {state}. Expected there: "
        f"{', '.join(str(path) for path in missing)}. The sandbox needs {', '.join(PROGRAMS)}. Add what is "
        f"missing, or unset {ASSETS_VARIABLE} to have all six built once into the cache."
    )


@contextmanager
def _exclusive(lock_path: Path, progress: Callable[[str], None]) -> Generator[None]:
    """Hold the lock file; the kernel gives it back when the holder dies."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("a") as lock:
        started = time.monotonic()
        told = -_WAIT_REPORT_SECONDS
        while not _try_lock(lock.fileno()):
            waited = time.monotonic() - started
            if waited - told >= _WAIT_REPORT_SECONDS:
                progress(f"another process builds the control plane, waiting for it: {waited:.0f} s")
                told = waited
            time.sleep(0.2)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(target: Path, env: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Build into a folder beside ``target`` and rename it: the target is whole or absent."""
    for leftover in target.parent.glob(f"{target.name}.tmp-*"):
        shutil.rmtree(leftover)  # of a builder that was killed: the lock is ours
    go = find_go(env, target.parent, progress)
    progress(f"building the Kubernetes control plane once, into {target} (about five minutes on two cores)")
    started = time.monotonic()
    kept_log = target.with_name(f"{target.name}.build.log")
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.tmp-", dir=target.parent) as scratch:
        order = compilation.Order(
            go=go,
            module_folder=MODULE_FOLDER,
            output=Path(scratch, "bin"),
            log=kept_log,
            kubernetes_version=kubernetes_version(MODULE_FOLDER),
            kwok_version=_required_version(MODULE_FOLDER / "kwok" / "go.mod", "sigs.k8s.io/kwok"),
        )
        compilation.compile_programs(order, env, progress)
        Path(scratch, "bin").rename(target)
    progress(f"the control plane is built: {time.monotonic() - started:.0f} s")
