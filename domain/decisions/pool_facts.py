"""What a pool learns: folds one fact after the other into the state. Orders nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from domain.contracts.announcements import EventReason
from domain.contracts.catalogue import instance_type as catalogued_type
from domain.contracts.facts import Demand, NodeFact, NodesSeen, RegionHealth, RegionObservation, RegionState
from domain.contracts.instances import Created, Instance, InstanceState, Refusal, Rejected
from domain.contracts.names import TAG_SLOT
from domain.contracts.offers import Offer, RegionKey, Stock
from domain.contracts.outcomes import (
    Described,
    DescribeFailed,
    Drained,
    DrainFailed,
    Fact,
    FinalizerRemoved,
    LaunchAnswered,
    LaunchLooked,
    LaunchUnanswered,
    LookFailed,
    NodesDeleted,
    NodesReadFailed,
    NodesSettled,
    OffersFailed,
    OffersRead,
    RegionReadFailed,
    Retained,
    TellFailed,
    Told,
)
from domain.contracts.pool_state import DrainState, LeaveReason, Machine, MachinePhase
from domain.contracts.status import InterruptedInstance
from domain.decisions.pool_draft import Draft, instance_id_of, launch_token_of, seconds
from domain.decisions.pool_purchases import absorb_refusal, absorb_rejection, absorb_success

_BEFORE_RUNNING = (MachinePhase.ORDERED, MachinePhase.UNRESOLVED, MachinePhase.PENDING)
_MAX_STRAYS = 500
"""Nodes without a machine that are remembered; enough for the largest pool's start."""
_JOINED_PHASES = (MachinePhase.JOINED, MachinePhase.READY)


def absorb(draft: Draft, fact: Fact) -> None:
    """Fold one fact into the draft's state."""
    _ABSORBERS[type(fact)](draft, fact)


# What the clouds say ------------------------------------------------------------------------------


def _observation(draft: Draft, fact: RegionObservation) -> None:
    view = draft.region(fact.region)
    if view.as_of is not None and fact.as_of < view.as_of:
        draft.set_region(fact.region, reading=False)
        return
    draft.set_region(fact.region, as_of=fact.as_of, reading=False, retry_at=None)
    if view.health is RegionHealth.STALE:
        draft.set_region(fact.region, health=RegionHealth.OK, reason="")
    present = {instance.id: instance for instance in fact.instances}
    for machine in draft.machines:
        if machine.offer.region_key != fact.region or not machine.instance_id:
            continue
        if machine.phase is MachinePhase.GONE:
            continue
        instance = present.get(machine.instance_id)
        if instance is None:
            _absent(draft, machine, fact.as_of)
        else:
            _present(draft, machine, instance, fact.as_of)
    for instance in fact.instances:
        if draft.machine_by_instance(fact.region, instance.id) is None:
            _meet_unknown(draft, fact.region, instance)


def _meet_unknown(draft: Draft, region: RegionKey, instance: Instance) -> None:
    """A machine with our tags that fills no slot: the answer to a lost call, or one to adopt."""
    token = launch_token_of(instance.tags)
    known = draft.state.machines.get(token)
    if known is not None and not known.instance_id:
        # Seen before its create call was answered: nothing will be said twice, so it counts now.
        _name_machine(draft, known, instance)
        return
    if instance.state is InstanceState.TERMINATED:
        return
    _adopt(draft, region, instance)


