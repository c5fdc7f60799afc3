"""Compiling programs with Go from the pinned modules of this folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OPTIONS = "-trimpath -s -w CGO_ENABLED=0"
"""What shapes the programs beside their sources; part of the name of a build in the cache."""

_VERSION_VARIABLE = "k8s.io/component-base/version"
_KUBERNETES_PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
_KWOK_PACKAGE = "sigs.k8s.io/kwok/cmd/kwok"
_PROGRESS_SECONDS = 10.0
_LOG_TAIL_BYTES = 3000


class CompilationError(Exception):
    """Go could not build a program; the message carries the end of Go's own output."""


@dataclass(frozen=True)
class Program:
    """One program and the module that pins it."""

    name: str
    package: str
    folder: Path
    """Holds go.mod and go.sum."""
    link_options: str = "-s -w"


@dataclass(frozen=True)
class Order:
    """What to compile, and to where."""

    go: Path
    programs: Sequence[Program]
    output: Path
    """Folder of the programs; made if absent."""
    log: Path
    """Go's own output, one line for each package it compiles."""


def compile_programs(order: Order, env: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Compile every program of the order into its folder.

    Raises:
        CompilationError: Go ended with an error, or made no program.
    """
    order.output.mkdir(parents=True, exist_ok=True)
    order.log.write_text("")
    build_env = _build_env(env)
    for number, program in enumerate(order.programs, 1):
        step = f"building {program.name} ({number} of {len(order.programs)})"
        progress(step)
        _compile(order, program, build_env, lambda news, step=step: progress(f"{step}: {news}"))


def control_plane_programs(module_folder: Path, kubernetes_version: str, kwok_version: str) -> list[Program]:
    """List the six, Kubernetes first: etcd shares most of its packages."""
    kubernetes = [
        Program(name, package, module_folder, _kubernetes_link_options(kubernetes_version))
        for name, package in _KUBERNETES_PACKAGES.items()
    ]
    kwok_options = f"-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={kwok_version}"
    return [*kubernetes, Program("kwok", _KWOK_PACKAGE, module_folder / "kwok", kwok_options)]


def _build_env(env: Mapping[str, str]) -> dict[str, str]:
    """Take the user's environment (proxies, Go's caches), without what would build something else."""
    kept = {name: value for name, value in env.items() if name not in {"GOOS", "GOARCH", "GOEXPERIMENT"}}
    fixed = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return {**kept, **fixed}


def _kubernetes_link_options(version: str) -> str:
    """Say the version aloud: programs built outside of Kubernetes' own tree would call themselves v0.0.0."""
    major, minor, *_ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X {_VERSION_VARIABLE}.{name}={value}" for name, value in values.items())


def _compile(order: Order, program: Program, env: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Run one ``go build``; its process group ends with us, also when we are interrupted."""
    output = order.output / program.name
    options = [f"-ldflags={program.link_options}", "-o", str(output)]
    command = [str(order.go), "build", "-v", *options, program.package]
    with order.log.open("ab") as log:
        start = log.tell()
        compiler = subprocess.Popen(  # noqa: S603 - our own command, no shell
            command, cwd=program.folder, env=dict(env), stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = _follow(compiler, order.log, progress)
        finally:
            if compiler.poll() is None:
                os.killpg(compiler.pid, signal.SIGKILL)
                compiler.wait()
    if code != 0 or not output.exists():
        said = order.log.read_bytes()[start:][-_LOG_TAIL_BYTES:].decode(errors="replace")
        raise CompilationError(
            f"cannot build {program.name}: `{' '.join(command)}` in {program.folder} ended with {code}:\n"
            f"{said}\nAll of it is in {order.log}. If a module could not be loaded, make the Go module "
            "source reachable (GOPROXY) and start again; what was compiled so far is kept."
        )


def _follow(compiler: subprocess.Popen[bytes], log: Path, progress: Callable[[str], None]) -> int:
    """Report every few seconds until the compiler ends; return its exit code."""
    started = time.monotonic()
    while True:
        try:
            return compiler.wait(timeout=_PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            last_package = log.read_text(errors="replace").strip().rpartition("\n")[2]
            progress(f"{time.monotonic() - started:.0f} s, {last_package}")
