"""What a bought machine does: boots its user data, joins as a Node, shows its GPUs, and goes dark.

kwok keeps the Nodes alive; a machine itself costs two requests to join and three to go dark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from domain.contracts.catalogue import instance_type
from domain.contracts.names import GPU_RESOURCE
from domain.contracts.offers import ProviderName
from sandbox.boot_script import BootPlan, BootScriptError, JoinLine, read_boot_script
from sandbox.clouds.ledger import Ledger, Machine
from sandbox.control_plane.annotations import (
    MANAGED_BY_KWOK,
    MANAGED_BY_KWOK_VALUE,
    POWER,
    POWER_OFF,
    POWER_ON,
)
from sandbox.metadata import metadata_of_machine
from sandbox.node_api import JsonObject, NodeApi, NodeApiError

MACHINE = "sandbox.spotgpu.zuoyang.io/machine"
"""Annotation of a Node: the id of the machine that registered it."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_FIRST_RETRY_SECONDS = 0.2
_LONGEST_RETRY_SECONDS = 2.0


class Phase(StrEnum):
    """How far a machine came."""

    BOOTING = "booting"
    JOINING = "joining"
    JOINED = "joined"
    """Its Node is there, its GPUs are not shown yet."""
    READY = "ready"
    STUCK = "stuck"
    """It runs and costs money but will never be a Node; ``note`` says why."""
    DARK = "dark"


@dataclass
class MachineSettings:
    """Latencies of all machines, changeable while they run."""

    join_seconds: float = 0.5
    """From power to the first request to the API server."""
    gpu_seconds: float = 0.5
    """From the Node to its GPUs."""
    registration_retry_seconds: float = 1.0
    """A kubelet whose name is taken by another machine's Node tries again after this long."""


@dataclass
class MachineFault:
    """What is wrong with the next machines. Spent when ``count`` machines had it; None for all."""

    never_join: bool = False
    missing_gpus: int = 0
    """So many fewer than were bought are shown."""
    no_gpus: bool = False
    node_name: str = ""
    """Private host name that the cloud gives the machine, for example one that was used before."""
    provider: ProviderName | None = None
    count: int | None = 1


@dataclass
class Life:
    """One machine from power to darkness."""

    provider: ProviderName
    machine: Machine
    fault: MachineFault
    phase: Phase = Phase.BOOTING
    node_name: str = ""
    note: str = ""
    registrations_refused: int = 0
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    registration: asyncio.Task[bool] | None = field(default=None, repr=False)
    """The request in flight: it is waited for even if the power goes, so that no Node is left unseen."""


