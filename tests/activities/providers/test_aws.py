"""The AWS adapter: translators, bytes against the captures, and its calls to the simulated cloud."""

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from socket import socket
from urllib.parse import parse_qsl

import botocore.session
import pytest
from botocore.exceptions import ProxyConnectionError

from activities.providers import aws_answers as answers
from activities.providers.aws import (
    STATES,
    TAKEN_BACK,
    AwsProvider,
    AwsSettings,
    bid_from,
    build,
    instance_from,
    launch_body,
)
from activities.providers.aws_errors import NOT_OFFERED, classify
from activities.providers.aws_prices import latest_prices, listed_price, quote_from
from activities.providers.aws_sdk import Ec2Calls, public_text
from activities.providers.base import at_once
from domain.contracts.catalogue import CATALOGUE
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import Created, DiskSpec, InstanceState, OfferQuery, Refusal, Rejected
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL, TAG_RETAINED
from domain.contracts.offers import CapacityType, ProviderName, Stock
from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.aws_offers import usd
from sandbox.clouds.cloud import Call, WireRequest
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.inventory import Account
from sandbox.clouds.server import served
from tests.activities.providers.aws_case import CASE
from tests.activities.providers.cloud_case import Keys
from tests.sandbox.clouds.aws_builders import (
    IMAGE,
    KEY,
    OTHER_ZONE,
    SECRET,
    TYPE,
    ZONE,
    captured_requests,
    settings,
)

NOW = datetime(2026, 7, 1, tzinfo=UTC)
BOOT = "#!/bin/sh\necho token=abcdef.0123456789abcdef\n"
UNKNOWN = CASE.unknown_id