def _adopt(draft: Draft, region: RegionKey, instance: Instance) -> None:
    """Take over a machine that carries our tags but that this chain did not order."""
    catalogued = catalogued_type(instance.provider, instance.instance_type)
    if catalogued is None:
        return
    offer = Offer(
        provider=instance.provider,
        account=region.account,
        region=instance.region,
        zone=instance.zone,
        instance_type=catalogued,
        capacity_type=instance.capacity_type,
        price=None,
        stock=Stock.UNKNOWN,
    )
    token = launch_token_of(instance.tags) or f"adopted-{instance.id}"
    if token in draft.state.machines:
        token = f"{token}-{instance.id}"
    slot_id = instance.tags.get(TAG_SLOT, "")
    slot = draft.slot(slot_id)
    machine = Machine(
        token=token,
        slot=slot_id,
        offer=offer,
        ordered_at=instance.created_at,
        answered_at=instance.created_at,
        instance_id=instance.id,
        provider_id=instance.provider_id,
        phase=MachinePhase.PENDING,
        billed_from=instance.created_at,
    )
    draft.add_machine(machine)
    draft.update(adopted_machines=(*draft.state.adopted_machines, instance.id)[-100:])
    draft.announce(
        EventReason.INSTANCE_ADOPTED,
        f"Took over {instance.id} in {instance.zone}, which carries this pool's tags",
        instance.id,
    )
    free = slot if slot is not None and not slot.token else None
    if free is None:
        free = next((s for s in draft.state.slots if not s.token), None)
    if free is not None:
        draft.set_slot(free.id, token=token)
        machine = draft.set_machine(token, slot=free.id)
    _present(draft, machine, instance, draft.now)
    meet_strays(draft)


def _present(draft: Draft, machine: Machine, instance: Instance, as_of: datetime) -> None:
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
            if machine.phase in _BEFORE_RUNNING:
                _start_running(draft, machine)
        case InstanceState.INTERRUPTING:
            if machine.phase in _BEFORE_RUNNING:
                machine = _start_running(draft, machine)
            _notice(draft, machine, instance)
        case InstanceState.TERMINATED:
            _ended_by_cloud(draft, machine, instance)


def _start_running(draft: Draft, machine: Machine) -> Machine:
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
        if machine.phase in _BEFORE_RUNNING:
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


def _absent(draft: Draft, machine: Machine, as_of: datetime) -> None:
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
        if machine.phase in _BEFORE_RUNNING:
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


def _region_state(draft: Draft, fact: RegionState) -> None:
    draft.set_region(fact.region, health=fact.health, reason=fact.reason)


def _region_read_failed(draft: Draft, fact: RegionReadFailed) -> None:
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    health = draft.region(fact.region).health
    draft.set_region(
        fact.region,
        reading=False,
        retry_at=retry,
        health=health if health is RegionHealth.CIRCUIT_OPEN else RegionHealth.STALE,
        reason=fact.error,
    )


def _described(draft: Draft, fact: Described) -> None:
    present = {instance.id: instance for instance in fact.instances}
    for instance_id in fact.asked:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is None or machine.phase is MachinePhase.GONE:
            continue
        machine = draft.set_machine(machine.token, in_flight="", rechecks=machine.rechecks + 1)
        instance = present.get(instance_id)
        if instance is None:
            _absent(draft, machine, fact.as_of)
        else:
            _present(draft, machine, instance, fact.as_of)
            _look_again(draft, draft.state.machines[machine.token])


def _look_again(draft: Draft, machine: Machine) -> None:
    """A machine that must end is looked at until it has; any other only when something asks for it."""
    waits = machine.terminate_told_at is not None or machine.phase is MachinePhase.TERMINATING
    pause = min(
        draft.settings.confirm_absence_seconds * 2 ** min(machine.rechecks, 10),
        draft.settings.terminate_recheck_seconds,
    )
    draft.set_machine(machine.token, next_check_at=draft.now + seconds(pause) if waits else None)


def _describe_failed(draft: Draft, fact: DescribeFailed) -> None:
    for instance_id in fact.asked:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is not None:
            draft.set_machine(
                machine.token,
                in_flight="",
                next_check_at=draft.now + seconds(draft.settings.terminate_recheck_seconds),
            )


# What a launch brought ----------------------------------------------------------------------------


