"""One suite for every adapter, against the simulator that speaks its vendor's wire protocol."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from activities.providers.base import Capability, Provider
from activities.providers.codes import Example, Listed
from activities.providers.registry import ProviderRegistry, build_adapter
from activities.regions import RegionActivities
from activities.signatures import LeftoversRequest
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.installation import Installation
from domain.contracts.instances import (
    Created,
    InstanceState,
    LaunchRequest,
    OfferQuery,
    Refusal,
    Rejected,
)
from domain.contracts.lanes import Lane
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL, TAG_RETAINED
from domain.contracts.offers import CapacityType, Stock
from domain.contracts.provider_ids import provider_id
from sandbox.clouds.admin import SettingsRequest
from sandbox.clouds.cloud import Cloud
from sandbox.clouds.control import CloudControl
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.ledger import EndReason
from sandbox.clouds.server import served
from tests.activities.builders import an_attempt
from tests.activities.providers.cloud_case import TOKEN, CloudCase, Keys, found_cases, now
from tests.fakes.directory import FakePools
from tests.steps import to_do

BOOT = "#!/bin/sh\necho token=abcdef.0123456789abcdef\n# ä 测试\n"
SECRET_OF_BOOT = "abcdef.0123456789abcdef"
DEADLINE_SECONDS = 5.0


@dataclass
class Account:
    """An adapter, the cloud behind it, and the switches of that cloud."""

    case: CloudCase
    cloud: Cloud
    control: CloudControl
    provider: Provider
    keys: Keys

    def launch(self, token: str = TOKEN, **changes: object) -> str:
        """Buy one machine that succeeds; returns its id."""
        result = self.provider.launch(self.case.request(token, **changes), BOOT)
        assert isinstance(result, Created), result
        return result.instance_id

    def launch_many(self, count: int) -> set[str]:
        """Buy machines with tokens of their own, without the vendor's rate."""
        rates = dict.fromkeys(self.cloud.rates.per_second, 0)
        self.control.change_settings(
            SettingsRequest(rates_per_second=rates, default_rate_per_second=0),
        )
        with ThreadPoolExecutor(8) as threads:
            return set(threads.map(lambda n: self.launch(f"pool-1-abcd1234-{n}"), range(count)))

    def creates(self) -> int:
        """Create requests that the cloud has seen."""
        return self.control.ledger().requests.get(self.case.create_action, 0)

    def state(self, machine_id: str) -> InstanceState | None:
        """What the adapter says of one machine, None when it is absent."""
        found = self.provider.describe([machine_id])
        return found[0].state if found else None


@contextmanager
def opened(case: CloudCase, *, timeout_seconds: float = 10, **ledger: float) -> Iterator[Account]:
    """An account at a fresh cloud."""
    cloud = case.simulator(case.settings(**ledger))
    with served(cloud) as base_url:
        keys = Keys(dict(case.keys))
        provider = case.build(case.key, keys, urlsplit(base_url).netloc, timeout_seconds)
        yield Account(case, cloud, CloudControl(base_url), provider, keys)
        provider.close()


@pytest.fixture(params=found_cases(), ids=lambda case: case.provider.value)
def case(request: pytest.FixtureRequest) -> CloudCase:
    """Each cloud in turn."""
    return request.param


@pytest.fixture
def account(case: CloudCase) -> Iterator[Account]:
    """An account at a fresh cloud."""
    with opened(case) as account:
        yield account


