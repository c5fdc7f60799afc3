"""How many slots a pool has: up by steps, down by steps, never held up by a rebuild."""

from datetime import datetime, timedelta

from domain.contracts.announcements import EventReason
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, Slot
from domain.contracts.pools import PauseScope
from domain.decisions.holds import is_held
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_purchases import launches_barred
from domain.decisions.pool_regions import ground, missing_machines
from domain.decisions.water_level import demand_instances, water_level


def desired_instances(draft: Draft) -> int:
    """The water level now; nothing while the pool is being deleted."""
    if draft.state.deletion is not None:
        return 0
    demand, spec = draft.state.demand, draft.resolved.spec
    if demand is None:
        return water_level(spec, 0, draft.state.manual_level, now=draft.now)
    live = [m.offer.instance_type.gpu_count for m in draft.live() if m.leave is None]
    wanted = demand_instances(
        draft.resolved.profiles, demand, gpus_per_instance=_gpus_per_instance(draft), live_gpus=live
    )
    return water_level(spec, wanted, draft.state.manual_level, now=draft.now)


def _gpus_per_instance(draft: Draft) -> int:
    """GPUs of the smallest type that still fits the largest pod; 1 when nothing can be bought."""
    demand = draft.state.demand
    largest = max((p.max_gpus_per_pod for p in demand.profiles), default=1) if demand else 1
    counts = ground(draft).gpu_counts
    return next((count for count in counts if count >= largest), counts[-1] if counts else 1)


def plan_level(draft: Draft) -> None:
    """Add or remove slots, at most a step at a time and not before the cool-down is over."""
    if draft.state.deletion is not None:
        return
    desired = desired_instances(draft)
    missing = slots_missing(draft, desired)
    if missing > 0:
        _raise_level(draft, desired, missing)
    elif len(draft.slots) > desired:
        _lower_level(draft, desired)


def slots_missing(draft: Draft, desired: int) -> int:
    """How many more places the level asks for; machines that may still turn up have theirs."""
    return max(desired - len(draft.slots) - len(missing_machines(draft)), 0)


def _raise_level(draft: Draft, desired: int, missing: int) -> None:
    if launches_barred(draft) or _cooling(draft, draft.state.last_scale_up_at):
        return
    have = len(draft.slots)
    count = min(draft.resolved.spec.scale_strategy.scale_up_step, missing)
    counter = draft.state.slot_counter
    added = tuple(Slot(id=f"s{counter + i + 1}", created_at=draft.now) for i in range(count))
    draft.update(slots=draft.slots + added, slot_counter=counter + count, last_scale_up_at=draft.now)
    draft.announce(
        EventReason.SCALE_UP,
        f"Level {desired}, slots {have} -> {have + count}",
        f"{counter + count}",
    )


def _cooling(draft: Draft, last: datetime | None) -> bool:
    return last is not None and draft.now < last + _cooldown(draft)


def _cooldown(draft: Draft) -> timedelta:
    return seconds(draft.resolved.spec.scale_strategy.cooldown_seconds)


def cooldown_after(draft: Draft, last: datetime | None) -> str:
    """The cool-down after a step, with its end."""
    return "the cool-down" if last is None else f"the cool-down until {last + _cooldown(draft):%H:%M:%S}Z"


def _lower_level(draft: Draft, desired: int) -> None:
    # A slot without a machine costs nothing and disturbs nobody: it goes at once.
    surplus = len(draft.slots) - desired
    empty = [slot.id for slot in reversed(draft.slots) if not slot.token][:surplus]
    draft.update(slots=tuple(slot for slot in draft.slots if slot.id not in empty))
    have = len(draft.slots)
    if have <= desired or _lowering_barred(draft) or _cooling(draft, draft.state.last_scale_down_at):
        return
    count = min(draft.resolved.spec.scale_strategy.scale_down_step, have - desired)
    chosen = sorted(draft.slots, key=lambda slot: _keep_order(draft, slot))[:count]
    for slot in chosen:
        _close_slot(draft, slot)
    draft.update(last_scale_down_at=draft.now)
    draft.announce(
        EventReason.SCALE_DOWN,
        f"Level {desired}, slots {have} -> {have - count}: {', '.join(s.id for s in chosen)} go",
        f"{draft.state.launch_counter}:{draft.now.isoformat()}",
    )


def _lowering_barred(draft: Draft) -> str:
    """Why no machine may leave for the level now, empty when it may."""
    if draft.paused(PauseScope.DISRUPTIONS):
        return "disruptions are paused"
    if draft.state.nodes_as_of is None:
        return "the cluster was not read yet"
    if draft.resolved.profiles and draft.state.demand is None:
        return "the demand of the bound workloads is not known yet"
    return ""


def waits_above_level(draft: Draft) -> str:
    """Why the pool keeps more places than its level asks for, empty when it does not."""
    surplus = len(draft.slots) - desired_instances(draft)
    if surplus <= 0:
        return ""
    why = _lowering_barred(draft) or cooldown_after(draft, draft.state.last_scale_down_at)
    return f"{surplus} above the level ({why})"


def _keep_order(draft: Draft, slot: Slot) -> tuple[int, float, str]:
    """Sort key, first to go first: broken, in a hot zone, most expensive, then by id."""
    machine = draft.occupant(slot)
    if machine is None or machine.phase is not MachinePhase.READY:
        return (0, -_price(machine) if machine else 0.0, slot.id)
    if is_held(machine.offer, draft.state.holds, draft.now):
        return (1, -_price(machine), slot.id)
    return (2, -_price(machine), slot.id)


def _price(machine: Machine) -> float:
    return float(machine.offer.price.per_hour) if machine.offer.price else 0.0


def _close_slot(draft: Draft, slot: Slot) -> None:
    draft.drop_slot(slot.id)
    draft.leave(draft.state_of(slot.token), LeaveReason.SCALE_DOWN, "above the water level")


def fill_from_surplus(draft: Draft) -> None:
    """Give machines that fill no slot (adopted ones) a place; above maxInstances they leave as surplus.

    Up to maxInstances they get a slot even above the level: from there they go by steps, in the usual order,
    so that a pool whose memory was lost does not end machines whose demand it has not heard of yet.
    """
    owned = {slot.token for slot in draft.slots if slot.token}
    for machine in draft.live():
        if machine.leave is not None or machine.token in owned:
            continue
        free = next((s for s in draft.slots if not s.token), None)
        if free is not None:
            draft.set_slot(free.id, token=machine.token, excluded=())
            draft.set_machine(machine.token, slot=free.id)
        elif len(draft.slots) < draft.resolved.spec.max_instances or draft.paused(PauseScope.DISRUPTIONS):
            _slot_for(draft, machine)
        else:
            draft.leave(machine, LeaveReason.SURPLUS, "above maxInstances")


def _slot_for(draft: Draft, machine: Machine) -> None:
    """A machine that is already there needs no purchase, so its slot is not held by the cool-down."""
    counter = draft.state.slot_counter + 1
    slot = Slot(id=f"s{counter}", token=machine.token, created_at=draft.now)
    draft.update(slots=(*draft.slots, slot), slot_counter=counter)
    draft.set_machine(machine.token, slot=slot.id)
