"""How machines leave: time-outs, notices, drain, end, and the confirmed absence."""

from datetime import datetime, timedelta

from domain.contracts.announcements import EventReason
from domain.contracts.commands import (
    CancelLaunch,
    DeleteNodes,
    Describe,
    Drain,
    FindLaunch,
    Retain,
    SettleNode,
    SettleNodes,
    Terminate,
)
from domain.contracts.offers import RegionKey
from domain.contracts.pool_state import DrainState, LeaveReason, Machine, MachinePhase
from domain.contracts.pools import DeletionPolicy
from domain.decisions.costs import Bill, Ledger, close_bill
from domain.decisions.launch_requests import node_labels
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_purchases import hold_failed_offer

BATCH = 100
"""Ids per call: the smallest limit of the clouds."""
_TELL_AGAIN = timedelta(minutes=5)
"""A machine that was told to end and still runs is told again after this long."""
_UNDISTURBED = (LeaveReason.LOST, LeaveReason.LAUNCH_FAILED)
"""Reasons without a drain: nothing runs there, or nothing can."""


def plan_timeouts(draft: Draft) -> None:
    """Machines that do not come up in time are failed launches, each with its own reason."""
    limits = draft.resolved.spec.timeouts
    for machine in draft.live():
        if machine.leave is not None:
            continue
        if _overdue(draft, machine, MachinePhase.PENDING, machine.answered_at, limits.pending_seconds):
            fail_launch(draft, machine, "PendingTimeout", limits.pending_seconds)
        elif _overdue(draft, machine, MachinePhase.JOINING, machine.running_at, limits.join_seconds):
            draft.update(join_failures=(*draft.state.join_failures, machine.offer.key)[-10:])
            fail_launch(draft, machine, "JoinTimeout", limits.join_seconds)
        elif _overdue(draft, machine, MachinePhase.JOINED, machine.joined_at, limits.gpu_ready_seconds):
            fail_launch(draft, machine, "GpuNotReady", limits.gpu_ready_seconds)


def _overdue(draft: Draft, machine: Machine, phase: MachinePhase, since: datetime | None, limit: int) -> bool:
    return machine.phase is phase and since is not None and draft.now >= since + seconds(limit)


def fail_launch(draft: Draft, machine: Machine, reason: str, limit_seconds: int) -> None:
    """End a machine that did not come up; its slot waits for another launch."""
    draft.leave(machine, LeaveReason.LAUNCH_FAILED, reason)
    hold_failed_offer(draft, draft.state.machines[machine.token], blame_offer=reason != "JoinTimeout")
    draft.announce(
        EventReason.LAUNCH_FAILED,
        f"{machine.instance_id} in {machine.offer.zone}: {reason} after {limit_seconds} s",
        machine.token,
        warning=True,
    )


# From the decision to leave to the end -------------------------------------------------------------


def plan_departures(draft: Draft) -> None:
    """Drain, end, look, and clean up behind machines that leave."""
    ends: dict[str, list[Machine]] = {}
    for machine in draft.machines:
        if machine.leave is None or machine.phase is MachinePhase.GONE:
            continue
        if machine.phase is MachinePhase.ORDERED and machine.in_flight == "launch":
            # Called back, but looked up all the same: it may have left already.
            draft.set_machine(machine.token, in_flight="cancel")
            draft.order(CancelLaunch(token=machine.token))
        if machine.in_flight or not machine.instance_id or is_resting(draft, machine):
            continue
        if _must_wait(draft, machine):
            continue
        if _wants_drain(draft, machine):
            _drain(draft, machine)
        elif _may_tell(draft, machine):
            ends.setdefault(str(machine.offer.region_key), []).append(machine)
    for machines in ends.values():
        _end(draft, machines)
    _look(draft)
    _clean_up(draft)


def is_resting(draft: Draft, machine: Machine) -> bool:
    """Whether an effect on the machine failed for good a moment ago and is not tried again yet."""
    return machine.retry_at is not None and machine.retry_at > draft.now


def _must_wait(draft: Draft, machine: Machine) -> bool:
    """Create-first replacement: the old machine stays until the new one is ready."""
    if not machine.wait_for_replacement:
        return False
    slot = draft.slot(machine.slot)
    successor = draft.occupant(slot) if slot is not None else None
    if slot is not None and (successor is None or successor.phase is not MachinePhase.READY):
        return True
    draft.set_machine(machine.token, wait_for_replacement=False)
    return False


def _wants_drain(draft: Draft, machine: Machine) -> bool:
    """A machine with a Node is drained first, unless nothing can run there or a human forced it."""
    if machine.leave in _UNDISTURBED or machine.phase is MachinePhase.TERMINATING:
        return False
    if not machine.node_name or machine.drain is DrainState.DONE:
        return False
    deletion = draft.state.deletion
    if deletion is not None:
        forced = "Drain" in deletion.forced or "Terminate" in deletion.forced
        return not forced and draft.resolved.spec.deletion_policy is not DeletionPolicy.FORCE
    return True


def drain_deadline(draft: Draft, machine: Machine) -> datetime:
    """When draining ends: the workload's grace, cut by the cloud's deadline."""
    spec = draft.resolved.spec
    grace = spec.interrupt_strategy.graceful_shutdown_seconds
    latest = draft.now + seconds(min(grace, draft.settings.drain_seconds))
    if machine.interrupt_deadline is not None:
        latest = min(latest, machine.interrupt_deadline - seconds(5))
    return max(latest, draft.now + seconds(1))


