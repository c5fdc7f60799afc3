"""The Alibaba adapter against the simulated cloud over HTTP, and its tables and translators alone."""

import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from socket import socket

import pytest

from activities.instances import InstanceActivities
from activities.owners import OwnerActivities
from activities.providers import aliyun
from activities.providers import aliyun_answers as answers
from activities.providers.aliyun import (
    AliyunProvider,
    AliyunSettings,
    build,
    instance_from,
    launch_body,
    newest_by_zone,
    price_limit_from,
    quote_from,
    spot_terms,
)
from activities.providers.aliyun_errors import NOT_OFFERED, classify
from activities.providers.aliyun_sdk import public_text
from activities.providers.registry import ProviderRegistry
from activities.regions import RegionActivities
from activities.signatures import AskOwnersRequest, InstallationRequest, InstancesRequest
from domain.contracts.catalogue import CATALOGUE
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.installation import Installation
from domain.contracts.instances import (
    Created,
    DiskSpec,
    InstanceState,
    LaunchRequest,
    OfferQuery,
    Refusal,
    Rejected,
)
from domain.contracts.lanes import Lane
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey, Stock
from domain.contracts.pools import OrphanPolicy
from domain.decisions import orphans
from sandbox.clouds.aliyun import AliyunCloud
from sandbox.clouds.cloud import Call, WireRequest
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.inventory import Account
from sandbox.clouds.ledger import MachineState
from sandbox.clouds.server import served
from tests.activities.builders import an_attempt
from tests.fakes.cluster import FakeCluster
from tests.fakes.directory import FakePools
from tests.fakes.provider import FakeSecrets
from tests.sandbox.clouds.aliyun_builders import (
    GROUP,
    IMAGE,
    KEY,
    KEY_PAIR,
    OTHER_ZONE,
    REGION,
    SECRET,
    TYPE,
    VSWITCH,
    ZONE,
    a_cloud,
    captured_requests,
)

REGION_KEY = RegionKey(provider=ProviderName.ALIYUN, account="aliyun-credentials", region=REGION)
SCRIPT = "#!/bin/sh\nkubeadm join --token abcdef.0123456789abcdef\n"
TYPES = CATALOGUE[ProviderName.ALIYUN]
DROPPED_BEFORE = "dropped before it was carried out"


@dataclass
class Keys:
    """Credentials that a test can rotate."""

    keys: dict[str, str] = field(default_factory=lambda: {"accessKeyId": KEY, "accessKeySecret": SECRET})

    def read(self) -> Mapping[str, str]:
        return self.keys


def row(name: str = TYPE) -> InstanceType:
    return next(each for each in TYPES if each.name == name)


def a_request(token: str = "uid-1-aaaa-1", **changes: object) -> LaunchRequest:
    offer = Offer(
        provider=ProviderName.ALIYUN,
        account="aliyun-credentials",
        region=REGION,
        zone=ZONE,
        instance_type=row(),
        capacity_type=CapacityType.SPOT,
        price=None,
        stock=Stock.AMPLE,
    )
    return LaunchRequest(
        token=token,
        offer=offer,
        image_id=IMAGE,
        vpc_id="vpc-bp1",
        subnet_id=VSWITCH,
        security_group_ids=(GROUP,),
        key_pair_id=KEY_PAIR,
        disk=DiskSpec(type="cloud_essd", size_gb=100),
        user_data_template="",
        join_secret="cluster-join",
        tags={TAG_INSTALLATION: "inst-1", "spotgpu-pool": "uid-1"},
        max_price_per_hour=Decimal(50),
        name="gpu-0",
    ).model_copy(update=changes)


class RecordingCloud(AliyunCloud):
    """Keeps the raw requests."""

    def __init__(self, base: AliyunCloud) -> None:
        super().__init__(base.settings)
        self.initializing = base.initializing
        self.seen: list[WireRequest] = []

    def open(self, request: WireRequest) -> Call:
        self.seen.append(request)
        return super().open(request)


@dataclass
class World:
    """A served cloud and an adapter for it."""

    cloud: RecordingCloud
    address: str
    keys: Keys = field(default_factory=Keys)
    read_timeout_seconds: float = 10

    def adapter(self) -> AliyunProvider:
        settings = AliyunSettings(endpoint=self.address, read_timeout_seconds=self.read_timeout_seconds)
        return AliyunProvider(REGION_KEY, self.keys, settings)

    def buy(self, count: int = 1, **changes: object) -> list[str]:
        """Machines straight from the ledger's side of the wire, named by the adapter."""
        adapter = self.adapter()
        results = [adapter.launch(a_request(f"uid-1-aaaa-{n}", **changes), SCRIPT) for n in range(count)]
        return [result.instance_id for result in results if isinstance(result, Created)]

    def calls(self, action: str) -> int:
        return len(self.cloud.log.records(action))