def _launch_answered(draft: Draft, fact: LaunchAnswered) -> None:
    machine = draft.state.machines.get(fact.token)
    if machine is None:
        return
    machine = draft.set_machine(fact.token, in_flight="")
    if machine.instance_id:
        return
    match fact.result:
        case Created():
            draft.set_machine(
                fact.token,
                phase=MachinePhase.PENDING,
                instance_id=fact.result.instance_id,
                answered_at=draft.now,
                billed_from=draft.now,
            )
            absorb_success(draft, machine, fact.result.instance_id)
            meet_strays(draft)
        case Refusal():
            absorb_refusal(draft, machine, fact.result)
        case Rejected():
            absorb_rejection(draft, machine, fact.result)


def _launch_unanswered(draft: Draft, fact: LaunchUnanswered) -> None:
    machine = draft.state.machines.get(fact.token)
    if machine is None:
        return
    if machine.instance_id:
        draft.set_machine(fact.token, in_flight="")
        return
    draft.set_machine(
        fact.token,
        phase=MachinePhase.UNRESOLVED,
        answered_at=draft.now,
        next_check_at=draft.now,
        in_flight="",
    )
    draft.announce(
        EventReason.LAUNCH_UNRESOLVED,
        f"No certain answer for {fact.token} in {machine.offer.zone}: {fact.error}. Looking for its tag",
        fact.token,
        warning=True,
    )


def _launch_looked(draft: Draft, fact: LaunchLooked) -> None:
    machine = draft.state.machines.get(fact.token)
    if machine is None or machine.instance_id:
        return
    machine = draft.set_machine(fact.token, in_flight="")
    alive = [i for i in fact.instances if i.state is not InstanceState.TERMINATED]
    if alive:
        _name_machine(draft, machine, alive[0])
        return
    _absent(draft, machine, fact.as_of)
    machine = draft.state.machines[fact.token]
    if machine.phase is MachinePhase.GONE:
        # The call never made a machine: nothing to show, nothing to bill.
        draft.drop_machine(fact.token)
    elif machine.next_check_at is None or machine.next_check_at <= draft.now:
        draft.set_machine(fact.token, next_check_at=draft.now + seconds(draft.settings.resolve_retry_seconds))


def _name_machine(draft: Draft, machine: Machine, instance: Instance) -> None:
    """A launch of unknown outcome turned out to have made this machine."""
    machine = draft.set_machine(
        machine.token,
        instance_id=instance.id,
        provider_id=instance.provider_id,
        phase=MachinePhase.PENDING,
        answered_at=draft.now,
        billed_from=instance.created_at,
        absent_at=None,
        next_check_at=None,
        in_flight=machine.in_flight if machine.phase is MachinePhase.ORDERED else "",
    )
    absorb_success(draft, machine, instance.id)
    _present(draft, machine, instance, draft.now)
    meet_strays(draft)


def _look_failed(draft: Draft, fact: LookFailed) -> None:
    if fact.token in draft.state.machines:
        draft.set_machine(
            fact.token,
            in_flight="",
            next_check_at=draft.now + seconds(draft.settings.resolve_retry_seconds),
        )


# What the cluster says ----------------------------------------------------------------------------


def _nodes(draft: Draft, fact: NodesSeen) -> None:
    by_instance = {m.instance_id: m for m in draft.live() if m.instance_id}
    strays = {} if fact.complete else {node.provider_id: node for node in draft.state.strays}
    seen: set[str] = set()
    for node in fact.nodes:
        strays.pop(node.provider_id, None)
        machine = by_instance.get(instance_id_of(node.provider_id))
        if machine is not None:
            seen.add(machine.token)
            _node(draft, draft.state.machines[machine.token], node)
        elif node.exists:
            strays[node.provider_id] = node
    draft.update(strays=tuple(strays.values())[-_MAX_STRAYS:])
    if not fact.complete:
        return
    draft.update(nodes_as_of=fact.as_of, nodes_reading=False, nodes_retry_at=None)
    for machine in draft.live():
        if machine.phase in _JOINED_PHASES and machine.token not in seen:
            _node_lost(draft, machine)


