"""The Tencent adapter: translators, bytes against the captures, and answers that the vendor really gives."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tencentcloud.cvm.v20170312 import errorcodes, models

from activities.providers import tencent_answers as answers
from activities.providers.tencent import (
    STATES,
    TencentProvider,
    build,
    instance_from,
    launch_body,
    quote_from,
    stock_from,
)
from activities.providers.tencent_errors import ERRORS, NOT_OFFERED, classify, translate_errors
from activities.providers.tencent_sdk import AnsweredError
from domain.contracts.catalogue import CATALOGUE
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import InstanceState, OfferQuery, Refusal
from domain.contracts.names import TAG_INSTALLATION, TAG_RETAINED
from domain.contracts.offers import CapacityType, Stock
from sandbox.clouds.cloud import Call, VendorError, WireRequest
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.ledger import Order
from sandbox.clouds.server import served
from sandbox.clouds.tencent import TencentCloud
from tests.activities.providers.cloud_case import Keys
from tests.activities.providers.tencent_case import CASE

WIRE = Path(__file__).parents[2] / "data" / "wire" / "tencent"
NOW = datetime(2026, 7, 1, tzinfo=UTC)
BOOT = "#!/bin/sh\necho token=abcdef.0123456789abcdef\n"


def capture(name: str) -> dict[str, object]:
    return json.loads((WIRE / f"{name}.json").read_text(encoding="utf-8"))["exchanges"][0]


class Recording(TencentCloud):
    """Keeps the raw requests."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.seen: list[WireRequest] = []

    def open(self, request: WireRequest) -> Call:
        self.seen.append(request)
        return super().open(request)


@contextmanager
def connected() -> Iterator[tuple[TencentProvider, Recording]]:
    cloud = Recording(CASE.settings())
    with served(cloud) as base_url:
        provider = build(CASE.key, Keys(dict(CASE.keys)), endpoint=base_url)
        yield provider, cloud
        provider.close()


# Translators


@pytest.mark.parametrize(
    ("vendor_code", "code"),
    [
        ("RequestLimitExceeded.UinLimitExceeded", ErrorCode.THROTTLED),
        ("AuthFailure.SignatureExpire", ErrorCode.UNAUTHENTICATED),
        ("AuthFailure.UnauthorizedOperation", ErrorCode.FORBIDDEN),
        ("UnauthorizedOperation.MFANotFound", ErrorCode.FORBIDDEN),
        ("InvalidAccount.InsufficientBalance", ErrorCode.FORBIDDEN),
        ("ResourceInsufficient.AvailabilityZoneSoldOut", ErrorCode.INSUFFICIENT_CAPACITY),
        ("ResourcesSoldOut.EipInsufficient", ErrorCode.INSUFFICIENT_CAPACITY),
        ("InvalidParameterValue.InsufficientOffering", ErrorCode.INSUFFICIENT_CAPACITY),
        ("InvalidParameterValue.InsufficientPrice", ErrorCode.PRICE_TOO_LOW),
        ("InvalidParameterValue.Range", ErrorCode.INVALID_REQUEST),
        ("LimitExceeded.UserSpotQuota", ErrorCode.QUOTA),
        ("LimitExceeded.AssociateUSGLimitExceeded", ErrorCode.INVALID_REQUEST),
        ("InvalidInstanceId.NotFound", ErrorCode.NOT_FOUND),
        ("InvalidInstanceId.Malformed", ErrorCode.INVALID_REQUEST),
        ("UnsupportedOperation.InstanceStatePending", ErrorCode.CONFLICT),
        ("UnsupportedOperation.InvalidZone", ErrorCode.INSUFFICIENT_CAPACITY),
        ("SomethingNew", ErrorCode.UNKNOWN),
    ],
)
def test_classify_takes_the_longest_prefix(vendor_code: str, code: ErrorCode):
    assert classify(vendor_code, creating=False) is code
    assert classify(vendor_code, creating=True) is code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("The spot instance offerings are out of stock.", ErrorCode.INSUFFICIENT_CAPACITY),
        ("指定可用区竞价实例售罄。", ErrorCode.INSUFFICIENT_CAPACITY),
        ("竞价实例类型配额不足", ErrorCode.QUOTA),
        ("", ErrorCode.QUOTA),
    ],
)
def test_spot_that_is_sold_out_is_no_quota_though_its_word_says_so(message: str, code: ErrorCode):
    said = {}
    for word in ("LimitExceeded.SpotQuota", "LimitExceeded.UserSpotQuota"):
        with pytest.raises(ProviderError) as raised, translate_errors("RunInstances", creating=True):
            raise AnsweredError(word, message)
        said[word] = raised.value.code
    assert said == {"LimitExceeded.SpotQuota": code, "LimitExceeded.UserSpotQuota": ErrorCode.QUOTA}


