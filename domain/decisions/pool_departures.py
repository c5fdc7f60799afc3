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
from domain.contracts.status import InstanceStatus
from domain.decisions.costs import Bill, Ledger, close_bill
from domain.decisions.launch_requests import node_labels
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_purchases import bootstrap_unhealthy
from domain.decisions.pool_refusals import hold_failed_offer
from domain.decisions.pool_regions import is_served

BATCH = 100
"""Ids per call: the smallest limit of the clouds."""
TELL_AGAIN = timedelta(minutes=5)
"""A machine that was told to end and still runs is told again after this long."""
_MAX_JOIN_FAILURES = 10
_UNDISTURBED = (LeaveReason.LOST, LeaveReason.LAUNCH_FAILED)
"""Reasons without a drain: nothing runs there, or nothing can."""


_COMING_UP = (MachinePhase.PENDING, MachinePhase.JOINING, MachinePhase.JOINED)


def plan_timeouts(draft: Draft) -> None:
    """Machines that do not come up in time are failed launches, each with its own reason.

    Decided on a reading taken after the deadline only: while cloud or cluster are out of sight, a machine may
    have come up long ago.
    """
    for machine, deadline in coming_up(draft):
        if draft.now < deadline:
            continue
        if machine.phase is MachinePhase.PENDING:
            _judge_pending(draft, machine, deadline)
        elif draft.state.nodes_as_of is not None and draft.state.nodes_as_of >= deadline:
            _judge_node(draft, machine)


def coming_up(draft: Draft) -> list[tuple[Machine, datetime]]:
    """Machines that are coming up, each with the time by which it must have left its phase."""
    # Of hundreds of machines few are coming up, and each judgement asks several times.
    candidates = [m for m in draft.live() if m.phase in _COMING_UP and m.leave is None]
    found = [(machine, _come_up_deadline(draft, machine)) for machine in candidates]
    return [(machine, deadline) for machine, deadline in found if deadline is not None]


def _come_up_deadline(draft: Draft, machine: Machine) -> datetime | None:
    """None while no clock runs for the machine's phase."""
    limits = draft.resolved.spec.timeouts
    match machine.phase:
        case MachinePhase.PENDING:
            since, limit = machine.answered_at, limits.pending_seconds
        case MachinePhase.JOINING:
            since, limit = machine.running_at, limits.join_seconds
        case _:
            since, limit = machine.joined_at, limits.gpu_ready_seconds
    return None if since is None else since + seconds(limit)


def waits_for_nodes(draft: Draft) -> bool:
    """Whether a machine is overdue by what the cluster last said, so that it must be asked again."""
    as_of = draft.state.nodes_as_of
    return as_of is None or any(
        as_of < deadline <= draft.now
        for machine, deadline in coming_up(draft)
        if machine.phase is not MachinePhase.PENDING
    )


def _judge_pending(draft: Draft, machine: Machine, deadline: datetime) -> None:
    limit = draft.resolved.spec.timeouts.pending_seconds
    if machine.seen_at is not None and machine.seen_at >= deadline:
        fail_launch(draft, machine, "PendingTimeout", limit)
        hold_failed_offer(draft, draft.state_of(machine.token))
    elif machine.next_check_at is None and not machine.in_flight:
        pause = seconds(draft.settings.confirm_absence_seconds)
        earliest = draft.now if machine.looked_at is None else machine.looked_at + pause
        draft.set_machine(machine.token, next_check_at=max(draft.now, earliest))


def _judge_node(draft: Draft, machine: Machine) -> None:
    limits = draft.resolved.spec.timeouts
    if machine.phase is MachinePhase.JOINED:
        fail_launch(draft, machine, "GpuNotReady", limits.gpu_ready_seconds)
    elif machine.node_lost:
        fail_launch(draft, machine, "NodeLost", limits.join_seconds)
    else:
        failures = (*draft.state.join_failures, machine.offer.key)[-_MAX_JOIN_FAILURES:]
        draft.update(join_failures=failures)
        fail_launch(draft, machine, "JoinTimeout", limits.join_seconds)
        if bootstrap_unhealthy(draft):
            # Not the offers are to blame, whatever was thought before.
            return
    hold_failed_offer(draft, draft.state_of(machine.token))


def fail_launch(draft: Draft, machine: Machine, reason: str, limit_seconds: int) -> None:
    """End a machine that did not come up; its slot waits for another launch."""
    draft.leave(machine, LeaveReason.LAUNCH_FAILED, reason)
    draft.announce(
        EventReason.LAUNCH_FAILED,
        f"{machine.instance_id} in {machine.offer.zone}: {reason} after {limit_seconds} s",
        machine.token,
        warning=True,
    )


# From the decision to leave to the end -------------------------------------------------------------


def plan_replacements(draft: Draft) -> None:
    """Create-first replacement: an old machine is free to go once the new one is ready, or none can come."""
    for machine in draft.live():
        if machine.wait_for_replacement and not _must_wait(draft, machine):
            draft.set_machine(machine.token, wait_for_replacement=False)