@contextmanager
def a_world(**settings: object) -> Iterator[World]:
    cloud = RecordingCloud(a_cloud(**settings))  # pyright: ignore[reportArgumentType] - builders check them
    cloud.rates.default = 0
    cloud.rates.per_second.clear()
    with served(cloud) as address:
        yield World(cloud, address)


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def fault_of(action: object, *arguments: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        action(*arguments)  # pyright: ignore[reportCallIssue] - a method of the adapter
    return caught.value


# Purchases ----------------------------------------------------------------------------------------------


def test_launch_buys_one_machine_with_everything_that_was_asked(world: World) -> None:
    result = world.adapter().launch(a_request(), SCRIPT)
    (machine,) = world.cloud.ledger.all()
    assert result == Created(instance_id=machine.id, zone=ZONE)
    assert machine.order.user_data == SCRIPT
    assert machine.tags == {
        TAG_INSTALLATION: "inst-1",
        "spotgpu-pool": "uid-1",
        TAG_LAUNCH: "uid-1-aaaa-1",
    }
    details = machine.order.details
    assert (details["SpotStrategy"], details["SpotPriceLimit"]) == ("SpotWithPriceLimit", 50.0)
    assert (details["SpotDuration"], details["KeyPairName"]) == (1, KEY_PAIR)
    assert (machine.order.name, details["HostName"]) == ("gpu-0", "gpu-0")
    assert world.calls("RunInstances") == 1


def test_launch_without_a_bid_goes_up_to_the_price_without_interruption(world: World) -> None:
    world.adapter().launch(a_request(max_price_per_hour=None), SCRIPT)
    assert world.cloud.ledger.all()[0].order.details["SpotStrategy"] == "SpotAsPriceGo"


def test_launch_of_on_demand_capacity_is_no_spot_instance(world: World) -> None:
    offer = a_request().offer.model_copy(update={"capacity_type": CapacityType.ON_DEMAND})
    world.adapter().launch(a_request(offer=offer), SCRIPT)
    (machine,) = world.cloud.ledger.all()
    assert not machine.order.spot
    (seen,) = world.adapter().describe([machine.id])
    assert seen.capacity_type is CapacityType.ON_DEMAND


def test_launch_repeated_with_its_token_finds_the_same_machine(world: World) -> None:
    adapter = world.adapter()
    assert adapter.launch(a_request(), SCRIPT) == adapter.launch(a_request(), SCRIPT)
    assert len(world.cloud.ledger.all()) == 1


def test_launch_with_a_used_token_and_other_parameters_is_of_unknown_outcome(world: World) -> None:
    adapter = world.adapter()
    adapter.launch(a_request(), SCRIPT)
    fault = fault_of(adapter.launch, a_request(), SCRIPT + "# rotated\n")
    assert (fault.code, fault.vendor_code) == (ErrorCode.UNKNOWN_OUTCOME, "IdempotentParameterMismatch")
    assert len(adapter.list_tagged({TAG_LAUNCH: "uid-1-aaaa-1"})) == 1


@pytest.mark.parametrize(
    ("kind", "code", "not_offered"),
    [
        pytest.param(FaultKind.NO_STOCK, ErrorCode.INSUFFICIENT_CAPACITY, False, id="sold out"),
        pytest.param(FaultKind.NOT_OFFERED, ErrorCode.INSUFFICIENT_CAPACITY, True, id="not offered"),
        pytest.param(FaultKind.QUOTA, ErrorCode.QUOTA, False, id="quota"),
    ],
)
def test_launch_answers_a_refusal_of_the_market_as_a_value(
    world: World, kind: FaultKind, code: ErrorCode, *, not_offered: bool
) -> None:
    world.cloud.faults.set(Fault(kind=kind))
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.not_offered) == (code, not_offered)
    assert world.cloud.ledger.all() == ()


def test_launch_answers_a_bid_below_the_price_as_a_value(world: World) -> None:
    result = world.adapter().launch(a_request(max_price_per_hour=Decimal("0.5")), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.vendor_code) == (
        ErrorCode.PRICE_TOO_LOW,
        "InvalidSpotPriceLimit.LowerThanPublicPrice",
    )


def test_launch_of_an_impossible_request_is_rejected(world: World) -> None:
    result = world.adapter().launch(a_request(image_id="m-none"), SCRIPT)
    assert isinstance(result, Rejected)
    assert (result.code, result.vendor_code) == (ErrorCode.INVALID_REQUEST, "InvalidImageId.NotFound")


@pytest.mark.parametrize(
    ("keys", "vendor_code"),
    [
        pytest.param({"accessKeyId": "nobody"}, "InvalidAccessKeyId.NotFound", id="unknown key"),
        pytest.param({"accessKeySecret": "wrong"}, "SignatureDoesNotMatch", id="wrong secret"),
    ],
)
def test_launch_with_wrong_keys_is_rejected(world: World, keys: dict[str, str], vendor_code: str) -> None:
    world.keys.keys |= keys
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Rejected)
    assert (result.code, result.vendor_code) == (ErrorCode.UNAUTHENTICATED, vendor_code)


def test_launch_sends_user_data_of_16_kilobytes_and_rejects_more_without_a_call(world: World) -> None:
    adapter = world.adapter()
    assert isinstance(adapter.launch(a_request(), "ü" * 8192), Created)
    result = adapter.launch(a_request("uid-1-aaaa-2"), "ü" * 8192 + "x")
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.INVALID_REQUEST
    assert "16385 bytes" in result.message
    assert world.calls("RunInstances") == 1


