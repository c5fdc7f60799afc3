"""What a pool says of itself: the status of its resource and the table in the workflow's details."""

from collections import Counter
from datetime import datetime

from domain.contracts.offers import CapacityType
from domain.contracts.pool_state import Machine, MachinePhase, OfferHold
from domain.contracts.pools import PauseScope
from domain.contracts.status import (
    InstanceReport,
    InstanceStatus,
    PoolStatus,
    WorkflowRef,
    ZoneReport,
)
from domain.decisions.pool_conditions import judge_conditions
from domain.decisions.pool_costs import hourly_cost, month_cost
from domain.decisions.pool_deletion import waits_for
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_interventions import QUARANTINED
from domain.decisions.pool_levels import (
    cooldown_after,
    desired_instances,
    slots_missing,
    waits_above_level,
)
from domain.decisions.pool_purchases import buyable, launches_barred, strategy_of
from domain.decisions.pool_regions import missing_machines
from domain.decisions.pool_strays import dark_strays

_UNKNOWN = "unknown"
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
        instances=(*(_instance(m) for m in draft.machines), *map(_unseen, missing_machines(draft))),
        interrupted_instances=draft.state.interrupted,
        interruptions_total=draft.state.interruptions_total,
        zones=_zones(draft),
        hourly_cost=hourly_cost(draft),
        total_cost_this_month=month_cost(draft),
        cost_as_of=draft.now,
        strategy=f"{strategy_in_force(draft)} ({strategy_of(draft).mode})",
        workflow=workflow,
        last_sync_time=last_sync(draft),
        conditions=conditions,
    )


def strategy_in_force(draft: Draft) -> str:
    """Name of the strategy in force, ``default`` when the pool names none or it was never found.

    While the one that the spec names cannot be found, the last good one stays in force under its own name.
    """
    part = draft.resolved.strategies.get(draft.strategy_name())
    return part.origin.name if part is not None else "default"


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


def _unseen(instance_id: str) -> InstanceReport:
    """A machine of a former chain that is still looked for: named, so that the next chain looks too."""
    return InstanceReport(
        id=instance_id,
        provider=_UNKNOWN,
        region=_UNKNOWN,
        gpu_type=_UNKNOWN,
        status=InstanceStatus.RUNNING,
        phase="NotSeenYet",
    )


def phase_of(machine: Machine) -> str:
    """Finer than the public state: the machine's phase, and what it is leaving by."""
    if machine.leave is not None and machine.phase not in (MachinePhase.TERMINATING, MachinePhase.GONE):
        if machine.wait_for_replacement:
            return "AwaitingReplacement"
        return "Draining" if machine.in_flight == "drain" else "Leaving"
    return machine.phase.value


def _zones(draft: Draft) -> tuple[ZoneReport, ...]:
    """Zones in which something is held, or was taken back within the last hour."""
    losses = Counter((loss.provider, loss.region, loss.zone) for loss in draft.state.zone_losses)
    held: dict[tuple[str, str, str], OfferHold] = {}
    for hold in draft.state.holds:
        provider, region, zone = (*hold.prefix.split("/"), "*", "*", "*")[:3]
        if "*" in (region, zone) or hold.until <= draft.now:
            continue
        known = held.get((provider, region, zone))
        if known is None or known.until < hold.until:
            held[provider, region, zone] = hold
    return tuple(_zone(key, held.get(key), losses[key]) for key in sorted({*held, *losses})[:_MAX_ZONES])


def _zone(key: tuple[str, str, str], hold: OfferHold | None, interruptions: int) -> ZoneReport:
    health = "Healthy"
    if hold is not None:
        health = "Quarantined" if hold.reason == QUARANTINED else "CoolingDown"
    return ZoneReport(
        provider=key[0],
        region=key[1],
        zone=key[2],
        health=health,
        cool_down_until=hold.until if hold is not None else None,
        recent_interruptions=interruptions,
    )


# For people in the Temporal UI ----------------------------------------------------------------------


def details(draft: Draft) -> str:
    """Markdown: what the pool waits for and why, and a table of its machines."""
    spec = draft.resolved.spec
    title = f"**{draft.resolved.namespace}/{draft.resolved.name}** generation {draft.resolved.generation}"
    lines = [
        f"{title}: desired {desired_instances(draft)}, min {spec.min_instances}, max {spec.max_instances}",
        "",
        *_pauses(draft),
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


def _pauses(draft: Draft) -> list[str]:
    """What the spec and people have paused, also while nothing waits for it."""
    held = sorted({draft.resolved.spec.paused.value, *draft.state.manual_pauses} - {PauseScope.NONE.value})
    return [f"Paused: {', '.join(held)}", ""] if held else []


def _row(machine: Machine) -> str:
    where = f"{machine.offer.zone} | {machine.offer.instance_type.name}"
    what = f"{machine.slot} | {machine.instance_id or machine.token}"
    return f"| {what} | {where} | {phase_of(machine)} | {machine.ordered_at:%m-%d %H:%M:%S} |"


def waiting_for(draft: Draft) -> str:
    """What the pool waits for and why, in one clause; ``nothing`` when it is at rest."""
    if draft.state.deletion is not None:
        return waits_for(draft)
    parts = [_launch_waits(draft), waits_above_level(draft), *_machine_waits(draft)]
    missing, strays = len(missing_machines(draft)), len(dark_strays(draft))
    parts.append(f"{missing} machines that the status named and no region has shown yet" if missing else "")
    parts.append(f"{strays} Nodes without a machine to be removed" if strays else "")
    return "; ".join(part for part in parts if part) or "nothing"


def _launch_waits(draft: Draft) -> str:
    empty = sum(1 for slot in draft.slots if not slot.token)
    short = slots_missing(draft, desired_instances(draft))
    if not empty and not short:
        return ""
    barred = launches_barred(draft)
    why = barred or (_slot_waits(draft) if empty else cooldown_after(draft, draft.state.last_scale_up_at))
    if draft.state.round_failure and barred:
        why = f"{why}; last round: {draft.state.round_failure}"
    return f"{empty + short} launches to order ({why})"


def _slot_waits(draft: Draft) -> str:
    if not buyable(draft):
        return "maxInstances counts every machine until it is confirmed gone"
    regions = draft.state.market.waiting_for
    return f"offers of {', '.join(regions)}" if regions else "a reading of its regions"


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
        elif machine.wait_for_replacement:
            text = "its replacement"
        elif text is None and machine.leave is not None:
            text = "a reading of its region, before it is ended"
        elif text is None and not machine.settled:
            text = "its Node to be opened"
        if text is not None:
            found[text] = found.get(text, 0) + 1
    return [f"{count} x {text}" for text, count in found.items()]
