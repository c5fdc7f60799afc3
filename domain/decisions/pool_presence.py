"""What one reading of a cloud means for one machine: there, taken back, ended, or missing."""

from datetime import datetime

from domain.contracts.announcements import EventReason
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase
from domain.contracts.status import InterruptedInstance
from domain.decisions.pool_draft import Draft, seconds

BEFORE_RUNNING = (MachinePhase.ORDERED, MachinePhase.UNRESOLVED, MachinePhase.PENDING)


def see_present(draft: Draft, machine: Machine, instance: Instance, as_of: datetime) -> None:
    """A machine was seen: move it along as far as the cloud says."""
    if machine.absent_at is not None and as_of >= machine.absent_at:
        machine = draft.set_machine(machine.token, absent_at=None)
    if not machine.provider_id:
        machine = draft.set_machine(machine.token, provider_id=instance.provider_id)
    match instance.state:
        case InstanceState.PENDING:
            if machine.phase in (MachinePhase.ORDERED, MachinePhase.UNRESOLVED):
                draft.set_machine(machine.token, phase=MachinePhase.PENDING)
        case InstanceState.RUNNING:
            if machine.phase in BEFORE_RUNNING:
                start_running(draft, machine)
        case InstanceState.INTERRUPTING:
            if machine.phase in BEFORE_RUNNING:
                machine = start_running(draft, machine)
            _notice(draft, machine, instance)
        case InstanceState.TERMINATED:
            _ended_by_cloud(draft, machine, instance)


def start_running(draft: Draft, machine: Machine) -> Machine:
    """The cloud runs the machine, or its Node proves that it does."""
    draft.announce(
        EventReason.INSTANCE_RUNNING,
        f"{machine.instance_id} runs in {machine.offer.zone}",
        machine.token,
    )
    return draft.set_machine(machine.token, phase=MachinePhase.JOINING, running_at=draft.now)


def _notice(draft: Draft, machine: Machine, instance: Instance) -> None:
    """The cloud takes a machine back. The earliest deadline wins; a repeat changes nothing."""
    if machine.terminate_told_at is not None:
        return
    deadline = instance.interrupt_deadline
    if machine.notice_at is not None:
        if deadline and (machine.interrupt_deadline is None or deadline < machine.interrupt_deadline):
            draft.set_machine(machine.token, interrupt_deadline=deadline)
        return
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
    if machine.leave is None:
        draft.leave(machine, LeaveReason.INTERRUPTED, reason)


def _record_interruption(draft: Draft, machine: Machine, reason: str) -> None:
    entry = InterruptedInstance(id=machine.instance_id, interrupt_reason=reason, at=draft.now)
    draft.update(
        interrupted=(*draft.state.interrupted, entry)[-draft.interrupted_list() :],
        interruptions_total=draft.state.interruptions_total + 1,
    )


def _ended_by_cloud(draft: Draft, machine: Machine, instance: Instance) -> None:
    """The cloud says that it ends or ended a machine; only absence, or this word twice, confirms it."""
    if machine.leave is None:
        reason = instance.reason or "EndedByCloud"
        if machine.phase in BEFORE_RUNNING:
            draft.leave(machine, LeaveReason.LAUNCH_FAILED, reason)
        else:
            _lose(draft, machine, reason)
    current = draft.state.machines[machine.token]
    if current.phase is not MachinePhase.TERMINATING:
        draft.set_machine(machine.token, phase=MachinePhase.TERMINATING)


def _lose(draft: Draft, machine: Machine, reason: str) -> None:
    """A machine disappeared without notice, or after one."""
    _record_interruption(draft, machine, reason)
    draft.announce(
        EventReason.INSTANCE_LOST,
        f"{machine.instance_id} in {machine.offer.zone} was lost without notice ({reason})",
        machine.token,
        warning=True,
    )
    draft.leave(machine, LeaveReason.LOST, reason)


def see_absent(draft: Draft, machine: Machine, as_of: datetime) -> None:
    """One reading without the machine; two that are apart confirm, a newborn's do not count yet."""
    settings = draft.settings
    born = machine.answered_at or machine.ordered_at
    counts_from = born + seconds(settings.newborn_seconds)
    if as_of < counts_from:
        draft.set_machine(machine.token, next_check_at=counts_from)
        return
    if machine.absent_at is None:
        draft.set_machine(
            machine.token,
            absent_at=as_of,
            next_check_at=draft.now + seconds(settings.confirm_absence_seconds),
        )
        return
    if as_of - machine.absent_at >= seconds(settings.confirm_absence_seconds):
        _confirm_gone(draft, machine)
        return
    # Reads that come in early must not push the confirming read away.
    if machine.next_check_at is None or machine.next_check_at <= draft.now:
        draft.set_machine(
            machine.token, next_check_at=machine.absent_at + seconds(settings.confirm_absence_seconds)
        )


def _confirm_gone(draft: Draft, machine: Machine) -> None:
    if machine.leave is None:
        if machine.phase in BEFORE_RUNNING:
            draft.leave(machine, LeaveReason.LAUNCH_FAILED, "VanishedWhilePending")
        else:
            _lose(draft, machine, "Vanished")
    machine = draft.state.machines[machine.token]
    ended = min(machine.terminate_told_at or draft.now, machine.absent_at or draft.now)
    draft.set_machine(
        machine.token,
        phase=MachinePhase.GONE,
        gone_at=draft.now,
        billed_until=ended if machine.billed_from else None,
        next_check_at=None,
        in_flight="",
    )
    if machine.instance_id:
        draft.announce(
            EventReason.INSTANCE_TERMINATED,
            f"{machine.instance_id} is gone, confirmed twice ({machine.leave or 'unknown'})",
            machine.token,
        )