def test_launch_rejects_a_bid_that_rounds_to_nothing_without_a_call(world: World) -> None:
    result = world.adapter().launch(a_request(max_price_per_hour=Decimal("0.0009")), SCRIPT)
    assert isinstance(result, Rejected)
    assert world.calls("RunInstances") == 0


@pytest.mark.parametrize(
    ("kind", "exists"),
    [
        pytest.param(FaultKind.DROP, False, id="dropped before"),
        pytest.param(FaultKind.FAIL, False, id="internal error"),
        pytest.param(FaultKind.DROP_ANSWER, True, id="dropped after"),
        pytest.param(FaultKind.HANG, True, id="never answered"),
        pytest.param(FaultKind.GARBLE, True, id="not JSON"),
        pytest.param(FaultKind.EMPTY, True, id="no ids"),
    ],
)
def test_launch_without_a_usable_answer_is_of_unknown_outcome_and_can_be_repeated(
    world: World, kind: FaultKind, *, exists: bool
) -> None:
    world.read_timeout_seconds = 0.5
    adapter = world.adapter()
    world.cloud.faults.set(Fault(kind=kind, count=1))
    assert fault_of(adapter.launch, a_request(), SCRIPT).code is ErrorCode.UNKNOWN_OUTCOME
    assert world.calls("RunInstances") == 1
    assert bool(adapter.list_tagged({TAG_LAUNCH: "uid-1-aaaa-1"})) is exists
    result = adapter.launch(a_request(), SCRIPT)
    assert isinstance(result, Created)
    assert [machine.id for machine in world.cloud.ledger.all()] == [result.instance_id]


def test_launch_that_reached_nobody_was_certainly_not_carried_out() -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        adapter = build(REGION_KEY, Keys(), endpoint=f"127.0.0.1:{port}")
        assert fault_of(adapter.launch, a_request(), SCRIPT).code is ErrorCode.UNAVAILABLE


def test_launch_throttled_bought_nothing_and_is_sent_once(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE))
    fault = fault_of(world.adapter().launch, a_request(), SCRIPT)
    assert (fault.code, fault.vendor_code) == (ErrorCode.THROTTLED, "Throttling.User")
    assert world.calls("RunInstances") == 1


@pytest.mark.parametrize(
    ("retry_after_ms", "delay"),
    [(1500, timedelta(seconds=1.5)), (0, None)],
    ids=["with the header", "without it"],
)
def test_throttling_carries_the_delay_that_the_cloud_asks_for(
    world: World, retry_after_ms: int, delay: timedelta | None
) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE))
    world.cloud.retry_after_ms = retry_after_ms
    for call in (
        lambda: world.adapter().launch(a_request(), SCRIPT),
        lambda: world.adapter().describe(["i-1"]),
    ):
        fault = fault_of(call)
        assert (fault.code, fault.retry_after) == (ErrorCode.THROTTLED, delay)


def test_throttling_asks_for_a_delay_as_it_stands(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE))
    assert fault_of(world.adapter().describe, ["i-1"]).retry_after == timedelta(seconds=1)


# Reads --------------------------------------------------------------------------------------------------


def test_describe_translates_a_machine(world: World) -> None:
    (bought,) = world.buy()
    world.cloud.ledger.advance()
    (seen,) = world.adapter().describe([bought, "i-none"])
    assert (seen.provider, seen.region, seen.zone) == (ProviderName.ALIYUN, REGION, ZONE)
    assert (seen.id, seen.provider_id) == (bought, f"{REGION}.{bought}")
    assert (seen.instance_type, seen.capacity_type) == (TYPE, CapacityType.SPOT)
    assert (seen.state, seen.reason, seen.interrupt_deadline) == (InstanceState.RUNNING, "", None)
    assert seen.tags[TAG_LAUNCH] == "uid-1-aaaa-0"
    assert timedelta(0) <= datetime.now(UTC) - seen.created_at < timedelta(minutes=2)


def test_describe_shows_a_machine_under_notice_as_interrupting(world: World) -> None:
    (bought,) = world.buy()
    world.cloud.ledger.advance()
    world.cloud.ledger.reclaim(bought, notice_seconds=300)
    (seen,) = world.adapter().describe([bought])
    assert (seen.state, seen.reason) == (InstanceState.INTERRUPTING, "Recycling")
    assert seen.interrupt_deadline is None


def test_describe_asks_for_at_most_100_ids_at_once(world: World) -> None:
    bought = world.buy(3)
    strangers = [f"i-none{number}" for number in range(148)]
    seen = world.adapter().describe([*bought, *strangers, *bought])
    assert sorted(machine.id for machine in seen) == sorted(bought)
    assert world.calls("DescribeInstances") == 2


def test_describe_of_nothing_asks_nothing(world: World) -> None:
    adapter = world.adapter()
    adapter.terminate([])
    adapter.retain([], "inst-1")
    assert adapter.describe([]) == []
    assert world.cloud.log.records() == ()