def _must_wait(draft: Draft, machine: Machine) -> bool:
    slot = draft.slot(machine.slot)
    if slot is None:
        return False
    successor = draft.occupant(slot)
    if successor is None:
        return not _is_full_for_good(draft)
    return successor.phase is not MachinePhase.READY


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
        if machine.wait_for_replacement:
            continue
        if wants_drain(draft, machine):
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


def _is_full_for_good(draft: Draft) -> bool:
    """Whether the ceiling leaves no room for a replacement, and none is about to come."""
    live = draft.live()
    going = any(m.leave is not None and not m.wait_for_replacement for m in live)
    return not going and len(live) >= draft.resolved.spec.max_instances


def wants_drain(draft: Draft, machine: Machine) -> bool:
    """A machine with a Node is drained first, unless nothing can run there or the policy forbids it."""
    if machine.leave in _UNDISTURBED or machine.phase is MachinePhase.TERMINATING:
        return False
    if not machine.node_name or machine.drain is DrainState.DONE:
        return False
    return draft.state.deletion is None or draft.resolved.spec.deletion_policy is DeletionPolicy.DRAIN


def drain_deadline(draft: Draft, machine: Machine) -> datetime:
    """When draining ends: the workload's grace, cut by the cloud's deadline."""
    spec = draft.resolved.spec
    grace = spec.interrupt_strategy.graceful_shutdown_seconds
    latest = draft.now + seconds(min(grace, draft.settings.drain_seconds))
    if machine.interrupt_deadline is not None:
        latest = min(latest, machine.interrupt_deadline - seconds(5))
    return max(latest, draft.now + seconds(1))


def _drain(draft: Draft, machine: Machine) -> None:
    urgent = machine.notice_at is not None or draft.state.deletion is not None
    if not urgent and not draft.is_fresh(machine.offer.region_key):
        # It could not be ended afterwards: better full than empty.
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
    region = machine.offer.region_key
    if draft.state.nodes_as_of is None or not draft.is_fresh(region) or not is_served(draft, region):
        return False
    return wants_telling(draft, machine)


def wants_telling(draft: Draft, machine: Machine) -> bool:
    """Whether the cloud has to be told to end a machine: not yet told, or told long ago and still there."""
    if machine.leave is None or not machine.instance_id or machine.absent_at is not None:
        return False
    told = machine.terminate_told_at
    return told is None or draft.now >= told + TELL_AGAIN


def _end(draft: Draft, machines: list[Machine]) -> None:
    """Order the end of machines of one region; those that a deletion leaves running are given up instead."""
    retains = draft.resolved.spec.deletion_policy is DeletionPolicy.RETAIN
    kept = [m for m in machines if retains and m.leave is LeaveReason.POOL_DELETED]
    for group, order, verb in (
        (kept, Retain, "Giving up"),
        ([m for m in machines if m not in kept], Terminate, "Ending"),
    ):
        for batch in _batches(group):
            ids = tuple(m.instance_id for m in batch)
            draft.order(order(region=batch[0].offer.region_key, instance_ids=ids))
            for machine in batch:
                draft.set_machine(machine.token, in_flight="terminate", terminate_told_at=None)
                draft.announce(
                    EventReason.TERMINATING,
                    f"{verb} {machine.instance_id}: {machine.leave} ({machine.leave_detail})",
                    machine.token,
                )


def _batches(machines: list[Machine]) -> list[list[Machine]]:
    return [machines[start : start + BATCH] for start in range(0, len(machines), BATCH)]


def may_look(draft: Draft, machine: Machine) -> bool:
    """Whether nothing is under way that a look would disturb; the drain of a missing machine ends by it."""
    missing = machine.in_flight == "drain" and machine.absent_at is not None and draft.state.rules >= 1
    return missing or not machine.in_flight


def _look(draft: Draft) -> None:
    """Look at machines whose look is due, in batches by region."""
    due: dict[str, list[Machine]] = {}
    for machine in draft.live():
        if machine.next_check_at is None or machine.next_check_at > draft.now or not may_look(draft, machine):
            continue
        if not is_served(draft, machine.offer.region_key):
            continue
        if machine.phase is MachinePhase.UNRESOLVED:
            draft.set_machine(machine.token, in_flight="find", next_check_at=None)
            draft.order(FindLaunch(token=machine.token, region=machine.offer.region_key))
        else:
            due.setdefault(str(machine.offer.region_key), []).append(machine)
    for machines in due.values():
        for batch in _batches(machines):
            for machine in batch:
                draft.set_machine(
                    machine.token, in_flight=machine.in_flight or "describe", next_check_at=None
                )
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
    """Whether the end was public for the minimum stay; nobody waits for that when the pool goes too."""
    if draft.state.deletion is not None:
        return True
    stay = seconds(draft.settings.min_stay_seconds)
    public = machine.shown is InstanceStatus.TERMINATED and machine.shown_at is not None
    return public and machine.shown_at is not None and draft.now >= machine.shown_at + stay


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
        if m.leave is not None and not m.wait_for_replacement and wants_telling(draft, m)
    }
    return tuple(keys[k] for k in sorted(keys))
