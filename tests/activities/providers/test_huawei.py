"""The Huawei adapter against the simulated cloud over HTTP, and its tables and translators alone."""

import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import parse_qsl

import pytest

from activities.providers import huawei as adapter_module
from activities.providers import huawei_answers as answers
from activities.providers import huawei_tags
from activities.providers.huawei import (
    HuaweiProvider,
    HuaweiSettings,
    build,
    client_token,
    instance_from,
    launch_body,
    quote_from,
    stocks_from,
)
from activities.providers.huawei_errors import NOT_OFFERED, classify
from activities.providers.huawei_sdk import _ecs
from domain.contracts.catalogue import CATALOGUE
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import (
    Created,
    DiskSpec,
    InstanceState,
    LaunchRequest,
    OfferQuery,
    Refusal,
    Rejected,
)
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL, TAG_RETAINED, TAG_SLOT
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey, Stock
from sandbox.clouds.cloud import Call, WireRequest
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.huawei import HuaweiCloud
from sandbox.clouds.inventory import Account
from sandbox.clouds.ledger import MachineState
from sandbox.clouds.server import served
from tests.sandbox.clouds.huawei_builders import (
    GROUP,
    IMAGE,
    KEY,
    KEY_PAIR,
    OTHER_ZONE,
    PROJECT,
    REGION,
    SECRET,
    SUBNET,
    TYPE,
    VPC,
    ZONE,
    a_cloud,
    captured_requests,
)

REGION_KEY = RegionKey(provider=ProviderName.HUAWEI, account="huawei-credentials", region=REGION)
SCRIPT = "#!/bin/sh\nkubeadm join --token abcdef.0123456789abcdef\n"
TYPES = CATALOGUE[ProviderName.HUAWEI]
POOL = "0d4f6d1c-6f0e-4b57-9a1e-2c9d3c1f7a55"
LONG_TOKEN = f"{POOL}-1a2b3c4d-{10**17}"
ABSENT = "00000000-0000-4000-8000-00000000ffff"


@dataclass
class Keys:
    """Credentials that a test can rotate."""

    keys: dict[str, str] = field(
        default_factory=lambda: {"accessKeyId": KEY, "accessKeySecret": SECRET, "projectId": PROJECT}
    )

    def read(self) -> Mapping[str, str]:
        return self.keys


def row(name: str = TYPE) -> InstanceType:
    return next(each for each in TYPES if each.name == name)


def a_request(token: str = "uid-1-aaaa-1", **changes: object) -> LaunchRequest:
    offer = Offer(
        provider=ProviderName.HUAWEI,
        account="huawei-credentials",
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
        vpc_id=VPC,
        subnet_id=SUBNET,
        security_group_ids=(GROUP,),
        key_pair_id=KEY_PAIR,
        disk=DiskSpec(type="GPSSD", size_gb=100),
        user_data_template="",
        join_secret="cluster-join",
        tags={TAG_INSTALLATION: "inst-1", TAG_POOL: "uid-1"},
        max_price_per_hour=Decimal(20),
        name="gpu-0",
    ).model_copy(update=changes)


class RecordingCloud(HuaweiCloud):
    """Keeps the raw requests."""

    def __init__(self, base: HuaweiCloud) -> None:
        super().__init__(base.settings)
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
    launch_seconds: float = 5

    def adapter(self) -> HuaweiProvider:
        settings = HuaweiSettings(
            endpoint=self.address,
            read_timeout_seconds=self.read_timeout_seconds,
            launch_seconds=self.launch_seconds,
            first_poll_seconds=0.02,
            poll_seconds=0.1,
        )
        return HuaweiProvider(REGION_KEY, self.keys, settings)

    def buy(self, count: int = 1, **changes: object) -> list[str]:
        """Machines that the adapter bought and named."""
        adapter = self.adapter()
        results = [adapter.launch(a_request(f"uid-1-aaaa-{n}", **changes), SCRIPT) for n in range(count)]
        return [result.instance_id for result in results if isinstance(result, Created)]

    def calls(self, action: str) -> int:
        return len(self.cloud.log.records(action))


@contextmanager
def a_world(**settings: Any) -> Iterator[World]:
    cloud = RecordingCloud(a_cloud(**settings))
    cloud.rates.default = 0
    cloud.rates.per_second.clear()
    with served(cloud) as address:
        yield World(cloud, address)


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def fault_of(action: Any, *arguments: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        action(*arguments)
    return caught.value


# Purchases ----------------------------------------------------------------------------------------------


def test_launch_buys_one_machine_with_everything_that_was_asked(world: World) -> None:
    result = world.adapter().launch(a_request(), SCRIPT)
    (machine,) = world.cloud.ledger.all()
    assert result == Created(instance_id=machine.id, zone=ZONE)
    assert machine.order.user_data == SCRIPT
    assert machine.tags == {TAG_INSTALLATION: "inst-1", TAG_POOL: "uid-1", TAG_LAUNCH: "uid-1-aaaa-1"}
    details = machine.order.details
    assert (details["spotPrice"], details["key_name"], machine.order.spot) == ("20.000", KEY_PAIR, True)
    assert machine.order.client_token == client_token("uid-1-aaaa-1")
    assert world.calls("CreatePostPaidServers") == 1


def test_launch_waits_for_the_job_and_not_only_for_its_acceptance() -> None:
    with a_world(boot_seconds=0.3) as world:
        (bought,) = world.buy()
        assert world.adapter().describe([bought])[0].state is InstanceState.RUNNING
        assert world.calls("ShowJob") >= 2


def test_launch_names_the_machine_when_the_job_does_not_end_in_time() -> None:
    with a_world(boot_seconds=60) as world:
        world.launch_seconds = 0.3
        result = world.adapter().launch(a_request(), SCRIPT)
        (machine,) = world.cloud.ledger.all()
        assert result == Created(instance_id=machine.id, zone=ZONE)


@pytest.mark.parametrize("kind", [FaultKind.THROTTLE, FaultKind.FAIL, FaultKind.DROP, FaultKind.GARBLE])
def test_launch_goes_on_when_its_job_cannot_be_read_for_a_while(world: World, kind: FaultKind) -> None:
    world.cloud.faults.set(Fault(kind=kind, action="ShowJob", count=2))
    assert isinstance(world.adapter().launch(a_request(), SCRIPT), Created)
    assert world.calls("ShowJob") == 3


@pytest.mark.parametrize(
    ("kind", "code", "vendor_code"),
    [
        pytest.param(FaultKind.NO_STOCK, ErrorCode.INSUFFICIENT_CAPACITY, "Ecs.0219", id="sold out"),
        pytest.param(FaultKind.QUOTA, ErrorCode.QUOTA, "Ecs.0001", id="quota"),
    ],
)
def test_launch_answers_what_the_job_says_as_a_value(
    world: World, kind: FaultKind, code: ErrorCode, vendor_code: str
) -> None:
    world.cloud.faults.set(Fault(kind=kind))
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.vendor_code, result.not_offered) == (code, vendor_code, False)
    assert world.cloud.ledger.all() == ()