def test_list_tagged_reads_all_pages_of_machines_with_all_tags(world: World) -> None:
    world.buy()
    order = world.cloud.ledger.all()[0].order
    world.cloud.ledger.buy(order, 249)
    world.cloud.ledger.all()[0].tags["spotgpu-pool"] = "another"
    seen = world.adapter().list_tagged({TAG_INSTALLATION: "inst-1", "spotgpu-pool": "uid-1"})
    assert {machine.id for machine in seen} == {machine.id for machine in world.cloud.ledger.all()[1:]}
    assert world.calls("DescribeInstances") == 3


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param(FaultKind.FAIL, ErrorCode.UNAVAILABLE, id="internal error"),
        pytest.param(FaultKind.DROP, ErrorCode.UNAVAILABLE, id="dropped"),
        pytest.param(FaultKind.GARBLE, ErrorCode.UNAVAILABLE, id="not JSON"),
        pytest.param(FaultKind.HANG, ErrorCode.UNAVAILABLE, id="never answered"),
        pytest.param(FaultKind.EMPTY, ErrorCode.UNAVAILABLE, id="without its list"),
        pytest.param(FaultKind.THROTTLE, ErrorCode.THROTTLED, id="throttled"),
    ],
)
def test_reading_fails_as_a_fault_never_as_an_empty_list(
    world: World, kind: FaultKind, code: ErrorCode
) -> None:
    world.read_timeout_seconds = 0.5
    world.cloud.faults.set(Fault(kind=kind))
    fault = fault_of(world.adapter().list_tagged, {TAG_INSTALLATION: "inst-1"})
    assert fault.code is code
    assert (fault.provider, fault.operation) == ("aliyun", "DescribeInstances")
    assert world.calls("DescribeInstances") == 1


def test_adapter_is_safe_in_several_threads(world: World) -> None:
    bought = world.buy(8)
    adapter = world.adapter()
    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(lambda each: adapter.describe([each])[0].id, bought * 5))
    assert seen == bought * 5


# Endings ------------------------------------------------------------------------------------------------


def test_terminate_ends_a_batch_in_one_call(world: World) -> None:
    bought = world.buy(3)
    adapter = world.adapter()
    adapter.terminate(bought)
    assert [machine.live for machine in world.cloud.ledger.all()] == [False] * 3
    assert world.calls("DeleteInstances") == 1


def test_terminate_counts_what_is_gone_as_ended_and_ends_the_others(world: World) -> None:
    bought = world.buy(3)
    world.cloud.ledger.vanish(bought[1])
    adapter = world.adapter()
    adapter.terminate([*bought, "i-none"])
    assert [machine.live for machine in world.cloud.ledger.all()] == [False] * 3
    assert world.calls("DeleteInstances") == 2
    adapter.terminate([bought[0], "i-none"])
    adapter.terminate(["i-none"])


def test_terminate_of_a_large_batch_that_one_machine_spoils_is_no_call_for_each(world: World) -> None:
    bought = world.buy(30)
    world.cloud.ledger.vanish(bought[0])
    turns: list[Lane] = []
    settings = AliyunSettings(endpoint=world.address)
    AliyunProvider(REGION_KEY, world.keys, settings, turn=turns.append).terminate(bought)
    assert not any(machine.live for machine in world.cloud.ledger.all())
    assert turns == [Lane.ENDS, Lane.READINGS, Lane.ENDS]


def test_terminate_ends_the_others_when_one_machine_is_busy_and_says_so() -> None:
    with a_world(initializing_seconds=3600) as world:
        first, second = world.buy(2)
        old = world.cloud.ledger.find([first])[0]
        old.created_at -= timedelta(hours=2)
        adapter = world.adapter()
        fault = fault_of(adapter.terminate, [second, first])
        assert (fault.code, fault.retry_after) == (ErrorCode.CONFLICT, timedelta(seconds=10))
        assert [m.live for m in world.cloud.ledger.find([first, second])] == [False, True]


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP, FaultKind.DROP_ANSWER])
def test_terminate_can_be_repeated_after_a_fault(world: World, kind: FaultKind) -> None:
    bought = world.buy(2)
    adapter = world.adapter()
    world.cloud.faults.set(Fault(kind=kind, count=1))
    assert fault_of(adapter.terminate, bought).code is ErrorCode.UNAVAILABLE
    assert world.calls("DeleteInstances") == 1
    adapter.terminate(bought)
    assert [machine.live for machine in world.cloud.ledger.all()] == [False, False]


def buy_to_stop(world: World, monkeypatch: pytest.MonkeyPatch, token: str, **changes: object) -> str:
    """A machine as another release might have bought it: its cloud stops it, and keeps it, when it takes it
    back."""
    monkeypatch.setattr(
        aliyun, "spot_terms", lambda *given: spot_terms(*given) | {"SpotInterruptionBehavior": "Stop"}
    )
    result = world.adapter().launch(a_request(token, **changes), SCRIPT)
    assert isinstance(result, Created)
    return result.instance_id


