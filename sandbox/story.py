"""The demo: one pool's life on real parts, told line by line as it is seen, and checked at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from domain.contracts.offers import ProviderName
from sandbox.audit import audit
from sandbox.clouds.admin import MachineView
from sandbox.clouds.hooks import Hook, HookPoint
from sandbox.expectation import ExpectationError, expect
from sandbox.observer import Json, MachineSeen, Observer, PoolSeen
from sandbox.operator_processes import WORKER
from sandbox.provision import EXAMPLES
from sandbox.shortened import SHORTENED
from sandbox.stack import Stack

DEMO_POOL = EXAMPLES / "demo-pool.yaml"
CREATE_ACTION = "RunInstances"
"""Both vendors call it so."""

_POLLING_SECONDS = next(float(s.value) for s in SHORTENED if s.variable == "SPOTGPU_POLLING_INTERVAL_SECONDS")
_SEEN_WITHIN_SECONDS = _POLLING_SECONDS + 5
_STEP_SECONDS = 60


@dataclass
class Story:
    """Tells the life of the pool in ``manifest`` on a running stack."""

    stack: Stack
    tell: Callable[[str], None]
    manifest: Path = DEMO_POOL

    def __post_init__(self) -> None:
        fields = yaml.safe_load(self.manifest.read_text())
        self.name = str(fields["metadata"]["name"])
        self.namespace = str(fields["metadata"].get("namespace", "default"))
        self.observer = observer_of(self.stack)
        self._started = time.monotonic()
        self._told: set[str] = set()

    def run(self) -> None:
        """Tell it from the first purchase to the last Node.

        Raises:
            ExpectationError: Something was not as it should be.
        """
        self._apply()
        self._crash_in_a_purchase()
        self._scale_over_both_vendors()
        self._lose_one()
        self._delete()
        for line in audit(self.stack, self._pool_uid):
            self._say(line)
        self._compare_with_ledgers()

    def _apply(self) -> None:
        self.stack.cluster.kubectl("apply", f"--filename={self.manifest}")
        resource = self.observer.pool_resource(self.namespace, self.name)
        if resource is None:
            raise ExpectationError(f"the pool {self.namespace}/{self.name} was applied and is not there")
        self._pool_uid = str(resource["metadata"]["uid"])
        wanted = int(resource["spec"]["minInstances"])
        self._say(f"pool {self.name} applied: {wanted} machines wanted")
        self._level(wanted)

    def _crash_in_a_purchase(self) -> None:
        """Let the cloud kill the worker when it has made the machine and not yet answered."""
        pid = self.stack.operator.pid(WORKER)
        hook = Hook(point=HookPoint.CARRIED_OUT, action=CREATE_ACTION, kill_pid=pid)
        hooks = {name: self.stack.cloud(name).set_hook(hook) for name in self._clouds()}
        self._patch('{"spec":{"minInstances":3}}')
        self._say(f"scaled to 3; the worker (pid {pid}) is to die in the middle of the purchase")
        expect("the worker dies during a purchase", lambda: self._hit(hooks), within_seconds=30)
        for name in hooks:
            self.stack.cloud(name).clear_hooks()
        bought = [m for m in self._live() if m.id not in self._told]
        for machine in bought:
            self._say(f"{machine.id} was bought at {machine.zone}; nobody heard of it: the worker is dead")
        self.stack.operator.start(WORKER)
        self.stack.operator.wait_ready(WORKER)
        self._say(f"worker restarted (pid {self.stack.operator.pid(WORKER)})")
        self._level(3)
        if len(bought) != 1 or len(self._live()) != 3:
            raise ExpectationError(f"3 machines at the clouds, not {[m.id for m in self._live()]}")
        self._say("still one machine per slot: the lost purchase was found by its tag, nothing bought twice")

    def _scale_over_both_vendors(self) -> None:
        """Sell nothing more where all machines are, so that the next one comes from the other vendor."""
        vendors = {machine.provider for machine in self._pool().machines}
        if len(vendors) == 1:
            (vendor,) = vendors
            for zone in self._zones(ProviderName(vendor)):
                self.stack.cloud(ProviderName(vendor)).run_out(zone)
            self._say(f"market: {vendor} is sold out in every zone")
        self._patch('{"spec":{"minInstances":4}}')
        self._say("kubectl patch: minInstances 4")
        pool = self._level(4)
        vendors = {machine.provider for machine in pool.machines}
        if len(vendors) < 2:
            raise ExpectationError(f"machines at both vendors, not only at {', '.join(vendors)}")
        for provider in self._clouds():
            for zone in self._zones(provider):
                self.stack.cloud(provider).reset_stock(zone)

    def _lose_one(self) -> None:
        """Let a cloud take a machine back without a word."""
        victim = self._pool().running()[0]
        self.stack.cloud(ProviderName(victim.provider)).reclaim(victim.id)
        taken = time.monotonic()
        self._say(f"{victim.provider} takes {victim.id} back (Node {victim.node})")
        expect(
            f"the pool sees within {_SEEN_WITHIN_SECONDS:.0f} s that {victim.id} is gone",
            lambda: self._lost(victim),
            within_seconds=_SEEN_WITHIN_SECONDS,
        )
        seconds = time.monotonic() - taken
        run = self._pool().run_id
        self._say(f"seen after {seconds:.1f} s: {victim.id} is lost [run {run}]")
        self._level(4)
        expect(
            f"the Node {victim.node} of the lost machine is removed",
            lambda: None if self._has_node_of(victim) else True,
            within_seconds=30,
        )
        self._say(f"Node {victim.node} of {victim.id} removed")

    def _delete(self) -> None:
        run = self._pool().run_id
        self.stack.cluster.kubectl(
            "delete", "gsp", self.name, f"--namespace={self.namespace}", "--wait=false"
        )
        self._say("pool deleted")
        expect(
            "the resource goes, its finalizer removed",
            lambda: None if self.observer.pool_resource(self.namespace, self.name) else True,
            within_seconds=_STEP_SECONDS,
        )
        expect(
            "the workflow completes",
            lambda: self._completed() or None,
            within_seconds=20,
        )
        if left := self._live():
            raise ExpectationError(f"no machine left at any cloud, not {[m.id for m in left]}")
        if nodes := [n for n in self.observer.nodes().values() if self._is_ours(n)]:
            raise ExpectationError(f"no Node left, not {[n['metadata']['name'] for n in nodes]}")
        self._say(f"nothing left: no machine at any cloud, no Node, resource gone [run {run} completed]")

    def _compare_with_ledgers(self) -> None:
        """Every machine that a cloud charged for must have been told of here, and no other."""
        charged = {m.id for name in self._clouds() for m in self.stack.cloud(name).machines()}
        if charged != self._told:
            raise ExpectationError(
                f"the ledgers have {sorted(charged)}, this story told of {sorted(self._told)}"
            )
        self._say(f"the ledgers have exactly the {len(charged)} machines of this story")

    def _level(self, count: int) -> PoolSeen:
        """Wait for so many machines that the pool, the clouds and the cluster agree on; tell the new ones."""
        pool = expect(
            f"{count} machines Running and joined",
            lambda: self._at_level(count),
            within_seconds=_STEP_SECONDS,
        )
        for machine in pool.machines:
            if machine.id not in self._told:
                self._told.add(machine.id)
                self._say(
                    f"{machine.id} Running at {machine.provider} {machine.zone}, Node {machine.node}, "
                    f"slot {machine.slot} [run {pool.run_id}]"
                )
        return pool

    def _at_level(self, count: int) -> PoolSeen | None:
        pool = self.observer.pool(self.namespace, self.name)
        running = pool.running()
        slots = {machine.slot for machine in running}
        if not pool.current == pool.ready == len(running) == len(slots) == count:
            return None
        if {machine.id for machine in running} != {machine.id for machine in self._live()}:
            return None
        nodes = self.observer.nodes()
        joined = {provider_id.rpartition("/")[2].rpartition(".")[2] for provider_id in nodes}
        return pool if {machine.id for machine in running} <= joined else None

    def _pool(self) -> PoolSeen:
        return self.observer.pool(self.namespace, self.name)

    def _lost(self, victim: MachineSeen) -> bool | None:
        present = {machine.id: machine for machine in self._pool().machines}
        machine = present.get(victim.id)
        return True if machine is None or machine.status in ("Interrupting", "Terminated") else None

    def _hit(self, hooks: Mapping[ProviderName, int]) -> bool | None:
        """Whether a cloud's own log says that the point was reached, and the worker is dead."""
        hit = any(self.stack.cloud(name).hook(number).hits for name, number in hooks.items())
        return True if hit and not self.stack.operator.is_alive(WORKER) else None

    def _completed(self) -> bool:
        return self.observer.workflow_status(f"pool:{self.namespace}:{self.name}").endswith("COMPLETED")

    def _has_node_of(self, machine: MachineSeen) -> bool:
        return any(provider_id.endswith(machine.id) for provider_id in self.observer.nodes())

    def _is_ours(self, node: Json) -> bool:
        labels: Mapping[str, str] = node["metadata"].get("labels") or {}
        return self._pool_uid in labels.values()

    def _live(self) -> list[MachineView]:
        tags = {"spotgpu-pool": self._pool_uid}
        return [m for name in self._clouds() for m in self.stack.cloud(name).machines(live=True, tags=tags)]

    def _clouds(self) -> list[ProviderName]:
        return [cloud.provider for cloud in self.stack.world.clouds]

    def _zones(self, provider: ProviderName) -> list[str]:
        return self.stack.zones(provider)

    def _patch(self, patch: str) -> None:
        self.stack.cluster.kubectl(
            "patch", "gsp", self.name, f"--namespace={self.namespace}", "--type=merge", f"--patch={patch}"
        )

    def _say(self, line: str) -> None:
        now = datetime.now(UTC)
        self.tell(f"{now:%H:%M:%S}Z {time.monotonic() - self._started:5.1f} s  {line}")


def observer_of(stack: Stack) -> Observer:
    """Look at a stack as its administrator."""
    return Observer(stack.cluster.machine_access(), stack.temporal.http_url)
