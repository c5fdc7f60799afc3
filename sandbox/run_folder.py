"""Where one sandbox lives: paths, and who may start there."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.control_plane.processes import ProcessTable


@dataclass(frozen=True)
class StackRecord:
    """How a stack was started, for whoever attaches."""

    seed: int
    cluster: str
    """``own`` or ``current``."""
    kubeconfig: str
    """Of the user's cluster; empty for our own."""
    health_ports: Mapping[str, int]
    """Name of an operator's process to its health port."""
    through_proxies: bool
    clouds: Sequence[str] = ("tencent", "aliyun")
    """Which ones there are; the two of the default are all that an earlier version had."""


@dataclass(frozen=True)
class StackFolder:
    """Paths of one run folder. It holds keys and tokens, so only its owner may enter."""

    path: Path

    @property
    def control_plane(self) -> Path:
        """Run folder of the control plane."""
        return self.path / "control-plane"

    @property
    def temporal(self) -> Path:
        """Run folder of the Temporal server."""
        return self.path / "temporal"

    @property
    def world(self) -> Path:
        """Configuration of the world process."""
        return self.path / "world.json"

    @property
    def logs(self) -> Path:
        """Logs of world, worker and bridge; Temporal and the control plane have their own."""
        return self.path / "logs"

    @property
    def record(self) -> Path:
        """How the stack was started."""
        return self.path / "stack.json"

    def kubeconfig(self, process: str) -> Path:
        """Kubeconfig of an operator's process."""
        return self.path / "kubeconfigs" / process

    def processes(self) -> ProcessTable:
        """World, worker and bridge."""
        return ProcessTable(self.path / "pids", self.logs)

    def log_folders(self) -> list[Path]:
        """Where the parts that were started write their logs."""
        folders = (self.logs, self.temporal / "logs", self.control_plane / "logs")
        return [folder for folder in folders if folder.exists()]

    def make(self) -> None:
        """Create the folders."""
        for name in ("", "pids", "logs", "kubeconfigs", "home"):
            (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, record: StackRecord) -> None:
        """Write the record, whole or not at all."""
        scratch = self.record.with_name("stack.json.tmp")
        scratch.write_text(json.dumps(vars(record), indent=1) + "\n")
        scratch.replace(self.record)

    def load(self) -> StackRecord | None:
        """Read the record; None when no stack was started here."""
        try:
            return StackRecord(**json.loads(self.record.read_text()))
        except FileNotFoundError:
            return None

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Let one process at a time start or stop this stack; another one waits."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def default_folder(env: Mapping[str, str]) -> Path:
    """Return ``$XDG_STATE_HOME`` or ``~/.local/state``, and our name below."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base) / "spotgpu" / "sandbox"