def eventually(check: Callable[[], bool]) -> None:
    """Poll until true."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not check():
        assert time.monotonic() < end, "not within the deadline"
        time.sleep(0.02)


def fails_with(code: ErrorCode, call: Callable[[], object]) -> ProviderError:
    """Run a call that must raise a fault of this code; its text carries no secret."""
    with pytest.raises(ProviderError) as raised:
        call()
    assert raised.value.code is code, raised.value
    assert SECRET_OF_BOOT not in _all_texts(raised.value)
    return raised.value


def _all_texts(fault: BaseException) -> str:
    """Texts of a fault and of all its causes: workflow history keeps them."""
    texts: list[str] = []
    seen: BaseException | None = fault
    while seen is not None:
        texts.append(f"{seen} {seen.args}")
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join(texts)


# Buying


def test_launch_makes_one_machine_as_asked(account: Account) -> None:
    case = account.case
    machine_id = account.launch()
    (machine,) = account.control.machines()
    assert machine.id == machine_id
    assert (machine.zone, machine.instance_type, machine.spot) == (case.zones[0], case.instance_type, True)
    assert machine.user_data == BOOT
    assert machine.client_token == case.client_token(TOKEN)
    expected = {
        TAG_INSTALLATION: "inst-1",
        TAG_POOL: "pool-1",
        "team": "训练",
        TAG_LAUNCH: TOKEN,
    } | ({case.name_tag: "gpu-1"} if case.name_tag else {})
    assert machine.tags == expected
    assert account.creates() == 1


def test_launch_buys_on_demand_when_the_offer_says_so(account: Account) -> None:
    offer = account.case.offer(capacity=CapacityType.ON_DEMAND)
    machine_id = account.launch(offer=offer, max_price_per_hour=None)
    (machine,) = account.control.machines()
    assert not machine.spot
    assert account.provider.describe([machine_id])[0].capacity_type is CapacityType.ON_DEMAND


def test_launch_without_a_bid_pays_the_price_of_the_moment(account: Account) -> None:
    account.control.set_price(account.case.zones[0], account.case.instance_type, Decimal("5.5"))
    account.launch(max_price_per_hour=None)
    assert account.control.machines()[0].price_per_hour == Decimal("5.5")


def test_p03_launch_gives_the_same_machine_for_the_same_token(account: Account) -> None:
    assert account.launch() == account.launch()
    assert len(account.control.machines()) == 1


def test_p03_token_never_yields_two_machines_when_sent_by_many_at_once(account: Account) -> None:
    account.control.change_settings(SettingsRequest(rates_per_second={account.case.create_action: 0}))
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda _: account.launch(), range(16)))
    assert len(ids) == 1
    assert len(account.control.machines()) == 1


def test_launch_is_refused_as_a_value_when_sold_out(account: Account) -> None:
    account.control.run_out(account.case.zones[0])
    result = account.provider.launch(account.case.request(), BOOT)
    assert isinstance(result, Refusal)
    assert (result.code, result.not_offered) == (ErrorCode.INSUFFICIENT_CAPACITY, False)
    assert result.vendor_code


def test_launch_is_refused_as_not_offered_when_the_zone_does_not_sell_the_type(account: Account) -> None:
    account.control.withdraw(account.case.zones[0], account.case.instance_type)
    result = account.provider.launch(account.case.request(), BOOT)
    assert isinstance(result, Refusal)
    assert (result.code, result.not_offered) == (ErrorCode.INSUFFICIENT_CAPACITY, True)


def test_launch_is_refused_when_the_bid_is_too_low(account: Account) -> None:
    request = account.case.request(max_price_per_hour=Decimal("0.01"))
    result = account.provider.launch(request, BOOT)
    assert isinstance(result, Refusal)
    assert result.code is ErrorCode.PRICE_TOO_LOW


@pytest.mark.parametrize("capacity", CapacityType)
def test_p18_refused_quota_names_the_quota_and_its_limit(account: Account, capacity: CapacityType) -> None:
    case, spot = account.case, capacity is CapacityType.SPOT
    one = account.cloud.quota_units(case.kind.name, spot=spot)
    limit = 2 * one - 1
    account.control.change_settings(SettingsRequest(**{"quota" if spot else "on_demand_quota": limit}))
    terms = {"offer": case.offer(capacity=capacity), "max_price_per_hour": None}
    account.launch(TOKEN, **terms)
    result = account.provider.launch(case.request("pool-1-abcd1234-2", **terms), BOOT)
    assert isinstance(result, Refusal)
    assert result.code is ErrorCode.QUOTA
    # At the start, where no limit of length cuts it off.
    assert case.quota_texts[capacity].format(used=one, limit=limit) in result.message[:150]
    assert result.vendor_code in result.message
    asked = account.control.ledger().requests.get(case.quota_action, 0)
    assert asked == (capacity not in case.says_the_limit)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (FaultKind.ERROR, "Forbidden"),
        (FaultKind.THROTTLE, "Throttled"),
        (FaultKind.FAIL, "Unavailable"),
        (FaultKind.HANG, "Unavailable"),
        (FaultKind.GARBLE, "Unavailable"),
        (FaultKind.EMPTY, "Unavailable"),
    ],
    ids=lambda value: str(value),
)
def test_p18_quota_that_cannot_be_read_leaves_the_refusal_as_it_is_and_says_so(
    case: CloudCase, fault: FaultKind, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(case, timeout_seconds=1) as account:
        account.control.change_settings(SettingsRequest(quota=0))
        code = case.denied_code if fault is FaultKind.ERROR else ""
        account.control.set_fault(Fault(kind=fault, action=case.quota_action, code=code))
        result = account.provider.launch(case.request(), BOOT)
        assert isinstance(result, Refusal)
        assert result.code is ErrorCode.QUOTA
        assert result.message.startswith(f"limit not read: {why}")
        assert result.vendor_code in result.message
        requests = account.control.ledger().requests
        assert (requests[case.create_action], requests[case.quota_action]) == (1, 1)
        assert "Quota not read" in caplog.messages


def test_launch_is_rejected_when_the_image_does_not_exist(account: Account) -> None:
    image = account.case.image_id[:-1] + "x"
    result = account.provider.launch(account.case.request(image_id=image), BOOT)
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.INVALID_REQUEST
    assert account.control.machines() == []


def test_launch_is_rejected_when_the_subnet_is_in_another_zone(account: Account) -> None:
    subnet = account.case.subnets[account.case.zones[1]]
    result = account.provider.launch(account.case.request(subnet_id=subnet), BOOT)
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.INVALID_REQUEST


def test_launch_is_rejected_when_the_secret_is_wrong(account: Account) -> None:
    account.keys.values["accessKeySecret"] = "anotherSecret"
    result = account.provider.launch(account.case.request(), BOOT)
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.UNAUTHENTICATED
    assert "anotherSecret" not in result.message
    assert SECRET_OF_BOOT not in result.message


def test_launch_is_rejected_unsent_when_the_user_data_is_too_long(account: Account) -> None:
    result = account.provider.launch(account.case.request(), "#" * 40_000)
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.INVALID_REQUEST
    assert "user data" in result.message
    assert account.creates() == 0


# Faults of a create call


def test_launch_raises_throttled(account: Account) -> None:
    account.control.set_fault(Fault(kind=FaultKind.THROTTLE, action=account.case.create_action))
    fails_with(ErrorCode.THROTTLED, lambda: account.provider.launch(account.case.request(), BOOT))
    assert account.creates() == 1


@pytest.mark.parametrize(
    "kind", [FaultKind.DROP_ANSWER, FaultKind.HANG, FaultKind.GARBLE, FaultKind.EMPTY], ids=lambda k: k.value
)
def test_p03_launch_outcome_is_unknown_when_carried_out_but_not_answered(
    case: CloudCase, kind: FaultKind
) -> None:
    with opened(case, timeout_seconds=1) as account:
        account.control.set_fault(Fault(kind=kind, action=case.create_action, count=1))
        request = case.request()
        fails_with(ErrorCode.UNKNOWN_OUTCOME, lambda: account.provider.launch(request, BOOT))
        assert account.creates() == 1
        (machine,) = account.control.machines()
        found = account.provider.list_tagged({TAG_LAUNCH: request.token})
        assert [instance.id for instance in found] == [machine.id]
        assert account.launch() == machine.id
        assert len(account.control.machines()) == 1


@pytest.mark.parametrize("kind", [FaultKind.DROP, FaultKind.FAIL], ids=lambda k: k.value)
def test_launch_outcome_is_unknown_when_only_the_cloud_knows_that_it_did_nothing(
    account: Account, kind: FaultKind
) -> None:
    account.control.set_fault(Fault(kind=kind, action=account.case.create_action, count=1))
    fails_with(ErrorCode.UNKNOWN_OUTCOME, lambda: account.provider.launch(account.case.request(), BOOT))
    assert account.creates() == 1
    assert account.provider.list_tagged({TAG_LAUNCH: account.case.request().token}) == []


def test_code_that_no_table_lists_is_raised_as_unknown_with_the_vendors_word(account: Account) -> None:
    account.control.set_fault(Fault(kind=FaultKind.ERROR, code="Made.Up", message="never seen before"))
    for call in (
        lambda: account.provider.launch(account.case.request(), BOOT),
        lambda: account.provider.list_tagged({TAG_POOL: "pool-1"}),
    ):
        fault = fails_with(ErrorCode.UNKNOWN, call)
        assert (fault.vendor_code, "never seen before" in str(fault)) == ("Made.Up", True)
    assert account.control.machines() == []


# The table of error codes


def test_every_listed_code_has_its_class_when_a_purchase_is_answered_with_it(account: Account) -> None:
    said = {
        word: _code_of_launch(account, *_answer(word, row)) for word, row in _sent_by_vendor(account.case)
    }
    assert said == {word: _when_creating(row) for word, row in _sent_by_vendor(account.case)}
    assert account.creates() == len(said)
    assert account.control.machines() == []


def test_every_listed_code_has_its_class_when_a_reading_is_answered_with_it(account: Account) -> None:
    said = {
        word: _code_of_reading(account, *_answer(word, row)) for word, row in _sent_by_vendor(account.case)
    }
    assert said == {word: row.code for word, row in _sent_by_vendor(account.case)}


def test_example_of_a_beginning_is_a_word_that_begins_so(case: CloudCase) -> None:
    """An answer without a code stands for its HTTP status."""
    told = {word: _answer(word, row) for word, row in _sent_by_vendor(case)}
    wrong = [word for word, (code, sent) in told.items() if not (code or str(sent.status)).startswith(word)]
    assert wrong == []


def _sent_by_vendor(case: CloudCase) -> list[tuple[str, Listed]]:
    """All rows but those of our own words."""
    rows = [(word, row) for word, row in case.errors.items() if row.example is not None]
    assert rows, to_do(5, f"the table of error codes of {case.provider} is empty")
    return rows


def _answer(word: str, row: Listed) -> tuple[str, Example]:
    """The example of a row, and its code as the vendor sends it."""
    assert row.example is not None
    return (word if row.example.code is None else row.example.code), row.example


def _when_creating(row: Listed) -> ErrorCode:
    """An internal error may have made a machine, and so may an error inside a success (202)."""
    assert row.example is not None
    unsure = row.code is ErrorCode.UNAVAILABLE or row.example.status == 202
    return ErrorCode.UNKNOWN_OUTCOME if unsure else row.code


def _code_of_launch(account: Account, code: str, sent: Example) -> ErrorCode:
    """The class of a purchase that is answered so; the answer's code and text are kept."""
    _answer_once(account, account.case.create_action, code, sent)
    try:
        result = account.provider.launch(account.case.request(), BOOT)
    except ProviderError as fault:
        seen, vendor_code, text = fault.code, fault.vendor_code, str(fault)
    else:
        assert isinstance(result, Refusal | Rejected), (code, result)
        seen, vendor_code, text = result.code, result.vendor_code, result.message
    # Without a code the status is all that is kept: a page of a gateway may be long, or quote the request.
    assert vendor_code == (code or str(sent.status))
    assert not code or sent.message in text
    return seen


