"""One pool seen from all sides at once: its resource, its workflow, the clouds' ledgers and the Nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from domain.contracts.names import GROUP
from domain.contracts.offers import ProviderName
from sandbox.accounts import USUAL_CLOUDS
from sandbox.clouds.admin import MachineView
from sandbox.expectation import expect
from sandbox.observer import NotThereError, Observer, PoolSeen
from sandbox.stack import Stack


@dataclass
class WatchedPool:
    """A pool of a running stack. Synchronous; each method looks anew."""

    stack: Stack
    namespace: str
    name: str
    uid: str = field(default="", init=False)
    """Of the resource, once it was applied."""

    def __post_init__(self) -> None:
        self.observer = Observer(self.stack.cluster.machine_access(), self.stack.temporal.http_url)

    @property
    def workflow_id(self) -> str:
        """Id of the pool's workflow."""
        return f"pool:{self.namespace}:{self.name}"

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Apply a GPUSpotPool under this name, in this namespace, which is made first.

        Raises:
            ControlPlaneError: The API server refused it.
            NotThereError: It was accepted and is not there.
        """
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        metadata = {**manifest["metadata"], "name": self.name, "namespace": self.namespace}
        for body in (namespace, {**manifest, "metadata": metadata}):
            self.stack.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(body))
        resource = self.observer.pool_resource(self.namespace, self.name)
        if resource is None:
            raise NotThereError(f"the pool {self.namespace}/{self.name} was applied and is not there")
        self.uid = str(resource["metadata"]["uid"])

    def patch(self, **spec: object) -> None:
        """``kubectl patch`` of fields of the spec."""
        patch = json.dumps({"spec": spec})
        where = f"--namespace={self.namespace}"
        self.stack.cluster.kubectl("patch", "gsp", self.name, where, "--type=merge", f"--patch={patch}")

    def delete(self) -> None:
        """``kubectl delete`` without waiting."""
        where = f"--namespace={self.namespace}"
        self.stack.cluster.kubectl("delete", "gsp", self.name, where, "--wait=false", "--ignore-not-found")

    def seen(self) -> PoolSeen:
        """The pool by its workflow's own word."""
        return self.observer.pool(self.namespace, self.name)

    def seen_soon(self, within_seconds: float = 30) -> PoolSeen:
        """The same, asked again while servers or worker are away or busy.

        Raises:
            ExpectationError: No answer in time.
        """
        return expect(f"{self.workflow_id} answers", self.seen, within_seconds=within_seconds)

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the resource's status, empty when there is none."""
        resource = self.observer.pool_resource(self.namespace, self.name) or {}
        conditions: list[dict[str, Any]] = resource.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), dict[str, Any]())

    def bought(self) -> list[MachineView]:
        """Every machine that any cloud ever sold to this pool, by tag."""
        return self._machines(live=False)

    def live(self) -> list[MachineView]:
        """Machines of this pool that hold capacity now, by tag."""
        return self._machines(live=True)

    def left(self) -> list[MachineView]:
        """Machines of this pool that somebody must end: those that hold capacity, and stopped ones."""
        return [machine for machine in self.bought() if machine.left]

    def at_level(self, count: int) -> PoolSeen | None:
        """The pool if workflow, clouds and cluster agree on so many machines, one per slot, else None."""
        live = {machine.id for machine in self.live()}
        if len(live) != count:
            return None  # the clouds are asked first: a query costs the worker and the server the most
        pool = self.seen()
        running = pool.running()
        ids = {machine.id for machine in running}
        slots = {machine.slot for machine in running}
        if not pool.desired == pool.current == pool.ready == len(running) == len(slots) == count:
            return None
        if ids != live:
            return None
        return pool if ids <= self.joined() else None

    def joined(self) -> set[str]:
        """Instance ids that have a Node."""
        return {_instance_id(provider_id) for provider_id in self.observer.nodes()}

    def is_gone(self) -> bool:
        """Whether nothing is left: resource, running workflow, machines, Nodes."""
        return (
            self.observer.pool_resource(self.namespace, self.name) is None
            and self.observer.workflow_status(self.workflow_id).endswith("COMPLETED")
            and not self.left()
            and not {machine.id for machine in self.bought()} & self.joined()
        )

    def orphans(self) -> list[str]:
        """Machines that are left and that the pool does not know, or all of them when the pool is gone."""
        if self.observer.pool_resource(self.namespace, self.name) is None:
            return [machine.id for machine in self.left()]
        known = {machine.id for machine in self.seen().machines}
        return [machine.id for machine in self.left() if machine.id not in known]

    def doubles(self) -> list[str]:
        """Tokens that made several machines, and slots with several live ones."""
        tokens = Counter(machine.tags.get("spotgpu-launch", "") for machine in self.bought())
        slots = Counter(machine.tags.get("spotgpu-slot", "") for machine in self.live())
        return [
            *(f"token {token} made {count} machines" for token, count in tokens.items() if count > 1),
            *(f"slot {slot} has {count} live machines" for slot, count in slots.items() if count > 1),
        ]

    def clouds_used(self) -> list[ProviderName]:
        """Clouds at which machines of this pool cost money now."""
        return [name for name, machines in self._machines_by_cloud(live=True).items() if machines]

    def _machines(self, *, live: bool) -> list[MachineView]:
        return [m for machines in self._machines_by_cloud(live=live).values() for m in machines]

    def _machines_by_cloud(self, *, live: bool) -> dict[ProviderName, list[MachineView]]:
        tags = {"spotgpu-pool": self.uid}
        clouds = [cloud.provider for cloud in self.stack.world.clouds]
        return {name: self.stack.cloud(name).machines(live=live, tags=tags) for name in clouds}


def _instance_id(provider_id: str) -> str:
    """The last segment: ``qcloud:///100003/ins-1`` and ``cn-beijing.i-1`` name ``ins-1`` and ``i-1``."""
    return provider_id.rpartition("/")[2].rpartition(".")[2]


def small_pool(min_instances: int, **spec: object) -> dict[str, Any]:
    """A pool of A100s at the usual clouds, to be applied under a name; ``spec`` wins over what it has."""
    usual = {
        "minInstances": min_instances,
        "maxInstances": 9,
        "gpuTypes": ["A100-40G"],
        "providers": [{"name": provider.value} for provider in USUAL_CLOUDS],
    }
    body: dict[str, Any] = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "GPUSpotPool", "metadata": {}}
    return {**body, "spec": {**usual, **spec}}


def sell_nothing(stack: Stack, provider: ProviderName) -> None:
    """A cloud is sold out in every zone; what runs goes on."""
    for zone in stack.zones(provider):
        stack.cloud(provider).run_out(zone)


def sell_as_usual(stack: Stack, provider: ProviderName) -> None:
    """A cloud's stock follows the seeded market again."""
    for zone in stack.zones(provider):
        stack.cloud(provider).reset_stock(zone)