class Machines:
    """All machines of the attached clouds. Belongs to the event loop of their servers."""

    def __init__(self, api: NodeApi, join: JoinLine, settings: MachineSettings | None = None) -> None:
        """Describe machines that join through ``api`` when their script says what ``join`` says."""
        self.settings = settings or MachineSettings()
        self.faults: list[MachineFault] = []
        self._api = api
        self._join = join
        self._lives: dict[str, Life] = {}
        self._dark_nodes: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()

    def attach(self, provider: ProviderName, ledger: Ledger) -> None:
        """Let each machine of a cloud's ledger live from its power on to its power off."""
        ledger.listeners.on_running.append(lambda machine: self._power_on(provider, machine))
        ledger.listeners.on_gone.append(self._power_off)

    def start(self) -> None:
        """Look after pods that are bound to dark machines."""
        self._spawn(self._freeze_later_pods())

    async def stop(self) -> None:
        """End all lives without a word to anybody."""
        tasks = set(self._background)
        for task in tasks:
            task.cancel()
        # A registration in flight outlives its machine: it has to end before the session is closed.
        registrations = [life.registration for life in self._lives.values() if life.registration]
        await asyncio.gather(*tasks, *registrations, return_exceptions=True)

    def lives(self) -> tuple[Life, ...]:
        """Every machine that ever had power, oldest first."""
        return tuple(self._lives.values())

    def metadata(self, machine_id: str) -> dict[str, str] | None:
        """What a machine's metadata service says now; None for one that has no power."""
        life = self._lives.get(machine_id)
        if life is None or life.phase is Phase.DARK:
            return None
        return metadata_of_machine(life.provider, life.machine)

    def provider_of(self, machine_id: str) -> ProviderName | None:
        """Cloud of a machine that ever had power; None for an unknown one."""
        life = self._lives.get(machine_id)
        return life.provider if life else None

    def _power_on(self, provider: ProviderName, machine: Machine) -> None:
        life = Life(provider, machine, self._take_fault(provider))
        self._lives[machine.id] = life
        life.task = self._spawn(self._live(life))

    def _power_off(self, machine: Machine) -> None:
        life = self._lives.get(machine.id)
        if life is None:
            return  # it ended before it ever had power
        if life.task is not None:
            life.task.cancel()
        life.phase = Phase.DARK
        if life.node_name:
            self._spawn(self._darken(life))

    def _take_fault(self, provider: ProviderName) -> MachineFault:
        for fault in self.faults:
            if fault.provider in (None, provider):
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count <= 0:
                        self.faults.remove(fault)
                return fault
        return MachineFault()

    def _spawn(self, life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(life)
        self._background.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("A machine of the sandbox broke", exc_info=task.exception())

    async def _live(self, life: Life) -> None:
        try:
            await self._join_cluster(life)
        except NodeApiError as error:
            life.phase, life.note = Phase.STUCK, f"the API server refuses it: {error}"

    async def _join_cluster(self, life: Life) -> None:
        await asyncio.sleep(self.settings.join_seconds)
        plan = self._boot(life)
        if plan is None:
            return
        life.phase = Phase.JOINING
        name = plan.node_name or life.fault.node_name or _private_name(life)
        await self._register(life, name, plan)
        life.phase = Phase.JOINED
        gpus = _gpu_count(life)
        if gpus == 0:
            life.note = "its driver shows no GPU"
            return
        await asyncio.sleep(self.settings.gpu_seconds)
        amounts = {GPU_RESOURCE: str(gpus)}
        patch = {"status": {"capacity": amounts, "allocatable": amounts}}
        await _persist(lambda: self._api.patch_node(name, patch, status=True))
        life.phase = Phase.READY

    def _boot(self, life: Life) -> BootPlan | None:
        """Run the script; None, and the reason in the note, when it makes no Node."""
        metadata = metadata_of_machine(life.provider, life.machine)
        try:
            plan = read_boot_script(life.machine.order.user_data, metadata)
            life.note = self._join_refusal(life, plan.join)
        except BootScriptError as error:
            life.note = f"its kubelet does not start: {error}"
        else:
            if not life.note:
                return plan
        life.phase = Phase.STUCK
        return None

    def _join_refusal(self, life: Life, line: JoinLine | None) -> str:
        """Why the cluster would not take this machine; empty when it would."""
        if life.fault.never_join:
            return "told never to join"
        if line is None:
            return "its user data has no kubeadm join"
        if line.server.removeprefix("https://") != self._join.server.removeprefix("https://"):
            return f"kubeadm join finds no API server at {line.server}"
        if line.token != self._join.token:
            return "the API server refuses its token"
        if line.ca_cert_hash != self._join.ca_cert_hash:
            return "the cluster's CA has another hash than its script says"
        return ""

    async def _register(self, life: Life, name: str, plan: BootPlan) -> None:
        """Create the Node, or wait until another machine's Node of that name is gone."""
        life.node_name = name
        while not await _persist(lambda: self._request_registration(life, _node(life, name, plan))):
            life.registrations_refused += 1
            life.note = f"Node {name} belongs to another machine"
            await asyncio.sleep(self.settings.registration_retry_seconds)
        self._dark_nodes.discard(name)
        life.note = ""

    async def _request_registration(self, life: Life, body: JsonObject) -> bool:
        life.registration = asyncio.create_task(self._try_register(body))
        return await asyncio.shield(life.registration)

    async def _try_register(self, body: JsonObject) -> bool:
        try:
            await self._api.create_node(body)
        except NodeApiError as error:
            if error.status != 409:
                raise
        else:
            return True
        present = await self._api.node(body["metadata"]["name"])
        if present is None:
            return False
        # Ours already when an earlier request was carried out and its answer got lost.
        return present["spec"].get("providerID", "") == body["spec"].get("providerID", "") != ""

    async def _darken(self, life: Life) -> None:
        if life.registration is not None:
            await asyncio.wait([life.registration])
        if not await _persist(lambda: self._patch_own_node(life, _power(POWER_OFF))):
            return
        self._dark_nodes.add(life.node_name)
        for pod in (await _persist(lambda: self._api.pods(life.node_name)))[0]:
            await self._freeze(pod)

    async def _patch_own_node(self, life: Life, patch: JsonObject) -> bool:
        """Patch the Node unless it is gone or a successor of the same name took its place."""
        present = await self._api.node(life.node_name)
        if present is None or present["metadata"]["annotations"].get(MACHINE) != life.machine.id:
            return False
        return await self._api.patch_node(life.node_name, patch)

    async def _freeze_later_pods(self) -> None:
        while True:
            try:
                pods, version = await self._api.pods()
                for pod in pods:
                    await self._freeze_if_dark(pod)
                async for pod in self._api.watch_bound_pods(version):
                    await self._freeze_if_dark(pod)
            except NodeApiError:
                await asyncio.sleep(_LONGEST_RETRY_SECONDS)

    async def _freeze_if_dark(self, pod: JsonObject) -> None:
        annotations = pod["metadata"].get("annotations", {})
        if pod["spec"].get("nodeName") in self._dark_nodes and annotations.get(POWER) != POWER_OFF:
            await self._freeze(pod)

    async def _freeze(self, pod: JsonObject) -> None:
        meta = pod["metadata"]
        await _persist(lambda: self._api.patch_pod(meta["namespace"], meta["name"], _power(POWER_OFF)))


def _power(state: str) -> JsonObject:
    return {"metadata": {"annotations": {POWER: state}}}


def _private_name(life: Life) -> str:
    """The host name that the cloud gives, unless the order or the script named another."""
    ordered = str(life.machine.order.details.get("HostName", "") or "")
    return ordered or f"{life.provider}-{life.machine.private_ip.replace('.', '-')}"


def _gpu_count(life: Life) -> int:
    row = instance_type(life.provider, life.machine.order.instance_type)
    if row is None or life.fault.no_gpus:
        return 0
    return max(0, row.gpu_count - life.fault.missing_gpus)


def _node(life: Life, name: str, plan: BootPlan) -> JsonObject:
    """The Node as a kubelet registers it."""
    row = instance_type(life.provider, life.machine.order.instance_type)
    size = {
        "cpu": str(row.vcpu_count if row else 8),
        "memory": f"{row.ram_gib if row else 32}Gi",
        "pods": "110",
    }
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    spec: JsonObject = {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in plan.taints]}
    if plan.provider_id:
        spec["providerID"] = plan.provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**own, **plan.labels},
            "annotations": {
                MANAGED_BY_KWOK: MANAGED_BY_KWOK_VALUE,
                POWER: POWER_ON,
                MACHINE: life.machine.id,
            },
        },
        "spec": spec,
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [
                {"type": "InternalIP", "address": life.machine.private_ip},
                {"type": "Hostname", "address": name},
            ],
        },
    }


async def _persist(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat a request while the API server is away or too busy, as a kubelet does."""
    pause = _FIRST_RETRY_SECONDS
    while True:
        try:
            return await ask()
        except NodeApiError as error:
            if 0 < error.status < 500 and error.status not in (408, 429):
                raise
        await asyncio.sleep(pause)
        pause = min(_LONGEST_RETRY_SECONDS, pause * 2)
