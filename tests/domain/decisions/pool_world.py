"""A pool's judgement in a simulated outside: pure, seeded, with a clock that it advances itself.

``PoolWorld`` judges whenever something is learnt or a deadline passes, carries the commands out through
``WorldEffects``, and lets ``WorldChecks`` look at every step. Times are seconds since the start.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from domain.contracts.announcements import Announcement
from domain.contracts.facts import Demand, ProfileDemand
from domain.contracts.outcomes import Fact
from domain.contracts.pool_state import Machine, MachinePhase, PoolCarry
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from domain.contracts.status import PoolStatus, WorkflowRef
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_facts import absorb
from domain.decisions.pool_interventions import InterventionRefusedError
from domain.decisions.pool_judgement import conclude
from domain.decisions.pool_report import details, report, waiting_for
from domain.decisions.resolution import merge
from tests.domain.decisions.pool_inputs import a_resolved, a_setting
from tests.domain.decisions.world_checks import WorldChecks
from tests.domain.decisions.world_cloud import CloudMachine, Clouds, ClusterNode, at
from tests.domain.decisions.world_effects import WorldEffects
from tests.domain.decisions.world_watchers import WorldWatchers

WORKFLOW = WorkflowRef(id="pool:default:training-pool-a100", run_id="run-1")


@dataclass(frozen=True)
class Faults:
    """Chances, from 0 to 1, that something goes wrong each time; ``list_lag`` is in seconds."""

    refuse: float = 0
    reject: float = 0
    unanswered_made: float = 0
    unanswered_unmade: float = 0
    late_made: float = 0
    slow_answer: float = 0
    never_runs: float = 0
    never_joins: float = 0
    few_gpus: float = 0
    list_lag: float = 0
    read_fails: float = 0
    describe_fails: float = 0
    tell_fails: float = 0
    drain_blocks: float = 0
    drain_fails: float = 0
    settle_fails: float = 0
    delete_fails: float = 0
    finalizer_fails: float = 0
    duplicate_signal: float = 0
    late_signal: float = 0


HEALTHY = Faults()
ROUGH = Faults(
    refuse=0.1,
    reject=0.01,
    unanswered_made=0.08,
    unanswered_unmade=0.05,
    late_made=0.04,
    slow_answer=0.15,
    never_runs=0.05,
    never_joins=0.05,
    few_gpus=0.05,
    list_lag=20,
    read_fails=0.1,
    describe_fails=0.1,
    tell_fails=0.1,
    drain_blocks=0.2,
    drain_fails=0.1,
    settle_fails=0.1,
    delete_fails=0.1,
    finalizer_fails=0.3,
    duplicate_signal=0.2,
    late_signal=0.15,
)


class PoolWorld:
    """One pool and everything around it."""

    def __init__(
        self,
        resolved: ResolvedPool | None = None,
        settings: PoolSettings | None = None,
        *,
        seed: int = 0,
        faults: Faults = HEALTHY,
    ) -> None:
        self.t = 0.0
        self.rng = random.Random(seed)
        self.resolved = resolved or a_resolved()
        self.settings = settings or a_setting()
        self.faults = faults
        self.state = PoolCarry(chain="c0ffee00")
        self.clouds = Clouds()
        self.nodes: dict[str, ClusterNode] = {}
        self.events: list[Announcement] = []
        self.finalizer_removed = False
        self.carries_json = False
        """Whether the memory goes through JSON before each judgement, as at a continue-as-new."""
        self.clocks_behind = 0.0
        """Seconds by which the clocks of clouds' and cluster's readers are behind the pool's own."""
        self.judgements = 0
        self.reports_every = 1
        """Judgements between two reports."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._alarm: float | None = None
        self._gathered: list[Fact] | None = None
        self.checks = WorldChecks(self)
        self.effects = WorldEffects(self)
        self.watchers = WorldWatchers(self)
        self.at(0, self.judge)

    # Time -------------------------------------------------------------------------------------------

    def at(self, t: float, happening: Callable[[], None]) -> None:
        """Let something happen at a time, at once when it is past."""
        self._count += 1
        heapq.heappush(self._queue, (max(t, self.t), self._count, happening))

    def stamp(self) -> datetime:
        """When a reading is taken now, by the clock of who takes it."""
        return at(self.t - self.clocks_behind)

    def stamp_of_list(self) -> datetime:
        """Taken before the list, so that it is older than anything that happens meanwhile."""
        return self.stamp() - timedelta(milliseconds=1)

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        self.at(self.t + seconds, happening)

    def between(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def run(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due in it."""
        end = self.t + seconds
        while self._queue and self._queue[0][0] <= end:
            self.t, _, happening = heapq.heappop(self._queue)
            happening()
        self.t = end

    def run_until(self, condition: Callable[[], bool], within: float = 3600) -> float:
        """Let time pass until something holds; returns how long it took, fails when it never does."""
        start = self.t
        while not condition():
            assert self._queue, f"nothing will happen any more; {self.describe()}"
            assert self._queue[0][0] <= start + within, f"not within {within} s; {self.describe()}"
            self.t, _, happening = heapq.heappop(self._queue)
            happening()
        return self.t - start

    # Judging ----------------------------------------------------------------------------------------

    def learn(self, *facts: Fact) -> None:
        """Bring facts in and judge."""
        if self._gathered is not None:
            self._gathered.extend(facts)
            return
        self.judge(*facts)

    def judge(self, *facts: Fact) -> None:
        if self.finalizer_removed:
            return
        if self.carries_json:
            self.carry_over()
        draft = self.draft()
        for fact in facts:
            self.checks.hears(fact)
            absorb(draft, fact)
        judgement = conclude(draft)
        before, self.state = self.state, judgement.state
        self.events.extend(judgement.events)
        self.checks.judged(before, judgement)
        for command in judgement.commands:
            self.effects.carry_out(command)
        self.judgements += 1
        if self.judgements % self.reports_every == 0:
            self._report()
        if judgement.deadline is not None:
            self._arm((judgement.deadline - at(0)).total_seconds())

    def draft(self) -> Draft:
        return Draft(self.resolved, self.settings, self.state, at(self.t))

    def carry_over(self) -> None:
        """Hand the memory on as the workflow does when it continues as new: through JSON."""
        carried = PoolCarry.model_validate_json(self.state.model_dump_json())
        assert carried == self.state
        self.state = carried

    def _report(self) -> None:
        draft = self.draft()
        status = report(draft, WORKFLOW)
        details(draft)
        self.state = draft.state
        self.checks.reported(status)

    def _arm(self, t: float) -> None:
        # Rounded up: a float of seconds may lie a hair before the moment that it stands for.
        self._alarm = t + 1e-6
        self.at(self._alarm, lambda due=self._alarm: self._ring(due))

    def _ring(self, due: float) -> None:
        if self._alarm == due:
            self._alarm = None
            self.judge()

    # What people and the bridge do ----------------------------------------------------------------------

    def edit(self, **spec: Any) -> None:
        """Change fields of the spec, named as in Python."""
        changed = self.resolved.spec.model_copy(update=spec)
        self.apply(self.resolved.model_copy(update={"spec": changed}))

    def apply(self, resolved: ResolvedPool) -> None:
        """Send an edit as the bridge does, one generation on."""
        newer = resolved.model_copy(update={"generation": self.resolved.generation + 1})
        self.resolved = merge(self.resolved, newer)
        draft = self.draft()
        draft.update(join_failures=(), next_round_at=None)
        self.state = draft.state
        self.judge()

    def delete(self) -> None:
        self.checks.closes_door()
        self.apply(self.resolved.model_copy(update={"deleting": True}))

    def order(self, intervention: Callable[..., str], *args: Any, **kwargs: Any) -> str:
        """Carry out an intervention as the workflow does; a refused one changes nothing."""
        draft = self.draft()
        try:
            done = intervention(draft, *args, **kwargs)
        except InterventionRefusedError as error:
            return f"refused: {error}"
        self.state = draft.state
        self.checks.intervened(intervention.__name__)
        self.judge()
        return done

    def demand(self, gpus: int, profile: str = "ddp") -> None:
        entry = ProfileDemand(profile=profile, pods=1 if gpus else 0, gpus=gpus, max_gpus_per_pod=1)
        self.learn(Demand(as_of=at(self.t), profiles=(entry,)))

    def restart_chain(self, chain: str) -> None:
        """The workflow was terminated and started again: it knows only what the status named."""
        known = tuple(i.id for i in self.status.instances)
        self.resolved = self.resolved.model_copy(update={"known_machines": known})
        self.state = PoolCarry(chain=chain)
        self.effects.forget_workflow()
        self.checks.forget_chain()
        self.watchers.tell_everything()
        self.judge()

    # What the outside does ------------------------------------------------------------------------------

    def notice(self, machine: CloudMachine, seconds: float = 120) -> None:
        """The cloud will take a machine back."""
        machine.notice_at, machine.deadline = self.t, self.t + seconds
        self.at(machine.deadline, lambda: self.vanish(machine))

    def vanish(self, machine: CloudMachine) -> None:
        """A machine is gone; its Node turns NotReady a while later and stays."""
        if machine.ends_at is None or machine.ends_at > self.t:
            machine.ends_at = self.t
        self.after(30, lambda: self.watchers.go_dark(machine))

    def heal(self) -> None:
        """No faults any more, every region answers, stock everywhere."""
        self.faults = replace(HEALTHY)
        self.clouds.stock.clear()
        self.clouds.down.clear()
        self.watchers.bridge_down = False
        self.watchers.tell_everything()

    # What a test asks -----------------------------------------------------------------------------------

    @property
    def status(self) -> PoolStatus:
        return report(self.draft(), WORKFLOW)

    @property
    def machines(self) -> list[Machine]:
        return list(self.state.machines.values())

    @property
    def living(self) -> list[CloudMachine]:
        return self.clouds.living(self.t)

    @property
    def ready(self) -> int:
        """Machines with all their GPUs, as the status counts them."""
        return sum(1 for m in self.state.machines.values() if m.phase is MachinePhase.READY)

    @property
    def now_waits_for(self) -> str:
        return waiting_for(self.draft())

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition, empty texts when the pool does not show it."""
        found = next((c for c in self.status.conditions if c.type == kind), None)
        return (found.status, found.reason) if found else ("", "")

    def message(self, kind: str) -> str:
        return next((c.message for c in self.status.conditions if c.type == kind), "")

    def cloud_machine(self, instance_id: str) -> CloudMachine:
        return self.clouds.machines[instance_id]

    def reasons(self) -> list[str]:
        """Reasons of all Events so far."""
        return [event.reason.value for event in self.events]

    def describe(self) -> str:
        """Where everything stands, for the message of a failed assertion."""
        clock = timedelta(seconds=self.t)
        alive = [f"{m.id}:{m.region.region}" for m in self.living]
        return f"t={clock} waits for {self.now_waits_for}; alive {alive}\n{details(self.draft())}"