def _drain(draft: Draft, machine: Machine) -> None:
    if machine.drain is not DrainState.NOT_STARTED:
        return
    deadline = machine.drain_deadline or drain_deadline(draft, machine)
    draft.set_machine(machine.token, drain=DrainState.RUNNING, drain_deadline=deadline, in_flight="drain")
    draft.order(
        Drain(
            token=machine.token,
            region=machine.offer.region_key,
            provider_id=machine.provider_id,
            node_name=machine.node_name,
            deadline=deadline,
            grace_seconds=max(1, int((deadline - draft.now).total_seconds())),
        )
    )
    draft.announce(
        EventReason.DRAINING,
        f"Draining {machine.node_name} ({machine.leave}), until {deadline:%H:%M:%S}Z at the latest",
        machine.token,
    )


def _may_tell(draft: Draft, machine: Machine) -> bool:
    """Whether the cloud may be told now: facts are fresh, and it was not told a moment ago."""
    if draft.state.nodes_as_of is None or not draft.is_fresh(machine.offer.region_key):
        return False
    if machine.terminate_told_at is None:
        return machine.absent_at is None
    return draft.now >= machine.terminate_told_at + _TELL_AGAIN and machine.absent_at is None


def _end(draft: Draft, machines: list[Machine]) -> None:
    retain = draft.state.deletion is not None and draft.resolved.spec.deletion_policy is DeletionPolicy.RETAIN
    for start in range(0, len(machines), BATCH):
        batch = machines[start : start + BATCH]
        region, ids = batch[0].offer.region_key, tuple(m.instance_id for m in batch)
        draft.order(
            Retain(region=region, instance_ids=ids) if retain else Terminate(region=region, instance_ids=ids)
        )
        for machine in batch:
            draft.set_machine(machine.token, in_flight="terminate", terminate_told_at=None)
            draft.announce(
                EventReason.TERMINATING,
                f"{'Giving up' if retain else 'Ending'} {machine.instance_id}: {machine.leave}"
                f" ({machine.leave_detail})",
                machine.token,
            )


def _look(draft: Draft) -> None:
    """Look at machines whose look is due, in batches by region."""
    due: dict[str, list[Machine]] = {}
    for machine in draft.live():
        if machine.in_flight or machine.next_check_at is None or machine.next_check_at > draft.now:
            continue
        if machine.phase is MachinePhase.UNRESOLVED:
            draft.set_machine(machine.token, in_flight="find", next_check_at=None)
            draft.order(FindLaunch(token=machine.token, region=machine.offer.region_key))
        elif machine.instance_id:
            due.setdefault(str(machine.offer.region_key), []).append(machine)
    for machines in due.values():
        for start in range(0, len(machines), BATCH):
            batch = machines[start : start + BATCH]
            for machine in batch:
                draft.set_machine(machine.token, in_flight="describe", next_check_at=None)
            draft.order(
                Describe(region=batch[0].offer.region_key, instance_ids=tuple(m.instance_id for m in batch))
            )


def _clean_up(draft: Draft) -> None:
    """Remove Nodes of gone machines, close their bills, forget them once they were shown."""
    doomed: dict[str, str] = {}
    for machine in draft.machines:
        if machine.phase is not MachinePhase.GONE:
            continue
        if machine.billed_from is not None and machine.billed_until is not None:
            _close_bill(draft, machine)
        if machine.node_name and not machine.node_deleted:
            if not machine.in_flight and not is_resting(draft, machine) and len(doomed) < BATCH:
                doomed[machine.provider_id] = machine.node_name
                draft.set_machine(machine.token, in_flight="delete-node")
            continue
        if _was_shown(draft, machine):
            draft.drop_machine(machine.token)
    if doomed:
        draft.order(DeleteNodes(nodes=doomed))


def _was_shown(draft: Draft, machine: Machine) -> bool:
    stay = seconds(draft.settings.min_stay_seconds)
    return draft.state.deletion is not None or (
        machine.gone_at is not None and draft.now >= machine.gone_at + stay
    )


def _close_bill(draft: Draft, machine: Machine) -> None:
    """Add a gone machine's cost to the month once; clearing ``billed_from`` marks it done."""
    price = machine.offer.price
    if price is not None and machine.billed_from is not None:
        ledger = close_bill(
            Ledger(draft.state.ledger_month, draft.state.ledger_closed),
            Bill(price.per_hour, machine.billed_from, machine.billed_until),
            now=draft.now,
        )
        draft.update(ledger_month=ledger.month, ledger_closed=ledger.closed)
    draft.set_machine(machine.token, billed_from=None)


def plan_settling(draft: Draft) -> None:
    """Open the Nodes whose GPUs are all there."""
    nodes: list[SettleNode] = []
    for machine in draft.live():
        if machine.phase is not MachinePhase.READY or machine.settled or machine.leave is not None:
            continue
        if machine.in_flight or is_resting(draft, machine) or len(nodes) == BATCH:
            continue
        nodes.append(
            SettleNode(
                token=machine.token,
                provider_id=machine.provider_id,
                name=machine.node_name,
                labels=node_labels(draft.resolved, machine.offer, machine.slot),
            )
        )
        draft.set_machine(machine.token, in_flight="settle")
    if nodes:
        draft.order(SettleNodes(nodes=tuple(nodes)))


def regions_to_end(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions with machines that must leave, sorted: they have to be read before anything is ended."""
    keys = {
        str(m.offer.region_key): m.offer.region_key
        for m in draft.live()
        if m.leave is not None and m.instance_id and m.terminate_told_at is None
    }
    return tuple(keys[k] for k in sorted(keys))
