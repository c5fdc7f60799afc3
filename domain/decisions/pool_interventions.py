"""What a human may order: each intervention is judged first, then written into the state."""

from domain.contracts.announcements import EventReason
from domain.contracts.pool_state import LeaveReason, Machine, ManualLevel, Market, OfferHold
from domain.contracts.pools import PauseScope
from domain.decisions.holds import zone_prefix
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_purchases import room

QUARANTINED = "Quarantined by hand"
"""Reason of the hold that a human put on a zone."""


class InterventionRefusedError(Exception):
    """The order cannot be carried out; the text says why and what would be accepted."""


def pause(draft: Draft, scope: PauseScope) -> str:
    """Stop launches, disruptions or all until resumed."""
    draft.update(manual_pauses=tuple(sorted({*draft.state.manual_pauses, scope.value})))
    return f"{scope} paused; interruption handling goes on"


def resume(draft: Draft, scope: PauseScope) -> str:
    """Lift a manual pause; one in the spec stays."""
    held = set(draft.state.manual_pauses)
    lifted = held if scope is PauseScope.ALL else held & {scope.value}
    if not lifted:
        paused, wanted = ", ".join(sorted(held)) or "nothing", draft.resolved.spec.paused
        edit = (
            "" if wanted is PauseScope.NONE else f"; spec.paused={wanted} holds until the resource is edited"
        )
        raise InterventionRefusedError(f"{scope} is not paused by hand (paused: {paused}{edit})")
    draft.update(manual_pauses=tuple(sorted(held - lifted)))
    spec = draft.resolved.spec.paused
    rest = f"; spec.paused={spec} still holds" if spec is not PauseScope.NONE else ""
    return f"{', '.join(sorted(lifted))} resumed{rest}"


def scale_to(draft: Draft, instances: int, expires_after_seconds: int | None, *, by: str, reason: str) -> str:
    """Set the water level by hand; 0 takes a manual level back."""
    spec = draft.resolved.spec
    if draft.state.deletion is not None:
        raise InterventionRefusedError("the pool is being deleted")
    if instances == 0:
        draft.update(manual_level=None)
        return "manual level removed"
    if not spec.min_instances <= instances <= spec.max_instances:
        raise InterventionRefusedError(
            f"instances must be between minInstances {spec.min_instances} and maxInstances"
            f" {spec.max_instances}, or 0 to remove a manual level; got {instances}"
        )
    until = draft.now + seconds(expires_after_seconds) if expires_after_seconds else None
    draft.update(manual_level=ManualLevel(instances=instances, until=until, by=by, reason=reason))
    return f"level set to {instances}" + (f" until {until:%Y-%m-%dT%H:%M:%SZ}" if until else "")


def replace_instance(draft: Draft, instance_id: str) -> str:
    """Buy a replacement first if the ceiling allows, then end the machine."""
    machine = _staying(draft, instance_id)
    if machine.wait_for_replacement:
        raise InterventionRefusedError(f"{instance_id} is being replaced already")
    if draft.paused(PauseScope.LAUNCHES):
        raise InterventionRefusedError("launches are paused: resume them first, or use terminate_instance")
    create_first = room(draft) > 0
    draft.leave(machine, LeaveReason.REPLACED, "by hand", wait_for_replacement=create_first)
    how = "once its replacement is ready" if create_first else "at once, since the pool is at maxInstances"
    return f"{instance_id} is drained and ended {how}"


def terminate_instance(draft: Draft, instance_id: str) -> str:
    """Drain and end a machine; its slot is refilled while the level asks for it."""
    machine = _staying(draft, instance_id)
    draft.leave(machine, LeaveReason.TERMINATED_BY_HAND, "by hand")
    return f"{instance_id} is drained and ended; {machine.slot} is refilled while the level asks for it"


def _staying(draft: Draft, instance_id: str) -> Machine:
    live = [m for m in draft.live() if m.instance_id]
    machine = next((m for m in live if m.instance_id == instance_id), None)
    if machine is None:
        known = ", ".join(m.instance_id for m in live[:20]) or "none"
        raise InterventionRefusedError(f"this pool has no instance {instance_id} (it has: {known})")
    if machine.leave is not None and not machine.wait_for_replacement:
        raise InterventionRefusedError(f"{instance_id} is leaving already ({machine.leave})")
    return machine


def quarantine_zone(draft: Draft, provider: str, zone: str, minutes: int) -> str:
    """Buy nothing in a zone for a while."""
    prefix = _zone_prefix(draft, provider, zone)
    until = draft.now + seconds(60 * minutes)
    hold = OfferHold(prefix=prefix, until=until, reason=QUARANTINED)
    draft.update(holds=(*(h for h in draft.state.holds if h.prefix != prefix), hold))
    return f"nothing is bought in {provider} {zone} until {until:%Y-%m-%dT%H:%M:%SZ}"


def clear_zone(draft: Draft, provider: str, zone: str) -> str:
    """Lift a quarantine and every cool-down of a zone."""
    prefix = _zone_prefix(draft, provider, zone)
    kept = tuple(h for h in draft.state.holds if h.prefix != prefix and not h.prefix.startswith(f"{prefix}/"))
    lifted = len(draft.state.holds) - len(kept)
    draft.update(holds=kept, next_round_at=None)
    return f"{lifted} holds of {provider} {zone} lifted"


def _zone_prefix(draft: Draft, provider: str, zone: str) -> str:
    for name, part in draft.resolved.node_classes.items():
        for network in part.spec.network:
            if name == provider and any(subnet.zone == zone for subnet in network.subnets):
                return zone_prefix(provider, zone, network.region)
    zones = sorted(
        subnet.zone
        for name, part in draft.resolved.node_classes.items()
        if name == provider
        for network in part.spec.network
        for subnet in network.subnets
    )
    known = ", ".join(zones) or "none"
    raise InterventionRefusedError(
        f"no zone {zone} of {provider} in this pool's node classes (zones: {known})"
    )


def force_delete(draft: Draft, stage: str) -> str:
    """Force one stage of a deletion."""
    deletion = draft.state.deletion
    if deletion is None:
        raise InterventionRefusedError("the pool is not being deleted: delete the resource first")
    draft.update(deletion=deletion.model_copy(update={"forced": tuple(sorted({*deletion.forced, stage}))}))
    left = ", ".join(m.instance_id or m.token for m in draft.live()[:20]) or "none"
    return f"stage {stage} forced; machines that are not confirmed gone: {left}"


def resync(draft: Draft) -> str:
    """Forget that clouds and cluster were read, so that both are read before the next decision."""
    draft.update(
        regions={
            key: view.model_copy(update={"as_of": None, "retry_at": None})
            for key, view in draft.state.regions.items()
        },
        nodes_as_of=None,
        nodes_retry_at=None,
        market=Market(),
        next_round_at=None,
        join_failures=(),
    )
    return "clouds and cluster are read again before the next decision"


def record(draft: Draft, name: str, done: str, *, by: str, reason: str) -> None:
    """Say who did what and why."""
    draft.announce(
        EventReason.INTERVENTION,
        f"{name} by {by} ({reason}): {done}",
        f"{name}:{draft.now.isoformat()}",
    )


def record_refusal(draft: Draft, name: str, why: str) -> None:
    """Say that an order changed nothing, and why."""
    draft.announce(
        EventReason.INTERVENTION_REFUSED,
        f"{name} refused: {why}"[:1000],
        f"{name}:{draft.now.isoformat()}:{len(draft.events)}",
        warning=True,
    )
