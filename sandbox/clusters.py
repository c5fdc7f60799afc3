"""The Kubernetes that a sandbox uses: its own control plane, or the cluster that KUBECONFIG names."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from sandbox.ca_hash import ca_cert_hash
from sandbox.control_plane.annotations import MANAGED_BY_KWOK, MANAGED_BY_KWOK_VALUE
from sandbox.control_plane.binaries import Binaries
from sandbox.control_plane.components import STAGE_FILES
from sandbox.control_plane.health import answers_ok
from sandbox.control_plane.kubeconfigs import write_kubeconfig, write_private
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from sandbox.control_plane.processes import ProcessError, ProcessTable
from sandbox.machines import MACHINE
from sandbox.node_api import ApiAccess
from sandbox.ports import HOST, pick_ports

_PROXY_SECONDS = 20
_POLL_SECONDS = 0.1


class Cluster(Protocol):
    """What the sandbox asks of a Kubernetes cluster."""

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        ...

    @property
    def server(self) -> str:
        """URL of the API server."""
        ...

    @property
    def ca_file(self) -> Path:
        """What clients trust."""
        ...

    def start(self) -> None:
        """Make it ready for machines and operator."""
        ...

    def stop(self) -> None:
        """End every process that ``start`` began."""
        ...

    def answers(self) -> bool:
        """Whether the API server answers now."""
        ...

    def machine_access(self) -> ApiAccess:
        """How machines reach the API server."""
        ...

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0) -> str:
        """Run kubectl as the administrator; its standard output."""
        ...


class OwnCluster:
    """A control plane in the run folder."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.plane.kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self.plane.server

    @property
    def ca_file(self) -> Path:
        """What clients trust."""
        return self.plane.ca_file

    def start(self) -> None:
        """Start all components and wait for them."""
        self.plane.start()
        self.plane.wait_ready()

    def stop(self) -> None:
        """End all components."""
        self.plane.stop()

    def answers(self) -> bool:
        """Whether the API server says that it is ready."""
        return answers_ok(f"{self.server}/readyz", ca=self.ca_file, token=self.plane.admin_token)

    def machine_access(self) -> ApiAccess:
        """Directly, as the administrator."""
        return ApiAccess(self.server, self.ca_file, self.plane.admin_token)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0) -> str:
        """Run kubectl as the administrator."""
        return self.plane.kubectl(*arguments, stdin=stdin, timeout_seconds=timeout_seconds)