@pytest.mark.parametrize("vendor_code", ["InternalError.TradeUnknownError", "InternalServerError", ""])
def test_classify_leaves_an_internal_error_of_a_create_open(vendor_code: str):
    assert classify(vendor_code, creating=True) is ErrorCode.UNKNOWN_OUTCOME
    assert classify(vendor_code, creating=False) is not ErrorCode.UNKNOWN_OUTCOME


# Every code that the vendor's pages and the SDK name for the calls that we make, by what it means to a pool.
# Words that the SDK makes up when there is no answer (ServerNetworkError, ...) are not among them.
NOT_SOLD = """
    ResourceUnavailable.InstanceType ResourceNotFound.InvalidZoneInstanceType
    InvalidParameterValue.ZoneNotSupported UnsupportedOperation.InvalidZone
    UnsupportedOperation.NoInstanceTypeSupportSpot UnsupportedOperation.SpotUnsupportedRegion
    UnsupportedOperation.MinCountUnsupportedRegion UnsupportedOperation.MinCountUnsupportedChargeType
"""
NAMED = {
    ErrorCode.INSUFFICIENT_CAPACITY: f"""
        {NOT_SOLD}
        ResourceInsufficient.SpecifiedInstanceType ResourceInsufficient.ZoneSoldOutForSpecifiedInstance
        ResourceInsufficient.AvailabilityZoneSoldOut ResourceInsufficient.InsufficientOfferingMinimum
        ResourceInsufficient.CloudDiskSoldOut ResourcesSoldOut.SpecifiedInstanceType
        ResourcesSoldOut.AvailableZone ResourcesSoldOut.EipInsufficient
        InvalidParameterValue.InsufficientOffering InvalidParameter.InvalidCloudDiskSoldOut
        LimitExceeded.VpcSubnetNum FailedOperation.NoAvailableIpAddressCountInSubnet
    """,
    ErrorCode.PRICE_TOO_LOW: "InvalidParameterValue.InsufficientPrice",
    ErrorCode.QUOTA: """
        LimitExceeded.SpotQuota LimitExceeded.UserSpotQuota LimitExceeded.InstanceQuota
        LimitExceeded.CvmInstanceQuota InstancesQuotaLimitExceeded
    """,
    ErrorCode.FORBIDDEN: """
        InvalidAccount.InsufficientBalance InvalidAccount.UnpaidOrder
        AuthFailure.UnauthorizedOperation UnauthorizedOperation UnauthorizedOperation.MFANotFound
        LimitExceeded.UserReturnQuota UnsupportedOperation.InstancesProtected
    """,
    ErrorCode.UNAUTHENTICATED: "AuthFailure.SignatureFailure AuthFailure.SecretIdNotFound InvalidCredential",
    ErrorCode.THROTTLED: """
        RequestLimitExceeded RequestLimitExceeded.UinLimitExceeded
        RequestLimitExceeded.GlobalRegionUinLimitExceeded
    """,
    ErrorCode.CONFLICT: """
        OperationDenied.InstanceOperationInProgress MutexOperation.TaskRunning ResourceInUse
        UnsupportedOperation.InstanceStatePending UnsupportedOperation.InstanceStateStopping
    """,
    ErrorCode.UNAVAILABLE: "InternalError InternalServerError InternalError.TradeUnknownError",
    ErrorCode.NOT_FOUND: "InvalidInstanceId.NotFound ResourceNotFound.InvalidInstanceIdNotFound",
    ErrorCode.INVALID_REQUEST: """
        InvalidParameter InvalidParameterValue InvalidParameterCombination MissingParameter UnknownParameter
        InvalidImageId.NotFound InvalidClientToken.TooLong LimitExceeded.AssociateUSGLimitExceeded
    """,
}


