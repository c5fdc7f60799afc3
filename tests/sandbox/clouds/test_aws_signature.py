"""Signature Version 4: the captured requests of the vendor's SDK, and everything that must not pass."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandbox.clouds.aws_signature import Scope, verify
from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account
from tests.sandbox.clouds.aws_builders import (
    CAPTURES,
    KEY,
    NOON,
    REGION,
    SECRET,
    captured_requests,
    signed,
)

CAPTURED_ACCOUNT = Account(keys={"AKIAFAKEEXAMPLE": "fakeSecretExample"})
ACCOUNT = Account(keys={KEY: SECRET})
CASES = sorted(path.stem for path in CAPTURES.glob("*.json"))


def time_of(request: WireRequest) -> datetime:
    return datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def verify_alone(request: WireRequest, account: Account = CAPTURED_ACCOUNT) -> Scope:
    """Verify at the request's own time."""
    return verify(request, account, now=time_of(request))


def refusal(request: WireRequest, account: Account = CAPTURED_ACCOUNT) -> VendorError:
    with pytest.raises(VendorError) as caught:
        verify_alone(request, account)
    return caught.value


@pytest.mark.parametrize("case", CASES)
def test_every_captured_request_verifies_at_its_own_time(case: str) -> None:
    requests = captured_requests(case)
    assert [verify_alone(request).access_key_id for request in requests] == ["AKIAFAKEEXAMPLE"] * len(
        requests
    )
    assert {verify_alone(request).region for request in requests} == {"us-east-1"}


def test_captures_hold_enough_requests_to_mean_something() -> None:
    assert len(CASES) == 12
    assert sum(len(captured_requests(case)) for case in CASES) == 16


@pytest.mark.parametrize("case", ["create_success", "terminate_success", "spot_price_history"])
@pytest.mark.parametrize("back", [1, 9, 40])
def test_one_changed_byte_of_the_body_is_refused(case: str, back: int) -> None:
    (request,) = captured_requests(case)
    body = bytearray(request.body)
    body[-back] ^= 1
    error = refusal(replace(request, body=bytes(body)))
    assert (error.code, error.status) == ("AuthFailure", 401)


@pytest.mark.parametrize("name", ["content-type", "host"])
def test_one_changed_signed_header_is_refused(name: str) -> None:
    (request,) = captured_requests("create_success")
    headers = {**request.headers, name: request.headers[name] + "x"}
    assert refusal(replace(request, headers=headers)).code == "AuthFailure"


def test_a_changed_date_is_refused_although_within_tolerance() -> None:
    (request,) = captured_requests("create_success")
    later = (time_of(request) + timedelta(seconds=1)).strftime("%Y%m%dT%H%M%SZ")
    assert refusal(replace(request, headers={**request.headers, "x-amz-date": later})).code == "AuthFailure"


@pytest.mark.parametrize("name", ["content-type", "host", "x-amz-date"])
def test_a_missing_signed_header_is_refused(name: str) -> None:
    (request,) = captured_requests("create_success")
    headers = {key: value for key, value in request.headers.items() if key != name}
    with pytest.raises(VendorError) as caught:
        verify(replace(request, headers=headers), CAPTURED_ACCOUNT, now=time_of(request))
    assert (caught.value.code, caught.value.status) == ("IncompleteSignature", 400)


def test_a_header_of_the_vendor_that_is_not_signed_is_refused() -> None:
    (request,) = captured_requests("create_success")
    headers = {**request.headers, "x-amz-security-token": "t"}
    assert refusal(replace(request, headers=headers)).code == "IncompleteSignature"


def test_a_header_that_need_not_be_signed_may_change() -> None:
    (request,) = captured_requests("create_success")
    headers = {**request.headers, "user-agent": "another", "amz-sdk-request": "attempt=2"}
    assert verify_alone(replace(request, headers=headers)).service == "ec2"


@pytest.mark.parametrize("change", [{"method": "GET"}, {"target": "/?x=1"}, {"target": "/x"}])
def test_another_method_path_or_query_is_refused(change: dict[str, str]) -> None:
    (request,) = captured_requests("create_success")
    assert refusal(replace(request, **change)).code == "AuthFailure"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("/us-east-1/", "/us-west-2/", id="region"),
        pytest.param("/ec2/", "/s3/", id="service"),
        pytest.param("AKIAFAKEEXAMPLE", "AKIAFAKEEXAMPLF", id="key"),
    ],
)
def test_another_scope_or_key_is_refused(old: str, new: str) -> None:
    (request,) = captured_requests("create_success")
    headers = {**request.headers, "authorization": request.headers["authorization"].replace(old, new)}
    assert refusal(replace(request, headers=headers)).code == "AuthFailure"


def test_a_scope_of_another_day_is_refused() -> None:
    (request,) = captured_requests("create_success")
    headers = {
        **request.headers,
        "authorization": request.headers["authorization"].replace("/20261129/", "/20261128/"),
    }
    assert refusal(replace(request, headers=headers)).code == "IncompleteSignature"


def test_another_secret_is_refused() -> None:
    (request,) = captured_requests("create_success")
    account = Account(keys={"AKIAFAKEEXAMPLE": "fakeSecretExamplf"})
    error = refusal(request, account)
    assert (error.code, error.status) == ("AuthFailure", 401)


@pytest.mark.parametrize("authorization", ["", "AWS4-HMAC-SHA256 Credential=x", "Basic eDp5"])
def test_a_request_without_a_signature_is_refused(authorization: str) -> None:
    request = signed("DescribeInstances", {})
    headers = {**request.headers, "authorization": authorization}
    assert refusal(replace(request, headers=headers), ACCOUNT).code == "IncompleteSignature"


@pytest.mark.parametrize("seconds", [300, -300])
def test_a_clock_that_is_300_seconds_off_is_accepted(seconds: float) -> None:
    now = NOON + timedelta(seconds=seconds)
    assert verify(signed("DescribeInstances", {}), ACCOUNT, now=now) == Scope(KEY, "20261129", REGION)


@pytest.mark.parametrize("seconds", [301, -301, 86400])
def test_a_clock_that_is_further_off_is_refused(seconds: float) -> None:
    with pytest.raises(VendorError) as caught:
        verify(signed("DescribeInstances", {}), ACCOUNT, now=NOON + timedelta(seconds=seconds))
    assert (caught.value.code, caught.value.status) == ("RequestExpired", 400)


def test_a_date_that_is_none_is_refused() -> None:
    request = signed("DescribeInstances", {})
    headers = {**request.headers, "x-amz-date": "20261129"}
    with pytest.raises(VendorError) as caught:
        verify(replace(request, headers=headers), ACCOUNT, now=NOON)
    assert caught.value.code == "IncompleteSignature"


@pytest.mark.parametrize("token", ["", "another"])
def test_temporary_keys_without_their_token_are_refused(token: str) -> None:
    account = Account(keys={KEY: SECRET}, tokens={KEY: "sts"})
    assert refusal(signed("DescribeInstances", {}, token=token), account).code == "AuthFailure"


def test_a_token_that_belongs_to_no_key_is_refused() -> None:
    assert refusal(signed("DescribeInstances", {}, token="sts"), ACCOUNT).code == "AuthFailure"


def test_temporary_keys_with_their_token_are_accepted() -> None:
    account = Account(keys={KEY: SECRET}, tokens={KEY: "sts"})
    assert verify_alone(signed("DescribeInstances", {}, token="sts"), account).access_key_id == KEY