class CurrentCluster:
    """A cluster of the user's. The sandbox adds kwok as the kubelet of its machines, and a way to the API."""

    def __init__(
        self, run_folder: Path, kubeconfig: Path, binaries: Binaries, *, die_with_parent: bool
    ) -> None:
        """Describe it; ``kubeconfig`` must name a current context that may do everything."""
        self._folder = run_folder / "current-cluster"
        self._kubeconfig = kubeconfig
        self._binaries = binaries
        self._die_with_parent = die_with_parent
        self._processes = ProcessTable(self._folder / "pids", self._folder / "logs")

    @property
    def kubeconfig(self) -> Path:
        """The user's own."""
        return self._kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._cluster()["server"])

    @property
    def ca_file(self) -> Path:
        """A copy of what the user's kubeconfig trusts."""
        return self._folder / "ca.crt"

    def start(self) -> None:
        """Start kwok and ``kubectl proxy`` against the cluster.

        Raises:
            ControlPlaneError: The cluster does not answer, or its kubeconfig names no CA.
        """
        for name in ("pids", "logs"):
            (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.kubectl("version")
        self._save_ca()
        port, kwok_port = self._ports()
        environment = {"HOME": str(self._folder), "PATH": "/usr/bin:/bin"}
        for name, command in (("kubectl-proxy", self._proxy(port)), ("kwok", self._kwok(kwok_port))):
            self._processes.start(name, command, environment, die_with_parent=self._die_with_parent)
        deadline = time.monotonic() + _PROXY_SECONDS
        while not answers_ok(f"http://{HOST}:{port}/readyz"):
            if time.monotonic() >= deadline or not self._processes.is_alive("kubectl-proxy"):
                tail = self._processes.log_tail("kubectl-proxy")
                raise ControlPlaneError(f"kubectl proxy does not answer on port {port}:\n{tail}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Remove the Nodes of machines, which nobody would keep alive, and end kwok and the proxy.

        Definitions, rights, Secrets and pools stay in the cluster: they are the user's now.
        """
        if self._processes.is_alive("kwok") and self.answers():
            nodes = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
            ours = [n["metadata"]["name"] for n in nodes if MACHINE in n["metadata"].get("annotations", {})]
            if ours:
                self.kubectl("delete", "nodes", *ours, "--ignore-not-found")
        for name in ("kwok", "kubectl-proxy"):
            self._processes.stop(name, grace_seconds=3)

    def answers(self) -> bool:
        """Whether the API server answers an administrator."""
        try:
            self.kubectl("get", "--raw", "/readyz", timeout_seconds=5)
        except ControlPlaneError:
            return False
        return True

    def machine_access(self) -> ApiAccess:
        """Through ``kubectl proxy``, which knows every way to sign in."""
        return ApiAccess(f"http://{HOST}:{self._ports()[0]}")

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0) -> str:
        """Run kubectl with the user's kubeconfig.

        Raises:
            ControlPlaneError: kubectl ended with an error, or in no time.
        """
        command = [str(self._binaries.kubectl), f"--kubeconfig={self._kubeconfig}", *arguments]
        shown = f"kubectl {' '.join(arguments)}"
        try:
            done = subprocess.run(  # noqa: S603 - the sandbox's own kubectl, with its caller's arguments
                command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ControlPlaneError(f"`{shown}` did not end within {timeout_seconds:.0f} s") from error
        if done.returncode != 0:
            raise ControlPlaneError(f"`{shown}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _cluster(self) -> Mapping[str, Any]:
        """The part of the kubeconfig about the cluster of the current context."""
        view = json.loads(self.kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
        return view["clusters"][0]["cluster"]

    def _save_ca(self) -> None:
        encoded = self._cluster().get("certificate-authority-data", "")
        if not encoded:
            raise ControlPlaneError(
                f"{self._kubeconfig} names no certificate authority for its current context"
            )
        self.ca_file.write_bytes(base64.b64decode(encoded))

    def _ports(self) -> tuple[int, int]:
        path = self._folder / "ports.json"
        if not path.exists():
            write_private(path, json.dumps(pick_ports(2)))
        first, second = json.loads(path.read_text())
        return first, second

    def _proxy(self, port: int) -> list[str]:
        flags = [f"--address={HOST}", f"--port={port}", f"--kubeconfig={self._kubeconfig}"]
        # Everything but exec and attach may pass; the default filter would also refuse a Node's status.
        return [str(self._binaries.kubectl), "proxy", *flags, "--reject-paths=^/api/.*/pods/.*/(exec|attach)"]

    def _kwok(self, port: int) -> list[str]:
        return [
            str(self._binaries.kwok),
            f"--kubeconfig={self._kubeconfig}",
            *(f"--config={path}" for path in STAGE_FILES),
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={MANAGED_BY_KWOK}={MANAGED_BY_KWOK_VALUE}",
            "--node-lease-duration-seconds=0",
            f"--server-address={HOST}:{port}",
        ]


def identity_kubeconfig(cluster: Cluster, path: Path, namespace: str, name: str, server: str) -> None:
    """Write a kubeconfig that acts as a service account, with a new token, through ``server``.

    Raises:
        ControlPlaneError: There is no such service account.
    """
    token = cluster.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h").strip()
    user = f"system:serviceaccount:{namespace}:{name}"
    write_kubeconfig(path, server=server, ca=cluster.ca_file, user=user, token=token)


def join_hash(cluster: Cluster) -> str:
    """The CA's hash as the join Secret carries it.

    Raises:
        ProcessError: The CA file holds no certificate.
    """
    try:
        return ca_cert_hash(cluster.ca_file)
    except ValueError as error:
        raise ProcessError(str(error)) from error