def _code_of_reading(account: Account, code: str, sent: Example) -> ErrorCode:
    """The class of a reading that is answered so."""
    _answer_once(account, account.case.list_action, code, sent)
    with pytest.raises(ProviderError) as raised:
        account.provider.list_tagged({TAG_POOL: "pool-1"})
    return raised.value.code


def _answer_once(account: Account, action: str, code: str, sent: Example) -> None:
    account.control.set_fault(
        Fault(
            kind=FaultKind.ERROR,
            action=action,
            count=1,
            code=code,
            message=sent.message,
            status=sent.status,
        )
    )


def test_launch_is_certainly_not_carried_out_when_nobody_listens(case: CloudCase) -> None:
    with served(case.simulator(case.settings())) as base_url:
        address = urlsplit(base_url).netloc
    provider = case.build(case.key, Keys(dict(case.keys)), address, 2)
    fails_with(ErrorCode.UNAVAILABLE, lambda: provider.launch(case.request(), BOOT))
    provider.close()


# Pace


def test_each_request_takes_its_turn_in_the_lane_of_its_action(case: CloudCase) -> None:
    taken: list[Lane] = []
    with served(case.simulator(case.settings())) as base_url:
        address = {case.provider: urlsplit(base_url).netloc}
        provider = build_adapter(case.key, Keys(dict(case.keys)), address, taken.append)
        bought = provider.launch(case.request(), BOOT)
        assert isinstance(bought, Created)
        provider.list_tagged({TAG_POOL: "pool-1"})
        provider.offers(OfferQuery(instance_types=(case.instance_type,)), [case.kind])
        provider.retain([bought.instance_id], "inst-1")
        provider.terminate([bought.instance_id])
        control = CloudControl(base_url)
        control.change_settings(SettingsRequest(quota=0))
        assert isinstance(provider.launch(case.request("pool-1-abcd1234-2"), BOOT), Refusal)
        provider.close()
        requests = control.requests()
    assert [case.lane(record.action) for record in requests] == taken
    assert {*taken} == {*Lane}
    assert requests[-1].action == case.quota_action


