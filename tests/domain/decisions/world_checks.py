"""What must hold at every step of a simulated pool, whatever happens around it."""

from collections import Counter, deque
from datetime import datetime
from typing import TYPE_CHECKING

from domain.contracts.commands import Command, Describe, Launch, Retain, Terminate
from domain.contracts.facts import NodesSeen, RegionObservation
from domain.contracts.names import TAG_SLOT
from domain.contracts.outcomes import Fact
from domain.contracts.pool_state import LeaveReason, MachinePhase, PoolCarry
from domain.contracts.status import Condition, InstanceStatus, PoolStatus
from domain.decisions.pool_judgement import Judgement
from tests.domain.decisions.world_cloud import at

if TYPE_CHECKING:
    from tests.domain.decisions.pool_world import PoolWorld

UNTRACKED_SECONDS = 180
"""A machine that the pool does not know of must be known within this time, while its region answers."""
SAME_PER_MINUTE = 20
"""The same order again and again is a hot loop."""
_ORDER = list(InstanceStatus)
_STAY_SLACK = 0.001


class WorldChecks:
    """Looks at every judgement and status; raises at the first that breaks an invariant."""

    def __init__(self, world: "PoolWorld") -> None:
        self._world = world
        self._read: dict[str, datetime] = {}
        self._cluster_read = False
        self._door_closed = False
        self.forced = False
        """A human forced a stage: what is left behind was said so."""
        self._tokens: set[str] = set()
        self._orders: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()
        self._going_before: set[str] = set()
        self._untracked: dict[str, float] = {}
        self._shown: dict[str, tuple[InstanceStatus, float]] = {}
        self._conditions: dict[str, Condition] = {}
        self.most_orders_per_minute = 0
        self.ordered: list[Command] = []
        """Every command so far."""

    # What the world tells -------------------------------------------------------------------------------

    def hears(self, fact: Fact) -> None:
        if isinstance(fact, RegionObservation):
            name = str(fact.region)
            self._read[name] = max(fact.as_of, self._read.get(name, fact.as_of))
        if isinstance(fact, NodesSeen) and fact.complete:
            self._cluster_read = True

    def intervened(self, name: str) -> None:
        if name == "resync":
            self.forget_readings()
        if name == "force_delete":
            self.forced = True

    def forget_readings(self) -> None:
        self._read.clear()
        self._cluster_read = False

    def forget_chain(self) -> None:
        """A new chain does not count what its predecessor had told to end: the cloud calls it going."""
        self._going_before |= {m.id for m in self._world.living if m.told_at is not None}
        self.forget_readings()
        self._shown.clear()
        self._conditions.clear()

    def closes_door(self) -> None:
        self._door_closed = True

    def lets_go(self) -> None:
        """The resource goes: nothing may be left, unless a human forced it."""
        world = self._world
        if self.forced:
            return
        assert not world.living, f"deleted with machines left: {world.describe()}"
        assert not world.effects.creating, f"deleted while {world.effects.creating} may still be made"
        kept = {m.provider_id for m in world.clouds.machines.values() if m.retained}
        assert set(world.nodes) <= kept, f"deleted with Nodes left: {sorted(world.nodes)}"

    # Every judgement ------------------------------------------------------------------------------------

    def judged(self, before: PoolCarry, judgement: Judgement) -> None:
        world = self._world
        assert judgement.deadline is None or judgement.deadline > at(world.t), "a deadline in the past"
        for command in judgement.commands:
            self._ordered(before, command)
        self._slots_match_machines(judgement.state)
        for machine in judgement.state.machines.values():
            self._moves_forward(machine.token, machine.shown)
        self._everything_is_tracked(judgement.state)
        self._something_will_happen(judgement)

    def _ordered(self, before: PoolCarry, command: Command) -> None:
        self.ordered.append(command)
        self._is_no_hot_loop(command)
        if isinstance(command, Launch):
            self._may_launch(before, command)
        if isinstance(command, Terminate | Retain):
            self._is_fresh(str(command.region), command)
            assert len(command.instance_ids) <= 100
        if isinstance(command, Describe):
            assert len(command.instance_ids) <= 100

    def _is_no_hot_loop(self, command: Command) -> None:
        key = f"{command.kind}:{command.model_dump_json(exclude={'deadline', 'grace_seconds'})}"
        self._orders.append((self._world.t, key))
        self._counts[key] += 1
        while self._orders[0][0] < self._world.t - 60:
            self._counts[self._orders.popleft()[1]] -= 1
        self.most_orders_per_minute = max(self.most_orders_per_minute, len(self._orders))
        assert self._counts[key] <= SAME_PER_MINUTE, f"hot loop: {key}; {self._world.describe()}"
        limit = 60 + 30 * self._world.resolved.spec.max_instances
        assert len(self._orders) <= limit, f"{len(self._orders)} orders in a minute; {self._world.describe()}"

    def _is_fresh(self, region: str, command: Command) -> None:
        settings = self._world.settings
        limit = settings.polling_interval_seconds * settings.stale_after_intervals
        assert self._cluster_read, f"{command.kind} before the cluster was read"
        as_of = self._read.get(region)
        assert as_of is not None, f"{command.kind} in {region} before it was read"
        age = (at(self._world.t) - as_of).total_seconds()
        assert age <= limit + 0.01, f"{command.kind} in {region} on facts {age} s old"

    def _may_launch(self, before: PoolCarry, command: Launch) -> None:
        world = self._world
        assert not self._door_closed, "bought after the door closed"
        assert command.token not in self._tokens, f"{command.token} ordered twice"
        self._tokens.add(command.token)
        self._is_fresh(str(command.request.offer.region_key), command)
        # Every launch of this judgement is checked with those before it: they are in ``creating`` by then.
        slot = command.request.tags[TAG_SLOT]
        waiting = self._noticed()
        filled = {s.id for s in before.slots if s.token} | {slot} | self._slots_ordered
        counted = [m for m in world.living if m.id not in self._going_before]
        live = len(counted) + len(world.effects.creating) + 1
        ceiling = world.resolved.spec.max_instances + len(waiting & filled)
        assert live <= ceiling, f"{live} machines, ceiling {ceiling}; {world.describe()}"

    @property
    def _slots_ordered(self) -> set[str]:
        return {s.id for s in self._world.state.slots if s.token}

    def _noticed(self) -> set[str]:
        """Slots of living machines whose notice the pool has heard; a machine taken over has another tag."""
        alive = {m.id for m in self._world.living}
        return {
            m.slot
            for m in self._world.state.machines.values()
            if m.notice_at is not None and m.leave is LeaveReason.INTERRUPTED and m.instance_id in alive
        }

    def _slots_match_machines(self, state: PoolCarry) -> None:
        filled = [s.token for s in state.slots if s.token]
        assert len(filled) == len(set(filled)), "a launch fills two slots"
        assert len({s.id for s in state.slots}) == len(state.slots), "two slots with one id"
        for slot in state.slots:
            if slot.token:
                machine = state.machines[slot.token]
                assert machine.slot == slot.id
                assert machine.leave is None, f"{slot.id} is filled by a machine that leaves"
                assert machine.phase is not MachinePhase.GONE
        for machine in state.machines.values():
            stays = machine.leave is None and machine.phase is not MachinePhase.GONE
            assert stays == (machine.token in filled), f"{machine.token} ({machine.phase}) fills no slot"
        ids = [m.instance_id for m in state.machines.values() if m.instance_id]
        assert len(ids) == len(set(ids)), "one machine in two records"

    def _everything_is_tracked(self, state: PoolCarry) -> None:
        world = self._world
        known = {m.instance_id for m in state.machines.values() if m.phase is not MachinePhase.GONE}
        launches = {m.token for m in state.machines.values() if not m.instance_id}
        for machine in world.living:
            is_known = machine.id in known or machine.request.token in launches
            if is_known or str(machine.region) in world.clouds.down or self.forced:
                self._untracked.pop(machine.id, None)
                continue
            since = self._untracked.setdefault(machine.id, max(world.t, machine.listed_from))
            assert world.t - since <= UNTRACKED_SECONDS, f"{machine.id} belongs to nobody; {world.describe()}"

    def _something_will_happen(self, judgement: Judgement) -> None:
        """Every state has a deadline or something under way, or says that a human must act."""
        world = self._world
        deletion = judgement.state.deletion
        is_over = deletion is not None and deletion.finalizer_removed
        if is_over or judgement.deadline is not None or judgement.commands or world.effects.in_flight:
            return
        world.state, kept = judgement.state, world.state
        text = world.now_waits_for
        world.state = kept
        waits_for_people = ("nothing", "paused", "do not join", "demand of the bound", "not served")
        assert any(word in text for word in waits_for_people), f"stuck: {text}"

    # Every status ---------------------------------------------------------------------------------------

    def reported(self, status: PoolStatus) -> None:
        for condition in status.conditions:
            self._transitions(condition)

    def _moves_forward(self, key: str, shown: InstanceStatus) -> None:
        world = self._world
        before, since = self._shown.get(key, (shown, world.t))
        if key not in self._shown:
            self._shown[key] = (shown, world.t)
        if shown is before:
            return
        assert _ORDER.index(shown) > _ORDER.index(before), f"{key} went from {before} back to {shown}"
        stayed = world.t - since
        assert stayed >= world.settings.min_stay_seconds - _STAY_SLACK, f"{key} was {before} for {stayed} s"
        self._shown[key] = (shown, world.t)

    def _transitions(self, condition: Condition) -> None:
        assert condition.reason, f"{condition.type} has no reason"
        assert condition.last_transition_time is not None
        before = self._conditions.get(condition.type)
        self._conditions[condition.type] = condition
        if before is not None and before.status == condition.status:
            assert condition.last_transition_time == before.last_transition_time, condition.type
        elif before is not None:
            assert condition.last_transition_time == at(self._world.t), condition.type