class Recording(AwsCloud):
    """Keeps the raw requests."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)
        self.seen: list[WireRequest] = []
        self.rates.default = 0
        self.rates.per_second = dict.fromkeys(self.rates.per_second, 0)

    def open(self, request: WireRequest) -> Call:
        self.seen.append(request)
        return super().open(request)


@dataclass
class World:
    """A served cloud, and adapters for it."""

    cloud: Recording
    address: str
    keys: Keys = field(default_factory=lambda: Keys({"accessKeyId": KEY, "accessKeySecret": SECRET}))

    def adapter(self, region: str = CASE.region, **changes: object) -> AwsProvider:
        settings = AwsSettings(endpoint=self.address, read_timeout_seconds=5).model_copy(update=changes)
        return AwsProvider(CASE.key.model_copy(update={"region": region}), self.keys, settings)

    def buy(self, count: int = 1) -> list[str]:
        adapter = self.adapter()
        results = [adapter.launch(CASE.request(f"uid-1-aaaa-{n}"), BOOT) for n in range(count)]
        self.cloud.ledger.advance()
        return [result.instance_id for result in results if isinstance(result, Created)]

    def calls(self, action: str = "") -> int:
        return len(self.cloud.log.records(action))


@contextmanager
def a_world(own: Mapping[str, object] | None = None, **changes: object) -> Iterator[World]:
    cloud = Recording(settings(**changes), **(own or {}))
    with served(cloud) as address:
        yield World(cloud, address)


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as made:
        yield made


def fault_of(action: object, *arguments: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        action(*arguments)
    return caught.value


# Translators


@pytest.mark.parametrize(
    ("vendor_code", "code"),
    [
        ("RequestLimitExceeded", ErrorCode.THROTTLED),
        ("EC2ThrottledException", ErrorCode.THROTTLED),
        ("ThrottlingException", ErrorCode.THROTTLED),
        ("InsufficientInstanceCapacity", ErrorCode.INSUFFICIENT_CAPACITY),
        ("UnfulfillableCapacity", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Unsupported", ErrorCode.INSUFFICIENT_CAPACITY),
        ("UnsupportedOperation", ErrorCode.INVALID_REQUEST),
        ("SpotMaxPriceTooLow", ErrorCode.PRICE_TOO_LOW),
        ("MaxSpotInstanceCountExceeded", ErrorCode.QUOTA),
        ("VcpuLimitExceeded", ErrorCode.QUOTA),
        ("TooManyRequestsException", ErrorCode.THROTTLED),
        ("NoSuchResourceException", ErrorCode.NOT_FOUND),
        ("InsufficientFreeAddressesInSubnet", ErrorCode.INSUFFICIENT_CAPACITY),
        ("AuthFailure", ErrorCode.UNAUTHENTICATED),
        ("ExpiredTokenException", ErrorCode.UNAUTHENTICATED),
        ("InvalidClientTokenId", ErrorCode.UNAUTHENTICATED),
        ("RequestExpired", ErrorCode.UNAUTHENTICATED),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ErrorCode.FORBIDDEN),
        ("UnauthorizedOperation", ErrorCode.FORBIDDEN),
        ("OperationNotPermitted", ErrorCode.FORBIDDEN),
        ("AccessDeniedException", ErrorCode.FORBIDDEN),
        ("InvalidSignatureException", ErrorCode.UNAUTHENTICATED),
        ("UnrecognizedClientException", ErrorCode.UNAUTHENTICATED),
        ("InvalidParameterException", ErrorCode.INVALID_REQUEST),
        ("InvalidInstanceID.NotFound", ErrorCode.NOT_FOUND),
        ("InvalidInstanceID.Malformed", ErrorCode.INVALID_REQUEST),
        ("InvalidAMIID.NotFound", ErrorCode.INVALID_REQUEST),
        ("InvalidParameterCombination", ErrorCode.INVALID_REQUEST),
        ("MissingParameter", ErrorCode.INVALID_REQUEST),
        ("IncorrectInstanceState", ErrorCode.CONFLICT),
        ("SomethingNew", ErrorCode.UNKNOWN),
    ],
)
def test_classify_takes_whole_refusals_and_the_longest_prefix(vendor_code: str, code: ErrorCode) -> None:
    assert classify(vendor_code, creating=False, status=400) is code
    assert classify(vendor_code, creating=True, status=400) is code


@pytest.mark.parametrize("status", [400, 500, 503])
def test_missing_capacity_is_a_refusal_whatever_the_status(status: int) -> None:
    code = classify("InsufficientInstanceCapacity", creating=True, status=status)
    assert code is ErrorCode.INSUFFICIENT_CAPACITY


@pytest.mark.parametrize(
    "vendor_code", ["InternalError", "Unavailable", "ServiceUnavailable", "ServiceException", "502", "503"]
)
def test_classify_leaves_a_failure_of_the_cloud_open_for_creates_only(vendor_code: str) -> None:
    assert classify(vendor_code, creating=True) is ErrorCode.UNKNOWN_OUTCOME
    assert classify(vendor_code, creating=False) is ErrorCode.UNAVAILABLE


def test_classify_leaves_an_unlisted_failure_of_a_create_open() -> None:
    assert classify("SomethingNew", creating=True, status=500) is ErrorCode.UNKNOWN_OUTCOME
    assert classify("", creating=True, status=400) is ErrorCode.UNKNOWN_OUTCOME
    assert classify("SomethingNew", creating=False, status=500) is ErrorCode.UNKNOWN


def test_a_token_with_other_parameters_leaves_the_outcome_open() -> None:
    assert classify("IdempotentParameterMismatch", creating=True, status=400) is ErrorCode.UNKNOWN_OUTCOME


@pytest.mark.parametrize("vendor_code", ["UnsupportedTenancy", "UnsupportedHibernationConfiguration"])
def test_word_that_goes_on_after_a_whole_one_is_unknown(vendor_code: str) -> None:
    assert classify(vendor_code, creating=True, status=400) is ErrorCode.UNKNOWN


# Every code that the vendor's pages and the SDK name for the calls that we make, by what it means to a pool.
NAMED = {
    ErrorCode.INSUFFICIENT_CAPACITY: """
        InsufficientInstanceCapacity UnfulfillableCapacity InsufficientHostCapacity Unsupported
        InsufficientFreeAddressesInSubnet
    """,
    ErrorCode.PRICE_TOO_LOW: "SpotMaxPriceTooLow",
    ErrorCode.QUOTA: """
        MaxSpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded MaxFleetCountExceeded
    """,
    ErrorCode.UNAUTHENTICATED: "AuthFailure ExpiredToken",
    ErrorCode.FORBIDDEN: "UnauthorizedOperation AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    ErrorCode.THROTTLED: "RequestLimitExceeded EC2ThrottledException",
    ErrorCode.UNAVAILABLE: "InternalError Unavailable ServiceUnavailable",
    ErrorCode.NOT_FOUND: "InvalidInstanceID.NotFound",
    ErrorCode.UNKNOWN_OUTCOME: "IdempotentParameterMismatch",
}


@pytest.mark.parametrize(("code", "words"), NAMED.items(), ids=[code.value for code in NAMED])
def test_classify_knows_every_code_that_the_vendor_names(code: ErrorCode, words: str) -> None:
    said = {word: classify(word, creating=False) for word in words.split()}
    assert said == dict.fromkeys(words.split(), code)


def test_what_is_not_sold_there_is_told_from_what_is_sold_out() -> None:
    assert NOT_OFFERED & set(NAMED[ErrorCode.INSUFFICIENT_CAPACITY].split()) == {"Unsupported"}


@pytest.mark.parametrize(
    "message",
    [
        "The requested instance type (p5.48xlarge) is not supported in the requested Availability Zone (x).",
        "Spot Instances are not available for the requested instance type.",
        "The spot market is not available in this region.",
        "The instance type does not support the spot market: p5.48xlarge is not available as spot.",
    ],
)
def test_combination_of_parameters_that_is_not_sold_there_is_refused_by_its_text(message: str) -> None:
    code = classify("InvalidParameterCombination", creating=True, status=400, message=message)
    assert code is ErrorCode.INSUFFICIENT_CAPACITY
    assert "InvalidParameterCombination" in NOT_OFFERED


@pytest.mark.parametrize(
    "message",
    [
        "The parameter groupName cannot be used with the parameter subnet",
        "Cluster placement groups are not supported by the 't2.micro' instance type.",
        "The request with type 'one-time' is not supported when the behavior is set to 'stop'.",
        "Enhanced networking with the ENA is required for the 'p5.48xlarge' instance type.",
        "The specified instance type is not eligible for Free Tier.",
        "The architecture 'arm64' of the instance type does not match the architecture 'x86_64' of the AMI.",
    ],
)
def test_combination_of_parameters_that_exclude_each_other_is_rejected(message: str) -> None:
    code = classify("InvalidParameterCombination", creating=True, status=400, message=message)
    assert code is ErrorCode.INVALID_REQUEST


def test_text_of_another_code_decides_nothing() -> None:
    text = "The instance type is not supported in the Availability Zone."
    assert classify("InvalidParameterValue", creating=True, message=text) is ErrorCode.INVALID_REQUEST


def seen(word: str = "running", **changes: object) -> answers.SeenInstance:
    fields = {
        "InstanceId": "i-05b07c10dffff0001",
        "InstanceType": TYPE,
        "InstanceLifecycle": "spot",
        "State": {"Code": 0, "Name": word},
        "LaunchTime": NOW,
        "Placement": {"AvailabilityZone": ZONE},
        "Tags": [{"Key": "lease", "Value": "0001"}],
    }
    return answers.SeenInstance.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("word", "cause", "status", "state", "reason"),
    [
        ("pending", "", "", InstanceState.PENDING, ""),
        ("running", "", "", InstanceState.RUNNING, ""),
        (
            "running",
            "",
            "marked-for-termination",
            InstanceState.INTERRUPTING,
            "marked-for-termination",
        ),
        ("running", "", "marked-for-stop", InstanceState.INTERRUPTING, "marked-for-stop"),
        (
            "running",
            "",
            "instance-terminated-no-capacity",
            InstanceState.INTERRUPTING,
            "instance-terminated-no-capacity",
        ),
        ("stopping", "", "", InstanceState.INTERRUPTING, "stopping"),
        (
            "stopped",
            "Client.InstanceInitiatedShutdown",
            "",
            InstanceState.INTERRUPTING,
            "Client.InstanceInitiatedShutdown",
        ),
        (
            "shutting-down",
            "Server.SpotInstanceTermination",
            "marked-for-termination",
            InstanceState.TERMINATED,
            "Server.SpotInstanceTermination",
        ),
        (
            "terminated",
            "Client.UserInitiatedShutdown",
            "",
            InstanceState.TERMINATED,
            "Client.UserInitiatedShutdown",
        ),
        (
            "terminated",
            "Server.InsufficientInstanceCapacity",
            "",
            InstanceState.TERMINATED,
            "Server.InsufficientInstanceCapacity",
        ),
        ("terminated", "", "", InstanceState.TERMINATED, "terminated"),
        ("levitating", "", "", InstanceState.PENDING, "levitating"),
    ],
)
def test_instance_from_translates_states_and_spot_statuses(
    word: str, cause: str, status: str, state: InstanceState, reason: str
) -> None:
    causes = {"StateReason": {"Code": cause, "Message": ""}} if cause else {}
    instance = instance_from(seen(word, **causes), "us-east-1", status)
    assert (instance.state, instance.reason) == (state, reason)


def test_instance_from_reads_the_other_fields() -> None:
    instance = instance_from(seen(), "us-east-1")
    assert instance.provider_id == f"aws:///{ZONE}/i-05b07c10dffff0001"
    assert (instance.zone, instance.region, instance.instance_type) == (ZONE, "us-east-1", TYPE)
    assert (instance.tags, instance.created_at) == ({"lease": "0001"}, NOW)
    assert instance.capacity_type is CapacityType.SPOT
    assert instance.interrupt_deadline is None
    (other, bare) = (seen(InstanceLifecycle=""), seen(Tags=[]))
    assert instance_from(other, "us-east-1").capacity_type is CapacityType.ON_DEMAND
    assert instance_from(bare, "us-east-1").tags == {}


def test_instance_from_gives_times_in_utc_wherever_it_runs() -> None:
    local = NOW.astimezone(timezone(timedelta(hours=8)))
    created_at = instance_from(seen(LaunchTime=local), "us-east-1").created_at
    assert (created_at, created_at.utcoffset()) == (NOW, timedelta(0))


def shape_of(operation: str) -> object:
    model = botocore.session.get_session().get_service_model("ec2")
    return model.operation_model(operation).output_shape


def test_every_listed_state_is_one_of_the_sdks() -> None:
    instances = shape_of("DescribeInstances").members["Reservations"].member.members["Instances"].member
    assert set(STATES) == set(instances.members["State"].members["Name"].enum)


@pytest.mark.parametrize(("bid", "text"), [("0.5", "0.5"), ("20", "20"), ("3.00000099", "3"), ("100", "100")])
def test_bid_is_rounded_down_and_plain(bid: str, text: str) -> None:
    assert bid_from(Decimal(bid)) == text


def change(zone: str, hour: int, price: str) -> answers.PriceChange:
    return answers.PriceChange(
        AvailabilityZone=zone,
        InstanceType=TYPE,
        SpotPrice=Decimal(price),
        Timestamp=NOW + timedelta(hours=hour),
    )


def test_latest_prices_do_not_trust_the_order_of_the_answer() -> None:
    changes = [change(ZONE, 1, "0.5"), change(ZONE, 3, "0.7"), change(ZONE, 2, "0.9"), change("z", 0, "1")]
    assert latest_prices(changes) == {(ZONE, TYPE): Decimal("0.7"), ("z", TYPE): Decimal(1)}


def test_quote_from_never_invents_a_price() -> None:
    assert quote_from(None, "USD", source="GetProducts", now=NOW) is None
    assert quote_from(Decimal(0), "USD", source="GetProducts", now=NOW) is None
    quote = quote_from(Decimal("0.402300"), "USD", source="GetProducts", now=NOW)
    assert quote is not None
    assert (quote.per_hour, quote.currency, quote.as_of) == (Decimal("0.4023"), "USD", NOW)


def a_rate(amount: str = "1.0060000000", unit: str = "Hrs", currency: str = "USD") -> dict[str, object]:
    return {"unit": unit, "pricePerUnit": {currency: amount}, "beginRange": "0", "endRange": "Inf"}


def a_term(*rates: dict[str, object], since: str = "2026-06-01T00:00:00Z") -> dict[str, object]:
    dimensions = {f"S.T.R{n}": rate for n, rate in enumerate(rates or (a_rate(),))}
    return {"effectiveDate": since, "priceDimensions": dimensions, "termAttributes": {}}


def a_product(*terms: dict[str, object], kind: str = TYPE) -> str:
    """One product as the vendor sends it: a text of JSON."""
    named = {f"S.T{n}": term for n, term in enumerate(terms)}
    product = {"sku": "S", "attributes": {"instanceType": kind, "tenancy": "Shared"}}
    return json.dumps({"product": product, "terms": {"OnDemand": named} if terms else {"Reserved": {}}})


@pytest.mark.parametrize(
    ("products", "more", "amount"),
    [
        pytest.param([a_product(a_term())], "", "1.006", id="one"),
        pytest.param([], "", None, id="none"),
        pytest.param([a_product(a_term())] * 2, "", None, id="two products"),
        pytest.param([a_product(a_term())], "more", None, id="others on another page"),
        pytest.param([a_product(a_term(), kind="g5.2xlarge")], "", None, id="another type"),
        pytest.param([a_product()], "", None, id="not sold on demand"),
        pytest.param([a_product(a_term(), a_term(a_rate("2")))], "", None, id="two terms"),
        pytest.param(
            [a_product(a_term(), a_term(a_rate("2"), since="2026-08-01T00:00:00Z"))],
            "",
            "1.006",
            id="a term of the future",
        ),
        pytest.param([a_product(a_term(a_rate(), a_rate("2")))], "", None, id="steps"),
        pytest.param([a_product(a_term(a_rate(unit="Quantity")))], "", None, id="another unit"),
        pytest.param([a_product(a_term(a_rate(currency="CNY")))], "", None, id="another currency"),
    ],
)
def test_listed_price_takes_what_is_one_price_and_nothing_else(
    products: list[str], more: str, amount: str | None
) -> None:
    answer = answers.GetProducts.model_validate({"PriceList": products, "NextToken": more})
    assert listed_price(answer, TYPE, "USD", now=NOW) == (amount and Decimal(amount))


def test_launch_body_is_the_same_for_the_same_request() -> None:
    request = CASE.request()
    assert launch_body(request, BOOT, "/dev/sda1") == launch_body(request.model_copy(), BOOT, "/dev/sda1")


def test_launch_body_tags_machine_and_disk_and_names_the_root_device() -> None:
    body = launch_body(CASE.request(), BOOT, "/dev/xvda")
    machine, volume = body["TagSpecifications"]
    assert (machine["ResourceType"], volume["ResourceType"]) == ("instance", "volume")
    assert machine["Tags"] == volume["Tags"]
    tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
    assert (tags["Name"], tags[TAG_LAUNCH], tags[TAG_POOL]) == ("gpu-1", CASE.request().token, "pool-1")
    (disk,) = body["BlockDeviceMappings"]
    assert disk == {
        "DeviceName": "/dev/xvda",
        "Ebs": {"VolumeSize": 200, "VolumeType": "gp3", "DeleteOnTermination": True},
    }
    assert body["UserData"] == BOOT


def test_launch_body_leaves_out_what_is_not_set() -> None:
    bare = launch_body(CASE.request(max_price_per_hour=None, name=""), BOOT, "/dev/sda1")
    assert "MaxPrice" not in bare["InstanceMarketOptions"]["SpotOptions"]
    assert "KeyName" not in bare
    assert all(tag["Key"] != "Name" for each in bare["TagSpecifications"] for tag in each["Tags"])
    offer = CASE.offer(capacity=CapacityType.ON_DEMAND)
    assert "InstanceMarketOptions" not in launch_body(CASE.request(offer=offer), BOOT, "/dev/sda1")


def test_public_text_leaves_user_data_out() -> None:
    assert public_text("bad UserData=c2VjcmV0&x=1") == "bad UserData=(left out)&x=1"


# Bytes against the captures


def form_of(request: WireRequest) -> dict[str, str]:
    """Parameters as they are encoded, by name."""
    return dict(pair.split("=", 1) for pair in request.body.decode().split("&"))


def assert_agrees(ours: WireRequest, theirs: WireRequest) -> None:
    assert (ours.method, ours.target) == (theirs.method, theirs.target)
    assert set(ours.headers) == set(theirs.headers)
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert ours.headers["amz-sdk-request"] == "attempt=1; max=1"
    scope = "/us-east-1/ec2/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature="
    assert scope in ours.headers["authorization"]
    assert scope in theirs.headers["authorization"]


def one(world: World, action: str) -> WireRequest:
    (request,) = [each for each in world.cloud.seen if world.cloud.action_of(each) == action]
    return request


def test_create_request_agrees_with_the_capture(world: World) -> None:
    (theirs,) = captured_requests("create_success")
    request = CASE.request(
        "lease-0001-attempt-1",
        subnet_id="subnet-0fake",
        security_group_ids=("sg-0fake",),
        key_pair_id="kp-fake",
        disk=DiskSpec(type="gp3", size_gb=100),
        max_price_per_hour=Decimal("0.5"),
        tags={"lease": "0001"},
        name="",
    )
    world.adapter().launch(request, "#!/bin/sh\necho hi\n")
    ours = one(world, "RunInstances")
    assert_agrees(ours, theirs)
    sent, recorded = form_of(ours), form_of(theirs)
    shared = (set(sent) & set(recorded)) - {"MaxCount"}
    assert {name: sent[name] for name in shared} == {name: recorded[name] for name in shared}
    assert set(recorded) - set(sent) == {"DryRun"}
    added = {name.split(".")[0] for name in set(sent) - set(recorded)}
    assert added == {"Placement", "TagSpecification"}


def test_requests_by_id_agree_with_the_captures(world: World) -> None:
    fault = fault_of(world.adapter()._end, ["i-0aaaa", "i-0bbbb"])
    assert fault.vendor_code == "InvalidInstanceID.Malformed"
    (theirs,) = captured_requests("terminate_success")
    ours = one(world, "TerminateInstances")
    assert_agrees(ours, theirs)
    assert ours.body == theirs.body


def test_price_request_agrees_with_the_capture(world: World) -> None:
    world.adapter(page_size=10).offers(OfferQuery(instance_types=(TYPE,)), [CASE.kind])
    (theirs,) = captured_requests("spot_price_history")
    ours = one(world, "DescribeSpotPriceHistory")
    assert_agrees(ours, theirs)
    sent = form_of(ours)
    assert sent.pop("StartTime").endswith("Z")
    assert sent == form_of(theirs)


def test_describe_requests_have_the_form_of_the_protocol(world: World) -> None:
    world.buy()
    world.cloud.seen.clear()
    world.adapter().list_tagged({TAG_POOL: "pool-1", TAG_INSTALLATION: "inst-1"})
    listed, requests = world.cloud.seen
    assert dict(parse_qsl(listed.body.decode())) == {
        "Action": "DescribeInstances",
        "Version": "2016-11-15",
        "Filter.1.Name": "tag:spotgpu-installation",
        "Filter.1.Value.1": "inst-1",
        "Filter.2.Name": "tag:spotgpu-pool",
        "Filter.2.Value.1": "pool-1",
        "MaxResults": "500",
    }
    values = {f"Filter.1.Value.{n}": code for n, code in enumerate(TAKEN_BACK, 1)}
    assert dict(parse_qsl(requests.body.decode())) == values | {
        "Action": "DescribeSpotInstanceRequests",
        "Version": "2016-11-15",
        "Filter.1.Name": "status-code",
        "MaxResults": "500",
    }


# Buying


def test_launch_asks_for_an_images_root_device_once(world: World) -> None:
    world.cloud.root_devices[IMAGE] = "/dev/xvda"
    adapter = world.adapter()
    for number in range(3):
        assert isinstance(adapter.launch(CASE.request(f"uid-1-aaaa-{number}"), BOOT), Created)
    assert world.calls("DescribeImages") == 1
    (disk,) = world.cloud.ledger.all()[0].order.details["disks"]
    assert disk["DeviceName"] == "/dev/xvda"
    tags = world.cloud.ledger.all()[0].order.details["volume_tags"]
    assert (tags[TAG_INSTALLATION], tags[TAG_LAUNCH]) == ("inst-1", "uid-1-aaaa-0")


def test_launch_is_not_of_unknown_outcome_when_only_the_image_could_not_be_read(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.FAIL, action="DescribeImages", count=1))
    adapter = world.adapter()
    assert fault_of(adapter.launch, CASE.request(), BOOT).code is ErrorCode.UNAVAILABLE
    assert world.calls("RunInstances") == 0
    assert isinstance(adapter.launch(CASE.request(), BOOT), Created)


def test_launch_with_a_used_token_and_other_parameters_is_of_unknown_outcome(world: World) -> None:
    adapter = world.adapter()
    adapter.launch(CASE.request(), BOOT)
    fault = fault_of(adapter.launch, CASE.request(), BOOT + "# rotated\n")
    assert (fault.code, fault.vendor_code) == (ErrorCode.UNKNOWN_OUTCOME, "IdempotentParameterMismatch")
    assert len(adapter.list_tagged({TAG_LAUNCH: CASE.request().token})) == 1


@pytest.mark.parametrize("status", [400, 500])
def test_launch_without_capacity_is_refused_after_one_request_whatever_the_status(status: int) -> None:
    with a_world({"capacity_status": status}) as world:
        world.cloud.market.run_out(ProviderName.AWS, ZONE)
        result = world.adapter().launch(CASE.request(), BOOT)
        assert isinstance(result, Refusal)
        assert result.vendor_code == "InsufficientInstanceCapacity"
        assert world.calls("RunInstances") == 1


def test_launch_sends_16_kilobytes_of_user_data_and_rejects_more_without_a_call(world: World) -> None:
    adapter = world.adapter()
    assert isinstance(adapter.launch(CASE.request(), "ü" * 8192), Created)
    result = adapter.launch(CASE.request("uid-1-aaaa-2"), "ü" * 8192 + "x")
    assert isinstance(result, Rejected)
    assert "16385 bytes" in result.message
    assert world.calls("RunInstances") == 1


def test_launch_rejects_a_bid_that_is_too_small_without_a_call(world: World) -> None:
    result = world.adapter().launch(CASE.request(max_price_per_hour=Decimal("0.0010009")), BOOT)
    assert isinstance(result, Rejected)
    assert "maxPricePerHour" in result.message
    assert world.calls() == 0


def test_refused_spot_machine_of_a_family_without_a_known_quota_asks_nothing(world: World) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.QUOTA))
    kind = CASE.kind.model_copy(update={"name": "p6-b200.48xlarge"})
    offer = CASE.offer().model_copy(update={"instance_type": kind})
    result = world.adapter().launch(CASE.request(offer=offer), BOOT)
    assert isinstance(result, Refusal)
    assert result.message.startswith("spot vCPU of p6-b200 in us-east-1: limit not known; aws RunInstances: ")
    assert world.calls("GetServiceQuota") == 0


# Reading


def test_a_poll_is_two_calls_and_one_without_living_spot_machines(world: World) -> None:
    adapter = world.adapter()
    assert adapter.list_tagged({TAG_POOL: "pool-1"}) == []
    assert world.calls() == 1
    (bought,) = world.buy()
    before = world.calls()
    adapter.list_tagged({TAG_POOL: "pool-1"})
    assert world.calls() == before + 2
    world.cloud.ledger.settings.end_seconds = 60
    adapter.terminate([bought])
    before = world.calls()
    (ended,) = adapter.list_tagged({TAG_POOL: "pool-1"})
    assert (ended.state, ended.reason) == (InstanceState.TERMINATED, "Client.UserInitiatedShutdown")
    assert world.calls() == before + 1


def test_a_machine_that_ended_is_absent_although_the_cloud_lists_it_for_an_hour(world: World) -> None:
    (bought,) = world.buy()
    adapter = world.adapter()
    world.cloud.ledger.vanish(bought)
    (listed,) = world.cloud.ledger.all()
    assert world.cloud.state_word(listed) == "terminated"
    assert adapter.describe([bought]) == []
    assert adapter.list_tagged({TAG_POOL: "pool-1"}) == []
    adapter.terminate([bought])


def test_a_machine_under_notice_is_interrupting_and_then_ended_by_the_cloud(world: World) -> None:
    first, second = world.buy(2)
    adapter = world.adapter()
    world.cloud.ledger.reclaim(first, notice_seconds=120)
    states = {each.id: (each.state, each.reason) for each in adapter.describe([first, second])}
    assert states == {
        first: (InstanceState.INTERRUPTING, "marked-for-termination"),
        second: (InstanceState.RUNNING, ""),
    }
    world.cloud.ledger.settings.end_seconds = 60
    world.cloud.ledger.reclaim(first, notice_seconds=None)
    (ended,) = adapter.describe([first])
    assert (ended.state, ended.reason) == (InstanceState.TERMINATED, "Server.SpotInstanceTermination")


def test_all_pages_are_read_of_machines_and_of_spot_requests(world: World) -> None:
    bought = world.buy(12)
    for each in bought:
        world.cloud.ledger.reclaim(each, notice_seconds=600)
    found = world.adapter(page_size=5).list_tagged({TAG_INSTALLATION: "inst-1"})
    assert {each.id for each in found} == set(bought)
    assert {each.state for each in found} == {InstanceState.INTERRUPTING}
    assert (world.calls("DescribeInstances"), world.calls("DescribeSpotInstanceRequests")) == (3, 3)


def test_reading_stops_at_pages_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.buy(12)
    monkeypatch.setattr("activities.providers.aws.MAX_PAGES", 2)
    fault = fault_of(world.adapter(page_size=5).list_tagged, {TAG_INSTALLATION: "inst-1"})
    assert fault.code is ErrorCode.UNKNOWN
    assert "more than 2 pages" in str(fault)


def test_a_tag_is_compared_letter_by_letter(world: World) -> None:
    (bought,) = world.buy()
    adapter = world.adapter()
    assert adapter.list_tagged({TAG_POOL: "pool-*"}) == []
    assert adapter.list_tagged({TAG_POOL: "pool-?"}) == []
    world.cloud.ledger.find([bought])[0].tags["odd"] = "a*b?c\\d"
    assert len(adapter.list_tagged({"odd": "a*b?c\\d"})) == 1


@pytest.mark.parametrize("kind", [FaultKind.EMPTY, FaultKind.GARBLE, FaultKind.HANG], ids=lambda k: k.value)
def test_reading_fails_as_a_fault_never_as_an_empty_list(world: World, kind: FaultKind) -> None:
    world.buy()
    world.cloud.faults.set(Fault(kind=kind))
    adapter = world.adapter(read_timeout_seconds=0.5)
    assert fault_of(adapter.list_tagged, {TAG_POOL: "pool-1"}).code is ErrorCode.UNAVAILABLE


def test_a_poll_fails_when_the_spot_requests_cannot_be_read(world: World) -> None:
    world.buy()
    world.cloud.faults.set(Fault(kind=FaultKind.THROTTLE, action="DescribeSpotInstanceRequests"))
    fault = fault_of(world.adapter().list_tagged, {TAG_POOL: "pool-1"})
    assert (fault.code, fault.operation) == (ErrorCode.THROTTLED, "DescribeSpotInstanceRequests")


# Ending


def test_terminate_is_one_call_and_three_when_one_id_is_unknown(world: World) -> None:
    bought = world.buy(3)
    adapter = world.adapter()
    adapter.terminate(bought)
    assert world.calls("TerminateInstances") == 1
    adapter.terminate([*bought, UNKNOWN])
    assert (world.calls("TerminateInstances"), world.calls("DescribeInstances")) == (3, 1)
    assert not any(machine.live for machine in world.cloud.ledger.all())


def test_a_machine_that_is_too_young_to_be_ended_is_busy_not_gone() -> None:
    with a_world(invisible_seconds=3600) as world:
        adapter = world.adapter()
        result = adapter.launch(CASE.request(), BOOT)
        assert isinstance(result, Created)
        fault = fault_of(adapter.terminate, [result.instance_id, UNKNOWN])
        assert (fault.code, fault.retry_after) == (ErrorCode.CONFLICT, timedelta(seconds=5))
        assert result.instance_id in str(fault)
        assert UNKNOWN not in str(fault)
        (machine,) = world.cloud.ledger.all()
        machine.visible_at = machine.created_at
        adapter.terminate([result.instance_id])
        assert not machine.live


def test_a_young_machine_spoils_nothing_for_the_others() -> None:
    with a_world() as world:
        old, other = world.buy(2)
        adapter = world.adapter()
        world.cloud.ledger.settings.invisible_seconds = 3600
        result = adapter.launch(CASE.request("uid-1-aaaa-9"), BOOT)
        assert isinstance(result, Created)
        assert fault_of(adapter.terminate, [old, result.instance_id, other]).code is ErrorCode.CONFLICT
        assert [m.live for m in world.cloud.ledger.find([old, result.instance_id, other])] == [
            False,
            True,
            False,
        ]


def test_a_machine_that_was_seen_and_is_missing_has_ended(world: World) -> None:
    adapter = world.adapter()
    result = adapter.launch(CASE.request(), BOOT)
    assert isinstance(result, Created)
    adapter.describe([result.instance_id])
    world.cloud.ledger.vanish(result.instance_id)
    adapter.terminate([result.instance_id])


def test_a_machine_that_was_never_seen_counts_as_ended_after_a_while() -> None:
    clock = [datetime.now(UTC)]
    with a_world(invisible_seconds=3600) as world:
        settings = AwsSettings(endpoint=world.address)
        adapter = AwsProvider(CASE.key, world.keys, settings, now=lambda: clock[0])
        result = adapter.launch(CASE.request(), BOOT)
        assert isinstance(result, Created)
        assert fault_of(adapter.terminate, [result.instance_id]).code is ErrorCode.CONFLICT
        clock[0] += timedelta(minutes=5)
        adapter.terminate([result.instance_id])


class Protecting(Recording):
    """Refuses calls that name a protected machine, as the vendor does."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.protected = ""

    def carry_out(self, call: Call) -> object:
        if call.action == "TerminateInstances" and self.protected in call.parameters["InstanceId"]:
            error = self.failed()
            error.code, error.status = "OperationNotPermitted", 400
            raise error
        return super().carry_out(call)