# Reading


def test_describe_shows_a_machine_from_its_first_moment(case: CloudCase) -> None:
    before = now()
    with opened(case, boot_seconds=30) as account:
        machine_id = account.launch()
        (instance,) = account.provider.describe([machine_id])
        assert instance.state is InstanceState.PENDING
        assert (instance.id, instance.zone, instance.region) == (machine_id, case.zones[0], case.region)
        assert instance.provider_id == provider_id(case.provider, case.region, case.zones[0], machine_id)
        assert instance.instance_type == case.instance_type
        assert instance.capacity_type is CapacityType.SPOT
        assert instance.tags[TAG_LAUNCH] == TOKEN
        assert instance.tags["team"] == "训练"
        # Times have the precision of a minute at some clouds.
        assert abs((instance.created_at - before).total_seconds()) < 120
        account.control.change_settings(SettingsRequest(boot_seconds=0))
        eventually(lambda: account.state(machine_id) is InstanceState.RUNNING)


def test_describe_leaves_out_what_the_cloud_does_not_know(account: Account) -> None:
    machine_id = account.launch()
    found = account.provider.describe([account.case.unknown_id, machine_id])
    assert [instance.id for instance in found] == [machine_id]
    assert account.provider.describe([account.case.unknown_id]) == []
    assert account.provider.describe([]) == []


