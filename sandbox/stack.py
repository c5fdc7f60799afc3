"""The whole sandbox: starts, shows, harms and ends everything of one run folder.

stack = Stack(StackFolder(path), options)
stack.up(print)
stack.cluster.kubectl("get", "gsp")
stack.operator.kill("worker")
stack.down()
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from domain.contracts.offers import ProviderName
from sandbox.accounts import USUAL_CLOUDS, new_account
from sandbox.boot_script import JoinLine
from sandbox.clouds.aws_offers import CNY_PER_USD
from sandbox.clouds.control import CloudControl, ControlError
from sandbox.clusters import Cluster, CurrentCluster, OwnCluster, identity_kubeconfig, join_hash
from sandbox.control_plane.binaries import Binaries, find_or_build
from sandbox.control_plane.components import Options as ControlPlaneOptions
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from sandbox.control_plane.processes import ProcessError
from sandbox.inventories import inventory_of, read_node_class
from sandbox.market import CURRENCY
from sandbox.operator_processes import KEPT_VARIABLES, PROCESSES, Operator, OperatorConfig, process_names
from sandbox.ports import HOST, pick_ports
from sandbox.provision import OPERATOR_NAMESPACE, account_of, provision, service_accounts
from sandbox.run_folder import StackFolder, StackRecord
from sandbox.shortened import shortened_environment
from sandbox.temporal_server import NAMESPACE, TemporalServer, TemporalServerError, find_program
from sandbox.world_config import CloudConfig, Latencies, TcpProxyConfig, WorldConfig
from sandbox.world_control import WorldClient, WorldControlError

Progress = Callable[[str], None]

WORLD = "world"
_POLL_SECONDS = 0.1


class StackError(Exception):
    """The sandbox cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True)
