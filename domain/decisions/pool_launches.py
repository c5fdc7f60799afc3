"""What came of a launch: an answer, no answer, or a machine found by its tag."""

from domain.contracts.announcements import EventReason
from domain.contracts.instances import Created, Instance, InstanceState, Refusal, Rejected, Unmade
from domain.contracts.outcomes import LaunchAnswered, LaunchLooked, LaunchUnanswered, LookFailed
from domain.contracts.pool_state import Machine, MachinePhase
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_nodes import meet_strays
from domain.decisions.pool_presence import see_absent, see_present
from domain.decisions.pool_refusals import (
    absorb_refusal,
    absorb_rejection,
    absorb_success,
    absorb_unmade,
    hold_silent_region,
)


def absorb_answered(draft: Draft, fact: LaunchAnswered) -> None:
    """A create call gave a certain answer."""
    machine = draft.machine(fact.token)
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
                looked_at=draft.now,
                billed_from=draft.now,
            )
            absorb_success(draft, machine, fact.result.instance_id)
            meet_strays(draft)
        case Refusal():
            absorb_refusal(draft, machine, fact.result)
        case Rejected():
            absorb_rejection(draft, machine, fact.result)
        case Unmade():
            absorb_unmade(draft, machine, fact.result)


def absorb_unanswered(draft: Draft, fact: LaunchUnanswered) -> None:
    """A create call may or may not have made a machine: it is looked for."""
    machine = draft.machine(fact.token)
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
        launch_error=fact.error,
    )
    draft.announce(
        EventReason.LAUNCH_UNRESOLVED,
        f"No certain answer for {fact.token} in {machine.offer.zone}: {fact.error}. Looking for its tag",
        fact.token,
        warning=True,
    )


def absorb_looked(draft: Draft, fact: LaunchLooked) -> None:
    """A look by tag found the launch's machine, or not."""
    machine = draft.machine(fact.token)
    if machine is None or machine.instance_id:
        return
    machine = draft.set_machine(fact.token, in_flight="")
    # A dead machine counts as well: it was made, so the launch is resolved, and it may have cost something.
    found = sorted(fact.instances, key=lambda i: (i.state is InstanceState.TERMINATED, i.id))
    if found:
        name_machine(draft, machine, found[0])
        return
    is_wanted = machine.leave is None
    machine = see_absent(draft, machine, fact.as_of, by_id=False)
    if machine.phase is MachinePhase.GONE:
        if is_wanted and draft.state.rules >= 1:
            hold_silent_region(draft, machine, machine.launch_error)
        # The call never made a machine: nothing to show, nothing to bill.
        draft.drop_machine(fact.token)
        return
    soon = draft.now + seconds(draft.settings.resolve_retry_seconds)
    if machine.next_check_at is None or machine.next_check_at > soon:
        draft.set_machine(fact.token, next_check_at=soon)


def name_machine(draft: Draft, machine: Machine, instance: Instance) -> None:
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
    see_present(draft, machine, instance, draft.now)
    meet_strays(draft)


def absorb_look_failed(draft: Draft, fact: LookFailed) -> None:
    """A look by tag failed: try again soon."""
    machine = draft.machine(fact.token)
    if machine is not None and machine.phase is MachinePhase.UNRESOLVED:
        draft.set_machine(
            fact.token,
            in_flight="",
            next_check_at=draft.now + seconds(draft.settings.resolve_retry_seconds),
        )
