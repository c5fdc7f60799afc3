"""What the cluster says: machines join, show their GPUs, and may lose their Node."""

from domain.contracts.announcements import EventReason
from domain.contracts.facts import NodeFact, NodesSeen
from domain.contracts.outcomes import NodesReadFailed
from domain.contracts.pool_state import Machine, MachinePhase
from domain.decisions.pool_draft import Draft, instance_id_of, seconds
from domain.decisions.pool_presence import BEFORE_RUNNING, start_running

_MAX_STRAYS = 500
"""Nodes without a machine that are remembered; enough for the largest pool at its start."""
_JOINED_PHASES = (MachinePhase.JOINED, MachinePhase.READY)


def absorb_nodes(draft: Draft, fact: NodesSeen) -> None:
    """Fold in Nodes: changes only, or all of the pool's when the fact is complete."""
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
    if machine.phase in BEFORE_RUNNING and machine.instance_id:
        machine = start_running(draft, machine)
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


def absorb_nodes_read_failed(draft: Draft, _fact: NodesReadFailed) -> None:
    """The cluster could not be read: try again after a polling interval."""
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    draft.update(nodes_reading=False, nodes_retry_at=retry)