def test_a_protected_machine_is_reported_after_the_others_have_ended() -> None:
    cloud = Protecting(settings())
    with served(cloud) as address:
        world = World(cloud, address)
        bought = world.buy(5)
        cloud.protected = bought[3]
        fault = fault_of(world.adapter().terminate, bought)
        assert (fault.code, fault.vendor_code) == (ErrorCode.FORBIDDEN, "OperationNotPermitted")
        assert [machine.id for machine in cloud.ledger.live()] == [bought[3]]


def test_retain_leaves_out_what_is_gone(world: World) -> None:
    bought = world.buy(3)
    adapter = world.adapter()
    adapter.describe(bought)
    world.cloud.ledger.vanish(bought[1])
    adapter.retain(bought, "inst-1")
    for machine in world.cloud.ledger.find([bought[0], bought[2]]):
        assert TAG_INSTALLATION not in machine.tags
        assert machine.tags[TAG_RETAINED] == "inst-1"
    adapter.retain([bought[1]], "inst-1")


# Offers


def test_offers_make_two_calls_for_all_types(world: World) -> None:
    types = CATALOGUE[ProviderName.AWS]
    query = OfferQuery(instance_types=tuple(kind.name for kind in types))
    offers = world.adapter().offers(query, types)
    assert len(offers) == 2 * len(types)
    assert all(offer.price is not None for offer in offers)
    assert world.calls() == 2


