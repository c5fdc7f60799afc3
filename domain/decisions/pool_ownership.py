"""Whether a machine belongs to a pool: the answer that the orphan sweep acts on."""

from domain.contracts.facts import OwnedMachine, OwnershipAnswer, OwnershipQuestion
from domain.contracts.pool_state import LeaveReason
from domain.decisions.pool_draft import Draft


def answer(draft: Draft, question: OwnershipQuestion) -> list[OwnershipAnswer]:
    """One answer per machine, in the order asked.

    A machine is owned when its launch or its id is known, whatever becomes of it: a machine that leaves is
    ended by the pool, not by the sweep. So a newborn of a launch in flight is owned too.
    """
    return [_judge(draft, machine) for machine in question.machines]


def _judge(draft: Draft, machine: OwnedMachine) -> OwnershipAnswer:
    if machine.pool_uid != draft.resolved.uid:
        return _no(machine, f"belongs to pool {machine.pool_uid}, this is {draft.resolved.uid}")
    by_token = draft.state.machines.get(machine.launch)
    if by_token is not None and by_token.instance_id in ("", machine.instance_id):
        return _yes(machine, f"launch {machine.launch} is {by_token.phase}")
    known = draft.machine_by_instance(machine.region, machine.instance_id)
    if known is not None:
        leaving = f", leaving ({known.leave})" if isinstance(known.leave, LeaveReason) else ""
        return _yes(machine, f"fills {known.slot}{leaving}")
    return _no(machine, f"launch {machine.launch or '(none)'} is not known to this pool")


def _yes(machine: OwnedMachine, reason: str) -> OwnershipAnswer:
    return OwnershipAnswer(instance_id=machine.instance_id, owned=True, reason=reason)


def _no(machine: OwnedMachine, reason: str) -> OwnershipAnswer:
    return OwnershipAnswer(instance_id=machine.instance_id, owned=False, reason=reason)
