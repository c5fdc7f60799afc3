"""``GPUSpotPool``: one per pool; listens, feeds the pure judgement, carries out its orders, renews itself.

The pool is the single writer of its slots. Signals only append to an inbox; updates change the state in one
piece, without waiting in between; one loop takes everything in order.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from activities import signatures
from domain.contracts.announcements import Announcement
from domain.contracts.commands import CancelLaunch, Command
from domain.contracts.facts import (
    Demand,
    NodesSeen,
    OwnershipAnswer,
    OwnershipQuestion,
    RegionObservation,
    RegionState,
)
from domain.contracts.outcomes import Fact
from domain.contracts.pool_state import RULES, InboxItem, PoolCarry
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from domain.contracts.status import PoolStatus, WorkflowRef
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_facts import absorb
from domain.decisions.pool_interventions import InterventionRefusedError, record, record_refusal
from domain.decisions.pool_judgement import conclude
from domain.decisions.pool_ownership import answer
from domain.decisions.pool_report import details, report, waiting_for
from domain.decisions.resolution import merge
from workflows import messages as m
from workflows import options
from workflows.pool_effects import Effects, named, text_of
from workflows.pool_orders import carry_out_order, first_errors, forget_failures, wanted_fields
from workflows.pool_visibility import Visibility, is_held

_FACTS: dict[str, type[RegionObservation | RegionState | NodesSeen | Demand]] = {
    m.OBSERVED: RegionObservation,
    m.REGION_STATE: RegionState,
    m.NODE_SEEN: NodesSeen,
    m.DEMAND: Demand,
}
_MAX_EVENTS_PER_CALL = 50
_WITHOUT_ENDINGS = "20261130-without-endings"
_RENEWED_BY_WEIGHT = "20261130-renewed-by-weight"
_RULES_1 = "20261130-rules-1"
_NO_EMPTY_TASKS = "20261130-no-empty-tasks"


@workflow.defn(name=m.POOL_WORKFLOW)
class GPUSpotPool:
    """Keeps one pool at its level until its resource is deleted."""

    @workflow.init
    def __init__(self, start: m.PoolInput) -> None:
        self._resolved: ResolvedPool = start.resolved
        self._settings: PoolSettings = start.settings
        carry = start.carry or PoolCarry(chain=workflow.info().first_execution_run_id[-8:])
        self._inbox: list[InboxItem] = list(carry.inbox)
        self._state = carry.model_copy(update={"inbox": ()})
        self._facts: list[Fact] = []
        self._events: list[Announcement] = []
        self._effects = Effects(start.resolved, start.settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarms: list[datetime] = []
        self._orders = 0
        """Effects and timers that were started."""
        self._bug: BaseException | None = None
        self._due = True
        """Something happened that the loop has not judged yet."""
        self._update_seen = False
        self._renew = False
        self._seen_in: tuple[datetime, int] | None = None
        """Time and history of the last workflow task in which an update began or the pool judged."""
        self._written: PoolStatus | None = None
        self._writing = False
        self._reported_at: datetime | None = None
        self._visibility = Visibility()

    @workflow.run
    async def run(self, start: m.PoolInput) -> str:  # noqa: ARG002 - taken in by __init__
        """Judge, order, wait; returns what was deleted when the resource has been let go."""
        self._state = self._state.model_copy(update={"rules": RULES if workflow.patched(_RULES_1) else 0})
        while not self._is_finished():
            self._judge()
            if self._is_let_go() and self._effects.is_ending and workflow.patched(_WITHOUT_ENDINGS):
                self._effects.give_up_endings()
            await workflow.wait_condition(self._has_work)
            if self._wants_renewal() and self._is_quiet():
                await self._continue_as_new()
        return f"pool {self._resolved.namespace}/{self._resolved.name} ({self._resolved.uid}) deleted"

    # The loop ---------------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        return bool(self._facts or self._inbox or self._due) or self._is_finished()

    def _is_let_go(self) -> bool:
        """Whether the resource is free to go: a successor of the same name may be applied at any moment."""
        deletion = self._state.deletion
        return deletion is not None and deletion.finalizer_removed

    def _is_finished(self) -> bool:
        if not self._is_let_go():
            return False
        # An update that was accepted must be answered before the run closes.
        return not self._tasks and not self._events and workflow.all_handlers_finished()

    def _draft(self) -> Draft:
        return Draft(self._resolved, self._settings, self._state, workflow.now())

    def _judge(self) -> None:
        """Take the inbox and the outcomes in order, decide, and start what was decided."""
        if self._bug is not None:
            # Not a fault but a bug: the workflow task fails, so that a fix heals it and nothing is lost.
            raise self._bug
        self._refuse_early_news()
        self._due = False
        self._take_inbox()
        draft = self._draft()
        for fact in self._facts:
            absorb(draft, fact)
        self._facts.clear()
        judgement = conclude(draft)
        ordered_before = self._orders
        self._state = judgement.state
        self._events.extend(judgement.events)
        for command in judgement.commands:
            self._start(self._carry_out(command))
        self._publish_events()
        deadline = self._report()
        self._arm(judgement.deadline, "next judgement")
        self._arm(deadline, "next report")
        renewal = workflow.info().start_time + timedelta(seconds=self._settings.renew_after_seconds)
        self._arm(renewal, "renewal of this workflow")
        # To call a launch back may come too late to be written down.
        called_back = sum(isinstance(command, CancelLaunch) for command in judgement.commands)
        if self._orders == ordered_before + called_back and workflow.patched(_NO_EMPTY_TASKS):
            # A task that wrote nothing may be served together with a later one, or not: ADR 13.
            workflow.upsert_memo({"judged": f"{workflow.now():%Y-%m-%dT%H:%M:%SZ}"})

    def _refuse_early_news(self) -> None:
        """Break off what a query brought up, before anything is decided on; nothing is lost or written down.

        Raises:
            RuntimeError: The SDK has handed over news together with a query, before the workflow task that is
                theirs, at the time of the one before (ADR 12). The query fails, the worker forgets the run,
                and the task that follows finds everything in order.
        """
        before, task = self._seen_in, _this_task()
        self._seen_in = task
        if before is not None and task[0] == before[0] and task[1] > before[1]:
            raise RuntimeError("news came with a query, before their workflow task: ask again")

    def _start(self, effect: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(effect)
        self._orders += 1
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._due = True
        if not task.cancelled():
            self._bug = self._bug or task.exception()

    async def _carry_out(self, command: Command) -> None:
        fact = await self._effects.carry_out(command)
        if fact is not None:
            self._facts.append(fact)

    # Signals ----------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Store only: a handler that decides or raises loses work or ends the pool."""
        texts = tuple(p.payload.data.decode("utf-8", "replace") for p in payloads)
        self._inbox.append(InboxItem(name=name, payloads=texts))

    def _take_inbox(self) -> None:
        items, self._inbox = self._inbox, []
        for item in items:
            self._take(item)

    def _take(self, item: InboxItem) -> None:
        """Decode one signal; what is undecodable, missing or unknown changes nothing and is said."""
        draft = self._draft()
        try:
            self._take_known(item, draft)
        except ValidationError as error:
            record_refusal(draft, item.name, first_errors(error))
        except InterventionRefusedError as error:
            record_refusal(draft, item.name, str(error))
        self._state = draft.state
        self._events.extend(draft.events)

    def _take_known(self, item: InboxItem, draft: Draft) -> None:
        if item.name == m.RENEW:
            self._renew = True
            return
        payload = item.payloads[0] if item.payloads else ""
        if item.name in _FACTS:
            self._facts.append(_FACTS[item.name].model_validate_json(payload))
            return
        kind = m.INTERVENTIONS.get(item.name)
        if kind is None:
            known = ", ".join(m.INTERVENTIONS)
            raise InterventionRefusedError(f"unknown signal; known: {known}")
        if not payload:
            raise InterventionRefusedError(f"no payload; wanted JSON with {', '.join(wanted_fields(kind))}")
        order = kind.model_validate_json(payload)
        done = carry_out_order(draft, order)
        record(draft, item.name, done, by=order.by, reason=order.reason)

    # Updates ----------------------------------------------------------------------------------------

    @workflow.update(name=m.APPLY_SPEC, description="The bridge's edit: the resolved resource")
    async def apply_spec(self, envelope: m.SpecEnvelope) -> m.ApplyAnswer:
        """Take over what is newer than what the pool has."""
        await self._own_task()
        merged = merge(self._resolved, envelope.resolved)
        changed = merged != self._resolved or envelope.settings != self._settings
        if changed:
            self._resolved, self._settings = merged, envelope.settings
            self._effects.take_over(merged, envelope.settings)
            draft = self._draft()
            forget_failures(draft)
            self._state = draft.state
        self._touched()
        return m.ApplyAnswer(accepted=changed, generation=self._resolved.generation)

    @apply_spec.validator
    def _validate_apply_spec(self, envelope: m.SpecEnvelope) -> None:
        uid = envelope.resolved.uid
        if uid != self._resolved.uid:
            raise ApplicationError(
                f"this workflow serves the pool with uid {self._resolved.uid}, not {uid}: it must end first",
                type="UidMismatch",
            )

    async def _intervene(self, name: str, order: m.Intervention) -> m.InterventionAnswer:
        await self._own_task()
        draft = self._draft()
        try:
            done = carry_out_order(draft, order)
        except InterventionRefusedError as error:
            raise ApplicationError(f"{name} refused: {error}", type="Refused") from error
        record(draft, name, done, by=order.by, reason=order.reason)
        self._state = draft.state
        self._events.extend(draft.events)
        self._touched()
        return m.InterventionAnswer(done=done)

    def _check(self, name: str, order: m.Intervention) -> None:
        """Refuse what cannot be carried out before anything is written down."""
        try:
            carry_out_order(self._draft(), order)
        except InterventionRefusedError as error:
            raise ApplicationError(f"{name} refused: {error}", type="Refused") from error

    async def _own_task(self) -> None:
        """Let an update change nothing before a workflow task of its own.

        A worker without the run in its cache hands an update over before results that the history has
        already recorded; what it changed at once would come in another order on replay, and the pool would
        be stuck for good (sdk-python #1591). A timer puts the change behind everything that was recorded.
        """
        self._seen_in = _this_task()
        await workflow.sleep(0.01, summary="an update takes effect in a task of its own")

    def _touched(self) -> None:
        self._due = True
        self._update_seen = True

    @workflow.update(name="pause", description="Stop Launches, Disruptions or All until resumed")
    async def pause(self, order: m.Pause) -> m.InterventionAnswer:
        """Stop launches, disruptions or all."""
        return await self._intervene("pause", order)

    @pause.validator
    def _validate_pause(self, order: m.Pause) -> None:
        self._check("pause", order)

    @workflow.update(name="resume", description="Lift a manual pause")
    async def resume(self, order: m.Resume) -> m.InterventionAnswer:
        """Lift a manual pause."""
        return await self._intervene("resume", order)

    @resume.validator
    def _validate_resume(self, order: m.Resume) -> None:
        self._check("resume", order)

    @workflow.update(name="scale_to", description="Set the water level by hand; 0 removes it")
    async def scale_to(self, order: m.ScaleTo) -> m.InterventionAnswer:
        """Set the water level by hand."""
        return await self._intervene("scale_to", order)

    @scale_to.validator
    def _validate_scale_to(self, order: m.ScaleTo) -> None:
        self._check("scale_to", order)

    @workflow.update(name="replace_instance", description="Buy a replacement, then end the machine")
    async def replace_instance(self, order: m.ReplaceInstance) -> m.InterventionAnswer:
        """Buy a replacement, then end the machine."""
        return await self._intervene("replace_instance", order)

    @replace_instance.validator
    def _validate_replace_instance(self, order: m.ReplaceInstance) -> None:
        self._check("replace_instance", order)

    @workflow.update(name="terminate_instance", description="Drain and end a machine")
    async def terminate_instance(self, order: m.TerminateInstance) -> m.InterventionAnswer:
        """Drain and end a machine."""
        return await self._intervene("terminate_instance", order)

    @terminate_instance.validator
    def _validate_terminate_instance(self, order: m.TerminateInstance) -> None:
        self._check("terminate_instance", order)

    @workflow.update(name="quarantine_zone", description="Buy nothing in a zone for a while")
    async def quarantine_zone(self, order: m.QuarantineZone) -> m.InterventionAnswer:
        """Buy nothing in a zone for a while."""
        return await self._intervene("quarantine_zone", order)

    @quarantine_zone.validator
    def _validate_quarantine_zone(self, order: m.QuarantineZone) -> None:
        self._check("quarantine_zone", order)

    @workflow.update(name="clear_zone", description="Lift a zone's quarantine and cool-downs")
    async def clear_zone(self, order: m.ClearZone) -> m.InterventionAnswer:
        """Lift a zone's quarantine and cool-downs."""
        return await self._intervene("clear_zone", order)

    @clear_zone.validator
    def _validate_clear_zone(self, order: m.ClearZone) -> None:
        self._check("clear_zone", order)

    @workflow.update(name="force_delete", description="Force a stage of a deletion: Drain, Terminate, Nodes")
    async def force_delete(self, order: m.ForceDelete) -> m.InterventionAnswer:
        """Force a stage of a deletion."""
        return await self._intervene("force_delete", order)

    @force_delete.validator
    def _validate_force_delete(self, order: m.ForceDelete) -> None:
        self._check("force_delete", order)

    @workflow.update(name="resync", description="Read clouds and cluster before the next decision")
    async def resync(self, order: m.Resync) -> m.InterventionAnswer:
        """Read clouds and cluster before the next decision."""
        return await self._intervene("resync", order)

    # Queries ----------------------------------------------------------------------------------------

    @workflow.query(name=m.STATE_QUERY, description="Status, and what the pool waits for and why")
    def state(self) -> m.PoolSnapshot:
        """The pool as it is now."""
        draft = self._draft()
        return m.PoolSnapshot(
            status=report(draft, self._workflow_ref()),
            waits_for=waiting_for(draft),
            held=is_held(draft),
            launches_total=self._state.launches_total,
            unowned_nodes=len(self._state.strays),
            history_events=workflow.info().get_current_history_length(),
        )

    @workflow.query(name=m.OWNERSHIP_QUERY, description="Whether machines belong to this pool")
    def owns(self, question: OwnershipQuestion) -> list[OwnershipAnswer]:
        """One answer per machine asked about."""
        return answer(self._draft(), question)

    # Reports ----------------------------------------------------------------------------------------

    def _workflow_ref(self) -> WorkflowRef:
        info = workflow.info()
        return WorkflowRef(id=info.workflow_id, run_id=info.run_id)

    def _report(self) -> datetime | None:
        """Say what there is, at most once per interval; returns when a put-off report is due.

        A report looks at every machine: after each of hundreds of launches it would cost more than all else.
        """
        draft = self._draft()
        interval = timedelta(seconds=self._settings.status_interval_seconds)
        if self._reported_at is not None and draft.now < self._reported_at + interval:
            return self._reported_at + interval
        self._reported_at = draft.now
        status = report(draft, self._workflow_ref())
        self._state = draft.state
        workflow.set_current_details(details(draft))
        self._visibility.show(draft, status)
        if self._written is not None and not status.differs_from(self._written):
            return None
        if not self._writing:
            self._writing = True
            self._start(self._write_status(status))
        return None

    async def _write_status(self, status: PoolStatus) -> None:
        try:
            await workflow.execute_activity(
                signatures.patch_status,
                signatures.StatusRequest(pool=self._effects.pool, status=status),
                summary=f"{status.ready_instances} of {status.desired_instances} ready",
                **options.PATCH_STATUS,
            )
            self._written = status
        except ActivityError as error:
            workflow.logger.warning("Status was not written", extra={"error": text_of(error)})
        self._writing = False

    def _publish_events(self) -> None:
        while self._events:
            batch = tuple(self._events[:_MAX_EVENTS_PER_CALL])
            del self._events[:_MAX_EVENTS_PER_CALL]
            self._start(self._publish(batch))

    async def _publish(self, batch: tuple[Announcement, ...]) -> None:
        request = signatures.EventsRequest(
            pool=self._effects.pool, operator_namespace=self._settings.operator_namespace, events=batch
        )
        try:
            await workflow.execute_activity(
                signatures.publish_events,
                request,
                summary=named(sorted({event.reason for event in batch})),
                **options.PUBLISH_EVENTS,
            )
        except ActivityError as error:
            workflow.logger.warning("Events were not published", extra={"error": text_of(error)})

    # Timers and renewal -------------------------------------------------------------------------------

    def _arm(self, deadline: datetime | None, what: str) -> None:
        """Make sure that some timer fires by ``deadline``; timers are never cancelled, but fire in vain."""
        if deadline is None or any(alarm <= deadline for alarm in self._alarms):
            return
        self._orders += 1
        self._alarms.append(deadline)
        asyncio.create_task(self._alarm(deadline, what))  # noqa: RUF006 - its end is seen by _alarms

    async def _alarm(self, deadline: datetime, what: str) -> None:
        pause = max((deadline - workflow.now()).total_seconds(), 0.01)
        await workflow.sleep(pause, summary=f"{what} at {deadline:%m-%d %H:%M:%S}")
        self._alarms.remove(deadline)
        self._due = True

    def _wants_renewal(self) -> bool:
        info = workflow.info()
        age = workflow.now() - info.start_time
        return (
            self._renew
            or info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= self._settings.renew_after_events
            or age >= timedelta(seconds=self._settings.renew_after_seconds)
            or self._is_heavy()
        )

    def _is_heavy(self) -> bool:
        """Whether a worker that takes this run up again would judge for long before it can go on."""
        weight = workflow.info().get_current_history_length() * len(self._state.machines)
        heavy = weight >= self._settings.renew_after_machine_events
        return heavy and workflow.patched(_RENEWED_BY_WEIGHT)

    def _is_quiet(self) -> bool:
        idle = not (self._tasks or self._facts or self._inbox or self._events)
        return idle and workflow.all_handlers_finished() and not self._is_finished()

    async def _continue_as_new(self) -> None:
        """Never in the task that completes an update: it could be applied twice."""
        if self._update_seen:
            self._update_seen = False
            await workflow.sleep(0.1, summary="before continuing as new")
            self._due = True
            if not self._is_quiet():
                return
        self._refuse_early_news()
        workflow.continue_as_new(
            m.PoolInput(
                resolved=self._resolved,
                settings=self._settings,
                carry=self._state.model_copy(update={"inbox": tuple(self._inbox)}),
            ),
            memo=dict(workflow.memo()),
            task_timeout=options.pool_task_timeout(self._resolved.spec.max_instances),
        )


def _this_task() -> tuple[datetime, int]:
    return workflow.now(), workflow.info().get_current_history_length()