def test_offers_of_a_type_that_the_cloud_does_not_know_are_none(world: World) -> None:
    unknown = CASE.kind.model_copy(update={"name": "g5.pico"})
    query = OfferQuery(instance_types=(TYPE, "g5.pico"), zones=(OTHER_ZONE,))
    offers = world.adapter().offers(query, [CASE.kind, unknown])
    assert [(offer.zone, offer.instance_type.name) for offer in offers] == [(OTHER_ZONE, TYPE)]
    only = OfferQuery(instance_types=("g5.pico",))
    assert world.adapter().offers(only, [unknown]) == []


ON_DEMAND = OfferQuery(instance_types=(TYPE,), capacity_type=CapacityType.ON_DEMAND)


def test_offers_of_on_demand_capacity_have_the_price_of_the_list(world: World) -> None:
    started = datetime.now(UTC)
    first, second = world.adapter().offers(ON_DEMAND, [CASE.kind])
    assert first.price is not None
    assert first.price == second.price
    yuan = world.cloud.market.on_demand_price(world.cloud.place(ZONE, TYPE))
    assert first.price.per_hour == usd(yuan)
    assert (first.price.currency, first.price.source) == ("USD", "GetProducts")
    assert started <= first.price.as_of <= datetime.now(UTC)
    assert {offer.stock for offer in (first, second)} == {Stock.UNKNOWN}


