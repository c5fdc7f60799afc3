"""Price and stock of a region, read once for all pools that ask the same."""

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from temporalio import activity

from activities.failures import as_application_error
from activities.heartbeats import beating_thread
from activities.providers.base import ProviderSource
from activities.signatures import OffersAnswer, OffersRequest
from activities.telemetry import metrics
from domain.contracts.catalogue import instance_type
from domain.contracts.instances import OfferQuery
from domain.contracts.offers import InstanceType, Offer, ProviderName, RegionKey, Stock

MAX_OFFERS: Final = 200
"""Offers of one answer: a payload without a bound would one day be refused by the server."""


class _Shelf:
    """The last answer to one question, and the lock that lets only one caller ask it again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at: datetime | None = None
        self.offers: tuple[Offer, ...] = ()


class MarketActivities:
    """Bound to live adapters by ``workers.wiring``; keeps answers for as long as the query allows."""

    def __init__(self, providers: ProviderSource) -> None:
        self._providers = providers
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    @activity.defn(name="cloud.list_offers")
    def list_offers(self, request: OffersRequest) -> OffersAnswer:
        """Price and stock of a region, sorted by key, at most 200: the dearest per GPU are left out first.

        A reading that was begun is brought to its end, whoever called it back: others wait for it.
        """
        shelf = self._shelf(request)
        with beating_thread(), activity.shield_thread_cancel_exception(), shelf.lock:
            now = datetime.now(UTC)
            stored = None if request.refresh else shelf.read_at
            if stored is None or now - stored > request.query.max_age:
                shelf.offers = self._read(request.region, request.query)
                shelf.read_at = now
                _show(request.region, shelf.offers, now)
            return OffersAnswer(offers=shelf.offers)

    def _shelf(self, request: OffersRequest) -> _Shelf:
        question = request.query.model_dump_json(exclude={"max_age"})
        with self._lock:
            return self._shelves.setdefault(f"{request.region}|{question}", _Shelf())

    def _read(self, region: RegionKey, query: OfferQuery) -> tuple[Offer, ...]:
        types = _rows(region.provider, query)
        with as_application_error():
            offers = self._providers.provider(region).offers(query, types)
        best = sorted(offers, key=_worth)[:MAX_OFFERS]
        return tuple(sorted(best, key=lambda offer: offer.key))


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


def _show(region: RegionKey, offers: tuple[Offer, ...], now: datetime) -> None:
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