def test_reading_and_ending_work_beyond_one_page(account: Account) -> None:
    ids = account.launch_many(130)
    assert {instance.id for instance in account.provider.describe(sorted(ids))} == ids
    listed = account.provider.list_tagged({TAG_INSTALLATION: "inst-1", TAG_POOL: "pool-1"})
    assert {instance.id for instance in listed} == ids
    assert len(listed) == 130
    account.provider.terminate(sorted(ids))
    eventually(lambda: account.provider.describe(sorted(ids)) == [])
    assert account.control.ledger().live == 0


def test_list_tagged_wants_all_tags(account: Account) -> None:
    machine_id = account.launch()
    tags = {TAG_INSTALLATION: "inst-1", TAG_POOL: "pool-1"}
    assert [i.id for i in account.provider.list_tagged(tags)] == [machine_id]
    assert account.provider.list_tagged({**tags, TAG_POOL: "pool-2"}) == []
    assert account.provider.list_tagged({TAG_INSTALLATION: "inst-2"}) == []


def test_list_tagged_lacks_a_machine_that_the_cloud_does_not_show_yet(case: CloudCase) -> None:
    with opened(case, invisible_seconds=0.3) as account:
        machine_id = account.launch()
        tags = {TAG_LAUNCH: TOKEN}
        assert account.provider.list_tagged(tags) == []
        assert account.launch() == machine_id
        eventually(lambda: [i.id for i in account.provider.list_tagged(tags)] == [machine_id])


@pytest.mark.parametrize("kind", [FaultKind.DROP, FaultKind.FAIL, FaultKind.GARBLE], ids=lambda k: k.value)
def test_reading_is_unavailable_when_the_cloud_does_not_answer(account: Account, kind: FaultKind) -> None:
    machine_id = account.launch()
    account.control.set_fault(Fault(kind=kind))
    fails_with(ErrorCode.UNAVAILABLE, lambda: account.provider.describe([machine_id]))
    fails_with(ErrorCode.UNAVAILABLE, lambda: account.provider.list_tagged({TAG_POOL: "pool-1"}))
    fails_with(ErrorCode.UNAVAILABLE, lambda: account.provider.terminate([machine_id]))


def test_reading_raises_throttled_and_sends_one_request(account: Account) -> None:
    account.control.set_fault(Fault(kind=FaultKind.THROTTLE))
    fails_with(ErrorCode.THROTTLED, lambda: account.provider.list_tagged({TAG_POOL: "pool-1"}))
    assert len(account.control.requests(account.case.list_action)) == 1