def meet_strays(draft: Draft) -> None:
    """A Node may be heard of before the machine that it is has a name: it was kept for this moment."""
    if not draft.state.strays:
        return
    by_instance = {m.instance_id: m for m in draft.live() if m.instance_id}
    strays: list[NodeFact] = []
    for node in draft.state.strays:
        machine = by_instance.get(instance_id_of(node.provider_id))
        if machine is None:
            strays.append(node)
        else:
            _node(draft, draft.state.machines[machine.token], node)
    draft.update(strays=tuple(strays))


def _node(draft: Draft, machine: Machine, node: NodeFact) -> None:
    if not node.exists:
        if machine.node_name in ("", node.name) and machine.phase in _JOINED_PHASES:
            _node_lost(draft, machine)
        return
    if not machine.node_name or machine.phase is MachinePhase.JOINING:
        draft.announce(
            EventReason.NODE_JOINED, f"{machine.instance_id} joined as node {node.name}", machine.token
        )
    machine = draft.set_machine(machine.token, node_name=node.name, provider_id=node.provider_id)
    if machine.phase in _BEFORE_RUNNING and machine.instance_id:
        machine = _start_running(draft, machine)
    if machine.phase is MachinePhase.JOINING:
        machine = draft.set_machine(machine.token, phase=MachinePhase.JOINED, joined_at=draft.now)
        draft.update(join_failures=())
    if machine.phase is MachinePhase.TERMINATING:
        return
    complete = node.ready and node.gpus_allocatable >= machine.offer.instance_type.gpu_count
    if complete and machine.phase is MachinePhase.JOINED:
        draft.set_machine(machine.token, phase=MachinePhase.READY, ready_at=draft.now)
        draft.announce(
            EventReason.INSTANCE_READY,
            f"{node.name} has its {machine.offer.instance_type.gpu_count} GPUs",
            machine.token,
        )
    elif not complete and machine.phase is MachinePhase.READY:
        draft.set_machine(
            machine.token, phase=MachinePhase.JOINED, joined_at=draft.now, next_check_at=draft.now
        )
    if node.gpu_taint and machine.settled:
        draft.set_machine(machine.token, settled=False)


def _node_lost(draft: Draft, machine: Machine) -> None:
    """The Node went away: a sign that the machine may have too, so the cloud is asked at once."""
    draft.set_machine(
        machine.token,
        phase=MachinePhase.JOINING,
        running_at=draft.now,
        joined_at=None,
        ready_at=None,
        settled=False,
        node_name="",
        next_check_at=draft.now,
    )


def _nodes_read_failed(draft: Draft, _fact: NodesReadFailed) -> None:
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    draft.update(nodes_reading=False, nodes_retry_at=retry)


def _demand(draft: Draft, fact: Demand) -> None:
    if draft.state.demand is None or fact.as_of >= draft.state.demand.as_of:
        draft.update(demand=fact)


# How the pool's own effects ended ------------------------------------------------------------------


def _offers_read(draft: Draft, fact: OffersRead) -> None:
    market = draft.state.market
    region = str(fact.region)
    kept = tuple(o for o in market.offers if o.region_key != fact.region)
    draft.update(
        market=market.model_copy(
            update={
                "offers": kept + fact.offers,
                "waiting_for": tuple(r for r in market.waiting_for if r != region),
            }
        )
    )


def _offers_failed(draft: Draft, fact: OffersFailed) -> None:
    market = draft.state.market
    waiting = tuple(r for r in market.waiting_for if r != str(fact.region))
    draft.update(market=market.model_copy(update={"waiting_for": waiting}))
    draft.set_region(fact.region, reason=fact.error)