def test_p12_machine_that_its_cloud_stopped_is_interrupted_until_it_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bought, adapter = buy_to_stop(world, monkeypatch, "uid-1-aaaa-1"), world.adapter()
    seen: list[tuple[InstanceState, str]] = []
    for notice_seconds in (300, None):
        world.cloud.ledger.reclaim(bought, notice_seconds=notice_seconds)
        (instance,) = adapter.list_tagged({TAG_INSTALLATION: "inst-1"})
        seen.append((instance.state, instance.reason))
    assert seen == [(InstanceState.INTERRUPTING, "Recycling"), (InstanceState.INTERRUPTING, "Stopped")]
    adapter.terminate([bought])
    adapter.terminate([bought])
    world.cloud.ledger.advance()
    assert adapter.describe([bought]) == []


async def test_p12_sweep_ends_a_stopped_machine_of_ours_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody owns it, and it would cost its disk for ever."""
    ours = buy_to_stop(world, monkeypatch, "gone-aaaa-1")
    foreign = buy_to_stop(world, monkeypatch, "other-1", tags={"team": "other"})
    owned = buy_to_stop(world, monkeypatch, "uid-2-aaaa-1", tags=a_request().tags | {TAG_POOL: "uid-2"})
    for machine in world.cloud.ledger.all():
        machine.created_at -= timedelta(hours=1)
        world.cloud.ledger.reclaim(machine.id, notice_seconds=None)
    pools = FakePools("uid-2")
    pools.owned["uid-2"] = {owned}
    sources = ProviderRegistry([REGION_KEY], lambda _: world.adapter())
    installation = Installation(id="inst-1")
    regions = RegionActivities(sources, installation, pools)
    instances = InstanceActivities(sources, installation, FakeSecrets())
    found = an_attempt().run(regions.list_installation, InstallationRequest(region=REGION_KEY))
    due = orphans.suspects(found.machines, min_age=timedelta(seconds=660), now=found.as_of)
    asked = AskOwnersRequest(region=REGION_KEY, machines=due)
    said = await an_attempt().run(OwnerActivities(FakeCluster(), pools).ask_owners, asked)
    doomed = orphans.to_reclaim(orphans.disowned(due, said.answers), said.policies, OrphanPolicy.RECLAIM)
    ids = tuple(machine.instance_id for machine in doomed)
    an_attempt().run(instances.terminate_instances, InstancesRequest(region=REGION_KEY, instance_ids=ids))
    world.cloud.ledger.advance()
    left = {machine.id: machine.state for machine in world.cloud.ledger.listed()}
    assert (ids, left) == ((ours,), dict.fromkeys((foreign, owned), MachineState.STOPPED))


def test_retain_replaces_the_tag_of_the_installation(world: World) -> None:
    bought = world.buy(2)
    world.cloud.ledger.vanish(bought[0])
    adapter = world.adapter()
    adapter.retain(bought, "inst-1")
    assert world.cloud.ledger.find([bought[1]])[0].tags == {
        "spotgpu-pool": "uid-1",
        TAG_LAUNCH: "uid-1-aaaa-1",
        TAG_RETAINED: "inst-1",
    }
    assert adapter.list_tagged({TAG_INSTALLATION: "inst-1"}) == []


# Offers -------------------------------------------------------------------------------------------------


def test_offers_give_price_and_stock_of_each_zone(world: World) -> None:
    market, provider = world.cloud.market, ProviderName.ALIYUN
    market.set_price(provider, ZONE, TYPE, Decimal("5.123"))
    market.run_out(provider, OTHER_ZONE, TYPE)
    offers = world.adapter().offers(OfferQuery(instance_types=(TYPE,)), TYPES)
    by_zone = {offer.zone: offer for offer in offers}
    assert {zone: offer.stock for zone, offer in by_zone.items()} == {
        ZONE: Stock.AMPLE,
        OTHER_ZONE: Stock.NONE,
    }
    price = by_zone[ZONE].price
    assert price is not None
    assert (price.per_hour, price.currency, price.source) == (
        Decimal("5.123"),
        "CNY",
        "DescribeSpotPriceHistory",
    )
    assert datetime.now(UTC) - price.as_of < timedelta(seconds=30)
    assert by_zone[ZONE].instance_type == row()
    assert {offer.account for offer in offers} == {"aliyun-credentials"}


def test_offers_make_two_calls_per_type_and_leave_out_what_is_not_asked(world: World) -> None:
    names = (TYPE, "ecs.gn7i-c8g1.2xlarge")
    offers = world.adapter().offers(OfferQuery(instance_types=names, zones=(ZONE,)), TYPES)
    assert sorted(offer.instance_type.name for offer in offers) == sorted(names)
    assert {offer.zone for offer in offers} == {ZONE}
    assert len(world.cloud.log.records()) == 4


def test_offers_leave_out_what_is_not_sold_in_a_zone_or_at_all(world: World) -> None:
    world.cloud.market.withdraw(ProviderName.ALIYUN, OTHER_ZONE, TYPE)
    unknown = row().model_copy(update={"name": "ecs.unheard-of"})
    query = OfferQuery(instance_types=(TYPE, "ecs.unheard-of"))
    offers = world.adapter().offers(query, (row(), unknown))
    assert [(offer.zone, offer.instance_type.name) for offer in offers] == [(ZONE, TYPE)]


def test_offers_of_on_demand_capacity_have_its_price(world: World) -> None:
    query = OfferQuery(instance_types=(TYPE,), zones=(ZONE,), capacity_type=CapacityType.ON_DEMAND)
    (offer,) = world.adapter().offers(query, TYPES)
    assert offer.price is not None
    assert offer.price.per_hour == world.cloud.market.on_demand_price(world.cloud.place(ZONE, TYPE))
    assert offer.capacity_type is CapacityType.ON_DEMAND


# Keys, proxies, secrets ---------------------------------------------------------------------------------


def test_adapter_uses_rotated_keys_without_a_restart(world: World) -> None:
    adapter = world.adapter()
    adapter.describe(["i-1"])
    world.cloud.account.keys = {"LTAIROTATED": "another"}
    assert fault_of(adapter.describe, ["i-1"]).code is ErrorCode.UNAUTHENTICATED
    world.keys.keys = {"accessKeyId": "LTAIROTATED", "accessKeySecret": "another"}
    assert adapter.describe(["i-1"]) == []


def test_adapter_sends_the_token_of_temporary_keys() -> None:
    with a_world(account=Account(keys={KEY: SECRET}, tokens={KEY: "sts-token"})) as world:
        assert fault_of(world.adapter().describe, ["i-1"]).code is ErrorCode.UNAUTHENTICATED
        world.keys.keys["token"] = "sts-token"
        assert world.adapter().describe(["i-1"]) == []


def test_adapter_reaches_a_loopback_endpoint_although_a_proxy_is_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    for address in (world.address, world.address.removeprefix("http://")):
        assert build(REGION_KEY, Keys(), endpoint=address).describe(["i-1"]) == []


@pytest.mark.parametrize(
    "kind", [FaultKind.DROP, FaultKind.FAIL, FaultKind.GARBLE, FaultKind.HANG, FaultKind.THROTTLE, None]
)
def test_faults_carry_no_user_data_and_no_keys(world: World, kind: FaultKind | None) -> None:
    world.read_timeout_seconds = 0.5
    if kind is None:
        world.address = "127.0.0.1:1"
    else:
        world.cloud.faults.set(Fault(kind=kind))
    fault = fault_of(world.adapter().launch, a_request(), SCRIPT)
    body = launch_body(a_request(), SCRIPT, AliyunSettings())
    text = "".join(traceback.format_exception(fault))
    secrets = (str(body["UserData"])[:40], "abcdef.0123456789abcdef", SECRET)
    assert [secret for secret in secrets if secret in text] == []


def test_public_text_cuts_the_echo_of_the_request() -> None:
    text = "Specified signature does not match. server CanonicalRequest is [POST\n/\nUserData=c2VjcmV0&x=1"
    assert public_text(text) == "Specified signature does not match."
    assert public_text("bad UserData=c2VjcmV0&x=1") == "bad UserData=(left out)&x=1"


def test_adapter_leaves_the_logging_of_the_process_alone(world: World) -> None:
    world.adapter().describe(["i-1"])
    logger = logging.getLogger("darabonba-core")
    assert (logger.handlers, logger.isEnabledFor(logging.DEBUG)) == ([], False)


def test_adapter_imports_the_sdk_only_when_it_is_used() -> None:
    code = (
        "import sys; from activities.providers import aliyun;"
        "sys.exit(any(name.startswith(('alibabacloud', 'darabonba')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603  the line above


def test_adapter_can_be_used_again_after_it_was_closed(world: World) -> None:
    adapter = world.adapter()
    adapter.close()
    assert adapter.describe(["i-1"]) == []
    adapter.close()
    assert adapter.key == REGION_KEY


# Tables and translators ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor_code", "code"),
    [
        ("Throttling", ErrorCode.THROTTLED),
        ("Throttling.Api", ErrorCode.THROTTLED),
        ("OperationDenied.NoStock", ErrorCode.INSUFFICIENT_CAPACITY),
        ("ResourceNotAvailable", ErrorCode.INSUFFICIENT_CAPACITY),
        ("InvalidInstanceType.ZoneNotSupported", ErrorCode.INSUFFICIENT_CAPACITY),
        ("InvalidInstanceType.Malformed", ErrorCode.INVALID_REQUEST),
        ("InvalidSpotPriceLimit.LowerThanPublicPrice", ErrorCode.PRICE_TOO_LOW),
        ("InvalidSpotPriceLimit", ErrorCode.INVALID_REQUEST),
        ("QuotaExceed.ElasticQuota", ErrorCode.QUOTA),
        ("QuotaExceeded.PrivateIpAddress", ErrorCode.INSUFFICIENT_CAPACITY),
        ("InvalidAccessKeyId.NotFound", ErrorCode.UNAUTHENTICATED),
        ("InvalidSecurityToken.Expired", ErrorCode.UNAUTHENTICATED),
        ("Forbidden.RAM", ErrorCode.FORBIDDEN),
        ("Forbbiden", ErrorCode.FORBIDDEN),
        ("InvalidAccountStatus.NotEnoughBalance", ErrorCode.FORBIDDEN),
        ("InvalidInstanceId.NotFound", ErrorCode.NOT_FOUND),
        ("InvalidInstanceId.Malformed", ErrorCode.INVALID_REQUEST),
        ("IncorrectInstanceStatus.Initializing", ErrorCode.CONFLICT),
        ("OperationDenied.CreatingConflict", ErrorCode.CONFLICT),
        ("MissingParameter", ErrorCode.INVALID_REQUEST),
        ("IdempotentParameterMismatch", ErrorCode.UNKNOWN_OUTCOME),
        ("InternalError", ErrorCode.UNAVAILABLE),
        ("ServiceUnavailable", ErrorCode.UNAVAILABLE),
        ("SomethingNew", ErrorCode.UNKNOWN),
        ("", ErrorCode.UNKNOWN),
    ],
)
def test_classify_takes_the_longest_prefix(vendor_code: str, code: ErrorCode) -> None:
    assert classify(vendor_code, creating=False) is code


@pytest.mark.parametrize(
    "vendor_code", ["InternalError", "ServiceUnavailable", "", "IdempotentParameterMismatch"]
)
def test_classify_says_unknown_outcome_when_a_machine_may_have_been_made(vendor_code: str) -> None:
    assert classify(vendor_code, creating=True) is ErrorCode.UNKNOWN_OUTCOME


# Every code that the vendor's pages and the SDK name for the calls that we make, by what it means to a pool.
NOT_SOLD = """
    Zone.NotOnSale Zone.NotOpen OperationDenied.ZoneNotAllowed InvalidInstanceType.ZoneNotSupported
    InvalidInstanceType.NotSupported InstanceType.Offline CategoryNotSupported