def test_reading_is_unauthenticated_when_the_secret_is_wrong(account: Account) -> None:
    account.keys.values["accessKeySecret"] = "anotherSecret"
    fault = fails_with(
        ErrorCode.UNAUTHENTICATED, lambda: account.provider.describe([account.case.unknown_id])
    )
    assert "anotherSecret" not in _all_texts(fault)


def test_machine_is_not_running_any_more_when_the_cloud_took_it_back(account: Account) -> None:
    machine_id = account.launch()
    eventually(lambda: account.state(machine_id) is InstanceState.RUNNING)
    account.control.reclaim(machine_id)
    assert account.state(machine_id) in (InstanceState.INTERRUPTING, InstanceState.TERMINATED, None)
    eventually(lambda: account.state(machine_id) is None)


# Ending


def test_terminate_ends_a_machine_and_may_be_repeated(account: Account) -> None:
    machine_id = account.launch()
    account.provider.terminate([machine_id])
    account.provider.terminate([machine_id])
    assert account.state(machine_id) in (InstanceState.INTERRUPTING, InstanceState.TERMINATED, None)
    eventually(lambda: account.state(machine_id) is None)
    account.provider.terminate([machine_id])
    account.provider.terminate([account.case.unknown_id])
    account.provider.terminate([])


def test_terminate_ends_the_others_when_one_of_them_is_gone(account: Account) -> None:
    ids = sorted(account.launch_many(3))
    eventually(lambda: all(account.state(i) is InstanceState.RUNNING for i in ids))
    account.control.terminate(ids[1])
    account.provider.terminate([account.case.unknown_id, *ids])
    assert account.control.ledger().live == 0


def test_terminate_ends_spot_and_on_demand_machines_together(account: Account) -> None:
    spot = account.launch(TOKEN)
    offer = account.case.offer(capacity=CapacityType.ON_DEMAND)
    other = account.launch("pool-1-abcd1234-2", offer=offer, max_price_per_hour=None)
    eventually(lambda: all(account.state(i) is InstanceState.RUNNING for i in (spot, other)))
    account.provider.terminate([spot, other])
    assert account.control.ledger().live == 0


# Offers


def test_offers_give_price_and_stock_of_each_zone(account: Account) -> None:
    case = account.case
    account.control.set_price(case.zones[0], case.instance_type, Decimal("4.32"))
    account.control.run_out(case.zones[1])
    query = OfferQuery(instance_types=(case.instance_type,))
    offers = {offer.zone: offer for offer in account.provider.offers(query, [case.kind])}
    assert set(offers) == set(case.zones)
    first = offers[case.zones[0]]
    if case.states_spot_prices:
        assert first.price is not None
        assert first.price.per_hour * case.cny_per_unit == Decimal("4.32")
        assert first.price.currency == case.currency
    else:
        assert first.price is None  # never made up
    assert first.stock is (Stock.AMPLE if case.states_stock else Stock.UNKNOWN)
    assert (first.instance_type, first.capacity_type) == (case.kind, CapacityType.SPOT)
    assert first.region_key == case.key
    assert offers[case.zones[1]].stock is (Stock.NONE if case.states_stock else Stock.UNKNOWN)


def test_offers_leave_out_zones_that_do_not_sell_the_type_or_were_not_asked_for(account: Account) -> None:
    case = account.case
    account.control.withdraw(case.zones[0], case.instance_type)
    query = OfferQuery(instance_types=(case.instance_type,))
    assert [offer.zone for offer in account.provider.offers(query, [case.kind])] == list(case.zones[1:])
    only = query.model_copy(update={"zones": (case.zones[0],)})
    assert account.provider.offers(only, [case.kind]) == []


def test_offers_of_on_demand_cost_more(account: Account) -> None:
    case = account.case
    query = OfferQuery(instance_types=(case.instance_type,), zones=(case.zones[0],))
    (spot,) = account.provider.offers(query, [case.kind])
    wanted = query.model_copy(update={"capacity_type": CapacityType.ON_DEMAND})
    (listed,) = account.provider.offers(wanted, [case.kind])
    assert listed.capacity_type is CapacityType.ON_DEMAND
    if not case.states_on_demand_prices:
        assert listed.price is None  # never made up
        return
    assert listed.price is not None
    assert listed.price.currency == case.currency
    market = account.cloud.market.on_demand_price(account.cloud.place(case.zones[0], case.instance_type))
    # What is billed in another currency is rounded at its sixth decimal.
    assert listed.price.per_hour * case.cny_per_unit == pytest.approx(market, abs=Decimal("0.00001"))
    if not case.states_spot_prices:
        return
    assert spot.price is not None
    assert listed.price.per_hour >= 4 * spot.price.per_hour