def test_launch_ends_the_broken_machine_of_a_failed_job_and_says_why(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS, count=1))
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.vendor_code) == (ErrorCode.INSUFFICIENT_CAPACITY, "Ecs.0219")
    assert "did not start" in result.message
    assert world.cloud.ledger.all()[0].state in (MachineState.ENDING, MachineState.GONE)


def test_launch_names_the_broken_machine_that_it_could_not_end(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS, count=1))
    world.cloud.faults.set(Fault(kind=FaultKind.FAIL, action="DeleteServers"))
    result = world.adapter().launch(a_request(), SCRIPT)
    (machine,) = world.cloud.ledger.all()
    assert result == Created(instance_id=machine.id, zone=ZONE)
    (seen,) = world.adapter().describe([machine.id])
    assert (seen.state, seen.reason) == (InstanceState.TERMINATED, "ERROR")


def test_launch_is_refused_at_once_when_the_bid_is_below_the_market(world: World) -> None:
    result = world.adapter().launch(a_request(max_price_per_hour=Decimal("0.5")), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.vendor_code) == (ErrorCode.PRICE_TOO_LOW, "Ecs.0005")
    assert world.calls("CreatePostPaidServers") == 1


def test_launch_leaves_out_a_bid_above_the_on_demand_price(world: World) -> None:
    assert isinstance(world.adapter().launch(a_request(max_price_per_hour=Decimal(900)), SCRIPT), Created)
    (machine,) = world.cloud.ledger.all()
    assert machine.order.details["spotPrice"] is None
    assert world.calls("CreatePostPaidServers") == 2


def test_launch_of_a_type_that_is_not_sold_there_is_not_offered(world: World) -> None:
    world.cloud.market.withdraw(ProviderName.HUAWEI, ZONE, TYPE)
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Refusal)
    assert (result.code, result.not_offered) == (ErrorCode.INSUFFICIENT_CAPACITY, True)


def test_launch_throttled_inside_a_success_is_of_unknown_outcome(world: World) -> None:
    world.cloud.throttle_code = "Common.0024"
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE, count=1))
    fault = fault_of(world.adapter().launch, a_request(), SCRIPT)
    assert (fault.code, fault.vendor_code) == (ErrorCode.UNKNOWN_OUTCOME, "Common.0024")
    assert world.calls("CreatePostPaidServers") == 1


def test_ending_throttled_inside_a_success_ended_nothing(world: World) -> None:
    (bought,) = world.buy()
    world.cloud.throttle_code = "Common.0024"
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE, count=1))
    fault = fault_of(world.adapter().terminate, [bought])
    assert (fault.code, fault.vendor_code) == (ErrorCode.THROTTLED, "Common.0024")
    assert fault.retry_after == timedelta(seconds=30)


def test_launch_throttled_by_the_gateway_bought_nothing_and_waits_longer(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE))
    fault = fault_of(world.adapter().launch, a_request(), SCRIPT)
    assert (fault.code, fault.vendor_code) == (ErrorCode.THROTTLED, "APIGW.0308")
    assert fault.retry_after == timedelta(seconds=30)
    assert world.calls("CreatePostPaidServers") == 1


@pytest.mark.parametrize(
    ("kind", "exists"),
    [
        pytest.param(FaultKind.DROP, False, id="dropped before"),
        pytest.param(FaultKind.FAIL, False, id="internal error"),
        pytest.param(FaultKind.DROP_ANSWER, True, id="dropped after"),
        pytest.param(FaultKind.HANG, True, id="never answered"),
        pytest.param(FaultKind.GARBLE, True, id="not JSON"),
        pytest.param(FaultKind.EMPTY, True, id="no job and no ids"),
    ],
)
def test_p03_launch_without_a_usable_answer_is_of_unknown_outcome_and_can_be_repeated(
    world: World, kind: FaultKind, *, exists: bool
) -> None:
    world.read_timeout_seconds = 0.5
    adapter = world.adapter()
    world.cloud.faults.set(Fault(kind=kind, action="CreatePostPaidServers", count=1))
    request = a_request(LONG_TOKEN)
    assert fault_of(adapter.launch, request, SCRIPT).code is ErrorCode.UNKNOWN_OUTCOME
    assert world.calls("CreatePostPaidServers") == 1
    assert bool(adapter.list_tagged({TAG_LAUNCH: LONG_TOKEN})) is exists
    result = adapter.launch(request, SCRIPT)
    assert isinstance(result, Created)
    assert [machine.id for machine in world.cloud.ledger.all()] == [result.instance_id]


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything alike; the address, and the requests that it got."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("body", [b'["job_id", "serverIds"]', b'{"serverIds": 5}', b'"x"', b"", b"null"])
def test_launch_with_an_answer_of_another_shape_is_sent_once(body: bytes) -> None:
    with answering(body) as (address, seen):
        adapter = build(REGION_KEY, Keys(), endpoint=address)
        assert fault_of(adapter.launch, a_request(), SCRIPT).code is ErrorCode.UNKNOWN_OUTCOME
        assert seen == [f"POST /v1/{PROJECT}/cloudservers"]
        adapter.close()


