"""What the clouds say of a region or of some machines: folded in machine by machine, strangers adopted."""

from domain.contracts.announcements import EventReason
from domain.contracts.catalogue import instance_type as catalogued_type
from domain.contracts.facts import RegionHealth, RegionObservation, RegionState
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.names import TAG_SLOT
from domain.contracts.offers import Offer, RegionKey, Stock
from domain.contracts.outcomes import Described, DescribeFailed, RegionReadFailed
from domain.contracts.pool_state import Machine, MachinePhase
from domain.decisions.pool_draft import Draft, launch_token_of, seconds
from domain.decisions.pool_launches import name_machine
from domain.decisions.pool_nodes import meet_strays
from domain.decisions.pool_presence import see_absent, see_present


def absorb_observation(draft: Draft, fact: RegionObservation) -> None:
    """Fold in every machine of the pool in one region; an older observation is ignored."""
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
            see_absent(draft, machine, fact.as_of)
        else:
            see_present(draft, machine, instance, fact.as_of)
    for instance in fact.instances:
        if draft.machine_by_instance(fact.region, instance.id) is None:
            _meet_unknown(draft, fact.region, instance)


def _meet_unknown(draft: Draft, region: RegionKey, instance: Instance) -> None:
    """A machine with our tags that fills no slot: the answer to a lost call, or one to adopt."""
    token = launch_token_of(instance.tags)
    known = draft.state.machines.get(token)
    if known is not None and not known.instance_id:
        # Seen before its create call was answered: nothing will be said twice, so it counts now.
        name_machine(draft, known, instance)
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
    see_present(draft, machine, instance, draft.now)
    meet_strays(draft)


def absorb_described(draft: Draft, fact: Described) -> None:
    """Fold in a look at machines by id; an asked id without an answer is absent."""
    present = {instance.id: instance for instance in fact.instances}
    for instance_id in fact.asked:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is None or machine.phase is MachinePhase.GONE:
            continue
        machine = draft.set_machine(machine.token, in_flight="", rechecks=machine.rechecks + 1)
        instance = present.get(instance_id)
        if instance is None:
            see_absent(draft, machine, fact.as_of)
        else:
            see_present(draft, machine, instance, fact.as_of)
            _look_again(draft, draft.state.machines[machine.token])


def _look_again(draft: Draft, machine: Machine) -> None:
    """A machine that must end is looked at until it has; any other only when something asks for it."""
    waits = machine.terminate_told_at is not None or machine.phase is MachinePhase.TERMINATING
    pause = min(
        draft.settings.confirm_absence_seconds * 2 ** min(machine.rechecks, 10),
        draft.settings.terminate_recheck_seconds,
    )
    draft.set_machine(machine.token, next_check_at=draft.now + seconds(pause) if waits else None)


def absorb_describe_failed(draft: Draft, fact: DescribeFailed) -> None:
    """A look by id failed: look again later."""
    for instance_id in fact.asked:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is not None:
            draft.set_machine(
                machine.token,
                in_flight="",
                next_check_at=draft.now + seconds(draft.settings.terminate_recheck_seconds),
            )


def absorb_region_state(draft: Draft, fact: RegionState) -> None:
    """Fold in a transition of the region's sync."""
    draft.set_region(fact.region, health=fact.health, reason=fact.reason)


def absorb_region_read_failed(draft: Draft, fact: RegionReadFailed) -> None:
    """The pool's own reading failed: the region is stale until one works."""
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    health = draft.region(fact.region).health
    draft.set_region(
        fact.region,
        reading=False,
        retry_at=retry,
        health=health if health is RegionHealth.CIRCUIT_OPEN else RegionHealth.STALE,
        reason=fact.error,
    )
