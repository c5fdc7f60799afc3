"""Which machines are nobody's, and what is said and done about them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from domain.contracts.announcements import Announcement, EventReason, EventType
from domain.contracts.facts import OwnedMachine, OwnershipAnswer
from domain.contracts.leftovers import Leftover
from domain.contracts.offers import Offer
from domain.contracts.pools import OrphanPolicy

MAX_ORPHANS: Final = 500
"""Judged in one sweep; the next one, minutes later, takes the rest."""

_LEFTOVERS_NAMED: Final = 5


def suspects(
    machines: Iterable[OwnedMachine], *, min_age: timedelta, now: datetime
) -> tuple[OwnedMachine, ...]:
    """Machines that are old enough to be judged: a younger one may belong to a create call in flight."""
    return tuple(machine for machine in machines if now - machine.created_at > min_age)


def disowned(
    machines: Sequence[OwnedMachine], answers: Iterable[OwnershipAnswer]
) -> tuple[OwnedMachine, ...]:
    """Machines with an explicit no, in their order, at most 500; a machine without an answer is not one.

    A yes wins over a no, whoever said it.
    """
    said: dict[str, bool] = {}
    for answer in answers:
        said[answer.instance_id] = said.get(answer.instance_id, False) or answer.owned
    return tuple(machine for machine in machines if said.get(machine.instance_id) is False)[:MAX_ORPHANS]


def still_there(before: Iterable[OwnedMachine], now: Iterable[OwnedMachine]) -> tuple[OwnedMachine, ...]:
    """Machines of the first sighting as the second one shows them."""
    known = {machine.instance_id for machine in before}
    return tuple(machine for machine in now if machine.instance_id in known)


def to_reclaim(
    orphans: Iterable[OwnedMachine], policies: Mapping[str, OrphanPolicy], default: OrphanPolicy
) -> tuple[OwnedMachine, ...]:
    """Orphans whose pool's policy, or else the operator's, is to end them."""
    return tuple(o for o in orphans if policies.get(o.pool_uid, default) is OrphanPolicy.RECLAIM)


def priced(orphans: Iterable[OwnedMachine], offers: Iterable[Offer]) -> tuple[OwnedMachine, ...]:
    """Orphans with what such a machine costs today in its zone, where that is known."""
    prices = {
        (offer.zone, offer.instance_type.name, offer.capacity_type): offer.price.per_hour
        for offer in offers
        if offer.price is not None
    }
    return tuple(
        orphan.model_copy(
            update={"price_per_hour": prices.get((orphan.zone, orphan.instance_type, orphan.capacity_type))}
        )
        for orphan in orphans
    )


def hourly_cost(orphans: Iterable[OwnedMachine]) -> Decimal:
    """Sum of the known prices."""
    return sum((o.price_per_hour for o in orphans if o.price_per_hour is not None), Decimal(0))


def announce_orphan(orphan: OwnedMachine, *, now: datetime) -> Announcement:
    """The Event that names an orphan, once for as long as the cluster keeps Events."""
    cost = "" if orphan.price_per_hour is None else f", {orphan.price_per_hour:f} an hour"
    pool = f"pool {orphan.pool_uid}" if orphan.pool_uid else "no pool"
    return Announcement(
        reason=EventReason.ORPHAN_FOUND,
        message=f"{orphan.instance_id} ({orphan.instance_type}{cost}) in {orphan.region}, tagged for {pool},"
        f" launch {orphan.launch or 'unknown'}, belongs to nobody",
        type=EventType.WARNING,
        at=now,
        key=f"orphan:{orphan.region}:{orphan.instance_id}",
    )


def announce_reclaimed(orphan: OwnedMachine, *, now: datetime) -> Announcement:
    """The Event that says an orphan was ended."""
    return Announcement(
        reason=EventReason.ORPHAN_RECLAIMED,
        message=f"{orphan.instance_id} in {orphan.region} was told to end",
        type=EventType.WARNING,
        at=now,
        key=f"reclaimed:{orphan.region}:{orphan.instance_id}",
    )


def announce_retained(machine: OwnedMachine, *, now: datetime) -> Announcement:
    """The Event that reminds of a machine that a deleted pool gave up."""
    return Announcement(
        reason=EventReason.INSTANCE_RETAINED,
        message=f"{machine.instance_id} ({machine.instance_type}) in {machine.region} was retained by its"
        " deleted pool and still runs; end it at the cloud when it is no longer needed",
        at=now,
        key=f"retained:{machine.region}:{machine.instance_id}",
    )


def announce_released(leftover: Leftover, *, now: datetime) -> Announcement:
    """The Event that names an address or disk that outlived its machine."""
    return Announcement(
        reason=EventReason.LEFTOVER_RELEASED,
        message=f"{leftover.kind} {_named(leftover)} in {leftover.region} outlived its machine: released",
        at=now,
        key=f"released:{leftover.region}:{leftover.id}",
    )


def announce_leftovers(leftovers: Sequence[Leftover], *, where: str, now: datetime) -> Announcement:
    """The one Event of what stays in a region without a machine; said again when it changes."""
    named = ", ".join(f"{each.kind} {_named(each)}" for each in leftovers[:_LEFTOVERS_NAMED])
    more = len(leftovers) - _LEFTOVERS_NAMED
    rest = f" and {more} more" if more > 0 else ""
    digest = hashlib.sha256(" ".join(sorted(each.id for each in leftovers)).encode()).hexdigest()[:12]
    return Announcement(
        reason=EventReason.LEFTOVERS_FOUND,
        message=f"in {where} no machine uses {named}{rest}; release at the cloud what is no longer needed",
        at=now,
        key=f"leftovers:{where}:{digest}",
    )


def _named(leftover: Leftover) -> str:
    name = f" ({leftover.name})" if leftover.name and leftover.name != leftover.id else ""
    return f"{leftover.id}{name}"


def announce_lost_epoch(own: int, highest: int, *, where: str, now: datetime) -> Announcement:
    """The Event that says why this installation ends nothing any more."""
    return Announcement(
        reason=EventReason.EPOCH_LOST,
        message=f"machines in {where} carry epoch {highest}, ours is {own}: another installation took over;"
        " this one ends no machine. Stop it, or raise the epoch in its ConfigMap if it is the right one",
        type=EventType.WARNING,
        at=now,
        key=f"epoch:{where}:{own}:{highest}",
    )