def test_launch_with_ids_but_no_job_is_created() -> None:
    with answering(b'{"serverIds": ["s-1"]}') as (address, _):
        adapter = build(REGION_KEY, Keys(), endpoint=address)
        assert adapter.launch(a_request(), SCRIPT) == Created(instance_id="s-1", zone=ZONE)
        adapter.close()


def test_launch_answered_by_a_page_of_a_gateway_keeps_the_page_out_of_the_fault() -> None:
    with answering(b"<html>bad gateway</html>", status=502) as (address, _):
        adapter = build(REGION_KEY, Keys(), endpoint=address)
        fault = fault_of(adapter.launch, a_request(), SCRIPT)
        assert (fault.code, fault.vendor_code) == (ErrorCode.UNKNOWN_OUTCOME, "502")
        assert "html" not in str(fault)
        adapter.close()


def test_launch_that_reached_nobody_was_certainly_not_carried_out() -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        adapter = build(REGION_KEY, Keys(), endpoint=f"127.0.0.1:{port}")
        assert fault_of(adapter.launch, a_request(), SCRIPT).code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tags": {f"k{n}": "" for n in range(10)}}, "11 tags"),
        ({"tags": {"k" * 37: ""}}, "tag key"),
        ({"tags": {"team": "v" * 44}}, "value of tag team"),
        ({"tags": {"team": "a=b"}}, "value of tag team"),
        ({"max_price_per_hour": Decimal("0.0009")}, "bid"),
        ({"name": "a" * 65}, "name"),
    ],
)
def test_launch_rejects_without_a_call_what_cannot_be_sent(
    world: World, changes: dict[str, object], word: str
) -> None:
    result = world.adapter().launch(a_request(**changes), SCRIPT)
    assert isinstance(result, Rejected)
    assert result.code is ErrorCode.INVALID_REQUEST
    assert word in result.message
    assert world.cloud.log.records() == ()


def test_launch_sends_user_data_of_32_kilobytes_and_rejects_more_without_a_call(world: World) -> None:
    adapter = world.adapter()
    assert isinstance(adapter.launch(a_request(), "ü" * 16384), Created)
    result = adapter.launch(a_request("uid-1-aaaa-2"), "ü" * 16384 + "x")
    assert isinstance(result, Rejected)
    assert "32769 bytes" in result.message


def test_launch_gives_a_machine_without_a_name_one_of_its_own(world: World) -> None:
    world.buy(name="")
    assert world.cloud.ledger.all()[0].order.name.startswith("spotgpu-")


# Tags ---------------------------------------------------------------------------------------------------


def test_long_launch_token_comes_back_whole_and_finds_its_machine_alone(world: World) -> None:
    adapter = world.adapter()
    others = [f"{LONG_TOKEN[:-1]}{n}" for n in (7, 8)]
    tags = {TAG_INSTALLATION: POOL, TAG_POOL: POOL, TAG_SLOT: "3"}
    for token in (LONG_TOKEN, *others):
        adapter.launch(a_request(token, tags=tags), SCRIPT)
    (found,) = adapter.list_tagged({TAG_LAUNCH: LONG_TOKEN})
    assert found.tags == tags | {TAG_LAUNCH: LONG_TOKEN}
    assert {m.tags[TAG_LAUNCH] for m in adapter.list_tagged({TAG_POOL: POOL})} == {LONG_TOKEN, *others}
    assert all(len(value) <= 43 for machine in world.cloud.ledger.all() for value in machine.tags.values())
    assert adapter.list_tagged({TAG_LAUNCH: LONG_TOKEN[-43:]}) == []


@pytest.mark.parametrize("length", [1, 42, 43, 44, 64, 86])
def test_tags_come_back_as_they_were_given(length: int) -> None:
    tags = {TAG_LAUNCH: "abcdefghij" * 9, TAG_POOL: POOL, "team": "训练", "empty": ""}
    tags[TAG_LAUNCH] = tags[TAG_LAUNCH][:length]
    kept = huawei_tags.stored(tags)
    assert huawei_tags.flaw(tags) == ""
    assert huawei_tags.given([f"{key}={value}" for key, value in kept.items()]) == tags


def test_search_asks_for_the_most_telling_tag() -> None:
    assert huawei_tags.search_text({TAG_INSTALLATION: "i", TAG_POOL: "p"}) == f"{TAG_POOL}=p"
    assert (
        huawei_tags.search_text({TAG_POOL: "p", TAG_LAUNCH: LONG_TOKEN}) == f"{TAG_LAUNCH}={LONG_TOKEN[-43:]}"
    )
    assert huawei_tags.search_text({TAG_RETAINED: "i"}) == f"{TAG_RETAINED}=i"
    assert huawei_tags.search_text({}) == ""


# Reads --------------------------------------------------------------------------------------------------


def test_describe_translates_a_machine(world: World) -> None:
    (bought,) = world.buy()
    (seen,) = world.adapter().describe([bought, ABSENT])
    assert (seen.provider, seen.region, seen.zone) == (ProviderName.HUAWEI, REGION, ZONE)
    assert (seen.id, seen.provider_id) == (bought, f"huaweicloud://{bought}")
    assert (seen.instance_type, seen.capacity_type) == (TYPE, CapacityType.SPOT)
    assert (seen.state, seen.reason, seen.interrupt_deadline) == (InstanceState.RUNNING, "", None)
    assert timedelta(0) <= datetime.now(UTC) - seen.created_at < timedelta(minutes=1)