def test_offer_can_be_bought_at_its_own_price(account: Account) -> None:
    case = account.case
    query = OfferQuery(instance_types=(case.instance_type,), zones=(case.zones[0],))
    (offer,) = account.provider.offers(query, [case.kind])
    assert (offer.price is not None) is case.states_spot_prices
    # An offer without a price is bought without a bid.
    account.launch(offer=offer, max_price_per_hour=offer.price.per_hour if offer.price else None)


# What only some clouds have


def test_capabilities_are_those_that_the_case_states(account: Account) -> None:
    assert account.provider.capabilities == account.case.capabilities


def tomorrow() -> datetime:
    """A time for a dead-man switch that no step of a vendor divides evenly."""
    return (now() + timedelta(hours=24)).replace(second=37, microsecond=250_000)


def test_dead_man_switch_is_set_with_the_purchase_and_rounded_down(account: Account) -> None:
    case, at = account.case, tomorrow()
    bare = account.launch("pool-1-abcd1234-0")
    armed = account.launch(TOKEN, dead_man_at=at)
    assert account.launch(TOKEN, dead_man_at=at) == armed
    times = account.provider.dead_man_times([bare, armed, case.unknown_id])
    if Capability.DEAD_MAN_SWITCH not in case.capabilities:
        assert times == {}
        return
    assert list(times) == [armed]
    assert timedelta() <= at - times[armed] < case.dead_man_step


def test_dead_man_switch_ends_a_machine_whose_renewals_stop(case: CloudCase) -> None:
    ahead = timedelta()
    cloud = case.simulator(replace(case.settings(), clock=lambda: now() + ahead))
    if Capability.DEAD_MAN_SWITCH not in case.capabilities:
        return
    with served(cloud) as base_url:
        provider = case.build(case.key, Keys(dict(case.keys)), urlsplit(base_url).netloc, 10)
        control = CloudControl(base_url)
        request = case.request(dead_man_at=tomorrow())
        assert isinstance(provider.launch(request, BOOT), Created)
        kept = provider.launch(case.request("pool-1-abcd1234-2", dead_man_at=tomorrow()), BOOT)
        assert isinstance(kept, Created)
        provider.renew_dead_man([kept.instance_id], tomorrow() + timedelta(hours=12))
        ahead = timedelta(hours=25)
        eventually(lambda: [m.id for m in control.machines(live=True)] == [kept.instance_id])
        ended = next(m for m in control.machines() if m.id != kept.instance_id)
        assert ended.end_reason == EndReason.RELEASED
        provider.close()


def test_dead_man_switch_is_renewed_and_given_to_machines_that_had_none(account: Account) -> None:
    case, at = account.case, tomorrow()
    armed = account.launch(TOKEN, dead_man_at=at - timedelta(hours=12))
    bare = account.launch("pool-1-abcd1234-2")
    both = [armed, bare]
    if Capability.DEAD_MAN_SWITCH not in case.capabilities:
        fails_with(ErrorCode.INVALID_REQUEST, lambda: account.provider.renew_dead_man(both, at))
        return
    for _ in range(2):
        account.provider.renew_dead_man([*both, case.unknown_id], at)
        times = account.provider.dead_man_times(both)
        assert sorted(times) == sorted(both)
        assert all(timedelta() <= at - each < case.dead_man_step for each in times.values())


def test_retain_takes_the_dead_man_switch_away(account: Account) -> None:
    armed = account.launch(TOKEN, dead_man_at=tomorrow())
    account.provider.retain([armed], "inst-1")
    assert account.provider.dead_man_times([armed]) == {}


