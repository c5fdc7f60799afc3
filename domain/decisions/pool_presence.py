"""What one reading of a cloud means for one machine: there, taken back, ended, or missing."""

from datetime import datetime, timedelta

from domain.contracts.announcements import EventReason
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, ZoneLoss
from domain.contracts.status import InterruptedInstance
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_refusals import hold_failed_offer

BEFORE_RUNNING = (MachinePhase.ORDERED, MachinePhase.UNRESOLVED, MachinePhase.PENDING)
LOSS_MEMORY = timedelta(hours=1)
"""How long a zone's interruptions are remembered."""
_MAX_INTERRUPTED = 20
"""How many interrupted machines the status keeps."""
_MAX_LOSSES = 500
_MAX_GONE = 100
"""How many ids of gone machines are kept for readings that come late."""


def see_present(draft: Draft, machine: Machine, instance: Instance, as_of: datetime) -> Machine:
    """A machine was seen: move it along as far as the cloud says."""
    back = machine.absent_at is not None and as_of >= machine.absent_at
    machine = draft.set_machine(
        machine.token,
        seen_at=as_of if machine.seen_at is None else max(as_of, machine.seen_at),
        looked_at=draft.now,
        absent_at=None if back else machine.absent_at,
        provider_id=machine.provider_id or instance.provider_id,
    )
    match instance.state:
        case InstanceState.PENDING:
            return machine
        case InstanceState.RUNNING:
            return start_running(draft, machine)
        case InstanceState.INTERRUPTING:
            return _notice(draft, start_running(draft, machine), instance)
        case InstanceState.TERMINATED:
            return _ended_by_cloud(draft, machine, instance)


def start_running(draft: Draft, machine: Machine) -> Machine:
    """The cloud runs the machine, or its Node proves that it does; once it did, nothing changes."""
    if machine.phase not in BEFORE_RUNNING:
        return machine
    draft.announce(
        EventReason.INSTANCE_RUNNING,
        f"{machine.instance_id} runs in {machine.offer.zone}",
        machine.token,
    )
    return draft.set_machine(machine.token, phase=MachinePhase.JOINING, running_at=draft.now)


def _notice(draft: Draft, machine: Machine, instance: Instance) -> Machine:
    """The cloud takes a machine back. The earliest deadline wins; a repeat changes nothing."""
    if _is_being_ended(machine):
        return machine
    deadline = instance.interrupt_deadline
    if machine.notice_at is not None:
        if deadline and (machine.interrupt_deadline is None or deadline < machine.interrupt_deadline):
            return draft.set_machine(machine.token, interrupt_deadline=deadline)
        return machine
    reason = instance.reason or "Reclaimed"
    machine = draft.set_machine(
        machine.token, notice_at=draft.now, interrupt_deadline=deadline, interrupt_reason=reason
    )
    _record_interruption(draft, machine, reason)
    when = f", deadline {deadline:%H:%M:%S}Z" if deadline else ""
    draft.announce(
        EventReason.INTERRUPTED,
        f"{machine.instance_id} in {machine.offer.zone} is taken back ({reason}{when})",
        machine.token,
        warning=True,
    )
    # One that only waits for its replacement has no time for that any more.
    if machine.leave is None or machine.wait_for_replacement:
        return _leave_by_cloud(draft, machine, LeaveReason.INTERRUPTED, reason)
    return machine


def _is_being_ended(machine: Machine) -> bool:
    """Whether the cloud is told to end it, or was: it stops because of us, and nobody takes it back."""
    telling = machine.in_flight == "terminate"
    return telling or machine.terminate_told_at is not None or machine.phase is MachinePhase.TERMINATING


def _leave_by_cloud(draft: Draft, machine: Machine, reason: LeaveReason, detail: str) -> Machine:
    """Empty the slot; it is refilled at once, or only after the cool-down if the spec wants that."""
    if not draft.resolved.spec.interrupt_strategy.rebuild_on_interrupt and machine.leave is None:
        draft.drop_slot(machine.slot)
        draft.update(last_scale_up_at=draft.now)
    return draft.leave(machine, reason, detail)


def _record_interruption(draft: Draft, machine: Machine, reason: str) -> None:
    state, offer = draft.state, machine.offer
    entry = InterruptedInstance(id=machine.instance_id, interrupt_reason=reason, at=draft.now)
    loss = ZoneLoss(provider=offer.provider, region=offer.region, zone=offer.zone, at=draft.now)
    draft.update(
        interrupted=(*state.interrupted, entry)[-_MAX_INTERRUPTED:],
        zone_losses=(*state.zone_losses, loss)[-_MAX_LOSSES:],
        interruptions_total=state.interruptions_total + 1,
    )