def test_describe_asks_for_at_most_100_ids_at_once(world: World) -> None:
    bought = world.buy(3)
    strangers = [f"00000000-0000-4000-8000-{number:012x}" for number in range(148)]
    seen = world.adapter().describe([*bought, *strangers, *bought])
    assert sorted(machine.id for machine in seen) == sorted(bought)
    assert world.calls("ListServersDetails") == 2


def test_reading_of_nothing_asks_nothing(world: World) -> None:
    adapter = world.adapter()
    adapter.terminate([])
    adapter.retain([], "inst-1")
    assert adapter.describe([]) == []
    assert world.cloud.log.records() == ()


def test_list_tagged_reads_all_pages_although_a_machine_goes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "MAX_PAGE", 100)
    world.buy()
    world.cloud.ledger.buy(world.cloud.ledger.all()[0].order, 249)
    machines = world.cloud.ledger.all()
    machines[7].tags[TAG_INSTALLATION] = "another"
    seen = world.adapter().list_tagged({TAG_INSTALLATION: "inst-1", TAG_POOL: "uid-1"})
    expected = {machine.id for machine in machines if machine is not machines[7]}
    assert {machine.id for machine in seen} == expected
    assert world.calls("ListServersDetails") == 3
    markers = [dict(parse_qsl(request.query)).get("marker", "") for request in world.cloud.seen[-3:]]
    assert markers == ["", machines[99].id, machines[199].id]


def test_list_tagged_is_a_fault_when_there_are_more_machines_than_a_reading_may_hold(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "MAX_PAGE", 1)
    world.buy(6)
    assert fault_of(world.adapter().list_tagged, {TAG_POOL: "uid-1"}).code is ErrorCode.UNKNOWN


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
    assert (fault.provider, fault.operation) == ("huawei", "ListServersDetails")
    assert world.calls("ListServersDetails") == 1


def a_seen_server(**changes: object) -> answers.SeenServer:
    fields = {
        "id": "s-1",
        "status": "ACTIVE",
        "created": "2026-01-01T00:00:00Z",
        "OS-EXT-AZ:availability_zone": ZONE,
        "OS-EXT-STS:task_state": None,
        "flavor": {"id": TYPE},
        "metadata": {"charging_mode": "2"},
        "tags": None,
    }
    return answers.SeenServer.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("status", "changes", "state", "reason"),
    [
        ("BUILD", {}, InstanceState.PENDING, ""),
        ("ACTIVE", {}, InstanceState.RUNNING, ""),
        ("HARD_REBOOT", {}, InstanceState.RUNNING, "HARD_REBOOT"),
        ("ACTIVE", {"OS-EXT-STS:task_state": "deleting"}, InstanceState.INTERRUPTING, "deleting"),
        ("ACTIVE", {"OS-EXT-STS:task_state": "powering-off"}, InstanceState.INTERRUPTING, "powering-off"),
        ("ACTIVE", {"OS-EXT-STS:task_state": "rebooting"}, InstanceState.RUNNING, ""),
        ("ACTIVE", {"metadata": {"EcmResStatus": "freeze"}}, InstanceState.INTERRUPTING, "freeze"),
        ("SHUTOFF", {}, InstanceState.INTERRUPTING, "SHUTOFF"),
        ("ERROR", {"OS-EXT-STS:task_state": "deleting"}, InstanceState.TERMINATED, "ERROR"),
        ("SOFT_DELETED", {}, InstanceState.TERMINATED, "SOFT_DELETED"),
        ("UNKNOWN", {}, InstanceState.PENDING, "UNKNOWN"),
        ("LEVITATING", {}, InstanceState.PENDING, "LEVITATING"),
    ],
)
def test_instance_from_maps_states_and_tasks(
    status: str, changes: dict[str, object], state: InstanceState, reason: str
) -> None:
    seen = instance_from(a_seen_server(status=status, **changes), REGION)
    assert seen is not None
    assert (seen.state, seen.reason) == (state, reason)
    assert (seen.created_at, seen.tags) == (datetime(2026, 1, 1, tzinfo=UTC), {})


def test_instance_from_knows_an_empty_record() -> None:
    empty = answers.SeenServer.model_validate({"id": "s-1", "status": None, "fault": {"code": 404}})
    assert instance_from(empty, REGION) is None


# Endings ------------------------------------------------------------------------------------------------


def test_terminate_ends_a_batch_in_one_call_with_what_belongs_to_it(world: World) -> None:
    bought = world.buy(3)
    leftovers = world.cloud.leftovers
    for kind in ("publicip", "volume"):
        leftovers.attach(bought[0], kind, ends_with_server=False)
    world.adapter().terminate(bought)
    assert [machine.live for machine in world.cloud.ledger.all()] == [False] * 3
    assert world.calls("DeleteServers") == 1
    assert leftovers.surviving() == ()


def test_terminate_counts_what_is_gone_as_ended_and_ends_the_others(world: World) -> None:
    bought = world.buy(3)
    world.cloud.ledger.vanish(bought[1])
    adapter = world.adapter()
    adapter.terminate([*bought, ABSENT])
    assert [machine.live for machine in world.cloud.ledger.all()] == [False] * 3
    assert (world.calls("DeleteServers"), world.calls("ListServersDetails")) == (2, 1)
    adapter.terminate([ABSENT])
    assert (world.calls("DeleteServers"), world.calls("ListServersDetails")) == (3, 1)


