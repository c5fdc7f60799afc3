import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, CancelledError

from activities.market import MAX_OFFERS, MarketActivities
from activities.signatures import OffersAnswer, OffersRequest
from domain.contracts.catalogue import instance_type
from domain.contracts.errors import ErrorCode
from domain.contracts.instances import OfferQuery
from domain.contracts.offers import InstanceType, Offer, ProviderName, Stock
from tests.activities.builders import a_fault, an_attempt, an_offer
from tests.fakes.provider import REGION, FakeClouds, FakeProvider


@pytest.fixture
def cloud() -> FakeProvider:
    cloud = FakeProvider()
    cloud.market = [an_offer("8.00"), an_offer("4.00", zone="ap-guangzhou-6")]
    return cloud


@pytest.fixture
def hands(cloud: FakeProvider) -> MarketActivities:
    return MarketActivities(FakeClouds(cloud))


def ask(
    hands: MarketActivities, *names: str, max_age: timedelta = timedelta(minutes=5), refresh: bool = False
) -> OffersAnswer:
    query = OfferQuery(instance_types=names or ("GT4.4XLARGE96",), max_age=max_age)
    return an_attempt().run(hands.list_offers, OffersRequest(region=REGION, query=query, refresh=refresh))


def test_offers_are_sorted_by_key_and_read_once(hands: MarketActivities, cloud: FakeProvider) -> None:
    first, second = ask(hands), ask(hands)
    assert first == second
    assert [o.zone for o in first.offers] == ["ap-guangzhou-3", "ap-guangzhou-6"]
    assert cloud.count("offers") == 1


@pytest.mark.parametrize(
    "again",
    [
        pytest.param({"refresh": True}, id="asked to refresh"),
        pytest.param({"max_age": timedelta(0)}, id="older than the query allows"),
    ],
)
def test_offers_are_read_again(
    hands: MarketActivities, cloud: FakeProvider, again: dict[str, object]
) -> None:
    ask(hands)
    ask(hands, **again)  # type: ignore[arg-type]  # one of the two options
    assert cloud.count("offers") == 2


def test_offers_of_another_question_are_another_answer(hands: MarketActivities, cloud: FakeProvider) -> None:
    assert len(ask(hands).offers) == 2
    assert ask(hands, "GT4.41XLARGE948").offers == ()
    assert cloud.count("offers") == 2


def test_offers_asked_by_many_pools_at_once_are_read_once(
    hands: MarketActivities, cloud: FakeProvider
) -> None:
    threads = [threading.Thread(target=ask, args=(hands,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cloud.count("offers") == 1


def test_long_reading_beats_and_no_call_of_it_is_broken_off(
    hands: MarketActivities, cloud: FakeProvider
) -> None:
    beats = threading.Semaphore(0)
    attempt = an_attempt(heartbeat=timedelta(milliseconds=30), on_beat=lambda *_: beats.release())
    read = cloud.offers

    def slow(query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        assert all(beats.acquire(timeout=5) for _ in range(3)), "no sign of life"
        attempt.cancel()
        return read(query, types)

    cloud.offers = slow  # type: ignore[method-assign]  # calls it back on the way
    query = OfferQuery(instance_types=("GT4.4XLARGE96",), max_age=timedelta(minutes=5))
    with pytest.raises(CancelledError):
        attempt.run(hands.list_offers, OffersRequest(region=REGION, query=query))
    assert len(ask(hands).offers) == 2
    assert cloud.count("offers") == 1


def test_type_that_another_pool_asked_for_is_not_read_again(cloud: FakeProvider) -> None:
    small, large = "GT4.4XLARGE96", "GT4.41XLARGE948"
    asked: list[list[str]] = []
    read = cloud.offers

    def recorded(query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        asked.append([row.name for row in types])
        assert query.instance_types == tuple(asked[-1])
        return read(query, types)

    cloud.offers = recorded  # type: ignore[method-assign]  # records
    hands = MarketActivities(FakeClouds(cloud))
    assert len(ask(hands, small).offers) == 2
    assert len(ask(hands, large, small).offers) == 2, (
        "those of one type are there, of the other there are none"
    )
    assert ask(hands, large).offers == ()
    assert asked == [[small], [large]]


def test_reading_that_lasts_longer_than_it_may_be_old_serves_all_who_waited_for_it(
    cloud: FakeProvider,
) -> None:
    asked, both_asked, read = threading.Semaphore(0), threading.Event(), cloud.offers

    class Hands(MarketActivities):
        def _shelf(self, request: OffersRequest) -> Any:
            asked.release()
            return super()._shelf(request)

    def slow(query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        assert both_asked.wait(5)
        return read(query, types)

    cloud.offers = slow  # type: ignore[method-assign]  # lasts until the second one has asked
    hands = Hands(FakeClouds(cloud))
    threads = [
        threading.Thread(target=ask, args=(hands,), kwargs={"max_age": timedelta(0)}) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
        assert asked.acquire(timeout=5)
    both_asked.set()
    for thread in threads:
        thread.join()
    assert cloud.count("offers") == 1


def test_types_of_other_zones_are_another_answer(hands: MarketActivities, cloud: FakeProvider) -> None:
    query = OfferQuery(instance_types=("GT4.4XLARGE96",), zones=("ap-guangzhou-6",))
    for _ in range(2):
        an_attempt().run(hands.list_offers, OffersRequest(region=REGION, query=query))
        ask(hands)
    assert cloud.count("offers") == 2


def test_offers_that_failed_are_asked_again(hands: MarketActivities, cloud: FakeProvider) -> None:
    cloud.faults["offers"] = [a_fault(ErrorCode.UNAVAILABLE)]
    with pytest.raises(ApplicationError):
        ask(hands)
    assert len(ask(hands).offers) == 2


def test_offers_leave_out_the_worst_when_there_are_too_many(
    hands: MarketActivities, cloud: FakeProvider
) -> None:
    sold_out = an_offer("1.00", zone="z-sold-out", stock=Stock.NONE)
    unpriced = an_offer(None, zone="z-unpriced")
    cloud.market = [an_offer(f"{n}.00", zone=f"z{n:03d}") for n in range(1, MAX_OFFERS + 1)] + [
        sold_out,
        unpriced,
    ]
    offers = ask(hands).offers
    assert len(offers) == MAX_OFFERS
    assert not {"z-sold-out", "z-unpriced"} & {offer.zone for offer in offers}


def test_offers_use_rows_of_the_node_class_before_the_catalogue(cloud: FakeProvider) -> None:
    row = instance_type(ProviderName.TENCENT, "GT4.4XLARGE96")
    assert row is not None
    asked: list[object] = []
    cloud.offers = lambda query, types: asked.extend(types) or []  # type: ignore[method-assign]  # records
    own = row.model_copy(update={"name": "NEW.1", "gpu_count": 2})
    wrong = row.model_copy(update={"gpu_memory_gb": 80})
    query = OfferQuery(instance_types=("GT4.4XLARGE96", "NEW.1", "NOBODY.KNOWS"), overrides=(own, wrong))
    hands = MarketActivities(FakeClouds(cloud))
    an_attempt().run(hands.list_offers, OffersRequest(region=REGION, query=query))
    assert asked == [wrong, own]
