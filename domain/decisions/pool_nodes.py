"""What the cluster says: machines join, show their GPUs, and may lose their Node."""

from datetime import datetime

from domain.contracts.announcements import EventReason
from domain.contracts.facts import NodeFact, NodesSeen
from domain.contracts.outcomes import NodesReadFailed
from domain.contracts.pool_state import Machine, MachinePhase
from domain.decisions.holds import hold_for, without_hold
from domain.decisions.pool_draft import Draft, instance_id_of, seconds
from domain.decisions.pool_presence import start_running

_MAX_STRAYS = 500
"""Nodes without a machine that are remembered; enough for the largest pool at its start."""
_JOINED_PHASES = (MachinePhase.JOINED, MachinePhase.READY)


def absorb_nodes(draft: Draft, fact: NodesSeen) -> None:
    """Fold in Nodes: changes only, or all of the pool's when the fact is complete."""
    by_instance = {m.instance_id: m.token for m in draft.live() if m.instance_id}
    seen: set[str] = set()
    strays: list[NodeFact] = []
    others: list[tuple[str, NodeFact]] = []
    for node in fact.nodes:
        token = by_instance.get(instance_id_of(node.provider_id))
        if token is None:
            strays.append(node)
        elif _is_second(draft, draft.state_of(token), node):
            others.append((token, node))
        else:
            seen.add(token)
            _node(draft, token, node, fact.as_of)
    _keep_strays(draft, strays, fact)
    if fact.complete:
        _absent_nodes(draft, seen, fact.as_of)
    for token, node in others:
        if not draft.state_of(token).node_name:
            _node(draft, token, node, fact.as_of)


def _is_second(draft: Draft, machine: Machine, node: NodeFact) -> bool:
    """Whether a Node is not the machine's own: another one has joined for it, and this one is no better.

    A kubelet that comes back under a new host name leaves the old Node behind; the one with all GPUs counts.
    """
    if draft.state.rules < 1 or machine.phase not in _JOINED_PHASES or machine.node_name == node.name:
        return False
    return machine.phase is MachinePhase.READY or not _is_complete(machine, node)


def _is_complete(machine: Machine, node: NodeFact) -> bool:
    return node.exists and node.ready and node.gpus_allocatable >= machine.offer.instance_type.gpu_count


def _keep_strays(draft: Draft, nodes: list[NodeFact], fact: NodesSeen) -> None:
    newest = draft.state.strays_as_of
    is_late = newest is not None and fact.as_of < newest
    known = {node.provider_id: node for node in draft.state.strays}
    if not is_late:
        mentioned = {node.provider_id for node in fact.nodes}
        known = {} if fact.complete else {i: node for i, node in known.items() if i not in mentioned}
    for node in nodes:
        if node.exists and node.provider_id:
            known.setdefault(node.provider_id, node)
    strays = tuple(known.values())[-_MAX_STRAYS:]
    draft.update(strays=strays, strays_as_of=newest if is_late else fact.as_of)


def _absent_nodes(draft: Draft, seen: set[str], as_of: datetime) -> None:
    """All Nodes were listed: a machine whose Node is not among them has lost it."""
    newest = draft.state.nodes_as_of
    # The next reading keeps a distance, so that a clock that is behind ours is not asked without a pause.
    pause = draft.now + seconds(draft.settings.confirm_absence_seconds)
    draft.update(
        nodes_as_of=as_of if newest is None else max(as_of, newest), nodes_reading=False, nodes_retry_at=pause
    )
    for machine in draft.live():
        if machine.token not in seen and machine.phase in _JOINED_PHASES and _is_news(machine, as_of):
            _node_lost(draft, machine)


def _is_news(machine: Machine, as_of: datetime) -> bool:
    """Whether a word of the cluster is not older than the last: only such a word takes anything away."""
    return machine.node_as_of is None or as_of >= machine.node_as_of


def meet_strays(draft: Draft) -> None:
    """A Node may be heard of before the machine that it is has a name: it was kept for this moment."""
    if not draft.state.strays:
        return
    by_instance = {m.instance_id: m.token for m in draft.live() if m.instance_id}
    strays: list[NodeFact] = []
    for node in draft.state.strays:
        token = by_instance.get(instance_id_of(node.provider_id))
        if token is None:
            strays.append(node)
        else:
            _node(draft, token, node, None)
    draft.update(strays=tuple(strays))


def _node(draft: Draft, token: str, node: NodeFact, as_of: datetime | None) -> None:
    machine = draft.state_of(token)
    is_news = as_of is None or _is_news(machine, as_of)
    if as_of is not None and is_news:
        machine = draft.set_machine(token, node_as_of=as_of)
    if not node.exists:
        if is_news and machine.node_name == node.name and machine.phase in _JOINED_PHASES:
            _node_lost(draft, machine)
        return
    machine = _join(draft, machine, node)
    complete = _is_complete(machine, node)
    if complete and machine.phase is MachinePhase.JOINED:
        _become_ready(draft, machine)
    elif not complete and is_news and machine.phase is MachinePhase.READY:
        draft.set_machine(token, phase=MachinePhase.JOINED, joined_at=draft.now, next_check_at=draft.now)
    if node.gpu_taint and is_news and machine.settled:
        draft.set_machine(token, settled=False)


def _join(draft: Draft, machine: Machine, node: NodeFact) -> Machine:
    if not machine.node_name:
        draft.announce(
            EventReason.NODE_JOINED, f"{machine.instance_id} joined as node {node.name}", machine.token
        )
    machine = draft.set_machine(machine.token, node_name=node.name, provider_id=node.provider_id)
    machine = start_running(draft, machine)
    if machine.phase is not MachinePhase.JOINING:
        return machine
    draft.update(join_failures=())
    return draft.set_machine(machine.token, phase=MachinePhase.JOINED, joined_at=draft.now, node_lost=False)


def _become_ready(draft: Draft, machine: Machine) -> None:
    draft.set_machine(machine.token, phase=MachinePhase.READY, ready_at=draft.now)
    held = hold_for(machine.offer, draft.state.holds)
    if held is not None and held.until <= draft.now:
        # Only a machine that came up in full shows that the offer is good: its strikes are forgotten.
        draft.update(holds=without_hold(draft.state.holds, machine.offer))
    draft.announce(
        EventReason.INSTANCE_READY,
        f"{machine.node_name} has its {machine.offer.instance_type.gpu_count} GPUs",
        machine.token,
    )


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
        node_lost=True,
        next_check_at=draft.now,
    )


def absorb_nodes_read_failed(draft: Draft, _fact: NodesReadFailed) -> None:
    """The cluster could not be read: try again after a polling interval."""
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    draft.update(nodes_reading=False, nodes_retry_at=retry)
