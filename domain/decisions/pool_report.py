"""What a pool says of itself: the status of its resource and the table in the workflow's details."""

from datetime import datetime

from domain.contracts.offers import CapacityType
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase
from domain.contracts.status import (
    InstanceReport,
    PoolStatus,
    WorkflowRef,
    ZoneReport,
)
from domain.decisions.pool_conditions import judge_conditions
from domain.decisions.pool_costs import hourly_cost, month_cost
from domain.decisions.pool_deletion import waits_for
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_levels import desired_instances
from domain.decisions.pool_purchases import launches_barred, strategy_of

_MAX_ZONES = 50


def report(draft: Draft, workflow: WorkflowRef) -> PoolStatus:
    """The status of the pool now; conditions keep their transition times through ``draft.state``."""
    existing = [m for m in draft.live() if m.instance_id]
    conditions = judge_conditions(draft)
    draft.update(conditions=conditions)
    return PoolStatus(
        observed_generation=draft.resolved.generation,
        current_instances=len(existing),
        desired_instances=desired_instances(draft),
        ready_instances=sum(1 for m in existing if m.phase is MachinePhase.READY),
        on_demand_instances=sum(1 for m in existing if m.offer.capacity_type is CapacityType.ON_DEMAND),
        gpu_count=sum(m.offer.instance_type.gpu_count for m in existing),
        instances=tuple(_instance(m) for m in draft.machines),
        interrupted_instances=draft.state.interrupted,
        zones=_zones(draft),
        hourly_cost=hourly_cost(draft),
        total_cost_this_month=month_cost(draft),
        cost_as_of=draft.now,
        strategy=f"{strategy_name(draft)} ({strategy_of(draft).mode})",
        workflow=workflow,
        last_sync_time=last_sync(draft),
        conditions=conditions,
    )


def strategy_name(draft: Draft) -> str:
    """Name of the strategy in force, ``default`` when the pool names none or it was never found."""
    name = draft.strategy_name()
    return name if name in draft.resolved.strategies else "default"


def last_sync(draft: Draft) -> datetime | None:
    """When the newest observation of any region was taken."""
    return max((v.as_of for v in draft.state.regions.values() if v.as_of), default=None)


def _instance(machine: Machine) -> InstanceReport:
    offer = machine.offer
    return InstanceReport(
        id=machine.instance_id or machine.token,
        provider=offer.provider,
        region=offer.region,
        zone=offer.zone,
        gpu_type=offer.instance_type.gpu_type,
        instance_type=offer.instance_type.name,
        capacity_type=offer.capacity_type,
        status=machine.shown,
        phase=phase_of(machine),
        slot=machine.slot,
        price_per_hour=offer.price.per_hour if offer.price else None,
        created_at=machine.ordered_at,
        node_name=machine.node_name,
        providerID=machine.provider_id,
        interrupt_notice_at=machine.notice_at,
        interrupt_deadline=machine.interrupt_deadline,
    )


def phase_of(machine: Machine) -> str:
    """Finer than the public state: the machine's phase, and what it is leaving by."""
    if machine.leave is not None and machine.phase not in (MachinePhase.TERMINATING, MachinePhase.GONE):
        if machine.wait_for_replacement:
            return "AwaitingReplacement"
        return "Draining" if machine.in_flight == "drain" else "Leaving"
    return machine.phase.value


def _zones(draft: Draft) -> tuple[ZoneReport, ...]:
    """Zones in which something is held or was lost lately."""
    found: dict[tuple[str, str, str], ZoneReport] = {}
    for hold in draft.state.holds:
        parts = hold.prefix.split("/")
        if len(parts) < 3 or hold.until <= draft.now:
            continue
        key = (parts[0], parts[1], parts[2])
        known = found.get(key)
        if known is None or known.cool_down_until is None or known.cool_down_until < hold.until:
            quarantined = hold.reason.startswith("Quarantined")
            found[key] = ZoneReport(
                provider=key[0],
                region=key[1],
                zone=key[2],
                health="Quarantined" if quarantined else "CoolingDown",
                cool_down_until=hold.until,
                recent_interruptions=_recent_interruptions(draft, key[2]),
            )
    return tuple(found[key] for key in sorted(found))[:_MAX_ZONES]


def _recent_interruptions(draft: Draft, zone: str) -> int:
    return sum(
        1
        for m in draft.machines
        if m.offer.zone == zone and m.leave in (LeaveReason.INTERRUPTED, LeaveReason.LOST)
    )


# For people in the Temporal UI ----------------------------------------------------------------------


def details(draft: Draft) -> str:
    """Markdown: what the pool waits for and why, and a table of its machines."""
    spec = draft.resolved.spec
    title = f"**{draft.resolved.namespace}/{draft.resolved.name}** generation {draft.resolved.generation}"
    lines = [
        f"{title}: desired {desired_instances(draft)}, min {spec.min_instances}, max {spec.max_instances}",
        "",
        f"Waits for: {waiting_for(draft)}",
        "",
        "| slot | instance | where | type | phase | since |",
        "|---|---|---|---|---|---|",
    ]
    lines.extend(_row(machine) for machine in draft.machines[:100])
    lines.extend(
        f"| {slot.id} | - | - | - | waits for a launch | {slot.created_at:%m-%d %H:%M:%S} |"
        for slot in draft.state.slots
        if not slot.token
    )
    return "\n".join(lines)


def _row(machine: Machine) -> str:
    where = f"{machine.offer.zone} | {machine.offer.instance_type.name}"
    what = f"{machine.slot} | {machine.instance_id or machine.token}"
    return f"| {what} | {where} | {phase_of(machine)} | {machine.ordered_at:%m-%d %H:%M:%S} |"


def waiting_for(draft: Draft) -> str:
    """What the pool waits for and why, in one clause; ``nothing`` when it is at rest."""
    if draft.state.deletion is not None:
        return waits_for(draft)
    parts: list[str] = []
    empty = sum(1 for slot in draft.state.slots if not slot.token)
    short = max(desired_instances(draft) - len(draft.state.slots), 0)
    if empty or short:
        barred = launches_barred(draft)
        why = barred or ("the cool-down" if short and not empty else "offers")
        if draft.state.round_failure and barred:
            why = f"{why}; last round: {draft.state.round_failure}"
        parts.append(f"{empty + short} launches to order ({why})")
    parts.extend(_machine_waits(draft))
    return "; ".join(parts) or "nothing"


def _machine_waits(draft: Draft) -> list[str]:
    waits = {
        MachinePhase.ORDERED: "an answer of the cloud",
        MachinePhase.UNRESOLVED: "the outcome of a launch",
        MachinePhase.PENDING: "the cloud to run it",
        MachinePhase.JOINING: "its Node to join",
        MachinePhase.JOINED: "its GPUs",
        MachinePhase.TERMINATING: "its confirmed absence",
    }
    found: dict[str, int] = {}
    for machine in draft.live():
        text = waits.get(machine.phase)
        if machine.in_flight == "drain":
            text = "its drain"
        if text is not None:
            found[text] = found.get(text, 0) + 1
    return [f"{count} x {text}" for text, count in found.items()]