@pytest.mark.parametrize(("code", "words"), NAMED.items(), ids=[code.value for code in NAMED])
def test_classify_knows_every_code_that_the_vendor_names(code: ErrorCode, words: str) -> None:
    said = {word: classify(word, creating=False) for word in words.split()}
    assert said == dict.fromkeys(words.split(), code)


def test_what_is_not_sold_there_is_told_from_what_is_sold_out() -> None:
    words = NAMED[ErrorCode.INSUFFICIENT_CAPACITY].split()
    assert {word for word in words if word.startswith(NOT_OFFERED)} == set(NOT_SOLD.split())


def test_every_listed_code_is_known_to_the_sdk_or_to_the_common_errors():
    known = [value for name, value in vars(errorcodes).items() if name.isupper()]
    # Gateway and tag service codes, and one that the SDK raises itself.
    elsewhere = {
        "AuthFailure.UnauthorizedOperation",
        "InvalidCredential",
        "UnsupportedRegion",
        "NoSuchVersion",
        "InvalidAction",
        "UnknownParameter",
        "RequestLimitExceeded",
        "UnauthorizedOperation",
        "InvalidParameterValue.ResourceIdInvalid",
        "FailedOperation.ResourceTagProcessing",
    }
    for prefix in ERRORS.keys() - elsewhere:
        assert any(code.startswith(prefix) for code in known), prefix


def seen(**changes: object) -> answers.SeenInstance:
    recorded = capture("describe_success")["response"]["body"]["Response"]["InstanceSet"][0]
    return answers.SeenInstance.model_validate({**recorded, **changes})


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        ("PENDING", InstanceState.PENDING, ""),
        ("RUNNING", InstanceState.RUNNING, ""),
        ("STOPPED", InstanceState.INTERRUPTING, "STOPPED"),
        ("SHUTDOWN", InstanceState.TERMINATED, "SHUTDOWN"),
        ("TERMINATING", InstanceState.TERMINATED, "TERMINATING"),
        ("LAUNCH_FAILED", InstanceState.TERMINATED, "LAUNCH_FAILED"),
        ("SOMETHING_NEW", InstanceState.PENDING, "SOMETHING_NEW"),
    ],
)
def test_instance_from_translates_states(word: str, state: InstanceState, reason: str):
    instance = instance_from(seen(InstanceState=word), "ap-guangzhou")
    assert (instance.state, instance.reason) == (state, reason)


def test_every_listed_state_is_in_the_sdks_text():
    text = models.InstanceStatus.__init__.__doc__ + models.InstanceStatus.InstanceState.__doc__
    assert all(word in text for word in STATES)


def test_isolated_machine_is_interrupting():
    instance = instance_from(seen(RestrictState="PROTECTIVELY_ISOLATED"), "ap-guangzhou")
    assert (instance.state, instance.reason) == (InstanceState.INTERRUPTING, "PROTECTIVELY_ISOLATED")


