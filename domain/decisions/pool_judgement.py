"""The pool's judgement: (what is wanted, what is known, now) to (new state, commands, events)."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from domain.contracts.announcements import Announcement
from domain.contracts.commands import Command, ReadNodes, ReadRegion
from domain.contracts.facts import RegionHealth
from domain.contracts.model import Contract
from domain.contracts.offers import RegionKey
from domain.contracts.outcomes import Fact
from domain.contracts.pool_state import Machine, MachinePhase, PoolCarry
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from domain.decisions.holds import expire
from domain.decisions.pool_deletion import ever_bought, finish_deletion, plan_deletion, regions_to_search
from domain.decisions.pool_departures import (
    TELL_AGAIN,
    coming_up,
    is_resting,
    may_look,
    plan_departures,
    plan_replacements,
    plan_settling,
    plan_timeouts,
    regions_to_end,
    waits_for_nodes,
)
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_facts import absorb
from domain.decisions.pool_levels import desired_instances, fill_from_surplus, plan_level, slots_missing
from domain.decisions.pool_presence import LOSS_MEMORY, forget_losses
from domain.decisions.pool_purchases import SLOW_REGION_SECONDS, launches_barred, plan_purchases
from domain.decisions.pool_regions import (
    candidates,
    is_served,
    known_certain_from,
    regions_to_meet,
    settle_known,
)
from domain.decisions.pool_shown import plan_shown, shown_deadline
from domain.decisions.pool_strays import certain_from, plan_burials, regions_to_witness


class Judgement(Contract):
    """What one judgement came to."""

    state: PoolCarry
    commands: tuple[Command, ...]
    """In the order in which they are to be started."""
    events: tuple[Announcement, ...]
    deadline: datetime | None
    """When the pool must judge again if nothing happens; None when nothing is due."""


def judge(
    resolved: ResolvedPool,
    settings: PoolSettings,
    state: PoolCarry,
    facts: Iterable[Fact],
    *,
    now: datetime,
) -> Judgement:
    """Fold the facts in and decide what is to be done.

    Level-triggered: everything is worked out again from the state, so that a lost or repeated fact does
    no harm. What is under way is marked in the state and not ordered twice.

    Args:
        resolved: The resource with what it refers to.
        settings: The operator's durations and regions.
        state: What the pool remembers.
        facts: What was learnt since the last judgement, in order.
        now: Time of the judgement, UTC.
    """
    draft = Draft(resolved, settings, state, now)
    for fact in facts:
        absorb(draft, fact)
    return conclude(draft)


def conclude(draft: Draft) -> Judgement:
    """Decide on what the draft holds."""
    draft.update(holds=expire(draft.state.holds, draft.now))
    forget_losses(draft)
    settle_known(draft)
    plan_deletion(draft)
    fill_from_surplus(draft)
    plan_timeouts(draft)
    plan_level(draft)
    plan_replacements(draft)
    _plan_reads(draft)
    plan_departures(draft)
    plan_purchases(draft)
    plan_settling(draft)
    plan_burials(draft)
    plan_shown(draft)
    finish_deletion(draft)
    return Judgement(
        state=draft.state,
        commands=tuple(draft.commands),
        events=tuple(draft.events),
        deadline=_deadline(draft),
    )


# Reading before deciding ---------------------------------------------------------------------------


def _plan_reads(draft: Draft) -> None:
    """Order the readings without which nothing may be bought or ended."""
    if draft.state.deletion is not None and not ever_bought(draft):
        return
    state = draft.state
    if waits_for_nodes(draft) and not state.nodes_reading and _is_due(state.nodes_retry_at, draft.now):
        draft.update(nodes_reading=True)
        draft.order(ReadNodes())
    for region in _regions_wanted(draft):
        view = draft.region(region)
        if not view.reading and _is_due(view.retry_at, draft.now):
            draft.set_region(region, reading=True, reading_since=draft.now)
            draft.order(ReadRegion(region=region))


def _regions_wanted(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions whose next decision needs a newer observation, sorted."""
    wanted = [
        *(c.region for c in candidates(draft) if _read_to_buy(draft, c.region)),
        *(region for region in regions_to_end(draft) if not draft.is_fresh(region)),
        *regions_to_search(draft),
        *regions_to_witness(draft),
        *regions_to_meet(draft),
    ]
    by_name = {str(region): region for region in wanted if is_served(draft, region)}
    return tuple(by_name[name] for name in sorted(by_name))