def test_p12_leftovers_of_a_reclaimed_machine_are_released_when_tagged_and_only_told_otherwise(
    account: Account,
) -> None:
    case, things = account.case, account.cloud.leftovers
    reclaimed, living = account.launch(TOKEN), account.launch("pool-1-abcd1234-2")
    tags = {TAG_INSTALLATION: "inst-1"}
    mine = {
        things.attach(reclaimed, kind, ends_with_server=False, tags={**tags, TAG_POOL: "pool-1"}).id
        for kind in ("publicip", "volume")
    }
    others = {
        things.attach(reclaimed, kind, ends_with_server=False, tags=other).id
        for kind, other in (("publicip", {}), ("volume", {TAG_INSTALLATION: "inst-2"}))
    }
    things.attach(living, "publicip", ends_with_server=False, tags=tags)
    account.control.reclaim(reclaimed)
    eventually(lambda: account.state(reclaimed) is None)
    found = account.provider.leftovers(tags)
    if Capability.LEFTOVERS not in case.capabilities:
        assert found == []
        return
    assert {each.id: each.ours for each in found} == dict.fromkeys(mine, True) | dict.fromkeys(others, False)
    fails_with(ErrorCode.INVALID_REQUEST, lambda: account.provider.release(found))
    assert len(account.provider.leftovers(tags)) == 4
    ours = [each for each in found if each.ours]
    account.provider.release(ours)
    account.provider.release(ours)
    assert {each.id for each in things.surviving()} == others
    assert len(things.of(living)) == 1


def test_p12_sweep_after_a_reclaim_releases_what_is_ours_and_shows_the_rest(account: Account) -> None:
    case, things = account.case, account.cloud.leftovers
    if Capability.LEFTOVERS not in case.capabilities:
        return
    reclaimed = account.launch(TOKEN)
    kinds = ("publicip", "volume")
    ours = {TAG_INSTALLATION: "inst-1", TAG_POOL: "pool-1"}
    mine = {things.attach(reclaimed, kind, ends_with_server=False, tags=ours).id for kind in kinds}
    others = {things.attach(reclaimed, kind, ends_with_server=False, tags={}).id for kind in kinds}
    account.control.reclaim(reclaimed)
    eventually(lambda: account.state(reclaimed) is None)
    registry = ProviderRegistry([case.key], lambda _key: account.provider)
    hands = RegionActivities(registry, Installation(id="inst-1"), FakePools())
    # What is new is told first: a cloud may make a disk before its machine.
    request = LeftoversRequest(region=case.key, min_age_seconds=0.02)
    seen = an_attempt().run(hands.sweep_leftovers, request)
    assert {each.id for each in seen.waiting} == mine
    time.sleep(0.03)
    swept = an_attempt().run(hands.sweep_leftovers, request)
    assert {each.id for each in swept.released} == mine
    assert {each.id for each in swept.shown} == others == {each.id for each in things.surviving()}


# Keys, tags, threads


def test_retain_replaces_the_installation_tag_and_nothing_else(account: Account) -> None:
    ids = sorted(account.launch_many(12))
    account.provider.retain(ids, "inst-1")
    assert account.provider.list_tagged({TAG_INSTALLATION: "inst-1"}) == []
    kept = account.provider.list_tagged({TAG_RETAINED: "inst-1"})
    assert sorted(instance.id for instance in kept) == ids
    assert all(instance.tags[TAG_POOL] == "pool-1" for instance in kept)
    account.provider.retain(ids, "inst-1")


def test_adapter_uses_changed_credentials_without_restart(account: Account) -> None:
    machine_id = account.launch()
    account.control.change_keys({"AKIDROTATED": "rotatedSecret"})
    fails_with(ErrorCode.UNAUTHENTICATED, lambda: account.provider.describe([machine_id]))
    account.keys.values.update({"accessKeyId": "AKIDROTATED", "accessKeySecret": "rotatedSecret"})
    assert [instance.id for instance in account.provider.describe([machine_id])] == [machine_id]


def test_adapter_serves_16_threads_at_once(account: Account) -> None:
    account.launch_many(1)  # lifts the vendor's rate

    def buy_and_read(number: int) -> tuple[str, list[str]]:
        machine_id = account.launch(f"pool-2-abcd1234-{number}", name=f"gpu-{number}")
        found = account.provider.list_tagged({TAG_LAUNCH: f"pool-2-abcd1234-{number}"})
        return machine_id, [instance.id for instance in found]

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(buy_and_read, range(48)))
    assert all(found == [machine_id] for machine_id, found in results)
    assert len({machine_id for machine_id, _ in results}) == 48


def test_adapter_reaches_a_local_cloud_although_a_proxy_is_set(
    case: CloudCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with opened(case) as account:
        assert account.provider.describe([case.unknown_id]) == []


def test_launch_request_of_the_suite_is_one_that_workflows_can_send(case: CloudCase) -> None:
    request = case.request()
    assert LaunchRequest.model_validate_json(request.model_dump_json()) == request