class StackOptions:
    """What a user of the sandbox may choose."""

    env: Mapping[str, str]
    """Environment of the caller: caches, programs, the user's cluster."""
    seed: int = 1
    cluster: str = "own"
    """``own`` or ``current`` (the cluster of ``KUBECONFIG``)."""
    clouds: tuple[ProviderName, ...] = USUAL_CLOUDS
    """Which clouds there are."""
    workers: int = 1
    """How many ``spotgpu worker`` processes serve them."""
    die_with_parent: bool = True
    """End with the thread that started it. False for a sandbox that detaches."""
    through_proxies: bool = False
    """Let the operator reach Kubernetes and Temporal through proxies that can misbehave, as it always
    reaches the clouds."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """More environment for the operator; wins over what the sandbox shortens."""
    latencies: Latencies = field(default_factory=Latencies)
    control_plane_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """More arguments for components of our own control plane, by their names, for example an audit log."""


@dataclass(frozen=True)
class PartState:
    """Whether a part of the sandbox runs and answers."""

    name: str
    answers: bool
    where: str


class Stack:
    """Everything of one run folder. Not for several threads at a time."""

    def __init__(self, folder: StackFolder, options: StackOptions, progress: Progress) -> None:
        """Describe a stack; nothing is started or written yet. ``progress`` is told each step in a line."""
        self._progress = progress
        self.folder = folder
        self.options = options
        self.temporal = TemporalServer(
            folder.temporal, find_program(), die_with_parent=options.die_with_parent
        )
        self._processes = folder.processes()

    @classmethod
    def attach(cls, folder: StackFolder, env: Mapping[str, str], progress: Progress) -> Stack | None:
        """Return the stack that was started in ``folder``, running or not; None when none ever was."""
        record = folder.load()
        if record is None:
            return None
        environment = {**env, "KUBECONFIG": record.kubeconfig} if record.kubeconfig else env
        options = StackOptions(
            environment,
            seed=record.seed,
            cluster=record.cluster,
            clouds=tuple(ProviderName(name) for name in record.clouds),
            die_with_parent=False,
            through_proxies=record.through_proxies,
        )
        return cls(folder, options, progress)

    @cached_property
    def binaries(self) -> Binaries:
        """The programs of the control plane, built first when the cache has none."""
        return find_or_build(self.options.env, self._progress)

    @cached_property
    def cluster(self) -> Cluster:
        """The Kubernetes of this stack.

        Raises:
            StackError: ``KUBECONFIG`` is wanted but not set, or there are several files in it.
        """
        binaries = self.binaries
        if self.options.cluster == "current":
            kubeconfig = _current_kubeconfig(self.options.env)
            leash = self.options.die_with_parent
            return CurrentCluster(self.folder.path, kubeconfig, binaries, die_with_parent=leash)
        options = ControlPlaneOptions(
            die_with_parent=self.options.die_with_parent,
            extra_arguments=self.options.control_plane_arguments or None,
        )
        return OwnCluster(ControlPlane(self.folder.control_plane, binaries, options))

    @cached_property
    def world(self) -> WorldConfig:
        """How the world was started.

        Raises:
            StackError: It never was.
        """
        if not self.folder.world.exists():
            raise StackError(f"no sandbox was started in {self.folder.path}: start one first")
        return WorldConfig.load(self.folder.world)

    @property
    def switches(self) -> WorldClient:
        """Proxies and machines."""
        return WorldClient(f"http://{HOST}:{self.world.control_port}")

    def cloud(self, provider: ProviderName) -> CloudControl:
        """The switches, ledger and request log of one cloud, past its proxy."""
        return CloudControl(f"http://{HOST}:{self.world.cloud(provider).port}")

    def zones(self, provider: ProviderName) -> list[str]:
        """Zones that a cloud's account can buy in, by region."""
        inventory = inventory_of(read_node_class(self.world.cloud(provider).node_class))
        return [zone for zones in inventory.zones.values() for zone in zones]

    @cached_property
    def operator(self) -> Operator:
        """Worker and bridge."""
        record = self.folder.load()
        if record is None:
            raise StackError(f"no sandbox was started in {self.folder.path}: start one first")
        return Operator(self._operator_config(record), self._processes, self.folder.path / "home")

    def up(self, *, with_operator: bool = True) -> None:
        """Start everything and return when all of it answers. What was started is ended again on failure.

        Raises:
            StackError: One runs already in this folder.
            ControlPlaneError, TemporalServerError, ProcessError: A part did not start; the text ends with
                its log.
        """
        self.cluster.kubeconfig  # noqa: B018 - builds what is missing before anything is started
        with self.folder.exclusive():
            running = [part.name for part in self.status() if part.answers]
            if running:
                raise StackError(
                    f"a sandbox runs already in {self.folder.path} ({', '.join(running)}): its addresses are "
                    f"shown by `spotgpu sandbox status --folder {self.folder.path}`, and "
                    f"`spotgpu sandbox down --folder {self.folder.path}` ends it"
                )
            self.folder.make()
            try:
                self._start(with_operator=with_operator)
            except BaseException:
                self._stop()
                raise

    def down(self) -> None:
        """End every process of the stack. Data and logs stay. Does nothing when none runs."""
        with self.folder.exclusive():
            self._stop()

    def start_operator(self) -> None:
        """Start the operator's processes and wait for all."""
        for name in self.operator.names:
            self.operator.start(name)
        for name in self.operator.names:
            self.operator.wait_ready(name)

    def status(self) -> list[PartState]:
        """Ask each part once whether it answers; empty when no sandbox was ever started here."""
        record = self.folder.load()
        if record is None:
            return []
        clouds = self.world.clouds if self.folder.world.exists() else ()
        return [
            _look("kubernetes", lambda: (self.cluster.answers(), self.cluster.server)),
            _look("temporal", lambda: (self.temporal.answers(), self.temporal.address)),
            _look(WORLD, lambda: (self._world_answers(), self.switches.base_url)),
            *(self._cloud_state(cloud) for cloud in clouds),
            *(_look(name, lambda name=name: self._operator_state(name)) for name in record.health_ports),
        ]

    def _operator_state(self, name: str) -> tuple[bool, str]:
        return self.operator.is_ready(name), self.operator.metrics_url(name)

    def _start(self, *, with_operator: bool) -> None:
        started = time.monotonic()
        self._plan()
        self._progress("starting the Kubernetes control plane")
        self.cluster.start()
        self._progress("starting the Temporal server")
        self.temporal.start()
        self._progress("starting the clouds")
        config = self._configure_world()
        self._progress("applying definitions, rights, Secrets and node classes")
        provision(self.cluster, config.clouds, config.join)
        self._start_world()
        if with_operator:
            self._progress("starting worker and bridge")
            self._give_identities()
            self.start_operator()
        self._progress(f"everything is up after {time.monotonic() - started:.0f} s")

    def _plan(self) -> None:
        """Choose the operator's ports and remember how this stack is started."""
        names = process_names(self.options.workers)
        ports: dict[str, int] = dict(zip(names, pick_ports(len(names)), strict=True))
        kubeconfig = str(_current_kubeconfig(self.options.env)) if self.options.cluster == "current" else ""
        self.folder.save(
            StackRecord(
                seed=self.options.seed,
                cluster=self.options.cluster,
                kubeconfig=kubeconfig,
                health_ports=ports,
                through_proxies=self.options.through_proxies,
                clouds=self.options.clouds,
            )
        )

    def _configure_world(self) -> WorldConfig:
        """Choose ports, keys and tokens anew: the clouds begin without machines at each start."""
        chosen = self.options.clouds
        ports = iter(pick_ports(2 * len(chosen) + 6))
        clouds = tuple(new_account(provider, next(ports), next(ports)) for provider in chosen)
        proxies = self._tcp_proxies(lambda: next(ports)) if self.options.through_proxies else ()
        token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
        server = self.cluster.server.removeprefix("https://")
        config = WorldConfig(
            seed=self.options.seed,
            clouds=clouds,
            tcp_proxies=proxies,
            control_port=next(ports),
            metadata_port=next(ports),
            api=self.cluster.machine_access(),
            join=JoinLine(server, token, join_hash(self.cluster)),
            latencies=self.options.latencies,
        )
        config.save(self.folder.world)
        self.__dict__.pop("world", None)
        self.__dict__.pop("operator", None)
        return config

    def _tcp_proxies(self, next_port: Callable[[], int]) -> tuple[TcpProxyConfig, ...]:
        api_host, _, api_port = self.cluster.server.removeprefix("https://").partition(":")
        upstreams = {
            "kubernetes": (api_host, int(api_port or 443)),
            "temporal": (HOST, self.temporal.ports().grpc),
        }
        return tuple(
            TcpProxyConfig(
                name=f"{server}-{process}", port=next_port(), upstream_host=host, upstream_port=port
            )
            for server, (host, port) in upstreams.items()
            for process in PROCESSES
        )

    def _start_world(self) -> None:
        command = [sys.executable, "-m", "sandbox.world", str(self.folder.world)]
        environment = {**self._base(), "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        self._processes.start(WORLD, command, environment, die_with_parent=self.options.die_with_parent)
        deadline = time.monotonic() + 30
        while not self._world_answers():
            if not self._processes.is_alive(WORLD):
                raise ProcessError(f"the simulated clouds ended:\n{self._processes.log_tail(WORLD)}")
            if time.monotonic() >= deadline:
                raise ProcessError(f"the simulated clouds do not answer:\n{self._processes.log_tail(WORLD)}")
            time.sleep(_POLL_SECONDS)

    def _world_answers(self) -> bool:
        try:
            self.switches.status()
        except (StackError, WorldControlError):
            return False
        return True

    def _cloud_state(self, cloud: CloudConfig) -> PartState:
        control = CloudControl(f"http://{HOST}:{cloud.port}")
        try:
            control.ledger()
        except ControlError:
            return PartState(cloud.provider, answers=False, where=control.base_url)
        return PartState(cloud.provider, answers=True, where=control.base_url)

    def _give_identities(self) -> None:
        """Write the kubeconfigs of worker and bridge, with service accounts and rights of ``deploy/``."""
        for process, account in service_accounts().items():
            proxy = self.world.tcp_proxy(f"kubernetes-{process}")
            server = f"https://{HOST}:{proxy.port}" if proxy else self.cluster.server
            path = self.folder.kubeconfig(process)
            identity_kubeconfig(self.cluster, path, OPERATOR_NAMESPACE, account, server)

    def _operator_config(self, record: StackRecord) -> OperatorConfig:
        ways = {name: self.world.tcp_proxy(f"temporal-{name}") for name in PROCESSES}
        return OperatorConfig(
            environment={
                "TEMPORAL_NAMESPACE": NAMESPACE,
                "SPOTGPU_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
                "SPOTGPU_REGIONS": ",".join(_served(self.world.clouds)),
                "SPOTGPU_ENDPOINTS": ",".join(
                    f"{cloud.provider}=http://{HOST}:{cloud.proxy_port}" for cloud in self.world.clouds
                ),
                **_exchange_rates(self.options.clouds),
                **shortened_environment(),
                **self.options.settings,
            },
            kubeconfigs={name: self.folder.kubeconfig(name) for name in PROCESSES},
            temporal={
                name: f"{HOST}:{way.port}" if way else self.temporal.address for name, way in ways.items()
            },
            health_ports=record.health_ports,
            base=self._base(),
            die_with_parent=self.options.die_with_parent,
        )

    def _base(self) -> dict[str, str]:
        return {name: self.options.env[name] for name in KEPT_VARIABLES if name in self.options.env}

    def _stop(self) -> None:
        """End clients before servers, each one even if another would not end; then tell of the first."""
        failures: list[Exception] = []
        record = self.folder.load()
        clients = (*(record.health_ports if record else ()), WORLD)
        ends: list[Callable[[], None]] = [
            *(lambda name=name: self._processes.stop(name, grace_seconds=8) for name in clients),
            self.temporal.stop,
            self.cluster.stop,
        ]
        for end in ends:
            try:
                end()
            except (ProcessError, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]


def _look(name: str, ask: Callable[[], tuple[bool, str]]) -> PartState:
    """State of one part.

    A start that was broken off leaves the record of a stack without its parts, and that of a clone that is
    gone names files that are gone, too: neither runs.
    """
    try:
        answers, where = ask()
    except (StackError, ControlPlaneError, TemporalServerError, OSError, ValueError):
        return PartState(name, answers=False, where="was not started")
    return PartState(name, answers, where)


def _served(clouds: tuple[CloudConfig, ...]) -> list[str]:
    """Every region of the node classes, as ``provider:account:region``."""
    return [
        f"{cloud.provider}:{account_of(cloud)}:{region}"
        for cloud in clouds
        for region in inventory_of(read_node_class(cloud.node_class)).zones
    ]


def _exchange_rates(clouds: tuple[ProviderName, ...]) -> dict[str, str]:
    """The rate at which the simulated AWS makes dollars of the market's yuan, as of today."""
    if ProviderName.AWS not in clouds:
        return {}
    return {"SPOTGPU_EXCHANGE_RATES": f"USD/{CURRENCY}={CNY_PER_USD}@{datetime.now(UTC):%Y-%m-%d}"}


def _current_kubeconfig(env: Mapping[str, str]) -> Path:
    named = env.get("KUBECONFIG", "")
    if not named or ":" in named or not Path(named).is_file():
        raise StackError(
            f"--cluster current needs KUBECONFIG to name one file, it is {named!r}: set it to the kubeconfig "
            "of your cluster, or leave the option out to get a cluster of the sandbox's own"
        )
    return Path(named).resolve()
