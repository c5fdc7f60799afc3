"""Price and stock of a region, each type read once for all pools that ask for it in the same zones."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from temporalio import activity

from activities.failures import as_application_error
from activities.heartbeats import beating_thread
from activities.providers.base import ProviderSource
from activities.signatures import OffersAnswer, OffersRequest
from activities.telemetry import metrics
from activities.turns import patient
from domain.contracts.catalogue import instance_type
from domain.contracts.instances import OfferQuery
from domain.contracts.offers import InstanceType, Offer, ProviderName, RegionKey, Stock

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
MAX_OFFERS: Final = 200
"""Offers of one answer: a payload without a bound would one day be refused by the server."""


@dataclass(frozen=True)
class _Stored:
    """The offers of one type."""

    read_at: datetime
    """When their reading ended: it may last longer than they may be old, and serves all who waited for it."""
    offers: tuple[Offer, ...]


class _Shelf:
    """What was read of a region's zones, and the lock that lets one caller at a time read what is missing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: dict[InstanceType, _Stored] = {}
        """By the row that was asked for: node classes may describe a type differently."""


class MarketActivities:
    """Bound to live adapters by ``workers.wiring``; keeps answers for as long as the query allows."""

    def __init__(self, providers: ProviderSource) -> None:
        self._providers = providers
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    @activity.defn(name="cloud.list_offers")
    def list_offers(self, request: OffersRequest) -> OffersAnswer:
        """Price and stock of a region, sorted by key, at most 200: the dearest per GPU are left out first.

        One that is called back ends between two calls, never within one.
        """
        query, asked_at, shelf = request.query, datetime.now(UTC), self._shelf(request)
        rows = _rows(request.region.provider, query)
        with beating_thread(), activity.shield_thread_cancel_exception(), shelf.lock:
            # What others read while this one waited for the lock is new enough for anybody.
            oldest = asked_at if request.refresh else asked_at - query.max_age
            due = [row for row in rows if _read_at(shelf.stored.get(row)) < oldest]
            if due:
                shelf.stored |= self._read(request.region, query, due)
            offers = [offer for row in rows for offer in shelf.stored[row].offers]
        best = sorted(offers, key=_worth)[:MAX_OFFERS]
        return OffersAnswer(offers=tuple(sorted(best, key=lambda offer: offer.key)))

    def _shelf(self, request: OffersRequest) -> _Shelf:
        query = request.query
        where = f"{request.region}|{query.capacity_type}|{','.join(sorted(query.zones))}"
        with self._lock:
            return self._shelves.setdefault(where, _Shelf())

    def _read(
        self, region: RegionKey, query: OfferQuery, rows: list[InstanceType]
    ) -> dict[InstanceType, _Stored]:
        """Offers of these rows, by row; of one that is not sold there are none."""
        wanted = query.model_copy(update={"instance_types": tuple(row.name for row in rows)})
        with patient(), as_application_error():
            found = self._providers.provider(region).offers(wanted, rows)
        now = datetime.now(UTC)
        _show(region, found, now)
        return {
            row: _Stored(now, tuple(offer for offer in found if offer.instance_type.name == row.name))
            for row in rows
        }


def _read_at(stored: _Stored | None) -> datetime:
    return stored.read_at if stored is not None else _NEVER


def _rows(provider: ProviderName, query: OfferQuery) -> list[InstanceType]:
    """Rows of the wanted names, in the query's order; names that nobody knows are left out and logged."""
    overrides = {row.name: row for row in query.overrides}
    rows = {name: overrides.get(name) or instance_type(provider, name) for name in query.instance_types}
    unknown = [name for name, row in rows.items() if row is None]
    if unknown:
        activity.logger.warning(
            "Instance types left out: neither catalogue nor node class knows them",
            extra={"provider": provider.value, "instance_types": unknown},
        )
    return [row for row in rows.values() if row is not None]


def _worth(offer: Offer) -> tuple[bool, Decimal, str]:
    """Buyable before sold out or unpriced, cheap per GPU before dear."""
    per_gpu = Decimal(0) if offer.price is None else offer.price.per_hour / offer.instance_type.gpu_count
    return (offer.price is None or offer.stock is Stock.NONE, per_gpu, offer.key)


def _show(region: RegionKey, offers: Sequence[Offer], now: datetime) -> None:
    metrics.OFFERS_READ_TIME.labels(region.provider.value, region.account, region.region).set(now.timestamp())
    for offer in offers:
        if offer.price is not None:
            metrics.OFFER_PRICE.labels(
                offer.provider.value,
                offer.region,
                offer.zone,
                offer.instance_type.name,
                offer.capacity_type.value,
                offer.price.currency,
            ).set(float(offer.price.per_hour))
