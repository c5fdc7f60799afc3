"""What the clouds say of a region or of some machines: folded in machine by machine, strangers adopted."""

from datetime import datetime

from domain.contracts.announcements import EventReason
from domain.contracts.catalogue import instance_type as catalogued_type
from domain.contracts.errors import KEYS_REFUSED
from domain.contracts.facts import RegionHealth, RegionObservation, RegionState
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.names import TAG_POOL, TAG_SLOT
from domain.contracts.offers import InstanceType, Interconnect, Offer, RegionKey, Stock
from domain.contracts.outcomes import Described, DescribeFailed, RegionReadFailed
from domain.contracts.pool_state import Machine, MachinePhase, RegionView
from domain.decisions.eligibility import overridden_types
from domain.decisions.pool_draft import Draft, launch_token_of, seconds
from domain.decisions.pool_launches import name_machine
from domain.decisions.pool_nodes import meet_strays
from domain.decisions.pool_presence import see_absent, see_present
from domain.decisions.pool_purchases import NO_REGION
from domain.decisions.pool_refusals import forget_refused_keys
from domain.decisions.pool_regions import is_usable

_MAX_ADOPTED = 1000


def absorb_observation(draft: Draft, fact: RegionObservation) -> None:
    """Fold in every machine of the pool in one region; an older observation is ignored."""
    view = draft.region(fact.region)
    if view.as_of is not None and fact.as_of < view.as_of:
        draft.set_region(fact.region, reading=False)
        return
    was_usable = is_usable(draft, fact.region)
    # Our next reading keeps a distance, so that a clock that is behind ours is not asked without a pause.
    pause = draft.now + seconds(draft.settings.confirm_absence_seconds) if view.reading else None
    draft.set_region(fact.region, as_of=fact.as_of, reading=False, retry_at=pause)
    if view.health is not RegionHealth.OK and _is_news(view, fact.as_of):
        draft.set_region(fact.region, health=RegionHealth.OK, reason="", code=None, health_as_of=fact.as_of)
        _take_mended_keys(draft, view)
        _announce_circuit(draft, view, fact.as_of)
    _end_wait_for_region(draft, fact.region, was_usable=was_usable)
    present = {instance.id: instance for instance in fact.instances}
    for machine in draft.machines:
        if not machine.instance_id or machine.phase is MachinePhase.GONE or not _is_in(machine, fact.region):
            continue
        instance = present.get(machine.instance_id)
        if instance is None:
            see_absent(draft, machine, fact.as_of, by_id=False)
        else:
            see_present(draft, machine, instance, fact.as_of)
    for instance in fact.instances:
        if draft.machine_by_instance(fact.region, instance.id) is None:
            _meet_unknown(draft, view, instance, fact.as_of)


def _is_in(machine: Machine, region: RegionKey) -> bool:
    offer = machine.offer
    return (
        offer.region == region.region
        and offer.provider == region.provider
        and offer.account == region.account
    )


def _is_news(view: RegionView, as_of: datetime) -> bool:
    return view.health_as_of is None or as_of >= view.health_as_of


def _end_wait_for_region(draft: Draft, region: RegionKey, *, was_usable: bool) -> None:
    """A round that failed because no region answered does not wait for the next one when one does."""
    waits = draft.state.round_failure.startswith(NO_REGION)
    if waits and not was_usable and is_usable(draft, region):
        draft.update(next_round_at=None)


def _meet_unknown(draft: Draft, view: RegionView, instance: Instance, as_of: datetime) -> None:
    """A machine with our tags that fills no slot: the answer to a lost call, or one to adopt."""
    known = draft.machine(launch_token_of(instance.tags))
    if known is not None and not known.instance_id:
        # Seen before its create call was answered: nothing will be said twice, so it counts now.
        name_machine(draft, known, instance)
        return
    late = view.gone_as_of is not None and as_of <= view.gone_as_of and instance.id in view.gone_ids
    if instance.state is InstanceState.TERMINATED or late:
        return
    _adopt(draft, view.region, instance, as_of)


def _adopt(draft: Draft, region: RegionKey, instance: Instance, as_of: datetime) -> None:
    """Take over a machine that carries our tags but that this chain did not order."""
    token = launch_token_of(instance.tags) or f"adopted-{instance.id}"
    if draft.machine(token) is not None:
        token = f"{token}-{instance.id}"
    machine = Machine(
        token=token,
        slot="",
        offer=_offer_of(draft, region, instance),
        ordered_at=instance.created_at,
        answered_at=instance.created_at,
        instance_id=instance.id,
        provider_id=instance.provider_id,
        phase=MachinePhase.PENDING,
        billed_from=instance.created_at,
    )
    draft.add_machine(machine)
    _never_count_again(draft, token)
    draft.update(adopted_machines=(*draft.state.adopted_machines, instance.id)[-_MAX_ADOPTED:])
    draft.announce(
        EventReason.INSTANCE_ADOPTED,
        f"Took over {instance.id} in {instance.zone}, which carries this pool's tags",
        instance.id,
    )
    slot = draft.slot(instance.tags.get(TAG_SLOT, ""))
    if slot is not None and not slot.token:
        draft.set_slot(slot.id, token=token, excluded=())
        machine = draft.set_machine(token, slot=slot.id)
    see_present(draft, machine, instance, as_of)
    meet_strays(draft)


def _never_count_again(draft: Draft, token: str) -> None:
    """Raise the counter above a token of this chain: a reset took it back behind launches that were made."""
    number = token.removeprefix(draft.token(0).removesuffix("0"))
    if number.isdecimal():
        draft.update(launch_counter=max(draft.state.launch_counter, int(number)))


