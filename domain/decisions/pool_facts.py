"""What a pool learns: folds one fact after the other into the state. Orders nothing."""

from collections.abc import Callable
from typing import Any

from domain.contracts.announcements import EventReason
from domain.contracts.facts import Demand, NodesSeen, RegionObservation, RegionState
from domain.contracts.outcomes import (
    Described,
    DescribeFailed,
    Drained,
    DrainFailed,
    Fact,
    FinalizerRemoved,
    LaunchAnswered,
    LaunchLooked,
    LaunchUnanswered,
    LookFailed,
    NodesDeleted,
    NodesReadFailed,
    NodesSettled,
    OffersFailed,
    OffersRead,
    RegionReadFailed,
    Retained,
    TellFailed,
    Told,
)
from domain.contracts.pool_state import DrainState, Machine, MachinePhase
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_launches import (
    absorb_answered,
    absorb_look_failed,
    absorb_looked,
    absorb_unanswered,
)
from domain.decisions.pool_nodes import absorb_nodes, absorb_nodes_read_failed
from domain.decisions.pool_sightings import (
    absorb_describe_failed,
    absorb_described,
    absorb_observation,
    absorb_region_read_failed,
    absorb_region_state,
)
from domain.decisions.pool_strays import absorb_burials


def absorb(draft: Draft, fact: Fact) -> None:
    """Fold one fact into the draft's state.

    A fact whose ``as_of`` lies ahead of our time counts as of now: a clock that runs ahead, or an order sent
    by hand, must not silence every later word.
    """
    as_of = getattr(fact, "as_of", None)
    if as_of is not None and as_of > draft.now:
        fact = fact.model_copy(update={"as_of": draft.now})
    _ABSORBERS[type(fact)](draft, fact)


def _demand(draft: Draft, fact: Demand) -> None:
    if draft.state.demand is None or fact.as_of >= draft.state.demand.as_of:
        draft.update(demand=fact)


def _offers_read(draft: Draft, fact: OffersRead) -> None:
    market = draft.state.market
    region = str(fact.region)
    kept = tuple(o for o in market.offers if o.region_key != fact.region)
    draft.update(
        market=market.model_copy(
            update={
                "offers": kept + fact.offers,
                "waiting_for": tuple(r for r in market.waiting_for if r != region),
            }
        )
    )
    _price_adopted(draft, fact)


def _price_adopted(draft: Draft, fact: OffersRead) -> None:
    """A machine that was taken over costs what its like costs now, until then it is unknown, not free."""
    quotes = {offer.key: offer.price for offer in fact.offers if offer.price is not None}
    for machine in draft.live():
        offer = machine.offer
        if offer.price is None and offer.region_key == fact.region and offer.key in quotes:
            priced = offer.model_copy(update={"price": quotes[offer.key]})
            draft.set_machine(machine.token, offer=priced)


def _offers_failed(draft: Draft, fact: OffersFailed) -> None:
    market, region = draft.state.market, str(fact.region)
    draft.update(
        market=market.model_copy(
            update={
                "waiting_for": tuple(r for r in market.waiting_for if r != region),
                "unread": (*market.unread, f"{region}: {fact.error}"),
            }
        )
    )


def _freed(draft: Draft, machine: Machine | None, effect: str) -> Machine | None:
    """The machine, free for its next effect, if this effect is the one that it was waiting for."""
    if machine is None or machine.in_flight != effect:
        return None
    return draft.set_machine(machine.token, in_flight="")


def _told(draft: Draft, fact: Told) -> None:
    for instance_id in fact.instance_ids:
        machine = _freed(draft, draft.machine_by_instance(fact.region, instance_id), "terminate")
        if machine is not None:
            draft.set_machine(
                machine.token,
                phase=MachinePhase.TERMINATING,
                terminate_told_at=draft.now,
                rechecks=0,
                next_check_at=draft.now + seconds(draft.settings.confirm_absence_seconds),
            )


def _tell_failed(draft: Draft, fact: TellFailed) -> None:
    retry = draft.now + seconds(draft.settings.terminate_recheck_seconds)
    for instance_id in fact.instance_ids:
        machine = _freed(draft, draft.machine_by_instance(fact.region, instance_id), "terminate")
        if machine is not None:
            draft.set_machine(machine.token, retry_at=retry)
    draft.set_region(fact.region, reason=fact.error)


def _retained(draft: Draft, fact: Retained) -> None:
    for instance_id in fact.instance_ids:
        machine = draft.machine_by_instance(fact.region, instance_id)
        if machine is not None:
            draft.drop_machine(machine.token)


def _drained(draft: Draft, fact: Drained) -> None:
    machine = _freed(draft, draft.machine(fact.token), "drain")
    if machine is None:
        return
    draft.set_machine(fact.token, drain=DrainState.DONE, blockers=fact.result.blockers)
    if fact.result.blockers:
        draft.announce(
            EventReason.DRAIN_BLOCKED,
            f"Draining {machine.node_name} met its deadline: " + "; ".join(fact.result.blockers[:3]),
            fact.token,
            warning=True,
        )


def _drain_failed(draft: Draft, fact: DrainFailed) -> None:
    machine = _freed(draft, draft.machine(fact.token), "drain")
    if machine is None:
        return
    overdue = machine.drain_deadline is not None and draft.now >= machine.drain_deadline
    draft.set_machine(
        fact.token,
        drain=DrainState.DONE if overdue else DrainState.NOT_STARTED,
        blockers=(fact.error,),
        retry_at=draft.now + seconds(draft.settings.confirm_absence_seconds),
    )


def _settled(draft: Draft, fact: NodesSettled) -> None:
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    for token in fact.tokens:
        machine = _freed(draft, draft.machine(token), "settle")
        if machine is not None:
            draft.set_machine(token, settled=not fact.error, retry_at=retry if fact.error else None)


def _nodes_deleted(draft: Draft, fact: NodesDeleted) -> None:
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    absorb_burials(draft, fact)
    for machine in draft.machines:
        if machine.provider_id not in fact.provider_ids:
            continue
        freed = _freed(draft, machine, "delete-node")
        if freed is not None:
            draft.set_machine(
                machine.token, node_deleted=not fact.error, retry_at=retry if fact.error else None
            )


def _finalizer_removed(draft: Draft, fact: FinalizerRemoved) -> None:
    if draft.state.deletion is None:
        return
    retry = draft.now + seconds(draft.settings.polling_interval_seconds) if fact.error else None
    draft.update(
        deletion=draft.state.deletion.model_copy(
            update={
                "finalizer_removed": not fact.error,
                "finalizer_ordered": not fact.error,
                "finalizer_retry_at": retry,
            }
        )
    )


_ABSORBERS: dict[type[Any], Callable[[Draft, Any], None]] = {
    RegionObservation: absorb_observation,
    RegionState: absorb_region_state,
    NodesSeen: absorb_nodes,
    Demand: _demand,
    LaunchAnswered: absorb_answered,
    LaunchUnanswered: absorb_unanswered,
    LaunchLooked: absorb_looked,
    LookFailed: absorb_look_failed,
    Described: absorb_described,
    DescribeFailed: absorb_describe_failed,
    RegionReadFailed: absorb_region_read_failed,
    NodesReadFailed: absorb_nodes_read_failed,
    OffersRead: _offers_read,
    OffersFailed: _offers_failed,
    Told: _told,
    TellFailed: _tell_failed,
    Retained: _retained,
    Drained: _drained,
    DrainFailed: _drain_failed,
    NodesSettled: _settled,
    NodesDeleted: _nodes_deleted,
    FinalizerRemoved: _finalizer_removed,
}