def _read_to_buy(draft: Draft, region: RegionKey) -> bool:
    """Whether a region must be read before it is bought in; while its circuit is open, its sync probes it."""
    view = draft.region(region)
    if draft.state.deletion is not None or view.health is RegionHealth.CIRCUIT_OPEN:
        return False
    if view.as_of is None:
        return True
    return _wants_to_buy(draft) and (view.health is RegionHealth.STALE or not draft.is_fresh(region))


def _wants_to_buy(draft: Draft) -> bool:
    if launches_barred(draft, before_reading=True):
        return False
    if any(not slot.token for slot in draft.slots):
        return True
    return slots_missing(draft, desired_instances(draft)) > 0


def _is_due(moment: datetime | None, now: datetime) -> bool:
    return moment is None or moment <= now


# When to look again --------------------------------------------------------------------------------


def _deadline(draft: Draft) -> datetime | None:
    """The nearest moment at which time alone changes the judgement."""
    moments = [m for m in _moments(draft) if m is not None and m > draft.now]
    return min(moments, default=None)


def _moments(draft: Draft) -> Iterator[datetime | None]:
    yield from (deadline for _, deadline in coming_up(draft))
    for machine in draft.machines:
        yield shown_deadline(draft, machine)
        yield from _machine_moments(draft, machine)
    state = draft.state
    if waits_for_nodes(draft):
        yield state.nodes_retry_at
    yield state.burial_retry_at
    yield certain_from(draft)
    if state.zone_losses:
        yield state.zone_losses[0].at + LOSS_MEMORY
    yield known_certain_from(draft)
    for region in _regions_wanted(draft):
        yield draft.region(region).retry_at
    for view in state.regions.values():
        if view.reading and view.reading_since is not None:
            yield view.reading_since + seconds(SLOW_REGION_SECONDS)
    if state.market.waiting_for and state.market.started_at is not None:
        yield state.market.started_at + seconds(SLOW_REGION_SECONDS)
    if state.manual_level is not None:
        yield state.manual_level.until
    yield from _level_moments(draft)
    yield from _deletion_moments(draft)


def _machine_moments(draft: Draft, machine: Machine) -> Iterator[datetime | None]:
    if may_look(draft, machine):
        yield machine.next_check_at
    if machine.in_flight:
        return
    if is_resting(draft, machine):
        yield machine.retry_at
    if machine.terminate_told_at is not None and machine.phase is not MachinePhase.GONE:
        yield machine.terminate_told_at + TELL_AGAIN


def _level_moments(draft: Draft) -> Iterator[datetime | None]:
    state = draft.state
    if state.deletion is not None:
        return
    desired = desired_instances(draft)
    cooldown = seconds(draft.resolved.spec.scale_strategy.cooldown_seconds)
    missing = slots_missing(draft, desired)
    if missing and state.last_scale_up_at is not None:
        yield state.last_scale_up_at + cooldown
    if len(state.slots) > desired and state.last_scale_down_at is not None:
        yield state.last_scale_down_at + cooldown
    if missing or any(not slot.token for slot in state.slots):
        yield state.next_round_at


def _deletion_moments(draft: Draft) -> Iterator[datetime | None]:
    deletion = draft.state.deletion
    if deletion is not None and not deletion.finalizer_removed:
        yield deletion.finalizer_retry_at
        if not deletion.stuck_told:
            yield deletion.stage_since + seconds(draft.settings.delete_stage_seconds)