"""
NAMED = {
    ErrorCode.INSUFFICIENT_CAPACITY: f"""
        {NOT_SOLD}
        OperationDenied.NoStock ResourceNotAvailable NodeControllerUnavailable
        QuotaExceeded.PrivateIpAddress
    """,
    ErrorCode.PRICE_TOO_LOW: "InvalidSpotPriceLimit.LowerThanPublicPrice",
    ErrorCode.INVALID_REQUEST: """
        InvalidSpotAliUid InvalidSpotAuthorized InvalidSpotStrategy InvalidSpotDuration InvalidSpotPriceLimit
    """,
    ErrorCode.QUOTA: """
        QuotaExceed.ElasticQuota QuotaExceed.AfterpayInstance QuotaExceeded QuotaExceed.PostPaidDisk
        SecurityGroupInstanceLimitExceed
    """,
    ErrorCode.FORBIDDEN: """
        InvalidAccountStatus.NotEnoughBalance InsufficientBalance Account.Arrearage PaymentMethodNotFound
        Forbidden.RAM Forbbiden InvalidUser.PassRoleForbidden Forbidden.RiskControl
        RealNameAuthenticationError InvalidOperation.DeletionProtection InstanceLockedForSecurity
    """,
    ErrorCode.UNAUTHENTICATED: """
        InvalidAccessKeyId.NotFound SignatureDoesNotMatch InvalidSecurityToken.Expired
        InvalidSecurityToken.Malformed
    """,
    ErrorCode.THROTTLED: "Throttling Throttling.User Throttling.Api",
    ErrorCode.UNKNOWN_OUTCOME: "IdempotentParameterMismatch InvalidClientToken.ValueNotSupported",
    ErrorCode.UNAVAILABLE: "InternalError ServiceUnavailable",
    ErrorCode.CONFLICT: """
        OperationDenied.CreatingConflict IncorrectInstanceStatus IncorrectInstanceStatus.Initializing
    """,
    ErrorCode.NOT_FOUND: "InvalidInstanceId.NotFound",
}


@pytest.mark.parametrize(("code", "words"), NAMED.items(), ids=[code.value for code in NAMED])
def test_classify_knows_every_code_that_the_vendor_names(code: ErrorCode, words: str) -> None:
    said = {word: classify(word, creating=False) for word in words.split()}
    assert said == dict.fromkeys(words.split(), code)


def test_what_is_not_sold_there_is_told_from_what_is_sold_out() -> None:
    words = NAMED[ErrorCode.INSUFFICIENT_CAPACITY].split()
    assert {word for word in words if word.startswith(NOT_OFFERED)} == set(NOT_SOLD.split())


@pytest.mark.parametrize(("bid", "limit"), [("5", 5.0), ("5.1239", 5.123), ("0.001", 0.001), ("12.3", 12.3)])
def test_price_limit_never_exceeds_the_bid(bid: str, limit: float) -> None:
    assert price_limit_from(Decimal(bid)) == limit


def a_seen_instance(**changes: object) -> answers.SeenInstance:
    fields = {"InstanceId": "i-1", "Status": "Running", "ZoneId": ZONE, "CreationTime": "2026-01-01T00:00Z"}
    return answers.SeenInstance.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("status", "locks", "state", "reason"),
    [
        ("Pending", [], InstanceState.PENDING, ""),
        ("Starting", [], InstanceState.PENDING, ""),
        ("Running", [], InstanceState.RUNNING, ""),
        ("Running", ["Recycling"], InstanceState.INTERRUPTING, "Recycling"),
        ("Running", ["financial", "Recycling"], InstanceState.INTERRUPTING, "Recycling"),
        ("Running", ["security"], InstanceState.RUNNING, "security"),
        ("Stopping", [], InstanceState.INTERRUPTING, "Stopping"),
        ("Stopped", [], InstanceState.INTERRUPTING, "Stopped"),
        ("Levitating", [], InstanceState.PENDING, "Levitating"),
    ],
)
def test_instance_from_maps_states_and_locks(
    status: str, locks: list[str], state: InstanceState, reason: str
) -> None:
    reasons = {"LockReason": [{"LockReason": lock} for lock in locks]}
    seen = instance_from(a_seen_instance(Status=status, OperationLocks=reasons), REGION)
    assert (seen.state, seen.reason) == (state, reason)
    assert seen.created_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_quote_from_never_invents_a_price() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert quote_from(None, "CNY", now=now) is None
    assert quote_from(Decimal(0), "CNY", now=now) is None
    assert quote_from(Decimal(1), "", now=now) is None


def test_newest_by_zone_does_not_trust_the_order_of_the_answer() -> None:
    changes = [
        answers.PriceChange.model_validate(
            {"ZoneId": ZONE, "SpotPrice": price, "Timestamp": f"2026-01-01T0{hour}:00:00Z"}
        )
        for hour, price in ((1, 2.5), (3, 2.1), (2, 9.9))
    ]
    assert newest_by_zone(changes)[ZONE].spot_price == Decimal("2.1")


# The wire -----------------------------------------------------------------------------------------------


def pairs_of(request: WireRequest) -> dict[str, str]:
    """Parameters as they are encoded, by name."""
    return dict(pair.split("=", 1) for pair in request.query.split("&"))


def signed_names(request: WireRequest) -> str:
    return request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0]


def assert_agree(ours: WireRequest, theirs: WireRequest) -> None:
    assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
    assert set(ours.headers) == set(theirs.headers)
    assert signed_names(ours) == signed_names(theirs)
    for name in ("x-acs-action", "x-acs-version", "x-acs-content-sha256", "accept", "content-length"):
        assert ours.headers[name] == theirs.headers[name]


def only_request(world: World) -> WireRequest:
    (request,) = world.cloud.seen
    return request


def test_wire_of_a_purchase_agrees_with_the_capture(world: World) -> None:
    (theirs,) = captured_requests("create_success")
    offer = a_request().offer
    body = {
        "token": "lease-0001-attempt-1",
        "image_id": "ubuntu_22_04_x64_20G_alibase_20240101.vhd",
        "offer": offer.model_copy(
            update={"zone": "cn-hangzhou-i", "instance_type": row("ecs.gn7i-c8g1.2xlarge")}
        ),
        "name": "spot-[1,4]",
        "security_group_ids": ("sg-bp1fake1", "sg-bp1fake2"),
        "max_price_per_hour": Decimal("3.5"),
        "tags": {"lease": "0001", "owner": "测试"},
        "key_pair_id": "kp-fake",
        "subnet_id": "vsw-bp1fake",
    }
    world.adapter().launch(a_request().model_copy(update=body), "#!/bin/sh\necho hi\n")
    ours = only_request(world)
    assert_agree(ours, theirs)
    our_pairs, their_pairs = pairs_of(ours), pairs_of(theirs)
    # Chosen otherwise: one machine, the protected hour.
    differing = {"Amount", "SpotDuration"}
    shared = set(our_pairs) & set(their_pairs) - differing
    assert {name: our_pairs[name] for name in shared} == {name: their_pairs[name] for name in shared}
    assert set(our_pairs) - set(their_pairs) == {"HostName", "Tag.3.Key", "Tag.3.Value"}
    assert set(their_pairs) - set(our_pairs) == {
        "DryRun",
        "HttpTokens",
        "InternetChargeType",
        "InternetMaxBandwidthOut",
        "MinAmount",
        "SystemDisk.PerformanceLevel",
    }


def test_wire_of_reads_and_endings_agrees_with_the_captures(world: World) -> None:
    adapter = world.adapter()
    adapter.describe(["i-bp1aaaa", "i-bp1bbbb"])
    adapter.list_tagged({"lease": "0001"})
    adapter.terminate(["i-bp1aaaa", "i-bp1bbbb"])
    for case, ours in zip(
        ("describe_by_ids", "describe_by_tag", "terminate_success"), world.cloud.seen[:3], strict=True
    ):
        (theirs,) = captured_requests(case)
        assert_agree(ours, theirs)
        expected = {name: text for name, text in pairs_of(theirs).items() if name != "ClientToken"}
        assert pairs_of(ours) == expected


def test_wire_of_offers_agrees_with_the_captures(world: World) -> None:
    kind = "ecs.gn7i-c8g1.2xlarge"
    world.adapter().offers(OfferQuery(instance_types=(kind,)), TYPES)
    for case, ours in zip(
        ("describe_available_resource", "describe_spot_price_history"), world.cloud.seen, strict=True
    ):
        (theirs,) = captured_requests(case)
        assert_agree(ours, theirs)
        # Chosen otherwise: the protected hour, and prices of all zones in one call.
        expected = {name: text for name, text in pairs_of(theirs).items() if name != "ZoneId"}
        assert pairs_of(ours) == expected | {"SpotDuration": "1"}