def _told(draft: Draft, fact: Told) -> None:
    for instance_id in fact.instance_ids:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is None or machine.phase is MachinePhase.GONE:
            continue
        draft.set_machine(
            machine.token,
            in_flight="",
            phase=MachinePhase.TERMINATING,
            terminate_told_at=machine.terminate_told_at or draft.now,
            rechecks=0,
            next_check_at=draft.now + seconds(draft.settings.confirm_absence_seconds),
        )


def _tell_failed(draft: Draft, fact: TellFailed) -> None:
    for instance_id in fact.instance_ids:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is not None:
            retry = draft.now + seconds(draft.settings.terminate_recheck_seconds)
            draft.set_machine(machine.token, in_flight="", retry_at=retry)
    draft.set_region(fact.region, reason=fact.error)


def _retained(draft: Draft, fact: Retained) -> None:
    for instance_id in fact.instance_ids:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is not None:
            draft.drop_machine(machine.token)


def _drained(draft: Draft, fact: Drained) -> None:
    machine = draft.state.machines.get(fact.token)
    if machine is None:
        return
    draft.set_machine(fact.token, drain=DrainState.DONE, blockers=fact.result.blockers, in_flight="")
    if fact.result.blockers:
        draft.announce(
            EventReason.DRAIN_BLOCKED,
            f"Draining {machine.node_name} met its deadline: " + "; ".join(fact.result.blockers[:3]),
            fact.token,
            warning=True,
        )


def _drain_failed(draft: Draft, fact: DrainFailed) -> None:
    machine = draft.state.machines.get(fact.token)
    if machine is None:
        return
    overdue = machine.drain_deadline is not None and draft.now >= machine.drain_deadline
    draft.set_machine(
        fact.token,
        drain=DrainState.DONE if overdue else DrainState.NOT_STARTED,
        blockers=(fact.error,),
        retry_at=draft.now + seconds(draft.settings.confirm_absence_seconds),
        in_flight="",
    )


def _settled(draft: Draft, fact: NodesSettled) -> None:
    for token in fact.tokens:
        if token in draft.state.machines:
            draft.set_machine(token, in_flight="", settled=not fact.error)
            if fact.error:
                retry = draft.now + seconds(draft.settings.polling_interval_seconds)
                draft.set_machine(token, retry_at=retry)


def _nodes_deleted(draft: Draft, fact: NodesDeleted) -> None:
    for machine in draft.machines:
        if machine.provider_id and machine.provider_id in fact.provider_ids:
            draft.set_machine(machine.token, in_flight="", node_deleted=not fact.error)
            if fact.error:
                retry = draft.now + seconds(draft.settings.polling_interval_seconds)
                draft.set_machine(machine.token, retry_at=retry)


def _finalizer_removed(draft: Draft, fact: FinalizerRemoved) -> None:
    if draft.state.deletion is None:
        return
    retry = draft.now + seconds(draft.settings.polling_interval_seconds) if fact.error else None
    draft.update(
        deletion=draft.state.deletion.model_copy(
            update={
                "finalizer_removed": not fact.error,
                "finalizer_ordered": not fact.error,
                "finalizer_retry_at": retry,
            }
        )
    )


_ABSORBERS: dict[type[Any], Callable[[Draft, Any], None]] = {
    RegionObservation: _observation,
    RegionState: _region_state,
    NodesSeen: _nodes,
    Demand: _demand,
    LaunchAnswered: _launch_answered,
    LaunchUnanswered: _launch_unanswered,
    LaunchLooked: _launch_looked,
    LookFailed: _look_failed,
    Described: _described,
    DescribeFailed: _describe_failed,
    RegionReadFailed: _region_read_failed,
    NodesReadFailed: _nodes_read_failed,
    OffersRead: _offers_read,
    OffersFailed: _offers_failed,
    Told: _told,
    TellFailed: _tell_failed,
    Retained: _retained,
    Drained: _drained,
    DrainFailed: _drain_failed,
    NodesSettled: _settled,
    NodesDeleted: _nodes_deleted,
    FinalizerRemoved: _finalizer_removed,
}