def test_terminate_ends_the_others_when_one_is_being_reclaimed_and_says_so(world: World) -> None:
    bought = world.buy(3)
    world.cloud.ledger.reclaim(bought[1], notice_seconds=300)
    fault = fault_of(world.adapter().terminate, bought)
    assert (fault.code, fault.vendor_code) == (ErrorCode.CONFLICT, "Ecs.0100")
    assert fault.retry_after == timedelta(minutes=1)
    assert [machine.live for machine in world.cloud.ledger.all()] == [False, True, False]


def test_terminate_counts_what_is_being_deleted_as_ended() -> None:
    with a_world(end_seconds=30) as world:
        bought = world.buy(2)
        world.cloud.ledger.reclaim(bought[0], notice_seconds=None)
        world.adapter().terminate(bought)
        assert not any(machine.live for machine in world.cloud.ledger.all())


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP, FaultKind.DROP_ANSWER])
def test_terminate_can_be_repeated_after_a_fault(world: World, kind: FaultKind) -> None:
    bought = world.buy(2)
    adapter = world.adapter()
    world.cloud.faults.set(Fault(kind=kind, count=1))
    assert fault_of(adapter.terminate, bought).code is ErrorCode.UNAVAILABLE
    assert world.calls("DeleteServers") == 1
    adapter.terminate(bought)
    assert [machine.live for machine in world.cloud.ledger.all()] == [False, False]


def test_retain_replaces_the_tag_of_the_installation(world: World) -> None:
    bought = world.buy(2)
    world.cloud.ledger.vanish(bought[0])
    adapter = world.adapter()
    adapter.retain(bought, "inst-1")
    assert world.cloud.ledger.find([bought[1]])[0].tags == {
        TAG_POOL: "uid-1",
        TAG_LAUNCH: "uid-1-aaaa-1",
        TAG_RETAINED: "inst-1",
    }
    assert adapter.list_tagged({TAG_INSTALLATION: "inst-1"}) == []


def test_retain_that_was_broken_off_goes_on_where_it_was(world: World) -> None:
    bought = world.buy(3)
    adapter = world.adapter()
    adapter.retain(bought[:2], "inst-1")
    before = world.calls("BatchCreateServerTags")
    adapter.retain(bought, "inst-1")
    assert world.calls("BatchCreateServerTags") == before + 1
    assert adapter.list_tagged({TAG_INSTALLATION: "inst-1"}) == []


# Offers -------------------------------------------------------------------------------------------------


def test_p45_offers_of_spot_capacity_have_stock_and_the_list_price_as_bound(world: World) -> None:
    world.cloud.market.run_out(ProviderName.HUAWEI, OTHER_ZONE, TYPE)
    names = (TYPE, "pi2.2xlarge.4", "p9.none")
    unknown = row().model_copy(update={"name": "p9.none"})
    offers = world.adapter().offers(OfferQuery(instance_types=names), (*TYPES, unknown))
    assert {(offer.zone, offer.instance_type.name): offer.stock for offer in offers} == {
        (ZONE, TYPE): Stock.AMPLE,
        (OTHER_ZONE, TYPE): Stock.NONE,
        (ZONE, "pi2.2xlarge.4"): Stock.AMPLE,
        (OTHER_ZONE, "pi2.2xlarge.4"): Stock.AMPLE,
    }
    assert {offer.price for offer in offers} == {None}
    assert {offer.list_price is not None and offer.list_price.per_hour > 0 for offer in offers} == {True}
    assert world.cloud.log.counts() == {"ListFlavorSellPolicies": 3, "ListOnDemandResourceRatings": 2}


def test_offers_of_on_demand_capacity_have_the_price_of_the_list(world: World) -> None:
    query = OfferQuery(instance_types=(TYPE,), zones=(ZONE,), capacity_type=CapacityType.ON_DEMAND)
    (offer,) = world.adapter().offers(query, TYPES)
    assert offer.price is not None
    assert offer.price.per_hour == world.cloud.market.on_demand_price(world.cloud.place(ZONE, TYPE))
    assert (offer.price.currency, offer.price.source) == ("CNY", "ListOnDemandResourceRatings")
    assert world.cloud.log.counts() == {"ListFlavorSellPolicies": 1, "ListOnDemandResourceRatings": 1}


def test_p45_offers_stay_without_a_price_when_the_account_may_not_ask(world: World) -> None:
    world.cloud.prices_allowed = False
    query = OfferQuery(instance_types=(TYPE,), zones=(ZONE,), capacity_type=CapacityType.ON_DEMAND)
    (offer,) = world.adapter().offers(query, TYPES)
    assert (offer.price, offer.stock) == (None, Stock.AMPLE)


def test_offers_are_a_fault_when_the_price_could_not_be_read(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.DROP, action="ListOnDemandResourceRatings"))
    query = OfferQuery(instance_types=(TYPE,), capacity_type=CapacityType.ON_DEMAND)
    fault = fault_of(world.adapter().offers, query, TYPES)
    assert (fault.code, fault.operation) == (ErrorCode.UNAVAILABLE, "ListOnDemandResourceRatings")


def test_stocks_from_takes_a_zone_as_sold_when_one_of_its_policies_is() -> None:
    def policy(zone: str, status: str, mode: str = "spot") -> answers.SellPolicy:
        fields = {"flavor_id": TYPE, "availability_zone_id": zone, "sell_mode": mode, "sell_status": status}
        return answers.SellPolicy.model_validate(fields)

    policies = [
        policy("a", "sellout"),
        policy("a", "available"),
        policy("b", "available"),
        policy("b", "sellout"),
        policy("c", "sellout"),
        policy("d", "available", "ri"),
    ]
    assert stocks_from(policies, TYPE, "spot") == {"a": Stock.AMPLE, "b": Stock.AMPLE, "c": Stock.NONE}
    assert stocks_from(policies, "another", "spot") == {}


