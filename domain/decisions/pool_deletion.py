"""How a pool ends: the door closes first, then the house is emptied, then the resource is let go."""

from domain.contracts.announcements import EventReason
from domain.contracts.commands import RemoveFinalizer
from domain.contracts.offers import RegionKey
from domain.contracts.pool_state import Deletion, DrainState, LeaveReason, MachinePhase, Market
from domain.decisions.pool_departures import is_resting, wants_drain
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_regions import is_served, missing_machines, regions_of_pool, regions_to_meet
from domain.decisions.pool_regions import regions_of_spec as regions_of_spec
from domain.decisions.pool_strays import dark_strays

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
    _apply_force(draft, draft.state.deletion)


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


def _apply_force(draft: Draft, deletion: Deletion) -> None:
    """Stages that a human forced: what could not be confirmed is given up and said so."""
    if STAGE_DRAIN in deletion.forced:
        for machine in draft.live():
            in_flight = "" if machine.in_flight == "drain" else machine.in_flight
            draft.set_machine(machine.token, drain=DrainState.DONE, in_flight=in_flight)
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
        _give_up_nodes(draft, deletion)


def _give_up_nodes(draft: Draft, deletion: Deletion) -> None:
    """Wait no more for Nodes whose removal was ordered; it goes on, or had failed."""
    tried = [
        machine
        for machine in draft.machines
        if machine.phase is MachinePhase.GONE and machine.node_name and not machine.node_deleted
        if draft.state.rules < 1 or machine.in_flight == "delete-node" or is_resting(draft, machine)
    ]
    for machine in tried:
        draft.set_machine(machine.token, node_deleted=True, in_flight="")
    left = tuple(dict.fromkeys((*deletion.nodes_left, *(machine.node_name for machine in tried))))
    draft.update(deletion=deletion.model_copy(update={"nodes_left": left}))


def regions_to_search(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions that may hold machines of this pool and were not read since the door closed, sorted."""
    deletion = draft.state.deletion
    if deletion is None or not ever_bought(draft) or STAGE_TERMINATE in deletion.forced:
        return ()
    missing: dict[str, RegionKey] = {str(region): region for region in regions_to_meet(draft)}
    for region in regions_of_pool(draft):
        as_of = draft.region(region).as_of
        if as_of is None or as_of < deletion.started_at:
            missing[str(region)] = region
    return tuple(missing[key] for key in sorted(missing))


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
        draft.announce(EventReason.DELETED, _farewell(deletion), "end")
    draft.update(deletion=deletion)


def _farewell(deletion: Deletion) -> str:
    if STAGE_TERMINATE in deletion.forced:
        return (
            "Let go by force: machines that were not confirmed gone are left to the orphan sweep,"
            " their Nodes to whoever forced it"
        )
    if deletion.nodes_left:
        names = ", ".join(deletion.nodes_left[:20])
        return f"Every machine is confirmed gone; let go by force while Nodes may be left: {names}"
    return "Every machine is confirmed gone"


def _stage(draft: Draft) -> str:
    live = draft.live()
    if any(m.in_flight == "drain" or wants_drain(draft, m) for m in live):
        return STAGE_DRAIN
    if live or regions_to_search(draft) or _missing(draft):
        return STAGE_TERMINATE
    forced = draft.state.deletion is not None and STAGE_NODES in draft.state.deletion.forced
    nodes_left = bool(draft.machines or dark_strays(draft)) and not forced
    return STAGE_NODES if nodes_left else STAGE_FINALIZER


def _trouble(draft: Draft, region: RegionKey) -> str:
    """Why machines of a region cannot be ended now, empty when nothing stands against it."""
    if not is_served(draft, region):
        return f"{region} is not served by this operator"
    reason = draft.region(region).reason
    return "" if draft.is_fresh(region) or not reason else f"{region}: {reason}"


def _missing(draft: Draft) -> int:
    """Machines of a former chain that may still turn up, unless a human forced the end."""
    deletion = draft.state.deletion
    forced = deletion is not None and STAGE_TERMINATE in deletion.forced
    return 0 if forced else len(missing_machines(draft))


def waits_for(draft: Draft) -> str:
    """What a deletion waits for, in one clause."""
    live = draft.live()
    blocked = [b for m in live for b in m.blockers if m.drain is not DrainState.DONE]
    if blocked:
        return "; ".join(blocked[:3])
    if live:
        names = ", ".join(m.instance_id or m.token for m in live[:5])
        places = {str(m.offer.region_key): m.offer.region_key for m in live}
        troubles = [text for key in sorted(places) for text in [_trouble(draft, places[key])] if text]
        where = f" ({'; '.join(troubles)})" if troubles else ""
        return f"the confirmed absence of {len(live)} machines: {names}{where}"
    missing = regions_to_search(draft)
    if missing:
        return "a reading of " + ", ".join(str(region) for region in missing)
    if _missing(draft):
        return f"{_missing(draft)} machines that the status named and no region has shown yet"
    nodes = len(draft.machines) + len(dark_strays(draft))
    if nodes:
        return f"the removal of {nodes} Nodes"
    return "the removal of the finalizer"