def test_instance_from_reads_the_captured_machine():
    instance = instance_from(seen(), "ap-guangzhou")
    assert instance.provider_id == "qcloud:///100006/ins-aaaa1111"
    assert instance.tags == {"lease": "0001"}
    assert instance.capacity_type is CapacityType.SPOT
    assert instance.created_at == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("price", "amount"),
    [
        ({"UnitPrice": 11.03, "UnitPriceDiscount": 2.206, "ChargeUnit": "HOUR"}, "2.206"),
        ({"UnitPrice": 11.03, "ChargeUnit": "HOUR"}, "11.03"),
        ({"UnitPrice": 11.03, "ChargeUnit": "MONTH"}, None),
        ({"UnitPrice": 0, "ChargeUnit": "HOUR"}, None),
        ({"UnitPrice": None, "ChargeUnit": "HOUR"}, None),
        (None, None),
    ],
)
def test_quote_from_takes_what_is_paid_by_the_hour(price: Mapping[str, object] | None, amount: str | None):
    item = None if price is None else answers.ItemPrice.model_validate(price)
    quote = quote_from(item, "CNY", now=NOW)
    assert (None if quote is None else str(quote.per_hour)) == amount


@pytest.mark.parametrize(
    ("status", "category", "stock"),
    [
        ("SELL", "EnoughStock", Stock.AMPLE),
        ("SELL", "NormalStock", Stock.TIGHT),
        ("SELL", "UnderStock", Stock.SCARCE),
        ("SELL", "", Stock.UNKNOWN),
        ("SOLD_OUT", "EnoughStock", Stock.NONE),
        ("SELL", "WithoutStock", Stock.NONE),
    ],
)
def test_stock_from_reads_both_words(status: str, category: str, stock: Stock):
    sold = answers.SoldType(
        Zone="z", InstanceType="t", InstanceChargeType="SPOTPAID", Status=status, StatusCategory=category
    )
    assert stock_from(sold) is stock


def test_launch_body_is_the_same_for_the_same_request():
    request = CASE.request()
    assert launch_body(request, BOOT) == launch_body(request.model_copy(), BOOT)


def test_launch_body_rounds_the_bid_down_and_leaves_out_what_is_not_set():
    body = launch_body(CASE.request(max_price_per_hour=Decimal("8.00059")), BOOT)
    assert body["InstanceMarketOptions"] == {
        "SpotOptions": {"MaxPrice": "8.000", "SpotInstanceType": "one-time"},
        "MarketType": "spot",
    }
    bare = launch_body(CASE.request(max_price_per_hour=None, name=""), BOOT)
    assert not {"InstanceMarketOptions", "InstanceName", "HostName", "LoginSettings"} & bare.keys()