@pytest.mark.parametrize(
    ("fields", "per_hour", "currency"),
    [
        ({"amount": 3.5, "official_website_amount": 4, "measure_id": 1}, "3.5", "CNY"),
        ({"official_website_amount": 4.25, "currency": "USD"}, "4.25", "USD"),
        ({"amount": 0, "measure_id": 1}, None, None),
        ({"amount": 350, "measure_id": 3}, None, None),
        ({}, None, None),
    ],
)
def test_quote_from_never_invents_a_price(
    fields: dict[str, object], per_hour: str | None, currency: str | None
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    quote = quote_from(answers.Rating.model_validate(fields), now=now)
    assert (quote and str(quote.per_hour), quote and quote.currency) == (per_hour, currency)


# Keys, projects, proxies, secrets -----------------------------------------------------------------------


def test_adapter_uses_rotated_keys_without_a_restart(world: World) -> None:
    adapter = world.adapter()
    adapter.describe([ABSENT])
    world.cloud.account.keys = {"HWROTATED": "another"}
    assert fault_of(adapter.describe, [ABSENT]).code is ErrorCode.UNAUTHENTICATED
    world.keys.keys |= {"accessKeyId": "HWROTATED", "accessKeySecret": "another"}
    assert adapter.describe([ABSENT]) == []


def test_adapter_sends_the_token_of_temporary_keys() -> None:
    with a_world(account=Account(keys={KEY: SECRET}, tokens={KEY: "sts-token"})) as world:
        assert fault_of(world.adapter().describe, [ABSENT]).code is ErrorCode.UNAUTHENTICATED
        world.keys.keys["token"] = "sts-token"
        assert world.adapter().describe([ABSENT]) == []


@pytest.fixture
def own_key(world: World) -> str:
    """A key that no other test looks a project up for: the SDK keeps what it found for the whole process."""
    name = f"HW{os.urandom(6).hex()}"
    world.cloud.account.keys = {name: SECRET}
    world.keys.keys = {"accessKeyId": name, "accessKeySecret": SECRET}
    return name


def test_adapter_looks_the_project_up_once_when_the_secret_names_none(world: World, own_key: str) -> None:
    for _ in range(2):
        adapter = world.adapter()
        assert adapter.describe([ABSENT]) == []
        adapter.close()
    counts = world.cloud.log.counts()
    assert counts == {"KeystoneListProjects": 1, "ListServersDetails": 2}


def test_adapter_takes_the_project_of_its_region_first(world: World) -> None:
    world.keys.keys |= {"projectId": "another", f"projectId.{REGION}": PROJECT}
    assert world.adapter().describe([ABSENT]) == []
    assert world.calls("KeystoneListProjects") == 0


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FaultKind.THROTTLE, ErrorCode.THROTTLED),
        (FaultKind.FAIL, ErrorCode.UNAVAILABLE),
        (FaultKind.DROP, ErrorCode.UNAVAILABLE),
        (FaultKind.GARBLE, ErrorCode.UNAVAILABLE),
    ],
)
def test_launch_bought_nothing_when_the_project_could_not_be_looked_up(
    world: World, own_key: str, kind: FaultKind, code: ErrorCode
) -> None:
    world.cloud.faults.set(Fault(kind=kind, action="KeystoneListProjects"))
    fault = fault_of(world.adapter().launch, a_request(), SCRIPT)
    assert (fault.code, fault.operation) == (code, "KeystoneListProjects")
    assert world.calls("CreatePostPaidServers") == 0


def test_launch_is_rejected_when_there_is_no_project_or_the_keys_are_wrong(
    world: World, own_key: str
) -> None:
    world.cloud.projects = {}
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Rejected)
    assert (result.code, result.vendor_code) == (ErrorCode.UNAUTHENTICATED, "ProjectNotFound")
    assert "set projectId in the Secret" in result.message
    world.keys.keys["accessKeySecret"] = "wrong"
    result = world.adapter().launch(a_request(), SCRIPT)
    assert isinstance(result, Rejected)
    assert (result.code, result.vendor_code) == (ErrorCode.UNAUTHENTICATED, "APIGW.0301")


def test_adapter_rejects_a_project_that_is_not_of_the_keys_and_empty_keys(world: World) -> None:
    world.keys.keys["projectId"] = "0" * 32
    assert fault_of(world.adapter().describe, [ABSENT]).code is ErrorCode.UNAUTHENTICATED
    world.keys.keys["accessKeySecret"] = ""
    fault = fault_of(world.adapter().describe, [ABSENT])
    assert (fault.code, fault.vendor_code) == (ErrorCode.UNAUTHENTICATED, "InvalidCredential")


def test_adapter_of_a_region_that_the_sdk_does_not_know_says_so() -> None:
    key = REGION_KEY.model_copy(update={"region": "cn-nowhere-9"})
    fault = fault_of(build(key, Keys()).describe, [ABSENT])
    assert (fault.code, fault.vendor_code) == (ErrorCode.INVALID_REQUEST, "InvalidRegion")


