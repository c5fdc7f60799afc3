"""Starting, watching and ending one control plane, whose whole state lies in one run folder."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox.control_plane import components
from sandbox.control_plane.binaries import Binaries
from sandbox.control_plane.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KWOK,
    SCHEDULER,
    START_ORDER,
    Options,
    Ports,
    RunFolder,
    Settings,
)
from sandbox.control_plane.health import answers_ok, health_url
from sandbox.control_plane.kubeconfigs import (
    Identity,
    read_token,
    write_kubeconfig,
    write_token_file,
)
from sandbox.control_plane.processes import GO_ENVIRONMENT, ProcessError, ProcessTable, require_linux

IDENTITIES: Mapping[str, Identity] = {
    "admin": Identity("sandbox-admin", "system:masters"),
    CONTROLLER_MANAGER: Identity("system:kube-controller-manager"),
    SCHEDULER: Identity("system:kube-scheduler"),
    KWOK: Identity("sandbox-kwok", "system:masters"),
}
"""The administrator, and who the components are; the names are those that Kubernetes gives rights to."""

STOP_GRACE_SECONDS: Mapping[str, float] = {ETCD: 10.0, API_SERVER: 5.0}
"""How long SIGTERM may take; 3 s for the others. An open watch would hold the API server for a minute."""

_POLL_SECONDS = 0.1


class ControlPlaneError(Exception):
    """The control plane cannot do what was asked; the message says where to look."""


class ControlPlane:
    """One etcd, API server, controller manager, scheduler and kwok on loopback.

    Not for several threads at a time. With ``die_with_parent`` the thread that calls ``start`` or ``restart``
    must live as long as the control plane should.
    """

    def __init__(self, run_folder: Path, binaries: Binaries, options: Options | None = None) -> None:
        """Describe a control plane; nothing is started or written yet.

        Args:
            run_folder: Absolute or relative; made by ``start``. If it holds an earlier run, its data,
                ports and tokens are used again.
            binaries: From ``binaries.find_or_build``.
            options: Defaults if None. They replace those of an earlier run.
        """
        self._folder = RunFolder(run_folder.resolve())
        self._binaries = binaries
        self._options = options or Options()
        self._processes = ProcessTable(self._folder.path / "pids", self._folder.path / "logs")

    @classmethod
    def attach(cls, run_folder: Path) -> ControlPlane:
        """Return the control plane that another process started in ``run_folder``, running or not.

        Raises:
            ControlPlaneError: Nothing was ever started there.
        """
        folder = RunFolder(run_folder.resolve())
        if not folder.settings.exists():
            raise ControlPlaneError(
                f"no control plane was started in {folder.path}: there is no {folder.settings}"
            )
        settings = Settings.load(folder.settings)
        return cls(folder.path, settings.binaries, settings.options)

    @property
    def run_folder(self) -> Path:
        """Absolute path of the run folder."""
        return self._folder.path

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator; there after ``start``."""
        return self._folder.kubeconfig

    @property
    def ca_file(self) -> Path:
        """What clients trust; there once the API server has started."""
        return self._folder.ca

    @property
    def server(self) -> str:
        """URL of the API server, the same for the life of the run folder."""
        return self._settings().server

    @property
    def admin_token(self) -> str:
        """Bearer token of the administrator."""
        return read_token(self.kubeconfig)

    def start(self, *, timeout_seconds: float = 60.0) -> None:
        """Start all five, each once the one it needs works. What is started is stopped again on failure.

        Raises:
            ControlPlaneError: It runs already, or a component ended or did not get ready in time; its log is
                in the message.
            ProcessError: A program cannot be started.
        """
        require_linux()
        self._folder.make()
        with self._exclusive():
            running = [name for name in START_ORDER if self._processes.is_alive(name)]
            if running:
                raise ControlPlaneError(
                    f"a control plane runs already in {self._folder.path} ({', '.join(running)}): "
                    "stop it first, or attach to it"
                )
            self._prepare()
            deadline = time.monotonic() + timeout_seconds
            try:
                for component in START_ORDER:
                    self._start_component(component)
                    if component in (ETCD, API_SERVER):
                        self._wait_component(component, deadline)
            except BaseException:
                self._stop_all()
                raise

    def wait_ready(self, timeout_seconds: float = 60.0) -> None:
        """Return when every component works and pods can be created in ``default``.

        Raises:
            ControlPlaneError: A component is dead, or not ready in time.
        """
        deadline = time.monotonic() + timeout_seconds
        for component in START_ORDER:
            self._wait_component(component, deadline)
        while not self._has_default_service_account():
            if time.monotonic() >= deadline:
                raise ControlPlaneError(
                    "the controller manager made no service account 'default' in namespace 'default' within "
                    f"{timeout_seconds:.0f} s; see {self._processes.log_path(CONTROLLER_MANAGER)}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End every process of the run folder: clients first, etcd last. Does nothing when none runs.

        The data stays; ``start`` goes on with it.

        Raises:
            ProcessError: A process survived SIGKILL.
        """
        if self._folder.path.exists():
            with self._exclusive():
                self._stop_all()

    def kill(self, component: str) -> None:
        """End one component at once (SIGKILL), as a crash would, and wait until it is gone."""
        self._require_component(component)
        self._processes.kill(component)

    def restart(self, component: str, *, timeout_seconds: float = 60.0) -> None:
        """Start one component on the same port with the same data, ended before if it runs, and wait for it.

        Raises:
            ControlPlaneError: It ended or did not get ready in time.
        """
        self._require_component(component)
        self._stop_component(component)
        self._start_component(component)
        self._wait_component(component, time.monotonic() + timeout_seconds)

    def is_alive(self, component: str) -> bool:
        """Return whether the process of one component runs, ready or not."""
        self._require_component(component)
        return self._processes.is_alive(component)

    def pids(self) -> dict[str, int]:
        """Return the pids of the components that run, by name."""
        records = {name: self._processes.record(name) for name in START_ORDER}
        return {name: record.pid for name, record in records.items() if record and record.is_alive()}

    def log_path(self, component: str) -> Path:
        """Return where the output of one component goes."""
        self._require_component(component)
        return self._processes.log_path(component)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0) -> str:
        """Run the built kubectl as the administrator and return its standard output.

        Raises:
            ControlPlaneError: kubectl ended with an error, whose words are in the message, or in no time.
        """
        cache = self._folder.path / "home" / "kubectl-cache"
        fixed = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}"]
        shown = f"kubectl {' '.join(arguments)}"
        try:
            result = subprocess.run(  # noqa: S603 - the built kubectl, no shell
                [str(self._binaries.kubectl), *fixed, *arguments],
                input=stdin,
                env=self._child_env(),
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ControlPlaneError(f"`{shown}` did not end within {timeout_seconds:.0f} s") from error
        if result.returncode != 0:
            raise ControlPlaneError(f"`{shown}` ended with {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def service_account_kubeconfig(self, namespace: str, name: str, *, hours: int = 24) -> Path:
        """Write a kubeconfig that acts as a service account, with a new token, and return its path.

        Raises:
            ControlPlaneError: There is no such service account.
        """
        path = self._folder.service_account_kubeconfig(namespace, name)
        token = self.kubectl(
            "create", "token", name, f"--namespace={namespace}", f"--duration={hours}h"
        ).strip()
        user = f"system:serviceaccount:{namespace}:{name}"
        write_kubeconfig(path, server=self.server, ca=self._folder.ca, user=user, token=token)
        return path

    def _settings(self) -> Settings:
        if not self._folder.settings.exists():
            raise ControlPlaneError(f"no control plane was started in {self._folder.path}: call start first")
        return Settings.load(self._folder.settings)

    def _prepare(self) -> None:
        """Write settings, and tokens and kubeconfigs at the first start."""
        earlier = Settings.load(self._folder.settings) if self._folder.settings.exists() else None
        ports = earlier.ports if earlier else Ports.pick()
        settings = Settings(ports, self._options, self._binaries)
        if earlier is None or not self._folder.tokens.exists():
            tokens = write_token_file(self._folder.tokens, IDENTITIES)
            for name, token in tokens.items():
                path = self.kubeconfig if name == "admin" else self._folder.component_kubeconfig(name)
                user = IDENTITIES[name].user
                write_kubeconfig(path, server=settings.server, ca=self._folder.ca, user=user, token=token)
        settings.save(self._folder.settings)

    def _start_component(self, component: str) -> None:
        settings = self._settings()
        self._processes.start(
            component,
            components.command(component, self._folder, settings),
            self._child_env(),
            die_with_parent=settings.options.die_with_parent,
        )

    def _child_env(self) -> dict[str, str]:
        """Give children a home of their own and no proxies: nothing they read lies outside the run folder."""
        home = str(self._folder.path / "home")
        return {**GO_ENVIRONMENT, "HOME": home, "PATH": "/usr/bin:/bin", "KWOK_WORKDIR": f"{home}/kwok"}

    def _stop_all(self) -> None:
        """Stop backwards, each one even if another would not end; then tell of the first that did not."""
        failures: list[Exception] = []
        for component in reversed(START_ORDER):
            try:
                self._stop_component(component)
            except (ProcessError, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _stop_component(self, component: str) -> None:
        self._processes.stop(component, grace_seconds=STOP_GRACE_SECONDS.get(component, 3.0))

    def _wait_component(self, component: str, deadline: float) -> None:
        url = health_url(component, self._settings())
        while not answers_ok(url):
            log = self._processes.log_path(component)
            if not self._processes.is_alive(component):
                tail = self._processes.log_tail(component)
                raise ControlPlaneError(f"{component} is not running; the end of its log {log}:\n{tail}")
            if time.monotonic() >= deadline:
                raise ControlPlaneError(
                    f"{component} runs but is not ready at {url} in time. Is the machine very busy? The end "
                    f"of its log {log}:\n{self._processes.log_tail(component)}"
                )
            time.sleep(_POLL_SECONDS)

    def _has_default_service_account(self) -> bool:
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return answers_ok(f"{self.server}{path}", ca=self._folder.ca, token=self.admin_token)

    def _require_component(self, component: str) -> None:
        if component not in START_ORDER:
            raise ControlPlaneError(
                f"there is no component {component!r}: choose from {', '.join(START_ORDER)}"
            )

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """Let one process at a time start or stop this run folder; another one waits."""
        with (self._folder.path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
