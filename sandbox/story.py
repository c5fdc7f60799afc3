"""The demo: one pool's life on real parts, told line by line as it is seen, and checked at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from domain.contracts.offers import ProviderName
from sandbox.audit import audit
from sandbox.clouds.hooks import Hook, HookPoint
from sandbox.expectation import ExpectationError, expect
from sandbox.observer import PoolSeen
from sandbox.operator_processes import WORKER
from sandbox.provision import EXAMPLES
from sandbox.shortened import SHORTENED
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, sell_as_usual, sell_nothing

DEMO_POOL = EXAMPLES / "demo-pool.yaml"
CREATE_ACTION = "RunInstances"
"""Both vendors call it so."""

_POLLING_SECONDS = next(
    float(setting.value) for setting in SHORTENED if setting.variable == "SPOTGPU_POLLING_INTERVAL_SECONDS"
)
_SEEN_WITHIN_SECONDS = _POLLING_SECONDS + 5
_STEP_SECONDS = 60


@dataclass
class Story:
    """Tells the life of the demo pool on a running stack."""

    stack: Stack
    tell: Callable[[str], None]
    manifest: Path = DEMO_POOL
    _told: set[str] = field(default_factory=set[str], init=False)
    _started: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._body: Mapping[str, Any] = yaml.safe_load(self.manifest.read_text())
        metadata = self._body["metadata"]
        self._pool = WatchedPool(self.stack, metadata.get("namespace", "default"), metadata["name"])

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
        self._compare_with_ledgers()

    def _apply(self) -> None:
        self._pool.apply(self._body)
        wanted = int(self._body["spec"]["minInstances"])
        self._say(f"pool {self._pool.name} applied: {wanted} machines wanted")
        self._level(wanted)

    def _crash_in_a_purchase(self) -> None:
        """Let the cloud kill the worker when it has made the machine and not yet answered."""
        pid = self.stack.operator.pid(WORKER)
        hook = Hook(point=HookPoint.CARRIED_OUT, action=CREATE_ACTION, kill_pid=pid)
        hooks = {name: self.stack.cloud(name).set_hook(hook) for name in self._clouds()}
        self._say(f"kubectl patch: minInstances 3; the worker (pid {pid}) will be killed during the purchase")
        self._pool.patch(minInstances=3)
        expect("the worker dies during a purchase", lambda: self._hit(hooks), within_seconds=30)
        for name in hooks:
            self.stack.cloud(name).clear_hooks()
        bought = [machine for machine in self._pool.live() if machine.id not in self._told]
        for machine in bought:
            self._say(
                f"{machine.id} was made at {machine.zone} and nobody was told: the worker is dead, there is"
                " no Node yet [the cloud's ledger]"
            )
        self.stack.operator.start(WORKER)
        self.stack.operator.wait_ready(WORKER)
        self._say(f"worker restarted (pid {self.stack.operator.pid(WORKER)})")
        pool = self._level(3)
        if len(bought) != 1 or doubles_of(self._pool):
            raise ExpectationError(
                f"one machine per slot, but {[m.id for m in bought]} {doubles_of(self._pool)}"
            )
        self._say(f"still one machine per slot, nothing bought twice [run {pool.run_id}]")

    def _scale_over_both_vendors(self) -> None:
        """Sell nothing more where all machines are, so that the next one comes from the other vendor."""
        vendors = {ProviderName(machine.provider) for machine in self._pool.seen_soon().machines}
        if len(vendors) == 1:
            (vendor,) = vendors
            sell_nothing(self.stack, vendor)
            self._say(f"market: {vendor} is sold out in every zone")
        self._pool.patch(minInstances=4)
        self._say("kubectl patch: minInstances 4")
        vendors = {ProviderName(machine.provider) for machine in self._level(4).machines}
        if len(vendors) < len(self._clouds()):
            raise ExpectationError(f"machines at both vendors, not only at {', '.join(vendors)}")
        for provider in self._clouds():
            sell_as_usual(self.stack, provider)

    def _lose_one(self) -> None:
        """Let a cloud take a machine back without a word."""
        before = self._pool.seen_soon()
        victim = before.running()[0]
        self.stack.cloud(ProviderName(victim.provider)).reclaim(victim.id)
        taken = time.monotonic()
        self._say(f"{victim.provider} takes {victim.id} back (Node {victim.node}) [run {before.run_id}]")
        pool = expect(
            f"the pool sees within {_SEEN_WITHIN_SECONDS:.0f} s that {victim.id} is gone",
            lambda: self._lost(victim.id),
            within_seconds=_SEEN_WITHIN_SECONDS,
        )
        seconds = time.monotonic() - taken
        self._say(f"seen after {seconds:.1f} s: {victim.id} (Node {victim.node}) is lost [run {pool.run_id}]")
        pool = self._level(4)
        expect(
            f"the Node {victim.node} of the lost machine is removed",
            lambda: None if victim.id in self._pool.joined() else True,
            within_seconds=30,
        )
        self._say(f"Node {victim.node} of {victim.id} removed [run {pool.run_id}]")

    def _delete(self) -> None:
        run = self._pool.seen_soon().run_id
        self._pool.delete()
        self._say("pool deleted")
        expect(
            "resource, machines and Nodes go, and the workflow completes",
            lambda: self._pool.is_gone() or None,
            within_seconds=_STEP_SECONDS,
        )
        self._say(f"nothing left: no machine at any cloud, no Node, no resource [run {run} completed]")

    def _compare_with_ledgers(self) -> None:
        """Every machine that a cloud charged for must have been told of here, and no other."""
        for line in audit(self.stack, self._pool.uid):
            self._say(line)
        charged = {machine.id for machine in self._pool.bought()}
        if charged != self._told:
            raise ExpectationError(f"the ledgers have {sorted(charged)}, told was of {sorted(self._told)}")
        self._say(f"the ledgers have exactly the {len(charged)} machines of this story")

    def _level(self, count: int) -> PoolSeen:
        """Wait for so many machines on which pool, clouds and cluster agree; tell the new ones."""
        pool = expect(
            f"{count} machines Running and joined",
            lambda: self._pool.at_level(count),
            within_seconds=_STEP_SECONDS,
        )
        for machine in pool.machines:
            if machine.id not in self._told:
                self._told.add(machine.id)
                where = f"{machine.provider} {machine.zone}, Node {machine.node}, slot {machine.slot}"
                self._say(f"{machine.id} Running at {where} [run {pool.run_id}]")
        return pool

    def _lost(self, machine_id: str) -> PoolSeen | None:
        pool = self._pool.seen()
        states = {machine.id: machine.status for machine in pool.machines}
        return pool if states.get(machine_id, "Terminated") in ("Interrupting", "Terminated") else None

    def _hit(self, hooks: Mapping[ProviderName, int]) -> bool | None:
        """Whether a cloud's own log says that the point was reached, and the worker is dead."""
        hit = any(self.stack.cloud(name).hook(number).hits for name, number in hooks.items())
        return True if hit and not self.stack.operator.is_alive(WORKER) else None

    def _clouds(self) -> list[ProviderName]:
        return [cloud.provider for cloud in self.stack.world.clouds]

    def _say(self, line: str) -> None:
        now = datetime.now(UTC)
        self.tell(f"{now:%H:%M:%S}Z {time.monotonic() - self._started:5.1f} s  {line}")


def doubles_of(pool: WatchedPool) -> str:
    """What was bought twice, in words; empty when nothing was."""
    return "; ".join(pool.doubles())