def test_adapter_reaches_a_loopback_endpoint_although_a_proxy_is_set(
    world: World, own_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    query = OfferQuery(instance_types=(TYPE,), capacity_type=CapacityType.ON_DEMAND)
    for address in (world.address, world.address.removeprefix("http://")):
        adapter = build(REGION_KEY, world.keys, endpoint=address)
        assert adapter.offers(query, TYPES)[0].price is not None
        adapter.close()
    assert world.calls("KeystoneListProjects") == 1


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
    server: Any = launch_body(a_request(), SCRIPT)["server"]
    text = "".join(traceback.format_exception(fault))
    secrets = (server["user_data"][:40], "abcdef.0123456789abcdef", SECRET)
    assert [secret for secret in secrets if secret in text] == []


def in_a_process_of_its_own(code: str, home: Path, address: str = "") -> str:
    environment = {**os.environ, "HOME": str(home), "ADDRESS": address}
    found = subprocess.run(  # noqa: S603 - the code stands in this file
        [sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True
    )
    return found.stdout + found.stderr


def test_adapter_imports_the_sdk_only_when_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys; from activities.providers import huawei;"
        "print([name for name in sys.modules if name.startswith('huaweicloudsdk')])"
    )
    assert in_a_process_of_its_own(code, tmp_path).strip() == "[]"


def test_adapter_leaves_the_home_folder_and_the_logs_alone(world: World, tmp_path: Path) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.DROP))
    code = f"""
import os
from activities.providers.huawei import build
from domain.contracts.errors import ProviderError
from domain.contracts.offers import ProviderName, RegionKey

class Keys:
    def read(self):
        return {{"accessKeyId": "{KEY}", "accessKeySecret": "{SECRET}", "projectId": "{PROJECT}"}}

key = RegionKey(provider=ProviderName.HUAWEI, account="a", region="{REGION}")
adapter = build(key, Keys(), endpoint=os.environ["ADDRESS"])
try:
    adapter.describe(["s-1"])
except ProviderError as fault:
    print(fault.code)
adapter.close()
"""
    assert in_a_process_of_its_own(code, tmp_path, world.address) == "Unavailable\n"
    assert list(tmp_path.iterdir()) == []


def test_adapter_writes_no_request_to_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.buy()
    assert [
        record
        for record in caplog.records
        if "cloudservers" in record.getMessage() and SCRIPT[:20] in record.getMessage()
    ] == []


def test_adapter_releases_its_threads_and_can_be_used_again(world: World) -> None:
    before = threading.active_count()
    adapter = world.adapter()
    adapter.describe([ABSENT])
    assert threading.active_count() > before
    adapter.close()
    end = datetime.now(UTC) + timedelta(seconds=20)
    while threading.active_count() > before:
        assert datetime.now(UTC) < end, "threads were left"
    assert adapter.describe([ABSENT]) == []
    adapter.close()
    assert adapter.key == REGION_KEY


# Tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor_code", "message", "code"),
    [
        ("APIGW.0308", "", ErrorCode.THROTTLED),
        ("Common.1503", "", ErrorCode.THROTTLED),
        ("429", "", ErrorCode.THROTTLED),
        ("Ecs.0319", "", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Ecs.0219", "No valid host was found", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Ecs.0204", "no valid host", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Ecs.0219", "the guest did not start", ErrorCode.UNAVAILABLE),
        ("Ecs.0029", "", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Ecs.0001", "", ErrorCode.QUOTA),
        ("Ecs.0012", "", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Ecs.0005", "the value of spotPrice is lower than the market price", ErrorCode.PRICE_TOO_LOW),
        ("Ecs.0005", "imageRef", ErrorCode.INVALID_REQUEST),
        ("Ecs.0005", "this network is forbidden", ErrorCode.INVALID_REQUEST),
        ("Ecs.0066", "", ErrorCode.FORBIDDEN),
        ("Pdp.0001", "", ErrorCode.FORBIDDEN),
        ("APIGW.0301", "", ErrorCode.UNAUTHENTICATED),
        ("Common.0018", "", ErrorCode.UNAUTHENTICATED),
        ("Ecs.0114", "", ErrorCode.NOT_FOUND),
        ("Ecs.0100", "", ErrorCode.CONFLICT),
        ("Ecs.0603", "", ErrorCode.CONFLICT),
        ("Ecs.0000", "", ErrorCode.UNAVAILABLE),
        ("503", "", ErrorCode.UNAVAILABLE),
        ("Ecs.00", "", ErrorCode.UNKNOWN),
        ("Ecs.01000", "", ErrorCode.UNKNOWN),
        ("", "", ErrorCode.UNKNOWN),
    ],
)
def test_classify_matches_codes_whole(vendor_code: str, message: str, code: ErrorCode) -> None:
    assert classify(vendor_code, message, creating=False) is code


@pytest.mark.parametrize("vendor_code", ["Ecs.0000", "Common.0001", "500", "502", ""])
def test_classify_says_unknown_outcome_when_a_machine_may_have_been_made(vendor_code: str) -> None:
    assert classify(vendor_code, "", creating=True) is ErrorCode.UNKNOWN_OUTCOME


# Every code that the vendor's pages and the SDK name for the calls that we make, by what it means to a pool.
NOT_SOLD = "Ecs.0029 Ecs.0015 Ecs.0909"
NAMED = {
    ErrorCode.INSUFFICIENT_CAPACITY: f"{NOT_SOLD} Ecs.0319 Ecs.0044 Ecs.0012",
    ErrorCode.QUOTA: "Ecs.0001 Ecs.0013 Ecs.0021 Ecs.0022 Ecs.0118 Ecs.0913",
    ErrorCode.FORBIDDEN: """
        Ecs.0066 Ecs.0067 Ecs.0068 Ecs.0069 Ecs.0070 Ecs.0071 Ecs.0030 Pdp.0001 Ecs.0003 Ecs.0110
    """,
    ErrorCode.UNAUTHENTICATED: "Common.0013 Ecs.0004 Ecs.0023 Common.0018 APIGW.0301",
    ErrorCode.THROTTLED: "APIGW.0308 Common.1503 429 Common.0024",
    ErrorCode.UNAVAILABLE: """
        Common.0001 Ecs.0000 Ecs.0002 Ecs.1000 Ecs.1001 Ecs.1002 Ecs.1100 Ecs.1200 Ecs.1201 Ecs.1300
    """,
    ErrorCode.CONFLICT: "Ecs.0100 Ecs.0605 Ecs.0603",
    ErrorCode.NOT_FOUND: "Ecs.0114 Ecs.0614",
    ErrorCode.INVALID_REQUEST: "Ecs.0005 Ecs.0014 Ecs.0031 Ecs.0032 Ecs.0038 Ecs.0314 Common.0002",
}


@pytest.mark.parametrize(("code", "words"), NAMED.items(), ids=[code.value for code in NAMED])
def test_classify_knows_every_code_that_the_vendor_names(code: ErrorCode, words: str) -> None:
    said = {word: classify(word, "", creating=False) for word in words.split()}
    assert said == dict.fromkeys(words.split(), code)


def test_what_is_not_sold_there_is_told_from_what_is_sold_out() -> None:
    words = NAMED[ErrorCode.INSUFFICIENT_CAPACITY].split()
    assert NOT_OFFERED & set(words) == set(NOT_SOLD.split())


def test_client_token_is_a_uuid_and_the_same_for_the_same_launch() -> None:
    assert client_token("uid-1-aaaa-1") == client_token("uid-1-aaaa-1") != client_token("uid-1-aaaa-2")
    # Written out, since machines are found again by it after an upgrade.
    assert client_token("pool-1-abcd1234-1") == "614e94bd-645f-50e7-ae0b-36c4e32594a4"


# The wire -----------------------------------------------------------------------------------------------


def signed_names(request: WireRequest) -> str:
    return request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0]


def anonymous(path: str) -> str:
    return path.replace(PROJECT, "PROJECT").replace("0123456789abcdef0123456789abcdef", "PROJECT")


def assert_agree(ours: WireRequest, theirs: WireRequest) -> None:
    assert (ours.method, anonymous(ours.path)) == (theirs.method, anonymous(theirs.path))
    assert set(ours.headers) == set(theirs.headers)
    assert signed_names(ours) == signed_names(theirs)
    for name in ("content-type", "accept", "accept-encoding"):
        assert ours.headers[name] == theirs.headers[name]


def spelling(value: object) -> object:
    """What a JSON value is, without what it says; of a list what all its items are."""
    if isinstance(value, dict):
        return {name: spelling(each) for name, each in value.items()}
    if isinstance(value, list):
        return [spelling(each) for each in value][:1]
    return type(value).__name__


def shared(ours: Any, theirs: Any) -> tuple[object, object]:
    """Both, narrowed to the names that both have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = {name: shared(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
        return {n: pair[0] for n, pair in pairs.items()}, {n: pair[1] for n, pair in pairs.items()}
    return spelling(ours), spelling(theirs)


def test_wire_of_a_purchase_agrees_with_the_capture(world: World) -> None:
    (theirs,) = captured_requests("create_success_v1")
    world.adapter().launch(a_request(max_price_per_hour=Decimal("3.5"), key_pair_id="kp-fake"), SCRIPT)
    ours = world.cloud.seen[0]
    assert_agree(ours, theirs)
    our_body, their_body = json.loads(ours.body), json.loads(theirs.body)
    our_shape, their_shape = shared(our_body, their_body)
    assert our_shape == their_shape
    assert our_body["server"].keys() - their_body["server"].keys() == set()
    # Chosen otherwise: no dry run, no timer, no role of the machine.
    assert their_body["server"].keys() - our_body["server"].keys() == {"auto_terminate_time", "metadata"}
    assert our_body["server"]["extendparam"].keys() == their_body["server"]["extendparam"].keys()
    assert our_body["server"]["extendparam"]["chargingMode"] == 0


def test_wire_of_reads_and_endings_agrees_with_the_captures(world: World) -> None:
    adapter = world.adapter()
    (bought,) = world.buy()
    world.cloud.seen.clear()
    adapter.describe([bought, ABSENT])
    adapter.list_tagged({"lease": "0001"})
    adapter.terminate([bought])
    cases = ("describe_by_ids", "describe_by_tags", "terminate_success")
    for case, ours in zip(cases, world.cloud.seen, strict=True):
        (theirs,) = captured_requests(case)
        assert_agree(ours, theirs)
        our_query, their_query = dict(parse_qsl(ours.query)), dict(parse_qsl(theirs.query))
        # Chosen otherwise: a limit with ids too, and pages by marker, whose first has none.
        assert our_query.keys() ^ their_query.keys() <= {"limit", "offset"}
        assert our_query.get("tags") == their_query.get("tags")
        assert ("%2C" in ours.query, "%3D" in ours.query) == ("%2C" in theirs.query, "%3D" in theirs.query)
        if theirs.body:
            assert spelling(json.loads(ours.body)) == spelling(json.loads(theirs.body))


def test_wire_of_a_job_agrees_with_the_capture(world: World) -> None:
    world.buy()
    (theirs,) = captured_requests("show_job_running")
    ours = next(request for request in world.cloud.seen if "/jobs/" in request.path)
    assert (
        ours.path.rpartition("/")[0]
        == theirs.path.replace("0123456789abcdef" * 2, PROJECT).rpartition("/")[0]
    )
    assert (set(ours.headers), signed_names(ours)) == (set(theirs.headers), signed_names(theirs))
    assert (ours.query, ours.body) == (theirs.query, theirs.body)


def test_wire_of_a_project_search_agrees_with_the_capture(world: World, own_key: str) -> None:
    theirs, _ = captured_requests("with_region_and_no_project_id_calls_IAM")
    world.adapter().describe([ABSENT])
    ours = world.cloud.seen[0]
    assert (ours.method, ours.target) == (theirs.method, theirs.target)
    assert (set(ours.headers), signed_names(ours)) == (set(theirs.headers), signed_names(theirs))


def test_bodies_use_names_that_the_sdk_knows() -> None:
    sdk = _ecs()
    server: Any = launch_body(a_request(), SCRIPT)["server"]
    assert server.keys() <= set(sdk.PostPaidServer.attribute_map.values())
    assert server["extendparam"].keys() <= set(sdk.PostPaidServerExtendParam.attribute_map.values())
    assert server["root_volume"].keys() <= set(sdk.PostPaidServerRootVolume.attribute_map.values())
