"""The operator's own processes: ``spotgpu worker`` and ``spotgpu bridge``, started as a user would."""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.control_plane.processes import ProcessError, ProcessTable
from sandbox.ports import HOST

WORKER = "worker"
BRIDGE = "bridge"
PROCESSES = (WORKER, BRIDGE)
"""The kinds of process, and the names of the first of each."""

_POLL_SECONDS = 0.1
_STOP_GRACE_SECONDS = 8.0


@dataclass(frozen=True)
class OperatorConfig:
    """What one process needs to know, as environment."""

    environment: Mapping[str, str]
    """All but the health port and the kubeconfig."""
    kubeconfigs: Mapping[str, Path]
    """Kind of process to its own identity."""
    temporal: Mapping[str, str]
    """Kind to ``host:port`` of Temporal: each has its own way, so that faults can tell them apart."""
    health_ports: Mapping[str, int]
    """Every process by its name."""
    base: Mapping[str, str]
    """What of the starter's environment reaches the processes."""
    die_with_parent: bool


KEPT_VARIABLES = ("PATH", "LANG", "TZ", "COVERAGE_PROCESS_START")
"""What Python and its coverage need of the user's shell; nothing else reaches the operator."""


def process_names(workers: int) -> tuple[str, ...]:
    """Names of the operator's processes with so many workers: ``worker``, ``bridge``, ``worker-2`` and on."""
    return (*PROCESSES, *(f"{WORKER}-{number}" for number in range(2, workers + 1)))


def kind_of(name: str) -> str:
    """``worker`` or ``bridge``."""
    return name.partition("-")[0]


class Operator:
    """Worker and bridge as child processes of a run folder. Not for several threads at a time."""

    def __init__(self, config: OperatorConfig, processes: ProcessTable, home: Path) -> None:
        self._config = config
        self._processes = processes
        self._home = home

    @property
    def names(self) -> tuple[str, ...]:
        """Every process that belongs to this sandbox, running or not."""
        return tuple(self._config.health_ports)

    def start(self, name: str) -> None:
        """Start a worker or the bridge; ``wait_ready`` says when it works.

        Raises:
            ProcessError: It runs already or cannot be started.
        """
        command = [sys.executable, "-m", "workers", kind_of(name)]
        self._processes.start(
            name, command, self._environment(name), die_with_parent=self._config.die_with_parent
        )

    def wait_ready(self, name: str, timeout_seconds: float = 60.0) -> None:
        """Return when the process says that it is ready.

        Raises:
            ProcessError: It ended, or is not ready in time; the end of its log is in the text.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.is_ready(name):
            if not self._processes.is_alive(name):
                raise ProcessError(f"{name} ended:\n{self._processes.log_tail(name)}")
            if time.monotonic() >= deadline:
                raise ProcessError(
                    f"{name} is not ready within {timeout_seconds:.0f} s:\n{self._processes.log_tail(name)}"
                )
            time.sleep(_POLL_SECONDS)

    def is_ready(self, name: str) -> bool:
        """Whether the process runs and says now that it is ready."""
        if not self._processes.is_alive(name):
            return False  # whoever answers at its port is another
        url = f"http://{HOST}:{self._config.health_ports[name]}/readyz"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(url, timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False  # not yet, or not any more: the caller asks again

    def is_alive(self, name: str) -> bool:
        """Whether the process runs, ready or not."""
        return self._processes.is_alive(name)

    def pid(self, name: str) -> int:
        """Pid of a running process.

        Raises:
            ProcessError: It does not run.
        """
        record = self._processes.record(name)
        if record is None or not record.is_alive():
            raise ProcessError(f"{name} does not run:\n{self._processes.log_tail(name)}")
        return record.pid

    def kill(self, name: str) -> None:
        """End a process at once (SIGKILL), as a crash would."""
        self._processes.kill(name)

    def stop(self, name: str) -> None:
        """Ask a process to end, and wait for it."""
        self._processes.stop(name, grace_seconds=_STOP_GRACE_SECONDS)

    def metrics_url(self, name: str) -> str:
        """Where a process serves its series."""
        return f"http://{HOST}:{self._config.health_ports[name]}/metrics"

    def log_path(self, name: str) -> Path:
        """Where a process's output goes."""
        return self._processes.log_path(name)

    def _environment(self, name: str) -> dict[str, str]:
        """The whole environment of one process."""
        root = str(Path(__file__).resolve().parent.parent)
        kind = kind_of(name)
        return {
            **self._config.base,
            "HOME": str(self._home),
            "PYTHONPATH": root,
            "PYTHONUNBUFFERED": "1",
            **self._config.environment,
            "TEMPORAL_ADDRESS": self._config.temporal[kind],
            "SPOTGPU_KUBECONFIG": str(self._config.kubeconfigs[kind]),
            "SPOTGPU_HEALTH_PORT": str(self._config.health_ports[name]),
        }
