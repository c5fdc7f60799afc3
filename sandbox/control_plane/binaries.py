"""The six programs of the control plane: found where the user says, in the cache, or built into it once."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.control_plane import compilation
from sandbox.control_plane.file_lock import exclusive
from sandbox.control_plane.go_toolchain import find_go

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
"""Kubernetes' own convention (envtest) for a folder with ready-made programs."""

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")

MODULE_FOLDER = Path(__file__).parent
"""Holds go.mod and go.sum of Kubernetes and etcd; kwok's are in its subfolder."""

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
        what = "the Kubernetes control plane once (about five minutes on two cores)"
        build_once(target, what, _control_plane_programs(), env, progress)
    return Binaries.in_folder(target)


def build_once(
    target: Path,
    what: str,
    programs: Sequence[compilation.Program],
    env: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    """Build programs into a folder of the cache, unless another process does so first.

    Args:
        target: The folder; whole or absent, whatever interrupts the build.
        what: Told while it is built.
        programs: What shall be in it.
        env: Environment to find Go in and to build in.
        progress: Told in one line what is being done.

    Raises:
        GoToolchainError: There is no Go and none can be installed.
        CompilationError: Go could not build a program.
    """
    with exclusive(target.with_name(f"{target.name}.lock"), progress):
        if not target.exists():
            _build(target, what, programs, env, progress)


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return the user's cache folder for builds: ``$XDG_CACHE_HOME`` or ``~/.cache``, and our name below."""
    given = env.get("XDG_CACHE_HOME")
    base = Path(given) if given else Path(env.get("HOME") or Path.home()) / ".cache"
    return base / "spotgpu" / "control-plane"


def cache_key(module_folder: Path) -> str:
    """Return ``<version>-<hash>``: another lock file, platform or build option is another build."""
    return f"{kubernetes_version(module_folder)}-{locks_hash(module_folder, _LOCK_FILES)}"


def locks_hash(module_folder: Path, lock_files: Sequence[str]) -> str:
    """Return 12 hex digits of what shapes a build: lock files, platform and options."""
    digest = hashlib.sha256()
    for name in lock_files:
        digest.update(name.encode() + b"\0" + (module_folder / name).read_bytes() + b"\0")
    digest.update(f"{platform.system()} {platform.machine()} {compilation.OPTIONS}".encode())
    return digest.hexdigest()[:12]


def kubernetes_version(module_folder: Path) -> str:
    """Return the pinned version, such as ``v1.36.3``, from go.mod."""
    return required_version(module_folder / "go.mod", "k8s.io/kubernetes")


def _control_plane_programs() -> list[compilation.Program]:
    kwok_version = required_version(MODULE_FOLDER / "kwok" / "go.mod", "sigs.k8s.io/kwok")
    return compilation.control_plane_programs(MODULE_FOLDER, kubernetes_version(MODULE_FOLDER), kwok_version)


def required_version(go_mod: Path, module: str) -> str:
    """Return the version of a module that go.mod pins, such as ``v0.8.0``."""
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


def _build(
    target: Path,
    what: str,
    programs: Sequence[compilation.Program],
    env: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    """Build into a folder beside ``target`` and rename it: the target is whole or absent."""
    for leftover in target.parent.glob(f"{target.name}.tmp-*"):
        shutil.rmtree(leftover)  # of a builder that was killed: the lock is ours
    go = find_go(env, target.parent, progress)
    progress(f"building {what}, into {target}")
    started = time.monotonic()
    kept_log = target.with_name(f"{target.name}.build.log")
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.tmp-", dir=target.parent) as scratch:
        order = compilation.Order(
            go=go,
            programs=programs,
            output=Path(scratch, "bin"),
            log=kept_log,
        )
        compilation.compile_programs(order, env, progress)
        Path(scratch, "bin").rename(target)
    progress(f"built in {time.monotonic() - started:.0f} s: {target}")
