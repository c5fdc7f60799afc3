"""Who tells a simulated pool of the outside: a sync for each region, and the bridge that watches Nodes."""

from typing import TYPE_CHECKING

from domain.contracts.facts import NodeFact, NodesSeen, RegionHealth, RegionObservation, RegionState
from domain.contracts.offers import RegionKey
from tests.domain.decisions.world_cloud import REGIONS, CloudMachine, ClusterNode

if TYPE_CHECKING:
    from tests.domain.decisions.pool_world import PoolWorld

_STALE_AFTER = 3
_OPEN_AFTER = 5


class WorldWatchers:
    """Level-triggered signals, of changes only, as the real watchers send them."""

    def __init__(self, world: "PoolWorld") -> None:
        self._world = world
        self._told: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._health: dict[str, RegionHealth] = {}
        self.bridge_down = False
        for place, region in enumerate(REGIONS):
            world.at(1 + 7 * place, lambda r=region: self._poll(r))

    # Regions --------------------------------------------------------------------------------------------

    def _poll(self, region: RegionKey) -> None:
        world, name = self._world, str(region)
        if name in world.clouds.down:
            self._failures[name] = self._failures.get(name, 0) + 1
        else:
            self._failures[name] = 0
            self._tell_changes(region)
        self._tell_health(region)
        world.after(world.settings.polling_interval_seconds, lambda: self._poll(region))

    def _tell_changes(self, region: RegionKey) -> None:
        world = self._world
        seen = tuple(world.clouds.listed(region, world.t))
        digest = "".join(f"{i.id}{i.state}{i.interrupt_deadline}" for i in seen)
        if self._told.get(str(region)) == digest:
            return
        self._told[str(region)] = digest
        fact = RegionObservation(region=region, as_of=world.stamp(), instances=seen)
        self._signal(fact)
        if world.chance(world.faults.duplicate_signal):
            self._signal(fact)

    def _signal(self, fact: RegionObservation | RegionState) -> None:
        world = self._world
        delay = world.between(20, 45) if world.chance(world.faults.late_signal) else world.between(0, 1)
        world.after(delay, lambda: world.learn(fact))

    def _tell_health(self, region: RegionKey) -> None:
        name, failures = str(region), self._failures[str(region)]
        health = RegionHealth.OK if failures < _STALE_AFTER else RegionHealth.STALE
        health = RegionHealth.CIRCUIT_OPEN if failures >= _OPEN_AFTER else health
        if self._health.get(name, RegionHealth.OK) is not health:
            self._health[name] = health
            fact = RegionState(region=region, as_of=self._world.stamp(), health=health, reason="no answer")
            self._signal(fact)

    # Nodes ----------------------------------------------------------------------------------------------

    def expect(self, machine: CloudMachine) -> None:
        """A machine was made: it joins and shows its GPUs in its own time, if it lives that long."""
        world = self._world
        if machine.joins_at is not None:
            world.at(machine.joins_at, lambda: self._join(machine))
        if machine.gpus_at is not None:
            world.at(machine.gpus_at, lambda: self._show_gpus(machine))

    def _join(self, machine: CloudMachine) -> None:
        world = self._world
        if machine.is_up(world.t):
            node = ClusterNode(provider_id=machine.provider_id, name=machine.request.name)
            world.nodes[machine.provider_id] = node
            self.changed(node)

    def _show_gpus(self, machine: CloudMachine) -> None:
        node = self._world.nodes.get(machine.provider_id)
        if node is not None and machine.is_up(self._world.t):
            node.gpus = machine.gpus
            self.changed(node)

    def go_dark(self, machine: CloudMachine) -> None:
        node = self._world.nodes.get(machine.provider_id)
        if node is not None and node.ready:
            node.ready = False
            self.changed(node)

    def remove_node(self, provider_id: str) -> None:
        """Somebody deletes a Node; a machine whose Node went by hand does not come back by itself."""
        node = self._world.nodes.pop(provider_id, None)
        if node is not None:
            self._tell(node.gone())

    def changed(self, node: ClusterNode) -> None:
        self._tell(node.fact())

    def _tell(self, fact: NodeFact) -> None:
        world = self._world
        if self.bridge_down:
            return
        seen = NodesSeen(as_of=world.stamp(), nodes=(fact,))
        world.after(world.between(0.1, 0.5), lambda: world.learn(seen))

    def tell_everything(self) -> None:
        """The bridge is back, or a run of the workflow is new: all Nodes, and every region once more."""
        world = self._world
        self._told.clear()
        facts = tuple(node.fact() for _, node in sorted(world.nodes.items()))
        seen = NodesSeen(as_of=world.stamp_of_list(), nodes=facts, complete=True)
        world.after(world.between(0.1, 0.5), lambda: world.learn(seen))
