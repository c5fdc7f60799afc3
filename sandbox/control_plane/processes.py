"""Child processes that are known by pid and birth, so that another process can find and end them later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

GO_ENVIRONMENT = {"GOGC": "400", "GOMEMLIMIT": "512MiB"}
"""For servers in Go: collect garbage less often while there is little of it; a quarter less CPU."""

_POLL_SECONDS = 0.05

_children: dict[int, subprocess.Popen[bytes]] = {}
"""What this process started and has not reaped, by pid; it outlives the tables, as the children do."""


class ProcessError(Exception):
    """A process did not start or did not end; the message says which and where its log is."""


@dataclass(frozen=True)
class ProcessRecord:
    """One started process. A pid alone may belong to another by now; pid and birth together never do."""

    pid: int
    birth_ticks: int
    """Start time of the process in clock ticks after boot, field 22 of ``/proc/PID/stat``."""
    command: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> ProcessRecord | None:
        """Read what ``save`` wrote; None when there is no such file."""
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(int(fields["pid"]), int(fields["birth_ticks"]), tuple(fields["command"]))

    def save(self, path: Path) -> None:
        """Write the record whole or not at all."""
        scratch = path.with_name(f"{path.name}.tmp")
        scratch.write_text(json.dumps(asdict(self), indent=1) + "\n")
        scratch.replace(path)

    def is_alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        return _birth_ticks(self.pid) == self.birth_ticks


class ProcessTable:
    """The processes of one run folder: a record file and a log file for each name."""

    def __init__(self, pid_folder: Path, log_folder: Path) -> None:
        self._pid_folder = pid_folder
        self._log_folder = log_folder

    def log_path(self, name: str) -> Path:
        """Return where the output of ``name`` goes, appended at each start."""
        return self._log_folder / f"{name}.log"

    def record(self, name: str) -> ProcessRecord | None:
        """Return what was started last under ``name``, whether it runs or not."""
        return ProcessRecord.load(self._record_path(name))

    def is_alive(self, name: str) -> bool:
        """Return whether the process recorded as ``name`` runs."""
        record = self.record(name)
        if record is None:
            return False
        if record.is_alive():
            return True
        _reap(record.pid)
        return False

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str], *, die_with_parent: bool
    ) -> ProcessRecord:
        """Start ``command`` in a session of its own and record it.

        Args:
            name: Under which it is recorded; nothing alive may be recorded there.
            command: Program and arguments.
            env: The whole environment of the child.
            die_with_parent: The kernel kills it when the thread that called this ends. Call it from a
                thread that lives as long as the process should.

        Raises:
            ProcessError: It runs already, or it cannot be started.
        """
        if self.is_alive(name):
            raise ProcessError(f"{name} runs already: see {self._record_path(name)}")
        prefix = _leash() if die_with_parent else []
        with self.log_path(name).open("ab") as log:
            try:
                child = subprocess.Popen(  # noqa: S603 - our own commands, no shell
                    [*prefix, *command],
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"cannot start {name}: {command[0]}: {error.strerror}") from error
        _children[child.pid] = child
        birth = _birth_ticks(child.pid)
        record = ProcessRecord(child.pid, -1 if birth is None else birth, tuple(command))
        try:
            record.save(self._record_path(name))
        except BaseException:
            child.kill()  # what is not recorded could never be found again
            child.wait()
            raise
        return record

    def kill(self, name: str) -> None:
        """End ``name`` at once (SIGKILL) and wait until it is gone. Does nothing when it does not run."""
        self.stop(name, grace_seconds=0)

    def stop(self, name: str, *, grace_seconds: float) -> None:
        """End ``name``: SIGTERM, after the grace SIGKILL; wait until it is gone and forget it.

        Raises:
            ProcessError: It survived SIGKILL for ten seconds (the kernel holds it, a disk may hang).
        """
        if grace_seconds > 0:
            self._send(name, signal.SIGTERM)
            self._wait_gone(name, grace_seconds)
        self._send(name, signal.SIGKILL)
        if not self._wait_gone(name, 10):
            raise ProcessError(f"{name} does not end: {self.record(name)}")
        self._record_path(name).unlink(missing_ok=True)

    def log_tail(self, name: str, *, max_bytes: int = 3000) -> str:
        """Return the last lines that ``name`` wrote, for an error message."""
        try:
            return self.log_path(name).read_bytes()[-max_bytes:].decode(errors="replace").strip()
        except FileNotFoundError:
            return "(no log)"

    def _record_path(self, name: str) -> Path:
        return self._pid_folder / f"{name}.json"

    def _send(self, name: str, number: signal.Signals) -> None:
        record = self.record(name)
        if record is not None and self.is_alive(name):
            try:
                os.kill(record.pid, number)
            except ProcessLookupError:
                return  # it ended between the look and the signal, which is what was wanted

    def _wait_gone(self, name: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_alive(name):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def require_linux() -> None:
    """Refuse other systems: births are read from ``/proc``.

    Raises:
        ProcessError: This is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise ProcessError(
            f"the control plane starts on Linux, this is {sys.platform}: use a Linux machine or container, "
            "or an existing cluster through KUBECONFIG"
        )


def _reap(pid: int) -> None:
    """Take the exit code of a dead child, so that no zombie stays; nothing for the child of another."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]


def _birth_ticks(pid: int) -> int | None:
    """Return the start time of a running process, None when there is none or it is a zombie.

    A process whose first thread has ended looks like a zombie, yet its other threads keep its ports bound.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Fields are counted after the name, which stands in brackets and may hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    state, threads, start_time = fields[0], int(fields[17]), fields[19]
    return None if state in {"Z", "X"} and threads <= 1 else int(start_time)


def _leash() -> list[str]:
    """Return what stands before a command that shall die with this process."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("leash.py")), str(os.getpid())]
