"""Command lines of the five programs, and the folder and ports they share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.control_plane.annotations import MANAGED_BY_KWOK, MANAGED_BY_KWOK_VALUE
from sandbox.control_plane.binaries import Binaries
from sandbox.ports import HOST, pick_ports

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

START_ORDER = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""Also the order of needs: each one's clients stand behind it, so it is stopped backwards."""

STAGE_FILES = tuple(sorted((Path(__file__).parent / "kwok_stages").glob("*.yaml")))


@dataclass(frozen=True)
class Ports:
    """Ports on 127.0.0.1, kept for the life of a run folder."""

    etcd_client: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int

    @classmethod
    def pick(cls) -> Ports:
        """Choose six that are free now."""
        return cls(*pick_ports(6))


@dataclass(frozen=True)
class Options:
    """What a user of the control plane may choose; kept in the run folder, the same at each restart."""

    node_monitor_grace_seconds: int = 20
    """A Node whose heartbeats (every 5 s) stop becomes NotReady after this long."""
    die_with_parent: bool = True
    """End with the process that started it, even if that is killed. False for a sandbox that detaches."""
    durable: bool = False
    """Let etcd wait for the disk. Not needed to survive kills of processes, only of the machine."""
    extra_arguments: Mapping[str, Sequence[str]] | None = None
    """More arguments for a component, by its name in ``START_ORDER``; the last of the same flag wins."""


@dataclass(frozen=True)
class RunFolder:
    """Where everything of one control plane lies."""

    path: Path

    @property
    def settings(self) -> Path:
        """Ports, options and programs, for whoever attaches."""
        return self.path / "control-plane.json"

    @property
    def certificates(self) -> Path:
        """The API server makes its certificate here at its first start."""
        return self.path / "certificates"

    @property
    def ca(self) -> Path:
        """The API server's certificate and its issuer: what clients trust."""
        return self.certificates / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs service account tokens: the API server's own key, made before it is first read."""
        return self.certificates / "apiserver.key"

    @property
    def tokens(self) -> Path:
        """The token file of the API server; secret."""
        return self.path / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.path / "kubeconfig"

    def component_kubeconfig(self, component: str) -> Path:
        """Kubeconfig with the identity that Kubernetes' own roles give rights to."""
        return self.path / "kubeconfigs" / component

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Kubeconfig of a service account; a namespace holds no dot, so that names never clash."""
        return self.path / "kubeconfigs" / f"{namespace}.{name}"

    def make(self) -> None:
        """Create the folders, readable by the user alone: tokens and keys lie in them."""
        for name in ("", "certificates", "kubeconfigs", "pids", "logs", "etcd", "home"):
            (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)


@dataclass(frozen=True)
class Settings:
    """All that a command line depends on."""

    ports: Ports
    options: Options
    binaries: Binaries

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{HOST}:{self.ports.api_server}"

    def save(self, path: Path) -> None:
        """Write for ``load``, whole or not at all."""
        binaries = {name: str(program) for name, program in asdict(self.binaries).items()}
        content = {"ports": asdict(self.ports), "options": asdict(self.options), "binaries": binaries}
        scratch = path.with_name(f"{path.name}.tmp")
        scratch.write_text(json.dumps(content, indent=1) + "\n")
        scratch.replace(path)

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read what ``save`` wrote."""
        content = json.loads(path.read_text())
        binaries = {name: Path(program) for name, program in content["binaries"].items()}
        return cls(Ports(**content["ports"]), Options(**content["options"]), Binaries(**binaries))


def command(component: str, folder: RunFolder, settings: Settings) -> list[str]:
    """Return program and arguments of one component of ``START_ORDER``."""
    builders = {
        ETCD: _etcd,
        API_SERVER: _api_server,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
        KWOK: _kwok,
    }
    extra = (settings.options.extra_arguments or {}).get(component, ())
    return [*builders[component](folder, settings), *extra]


def _etcd(folder: RunFolder, settings: Settings) -> list[str]:
    client = f"http://{HOST}:{settings.ports.etcd_client}"
    peer = f"http://{HOST}:{settings.ports.etcd_peer}"
    return [
        str(settings.binaries.etcd),
        f"--data-dir={folder.path / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
        *([] if settings.options.durable else ["--unsafe-no-fsync"]),
    ]


def _api_server(folder: RunFolder, settings: Settings) -> list[str]:
    return [
        str(settings.binaries.kube_apiserver),
        f"--etcd-servers=http://{HOST}:{settings.ports.etcd_client}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={settings.ports.api_server}",
        f"--cert-dir={folder.certificates}",
        f"--token-auth-file={folder.tokens}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder.service_account_key}",
        f"--service-account-signing-key-file={folder.service_account_key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
    ]


def _controller_manager(folder: RunFolder, settings: Settings) -> list[str]:
    kubeconfig = folder.component_kubeconfig(CONTROLLER_MANAGER)
    return [
        str(settings.binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        "--use-service-account-credentials=true",
        f"--root-ca-file={folder.ca}",
        f"--service-account-private-key-file={folder.service_account_key}",
        f"--node-monitor-grace-period={settings.options.node_monitor_grace_seconds}s",
        "--node-monitor-period=2s",
        *_served_locally(
            settings.ports.controller_manager, folder.path / "certificates" / CONTROLLER_MANAGER
        ),
    ]


def _scheduler(folder: RunFolder, settings: Settings) -> list[str]:
    kubeconfig = folder.component_kubeconfig(SCHEDULER)
    return [
        str(settings.binaries.kube_scheduler),
        f"--kubeconfig={kubeconfig}",
        *_served_locally(settings.ports.scheduler, folder.path / "certificates" / SCHEDULER),
    ]


def _served_locally(port: int, certificates: Path) -> list[str]:
    """Health on loopback, no election (there is one of each), and a rate that a storm does not exhaust."""
    return [
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _kwok(folder: RunFolder, settings: Settings) -> list[str]:
    return [
        str(settings.binaries.kwok),
        f"--kubeconfig={folder.component_kubeconfig(KWOK)}",
        *(f"--config={path}" for path in STAGE_FILES),
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={MANAGED_BY_KWOK}={MANAGED_BY_KWOK_VALUE}",
        # Heartbeats are a Stage on the Node's status: kwok would renew the Lease of a dark machine for ever.
        "--node-lease-duration-seconds=0",
        # Of Nodes that come without an address; a simulated machine brings its own.
        f"--node-ip={HOST}",
        f"--server-address={HOST}:{settings.ports.kwok}",
    ]
