"""The public state of a machine: Pending, Running, Interrupting, Terminated, each with a minimum stay."""

from datetime import datetime

from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase
from domain.contracts.status import InstanceStatus
from domain.decisions.pool_draft import Draft, seconds

_ORDER = (
    InstanceStatus.PENDING,
    InstanceStatus.RUNNING,
    InstanceStatus.INTERRUPTING,
    InstanceStatus.TERMINATED,
)
_NOT_RUNNING = (MachinePhase.ORDERED, MachinePhase.UNRESOLVED, MachinePhase.PENDING)


def target_status(machine: Machine) -> InstanceStatus:
    """The public state that a machine's facts ask for."""
    if machine.phase is MachinePhase.GONE:
        return InstanceStatus.TERMINATED
    taken_back = machine.notice_at is not None or machine.leave is LeaveReason.LOST
    if taken_back or machine.phase is MachinePhase.TERMINATING or machine.terminate_told_at is not None:
        return InstanceStatus.INTERRUPTING
    return InstanceStatus.PENDING if machine.phase in _NOT_RUNNING else InstanceStatus.RUNNING


def plan_shown(draft: Draft) -> None:
    """Move public states along: only forward, and not before the minimum stay is over."""
    stay = seconds(draft.settings.min_stay_seconds)
    for machine in draft.machines:
        # A machine that was taken over is shown as it is found.
        due = machine.shown_at is None or (_lags(machine) and draft.now >= machine.shown_at + stay)
        if due:
            draft.set_machine(machine.token, shown=_next_status(machine), shown_at=draft.now)


def _next_status(machine: Machine) -> InstanceStatus:
    """One step on: what ran is seen to end before it is seen to have ended, however fast it went."""
    target = target_status(machine)
    hurried = machine.shown is InstanceStatus.RUNNING and target is InstanceStatus.TERMINATED
    return InstanceStatus.INTERRUPTING if hurried else target


def _lags(machine: Machine) -> bool:
    """Whether the public state is behind; Interrupting never returns to Running."""
    target = target_status(machine)
    return target is not machine.shown and _ORDER.index(target) > _ORDER.index(machine.shown)


def shown_deadline(draft: Draft, machine: Machine) -> datetime | None:
    """When a public state may move, or a gone machine be forgotten."""
    since: datetime | None = None
    if _lags(machine) and machine.shown_at is not None:
        since = machine.shown_at
    elif machine.phase is MachinePhase.GONE and machine.gone_at is not None:
        since = max(machine.gone_at, machine.shown_at or machine.gone_at)
    return None if since is None else since + seconds(draft.settings.min_stay_seconds)