def _offer_of(draft: Draft, region: RegionKey, instance: Instance) -> Offer:
    """As what the machine may have been bought; its price is found when the offers are read."""
    return Offer(
        provider=instance.provider,
        account=region.account,
        region=instance.region,
        zone=instance.zone,
        instance_type=_type_of(draft, instance),
        capacity_type=instance.capacity_type,
        price=None,
        stock=Stock.UNKNOWN,
    )


def _type_of(draft: Draft, instance: Instance) -> InstanceType:
    """The type's row in the node class or the catalogue; a type that neither knows has no GPUs to count."""
    part = draft.resolved.node_classes.get(instance.provider)
    own = overridden_types(instance.provider, part.spec if part else None)
    row = next((row for row in own if row.name == instance.instance_type), None)
    return (
        row
        or catalogued_type(instance.provider, instance.instance_type)
        or InstanceType(
            provider=instance.provider,
            name=instance.instance_type,
            gpu_model="unknown",
            gpu_count=0,
            gpu_memory_gb=0,
            vcpu_count=0,
            ram_gib=0,
            interconnect=Interconnect.PCIE,
        )
    )


def absorb_described(draft: Draft, fact: Described) -> None:
    """Fold in a look at machines by id; an asked id without an answer is absent."""
    present = {instance.id: instance for instance in fact.instances}
    for instance_id in fact.asked:
        machine = _looked_at(draft, fact.region, instance_id)
        if machine is None:
            continue
        machine = draft.set_machine(machine.token, rechecks=machine.rechecks + 1)
        instance = present.get(instance_id)
        if instance is None:
            see_absent(draft, machine, fact.as_of, by_id=True)
        else:
            _say_untagged(draft, machine, instance)
            _look_again(draft, see_present(draft, machine, instance, fact.as_of))


def _say_untagged(draft: Draft, machine: Machine, instance: Instance) -> None:
    """A machine that is found by its id alone has lost its tags: nobody but this pool knows of it."""
    if machine.absent_at is None or TAG_POOL in instance.tags or draft.state.rules < 1:
        return
    draft.announce(
        EventReason.INSTANCE_UNTAGGED,
        f"{instance.id} in {instance.zone} has lost its tags: no sweep finds it once this pool is gone,"
        " so tag it again or end it with terminate_instance",
        machine.token,
        warning=True,
    )


def _looked_at(draft: Draft, region: RegionKey, instance_id: str) -> Machine | None:
    """The living machine of a look that came back, free for its next effect."""
    machine = draft.machine_by_instance(region, instance_id)
    if machine is None or machine.phase is MachinePhase.GONE:
        return None
    return draft.set_machine(machine.token, in_flight="") if machine.in_flight == "describe" else machine


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
    later = draft.now + seconds(draft.settings.terminate_recheck_seconds)
    for instance_id in fact.asked:
        machine = _looked_at(draft, fact.region, instance_id)
        if machine is not None:
            draft.set_machine(machine.token, next_check_at=later)


def absorb_region_state(draft: Draft, fact: RegionState) -> None:
    """Fold in a transition of the region's sync; an older word is ignored."""
    view = draft.region(fact.region)
    older_than_our_reading = view.as_of is not None and fact.as_of < view.as_of
    if not _is_news(view, fact.as_of) or older_than_our_reading:
        return
    was_usable = is_usable(draft, fact.region)
    draft.set_region(
        fact.region,
        health=fact.health,
        reason=_with_namespace(draft, fact.region, fact.reason),
        code=fact.code,
        health_as_of=fact.as_of,
    )
    if fact.health is RegionHealth.OK:
        _take_mended_keys(draft, view)
    _announce_circuit(draft, view, fact.as_of)
    _end_wait_for_region(draft, fact.region, was_usable=was_usable)


def _announce_circuit(draft: Draft, before: RegionView, as_of: datetime) -> None:
    """An Event when a region's circuit opens, and one when it closes."""
    view = draft.region(before.region)
    was_open, is_open = (v.health is RegionHealth.CIRCUIT_OPEN for v in (before, view))
    where, key = f"{view.region.provider} {view.region.region}", f"{view.region}:{as_of.isoformat()}"
    if is_open and not was_open:
        text = f"{where} fails: nothing is bought there until it answers again ({view.reason})"
        draft.announce(EventReason.PROVIDER_UNAVAILABLE, text, key, warning=True)
    elif was_open and not is_open:
        draft.announce(EventReason.PROVIDER_AVAILABLE, f"{where} answers again", key)


def absorb_region_read_failed(draft: Draft, fact: RegionReadFailed) -> None:
    """The pool's own reading failed: the region is stale until one works."""
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    health = draft.region(fact.region).health
    draft.set_region(
        fact.region,
        reading=False,
        retry_at=retry,
        health=health if health is RegionHealth.CIRCUIT_OPEN else RegionHealth.STALE,
        reason=_with_namespace(draft, fact.region, fact.error),
        code=fact.code,
    )


def _with_namespace(draft: Draft, region: RegionKey, text: str) -> str:
    """What is wrong with a region; its Secret with the namespace, which adapters do not know."""
    return text.replace(
        f"Secret {region.account}", f"Secret {draft.settings.operator_namespace}/{region.account}"
    )


def _take_mended_keys(draft: Draft, before: RegionView) -> None:
    """A region that refused the keys takes them again: so will launches."""
    if before.code in KEYS_REFUSED:
        forget_refused_keys(draft, before.region)