def without_none(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_none(inner) for name, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value


def test_launch_body_has_only_names_that_the_sdk_knows(recwarn: pytest.WarningsRecorder):
    body = launch_body(CASE.request(key_pair_id="skey-1aa2bb3c"), BOOT)
    request = models.RunInstancesRequest()
    request.from_json_string(json.dumps(body))
    assert without_none(json.loads(request.to_json_string())) == body
    assert len(recwarn) == 0  # the SDK warns of a field that it does not know


# Bytes against the captures


def paths(value: object, prefix: str = "") -> dict[str, type]:
    """Dotted path of each leaf to the type of its value; items of lists share one path."""
    if isinstance(value, dict):
        parts = [paths(inner, f"{prefix}.{name}") for name, inner in value.items()]
    elif isinstance(value, list):
        parts = [paths(inner, f"{prefix}[]") for inner in value]
    else:
        return {prefix: type(value)}
    return {path: kind for part in parts for path, kind in part.items()}


def assert_agrees(sent: WireRequest, recorded: Mapping[str, object]) -> None:
    expected = {name.lower(): value for name, value in recorded["headers"].items()}
    assert (sent.method, sent.target) == (recorded["method"], recorded["path"])
    assert set(sent.headers) == set(expected)
    for name in ("content-type", "x-tc-action", "x-tc-version", "x-tc-region", "x-tc-language"):
        assert sent.headers[name] == expected[name], name
    form = "TC3-HMAC-SHA256 Credential=", "/cvm/tc3_request, SignedHeaders=content-type;host, Signature="
    assert all(part in sent.headers["authorization"] for part in form)
    decoded = json.loads(sent.body)
    assert sent.body == json.dumps(decoded).encode(), "encoding differs from the SDK's"
    ours, theirs = paths(decoded), paths(json.loads(recorded["raw_body"]))
    spelling = {path.lower(): path for path in theirs}
    for path, kind in ours.items():
        if path.lower() in spelling:
            assert path == spelling[path.lower()]
            assert kind is theirs[path], path


def test_create_request_agrees_with_the_capture():
    with connected() as (provider, cloud):
        provider.launch(CASE.request(key_pair_id="skey-1aa2bb3c"), BOOT)
    (sent,) = cloud.seen
    recorded = capture("create_success")["request"]
    assert_agrees(sent, recorded)
    # All the capture's fields but those that one private machine does not need.
    missing = paths(json.loads(recorded["raw_body"])).keys() - paths(json.loads(sent.body)).keys()
    unused = (".InternetAccessible", ".MinCount", ".DryRun", ".Placement.ProjectId")
    assert all(path.startswith(unused) for path in missing), missing
    assert b"\\u8bad\\u7ec3" in sent.body  # non-ASCII is escaped, as in the capture


def test_list_request_agrees_with_the_capture():
    with connected() as (provider, cloud):
        provider.list_tagged({"lease": "0001"})
    (sent,) = cloud.seen
    recorded = capture("describe_success")["request"]
    assert_agrees(sent, recorded)
    without_charge_type = recorded["raw_body"].replace(
        ', {"Name": "instance-charge-type", "Values": ["SPOTPAID"]}', ""
    )
    assert sent.body.decode() == without_charge_type


def test_requests_by_id_agree_with_the_captures():
    with connected() as (provider, cloud):
        provider.describe(["ins-aaaa1111"])
        provider.terminate(["ins-aaaa1111", "ins-bbbb2222"])
    described, terminated, *_ = cloud.seen
    assert_agrees(described, capture("describe_by_ids")["request"])
    recorded = capture("terminate_notfound")["request"]
    assert_agrees(terminated, recorded)
    assert terminated.body.decode() == recorded["raw_body"]


def test_tag_requests_are_signed_for_the_tag_service():
    with connected() as (provider, cloud):
        machine = provider.launch(CASE.request(), BOOT)
        provider.retain([machine.instance_id], "inst-1")
        (tagged,) = provider.describe([machine.instance_id])
    assert TAG_INSTALLATION not in tagged.tags
    assert tagged.tags[TAG_RETAINED] == "inst-1"
    tag = [request for request in cloud.seen if "Tag" in request.headers["x-tc-action"]]
    assert [request.headers["x-tc-version"] for request in tag] == ["2018-08-13"] * 2
    assert all("/tag/tc3_request" in request.headers["authorization"] for request in tag)


# Answers that the vendor gives


class Scripted(ThreadingHTTPServer):
    """Answers each request with the same recorded response."""

    daemon_threads = True

    def __init__(self, response: Mapping[str, object]) -> None:
        super().__init__(("127.0.0.1", 0), _Scribe)
        self.response = response
        self.requests = 0


class _Scribe(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        response = self.server.response
        if response["status"] == "drop":
            self.close_connection = True
            return
        body = response["body"]
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(response["status"])
        for name, value in response["headers"].items():
            self.send_header(name, value)
        # A promise of more than is sent is an answer that breaks off.
        self.send_header("Content-Length", str(len(content) + response.get("lacking", 0)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted(response: Mapping[str, object]) -> Iterator[tuple[TencentProvider, Scripted]]:
    with Scripted(response) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        provider = build(CASE.key, Keys(dict(CASE.keys)), endpoint=address)
        yield provider, server
        provider.close()
        server.shutdown()


def recorded_answer(name: str) -> Mapping[str, object]:
    return capture(name)["response"]


def failure(provider: TencentProvider) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        provider.launch(CASE.request(), BOOT)
    return raised.value


@pytest.mark.parametrize(
    ("name", "code", "vendor_code"),
    [
        ("http_500", ErrorCode.UNKNOWN_OUTCOME, "ServerNetworkError"),
        ("http_200_not_json", ErrorCode.UNKNOWN_OUTCOME, "JSONDecodeError"),
        ("connection_dropped", ErrorCode.UNKNOWN_OUTCOME, "ClientNetworkError"),
        ("create_error_throttled", ErrorCode.THROTTLED, "RequestLimitExceeded"),
    ],
)
def test_create_fails_as_recorded_and_is_sent_once(name: str, code: ErrorCode, vendor_code: str):
    with scripted(recorded_answer(name)) as (provider, server):
        fault = failure(provider)
        assert (fault.code, fault.vendor_code) == (code, vendor_code)
        assert server.requests == 1


@pytest.mark.parametrize(
    "name",
    [
        "create_error_soldout",
        "QUIRK_error_with_charset_content_type_is_missed",
        "QUIRK_error_without_content_type",
    ],
)
def test_error_is_seen_whatever_the_content_type_says(name: str):
    with scripted(recorded_answer(name)) as (provider, _):
        result = provider.launch(CASE.request(), BOOT)
    assert isinstance(result, Refusal)
    assert result.vendor_code == "ResourceInsufficient.SpecifiedInstanceType"


@pytest.mark.parametrize(
    "body",
    [
        {"Response": {"RequestId": "r"}},
        {"Response": {"InstanceIdSet": None, "RequestId": "r"}},
        {"Response": {"InstanceIdSet": [], "RequestId": "r"}},
        {"Response": {"InstanceIdSet": ["ins-1", "ins-2"], "RequestId": "r"}},
        {"Response": {"InstanceIdSet": "ins-1", "RequestId": "r"}},
        {"Response": {"Error": {"Code": "X", "Message": "no request id"}}},
        {"Reply": {}},
        [],
        "",
    ],
    ids=[
        "no set",
        "null",
        "empty",
        "two",
        "text",
        "error without request id",
        "no envelope",
        "list",
        "nothing",
    ],
)
def test_create_outcome_is_unknown_without_exactly_one_id(body: object):
    answer = {"status": 200, "headers": {"Content-Type": "application/json"}, "body": body}
    with scripted(answer) as (provider, _):
        assert failure(provider).code is ErrorCode.UNKNOWN_OUTCOME


def test_create_outcome_is_unknown_when_the_answer_breaks_off():
    answer = {
        "status": 200,
        "headers": {"Content-Type": "application/json"},
        "body": {"Response": {"InstanceIdSet": ["ins-aaaa1111"], "RequestId": "r"}},
        "lacking": 10,
    }
    with scripted(answer) as (provider, _):
        assert failure(provider).code is ErrorCode.UNKNOWN_OUTCOME


def test_reading_fails_as_unauthenticated_like_the_record():
    with scripted(recorded_answer("error_auth")) as (provider, _), pytest.raises(ProviderError) as raised:
        provider.list_tagged({"a": "b"})
    assert raised.value.code is ErrorCode.UNAUTHENTICATED


def test_unreadable_list_is_unavailable_and_names_the_field():
    broken = {"Response": {"TotalCount": 1, "InstanceSet": [{"InstanceId": "ins-1"}], "RequestId": "r"}}
    answer = {"status": 200, "headers": {"Content-Type": "application/json"}, "body": broken}
    with scripted(answer) as (provider, _), pytest.raises(ProviderError, match="InstanceType") as raised:
        provider.list_tagged({"a": "b"})
    assert raised.value.code is ErrorCode.UNAVAILABLE


def test_key_with_spaces_is_unauthenticated_before_anything_is_sent():
    provider = build(
        CASE.key, Keys({"accessKeyId": " id", "accessKeySecret": "s3cret"}), endpoint="127.0.0.1:1"
    )
    with pytest.raises(ProviderError, match="spaces") as raised:
        provider.describe(["ins-00000000"])
    assert raised.value.code is ErrorCode.UNAUTHENTICATED
    assert "s3cret" not in str(raised.value)


# Batches


def test_list_is_read_again_when_it_changes_between_two_pages():
    with connected() as (provider, cloud):
        order = _order(cloud)
        machines = cloud.ledger.buy(order, 150)
        first_page = cloud.carry_out

        def losing_one(call: Call):
            result = first_page(call)
            if call.action == "DescribeInstances" and len(cloud.seen) == 1:
                cloud.ledger.vanish(machines[0].id)
            return result

        cloud.carry_out = losing_one
        found = provider.list_tagged({"a": "b"})
        assert {instance.id for instance in found} == {machine.id for machine in machines[1:]}
        assert len(cloud.seen) == 4


def test_list_is_unavailable_when_it_never_settles():
    with connected() as (provider, cloud):
        cloud.ledger.buy(_order(cloud), 150)
        carry_out = cloud.carry_out

        def growing(call: Call):
            result = carry_out(call)
            cloud.ledger.buy(_order(cloud))
            return result

        cloud.carry_out = growing
        with pytest.raises(ProviderError, match="changed during") as raised:
            provider.list_tagged({"a": "b"})
        assert raised.value.code is ErrorCode.UNAVAILABLE


def _order(cloud: TencentCloud) -> Order:
    zone, kind = CASE.zones[0], CASE.instance_type
    return Order(
        region=CASE.region,
        zone=zone,
        instance_type=kind,
        spot=True,
        price_per_hour=cloud.price(cloud.place(zone, kind), spot=True),
        image_id=CASE.image_id,
        subnet_id=CASE.subnets[zone],
        tags={"a": "b"},
        details={"security_groups": [], "keys": [], "vpc": CASE.vpc_id, "disk": {}},
    )


def test_terminate_of_a_batch_with_gone_machines_takes_three_calls():
    with connected() as (provider, cloud):
        ids = [machine.id for machine in cloud.ledger.buy(_order(cloud), 100)]
        for gone in ids[::10]:
            cloud.ledger.vanish(gone)
        provider.terminate(ids)
        assert cloud.ledger.live() == ()
        actions = [request.headers["x-tc-action"] for request in cloud.seen]
        assert actions == ["TerminateInstances", "DescribeInstances", "TerminateInstances"]


def test_terminate_ends_the_others_and_raises_when_one_machine_is_busy():
    with connected() as (provider, cloud):
        machines = cloud.ledger.buy(_order(cloud), 20)
        busy = machines[7].id
        carry_out = cloud.carry_out

        def refusing(call: Call):
            if call.action == "TerminateInstances" and busy in call.parameters["InstanceIds"]:
                raise VendorError("OperationDenied.InstanceOperationInProgress", "busy")
            return carry_out(call)

        cloud.carry_out = refusing
        cloud.rates.per_second.clear()
        cloud.rates.default = 0
        with pytest.raises(ProviderError) as raised:
            provider.terminate([machine.id for machine in machines])
        assert raised.value.code is ErrorCode.CONFLICT
        assert raised.value.retry_after is not None
        assert [machine.id for machine in cloud.ledger.live()] == [busy]


def test_failed_start_is_a_terminated_machine_with_its_reason():
    with connected() as (provider, cloud):
        cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS, count=1))
        machine = provider.launch(CASE.request(), BOOT)
        cloud.ledger.settings.boot_seconds = 0
        cloud.ledger.advance()
        (instance,) = provider.describe([machine.instance_id])
        assert (instance.state, instance.reason) == (InstanceState.TERMINATED, "LAUNCH_FAILED")


def test_offers_of_many_types_take_one_call():
    with connected() as (provider, cloud):
        kinds = CATALOGUE[CASE.provider]
        query = OfferQuery(instance_types=tuple(kind.name for kind in kinds))
        offers = provider.offers(query, kinds)
        assert len(offers) == len(kinds) * len(CASE.zones)
        assert len(cloud.seen) == 1