def test_price_list_is_asked_for_what_is_sold_and_once_a_type(world: World) -> None:
    types = [row for row in CATALOGUE[ProviderName.AWS] if row.name.startswith("g6.")]
    world.cloud.market.withdraw(ProviderName.AWS, ZONE, types[0].name)
    world.cloud.market.withdraw(ProviderName.AWS, OTHER_ZONE, types[0].name)
    query = ON_DEMAND.model_copy(update={"instance_types": tuple(row.name for row in types)})
    offers = world.adapter().offers(query, types)
    assert len({offer.price.per_hour for offer in offers if offer.price}) == len(types) - 1
    expected = {"DescribeInstanceTypeOfferings": 1, "GetProducts": len(types) - 1}
    assert world.cloud.log.counts() == expected


def test_request_for_the_price_list_has_the_form_of_its_protocol(world: World) -> None:
    world.adapter().offers(ON_DEMAND, [CASE.kind])
    request = one(world, "GetProducts")
    assert (request.method, request.target) == ("POST", "/")
    assert request.headers["content-type"] == "application/x-amz-json-1.1"
    assert request.headers["x-amz-target"] == "AWSPriceListService.GetProducts"
    assert "/us-east-1/pricing/aws4_request, " in request.headers["authorization"]
    body = json.loads(request.body)
    sent = {each["Field"]: each["Value"] for each in body.pop("Filters") if each.pop("Type") == "TERM_MATCH"}
    assert body == {"ServiceCode": "AmazonEC2", "MaxResults": 100}
    assert sent == {
        "instanceType": TYPE,
        "regionCode": CASE.region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidParameterException", "NotFoundException"])
def test_offers_stay_without_a_price_when_the_list_refuses(world: World, code: str) -> None:
    world.cloud.faults.set(Fault(kind=FaultKind.ERROR, action="GetProducts", code=code))
    offers = world.adapter().offers(ON_DEMAND, [CASE.kind])
    assert [offer.price for offer in offers] == [None, None]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FaultKind.THROTTLE, ErrorCode.THROTTLED),
        (FaultKind.FAIL, ErrorCode.UNAVAILABLE),
        (FaultKind.DROP, ErrorCode.UNAVAILABLE),
        (FaultKind.GARBLE, ErrorCode.UNAVAILABLE),
        (FaultKind.EMPTY, ErrorCode.UNAVAILABLE),
    ],
)
def test_offers_are_a_fault_when_the_list_could_not_be_read_but_not_those_of_spot(
    world: World, kind: FaultKind, code: ErrorCode
) -> None:
    world.cloud.faults.set(Fault(kind=kind, action="GetProducts"))
    fault = fault_of(world.adapter().offers, ON_DEMAND, [CASE.kind])
    assert (fault.code, fault.operation) == (code, "GetProducts")
    spot = world.adapter().offers(OfferQuery(instance_types=(TYPE,)), [CASE.kind])
    assert all(offer.price is not None for offer in spot)