def forget_losses(draft: Draft) -> None:
    """Drop interruptions that are too old to say anything about their zone."""
    losses = draft.state.zone_losses
    if losses and losses[0].at + LOSS_MEMORY <= draft.now:
        draft.update(zone_losses=tuple(loss for loss in losses if loss.at + LOSS_MEMORY > draft.now))


def _ended_by_cloud(draft: Draft, machine: Machine, instance: Instance) -> Machine:
    """The cloud says that it ends or ended a machine; only its absence, twice, confirms it."""
    machine = _gone_without_us(draft, machine, instance.reason or "EndedByCloud")
    if machine.phase is MachinePhase.TERMINATING:
        return machine
    return draft.set_machine(machine.token, phase=MachinePhase.TERMINATING)


def _gone_without_us(draft: Draft, machine: Machine, reason: str) -> Machine:
    """A machine that should have stayed does not: a failed launch before it ran, a loss after."""
    if machine.leave is not None and not machine.wait_for_replacement:
        return machine
    if machine.phase in BEFORE_RUNNING:
        machine = draft.leave(machine, LeaveReason.LAUNCH_FAILED, reason)
        if machine.instance_id:
            # Else a cloud that accepts and then drops every machine would be asked again at once.
            hold_failed_offer(draft, machine)
        return machine
    _record_interruption(draft, machine, reason)
    draft.announce(
        EventReason.INSTANCE_LOST,
        f"{machine.instance_id} in {machine.offer.zone} was lost without notice ({reason})",
        machine.token,
        warning=True,
    )
    return _leave_by_cloud(draft, machine, LeaveReason.LOST, reason)


def see_absent(draft: Draft, machine: Machine, as_of: datetime, *, by_id: bool) -> Machine:
    """One reading without the machine; two that are apart confirm, a newborn's do not count yet.

    The second one asks for its id, unless it is about to end anyway: a machine that has lost its tags, or
    whose tags a cloud's index does not show yet, is missing in each list and runs all the same.

    When the next look is due is told from the distance of the readings themselves: clouds are read by other
    clocks than the pool's own.
    """
    settings = draft.settings
    apart = seconds(settings.confirm_absence_seconds)
    if machine.seen_at is not None and as_of < machine.seen_at:
        return _look_by(draft, machine, draft.now + apart)
    counts_from = (machine.answered_at or machine.ordered_at) + seconds(settings.newborn_seconds)
    if as_of < counts_from:
        return _look_by(draft, machine, draft.now + max(counts_from - as_of, apart))
    if machine.absent_at is None:
        machine = draft.set_machine(machine.token, absent_at=as_of, looked_at=draft.now)
        return _look_by(draft, machine, draft.now + apart)
    waited = as_of - machine.absent_at
    if waited >= apart and (by_id or _may_go_unasked(draft, machine)):
        return _confirm_gone(draft, machine, as_of)
    return _look_by(draft, machine, draft.now + apart - max(waited, timedelta(0)))


def _may_go_unasked(draft: Draft, machine: Machine) -> bool:
    doomed = machine.terminate_told_at is not None or machine.notice_at is not None
    return doomed or not machine.instance_id or draft.state.rules < 1


def _look_by(draft: Draft, machine: Machine, moment: datetime) -> Machine:
    """Look at the machine at this moment; a look that is due earlier stays."""
    planned = machine.next_check_at
    if planned is not None and draft.now < planned <= moment:
        return machine
    return draft.set_machine(machine.token, next_check_at=moment)


def _confirm_gone(draft: Draft, machine: Machine, as_of: datetime) -> Machine:
    early = machine.phase in BEFORE_RUNNING
    machine = _gone_without_us(draft, machine, "VanishedWhilePending" if early else "Vanished")
    ended = min(machine.terminate_told_at or draft.now, machine.absent_at or draft.now)
    machine = draft.set_machine(
        machine.token,
        phase=MachinePhase.GONE,
        gone_at=draft.now,
        billed_until=max(ended, machine.billed_from) if machine.billed_from else None,
        next_check_at=None,
        in_flight="",
    )
    if machine.instance_id:
        _remember_gone(draft, machine, as_of)
        draft.announce(
            EventReason.INSTANCE_TERMINATED,
            f"{machine.instance_id} is gone, confirmed twice ({machine.leave})",
            machine.token,
        )
    return machine


def _remember_gone(draft: Draft, machine: Machine, as_of: datetime) -> None:
    view = draft.region(machine.offer.region_key)
    draft.set_region(
        view.region,
        gone_as_of=as_of if view.gone_as_of is None else max(as_of, view.gone_as_of),
        gone_ids=(*view.gone_ids, machine.instance_id)[-_MAX_GONE:],
    )
