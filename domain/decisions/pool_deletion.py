"""How a pool ends: the door closes first, then the house is emptied, then the resource is let go."""

from domain.contracts.announcements import EventReason
from domain.contracts.commands import RemoveFinalizer
from domain.contracts.offers import RegionKey
from domain.contracts.pool_state import Deletion, LeaveReason, MachinePhase, Market
from domain.decisions.pool_draft import Draft, seconds

STAGE_DRAIN = "Drain"
STAGE_TERMINATE = "Terminate"
STAGE_NODES = "Nodes"
STAGE_FINALIZER = "Finalizer"


def plan_deletion(draft: Draft) -> None:
    """Close the door once the resource is being deleted, and move through the stages."""
    if draft.resolved.deleting and draft.state.deletion is None:
        _close_door(draft)
    if draft.state.deletion is None:
        return
    for machine in draft.live():
        # A late answer or an adopted machine finds the door closed.
        if machine.leave is None:
            draft.leave(machine, LeaveReason.POOL_DELETED, "the pool is being deleted")
        elif machine.wait_for_replacement:
            draft.set_machine(machine.token, wait_for_replacement=False)
    _apply_force(draft)


def _close_door(draft: Draft) -> None:
    deletion = Deletion(started_at=draft.now, stage=STAGE_DRAIN, stage_since=draft.now)
    draft.update(deletion=deletion, market=Market(), next_round_at=None)
    live = len(draft.live())
    draft.announce(
        EventReason.DELETING, f"Deleting: {live} machines to end, nothing is bought any more", "start"
    )
    for machine in draft.live():
        if machine.leave is None:
            draft.leave(machine, LeaveReason.POOL_DELETED, "the pool is being deleted")
    draft.update(slots=())


def _apply_force(draft: Draft) -> None:
    """Stages that a human forced: what could not be confirmed is given up and said so."""
    deletion = draft.state.deletion
    if deletion is None:
        return
    if STAGE_TERMINATE in deletion.forced:
        for machine in draft.live():
            draft.announce(
                EventReason.DELETION_STUCK,
                f"Gave up {machine.instance_id or machine.token} in {machine.offer.zone} by force:"
                " the orphan sweep will find it if it lives",
                machine.token,
                warning=True,
            )
            draft.drop_machine(machine.token)
    if STAGE_NODES in deletion.forced:
        for machine in draft.machines:
            if machine.phase is MachinePhase.GONE and not machine.node_deleted:
                draft.set_machine(machine.token, node_deleted=True)


def regions_to_search(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions that may hold machines of this pool and were not read since the door closed, sorted."""
    deletion = draft.state.deletion
    if deletion is None or not ever_bought(draft) or STAGE_TERMINATE in deletion.forced:
        return ()
    missing: dict[str, RegionKey] = {}
    for region in regions_of_spec(draft):
        as_of = draft.region(region).as_of
        if as_of is None or as_of < deletion.started_at:
            missing[str(region)] = region
    return tuple(missing[key] for key in sorted(missing))


def regions_of_spec(draft: Draft) -> tuple[RegionKey, ...]:
    """Served regions that the spec names, whatever became of their node classes."""
    return tuple(
        region
        for region in draft.settings.served_regions
        if any(
            choice.name == region.provider and (not choice.regions or region.region in choice.regions)
            for choice in draft.resolved.spec.providers
        )
    )


def ever_bought(draft: Draft) -> bool:
    """Whether there may be machines: this chain ordered or adopted some, or the status named some."""
    state = draft.state
    return bool(state.launches_total or state.adopted_machines or draft.resolved.known_machines)


def finish_deletion(draft: Draft) -> None:
    """Let the resource go when nothing is left, and say which stage the deletion is in."""
    deletion = draft.state.deletion
    if deletion is None or deletion.finalizer_removed:
        return
    stage = _stage(draft)
    if stage != deletion.stage:
        deletion = deletion.model_copy(update={"stage": stage, "stage_since": draft.now, "stuck_told": False})
    limit = seconds(draft.settings.delete_stage_seconds)
    if not deletion.stuck_told and draft.now >= deletion.stage_since + limit:
        deletion = deletion.model_copy(update={"stuck_told": True})
        draft.announce(
            EventReason.DELETION_STUCK,
            f"Stage {stage} takes longer than {limit}: {waits_for(draft)}",
            f"{stage}:{deletion.stage_since.isoformat()}",
            warning=True,
        )
    retry = deletion.finalizer_retry_at
    if stage == STAGE_FINALIZER and not deletion.finalizer_ordered and (retry is None or retry <= draft.now):
        deletion = deletion.model_copy(update={"finalizer_ordered": True})
        draft.order(RemoveFinalizer())
        draft.announce(EventReason.DELETED, "Every machine is confirmed gone", "end")
    draft.update(deletion=deletion)


def _stage(draft: Draft) -> str:
    machines = draft.machines
    if any(m.in_flight == "drain" for m in machines):
        return STAGE_DRAIN
    if draft.live() or regions_to_search(draft):
        return STAGE_TERMINATE
    return STAGE_NODES if machines else STAGE_FINALIZER


def waits_for(draft: Draft) -> str:
    """What a deletion waits for, in one clause."""
    live = draft.live()
    blocked = [b for m in live for b in m.blockers]
    if blocked:
        return "; ".join(blocked[:3])
    if live:
        names = ", ".join(m.instance_id or m.token for m in live[:5])
        return f"the confirmed absence of {len(live)} machines: {names}"
    missing = regions_to_search(draft)
    if missing:
        return "a reading of " + ", ".join(str(region) for region in missing)
    if draft.machines:
        return f"the removal of {len(draft.machines)} Nodes"
    return "the removal of the finalizer"