def test_purchase_whose_proxy_went_may_have_been_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 says so also when the proxy goes after it had passed the request on."""
    adapter = world.adapter()
    adapter.launch(CASE.request("token-1"), BOOT)

    def send(*_: object) -> None:
        raise ProxyConnectionError(proxy_url="http://proxy:3128", error=ConnectionResetError())

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", send)
    assert fault_of(adapter.launch, CASE.request("token-2"), BOOT).code is ErrorCode.UNKNOWN_OUTCOME


def test_offers_in_china_are_in_yuan_from_the_list_of_its_partition() -> None:
    with a_world(inventory=replace(CASE.inventory, zones={"cn-north-1": ("cn-north-1a",)})) as world:
        adapter = world.adapter(region="cn-north-1")
        (listed,) = adapter.offers(ON_DEMAND, [CASE.kind])
        (spot,) = adapter.offers(OfferQuery(instance_types=(TYPE,)), [CASE.kind])
        place = world.cloud.place("cn-north-1a", TYPE)
        assert listed.price is not None
        assert spot.price is not None
        assert listed.price.per_hour == world.cloud.market.on_demand_price(place)
        assert spot.price.per_hour == world.cloud.price(place, spot=True)
        assert {listed.currency, listed.price.currency, spot.currency, spot.price.currency} == {"CNY"}
        signed = one(world, "GetProducts").headers["authorization"]
        assert "/cn-northwest-1/pricing/aws4_request, " in signed


def test_a_local_zone_has_not_the_price_of_its_region() -> None:
    zones = {CASE.region: (ZONE, "us-east-1-bos-1a")}
    with a_world(inventory=replace(CASE.inventory, zones=zones)) as world:
        offers = {offer.zone: offer.price for offer in world.adapter().offers(ON_DEMAND, [CASE.kind])}
        assert offers[ZONE] is not None
        assert offers["us-east-1-bos-1a"] is None


def test_offers_stay_without_a_price_where_there_is_no_list() -> None:
    with a_world(inventory=replace(CASE.inventory, zones={"us-gov-west-1": ("us-gov-west-1a",)})) as world:
        (offer,) = world.adapter(region="us-gov-west-1").offers(ON_DEMAND, [CASE.kind])
        assert offer.price is None
        assert world.calls("GetProducts") == 0


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-west-2", "https://api.pricing.us-east-1.amazonaws.com"),
        ("sa-east-1", "https://api.pricing.us-east-1.amazonaws.com"),
        ("eu-west-1", "https://api.pricing.eu-central-1.amazonaws.com"),
        ("ap-northeast-1", "https://api.pricing.ap-south-1.amazonaws.com"),
        ("cn-north-1", "https://api.pricing.cn-northwest-1.amazonaws.com.cn"),
        ("us-gov-west-1", None),
        ("moon-1", None),
    ],
)
def test_price_list_is_read_at_an_endpoint_of_the_regions_partition(region: str, host: str | None) -> None:
    keys = Keys({"accessKeyId": KEY, "accessKeySecret": SECRET})
    adapter = build(CASE.key.model_copy(update={"region": region}), keys)
    client = adapter._clients.get()._clients.get("pricing")
    assert (client and client.meta.endpoint_url) == host
    adapter.close()


# Keys, secrets, the SDK


@pytest.mark.parametrize("name", ["accessKeyId", "accessKeySecret"])
@pytest.mark.parametrize("value", ["", " padded "])
def test_keys_that_cannot_be_sent_are_refused_and_no_others_are_looked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    world.keys.values[name] = value
    fault = fault_of(world.adapter().describe, [UNKNOWN])
    assert fault.code is ErrorCode.UNAUTHENTICATED
    assert name in str(fault)
    assert world.calls() == 0


def test_adapter_sends_the_token_of_temporary_keys() -> None:
    with a_world(account=Account(keys={KEY: SECRET}, tokens={KEY: "sts-token"})) as world:
        assert fault_of(world.adapter().describe, [UNKNOWN]).code is ErrorCode.UNAUTHENTICATED
        world.keys.values["token"] = "sts-token"
        assert world.adapter().describe([UNKNOWN]) == []
        assert all(offer.price for offer in world.adapter().offers(ON_DEMAND, [CASE.kind]))


def test_adapter_ignores_keys_and_endpoints_of_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    assert world.adapter().describe([UNKNOWN]) == []
    world.cloud.faults.set(Fault(kind=FaultKind.FAIL))
    before = world.calls()
    assert fault_of(world.adapter().describe, [UNKNOWN]).code is ErrorCode.UNAVAILABLE
    assert world.calls() == before + 1


def test_a_profile_that_does_not_exist_is_a_fault_that_names_it_and_sends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    fault = fault_of(world.adapter().launch, CASE.request(), BOOT)
    assert fault.code is ErrorCode.UNAVAILABLE
    assert "ProfileNotFound" in str(fault)
    assert world.calls() == 0


@pytest.mark.parametrize(
    "kind", [FaultKind.DROP, FaultKind.FAIL, FaultKind.GARBLE, FaultKind.HANG, FaultKind.THROTTLE, None]
)
def test_faults_carry_no_user_data_and_no_keys(world: World, kind: FaultKind | None) -> None:
    adapter = world.adapter(read_timeout_seconds=0.5)
    adapter._root_device(IMAGE)
    if kind is None:
        with socket() as closed:
            closed.bind(("127.0.0.1", 0))
            nowhere = world.adapter(endpoint=f"127.0.0.1:{closed.getsockname()[1]}")
        nowhere._root_devices = adapter._root_devices
        adapter = nowhere
    else:
        world.cloud.faults.set(Fault(kind=kind))
    fault = fault_of(adapter.launch, CASE.request(), BOOT)
    text = "".join(traceback.format_exception(fault))
    secrets = ("abcdef.0123456789abcdef", "IyEvYmluL3NoCmVjaG8g", SECRET)
    assert [secret for secret in secrets if secret in text] == []


def test_sdk_writes_no_request_even_when_everything_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert isinstance(world.adapter().launch(CASE.request(), BOOT), Created)
    assert "abcdef.0123456789abcdef" not in caplog.text
    assert "IyEvYmluL3NoCmVjaG8g" not in caplog.text
    assert not logging.getLogger("botocore.endpoint").isEnabledFor(logging.DEBUG)


def test_sdk_refuses_what_it_does_not_know_without_quoting_it(world: World) -> None:
    calls = Ec2Calls(
        CASE.region,
        world.keys.values,
        None,
        turn=at_once,
        connect_timeout=timedelta(seconds=1),
        read_timeout=timedelta(seconds=1),
    )
    with pytest.raises(ValueError, match="Colour") as refused:
        calls.call("RunInstances", {"Colour": "red", "UserData": BOOT, "MinCount": BOOT})
    assert "abcdef.0123456789abcdef" not in "".join(traceback.format_exception(refused.value))
    assert "red" not in str(refused.value)
    calls.close()


def test_adapter_can_be_used_again_after_it_was_closed(world: World) -> None:
    adapter = build(CASE.key, world.keys, endpoint=world.address)
    adapter.close()
    assert adapter.describe([UNKNOWN]) == []
    adapter.close()
    adapter.close()
    assert adapter.key == CASE.key
