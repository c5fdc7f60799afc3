"""Signatures: the captured requests of the vendor's SDK, and everything that must not pass."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sandbox.clouds.aliyun_signature import SignatureCheck, canonical_query
from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account
from tests.sandbox.clouds.aliyun_builders import (
    CAPTURES,
    KEY,
    NOON,
    REGION,
    SECRET,
    Clock,
    captured_requests,
    signed,
)

CAPTURED_ACCOUNT = Account(keys={"LTAIFAKEEXAMPLEKEYID": "fakeSecretExample"})
NOT_FOR_A_STRICT_SERVER = {"endpoint_with_scheme", "describe_rpc_v1_signature"}
CASES = sorted(path.stem for path in CAPTURES.glob("*.json"))


def time_of(request: WireRequest) -> datetime:
    return datetime.fromisoformat(request.headers["x-acs-date"])


def verify_alone(request: WireRequest, account: Account = CAPTURED_ACCOUNT) -> str:
    """Verify at the request's own time, with nothing remembered."""
    return SignatureCheck(account, Clock(time_of(request))).verify(request)


def refusal(request: WireRequest, check: SignatureCheck) -> VendorError:
    with pytest.raises(VendorError) as caught:
        check.verify(request)
    return caught.value


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_FOR_A_STRICT_SERVER])
def test_signature_check_accepts_captured_requests_at_their_own_time(case: str) -> None:
    requests = captured_requests(case)
    assert [verify_alone(request) for request in requests] == ["LTAIFAKEEXAMPLEKEYID"] * len(requests)


def test_captures_hold_enough_requests_to_mean_something() -> None:
    assert sum(len(captured_requests(case)) for case in CASES) >= 25


def test_signature_check_refuses_a_host_with_a_scheme() -> None:
    (request,) = captured_requests("endpoint_with_scheme")
    with pytest.raises(VendorError) as caught:
        verify_alone(request)
    assert caught.value.code == "SignatureDoesNotMatch"


def test_signature_check_refuses_the_old_signature_in_the_query() -> None:
    (request,) = captured_requests("describe_rpc_v1_signature")
    error = refusal(request, SignatureCheck(CAPTURED_ACCOUNT, Clock()))
    assert error.code == "IncompleteSignature"


@pytest.mark.parametrize("case", ["create_success", "describe_by_ids", "terminate_success"])
@pytest.mark.parametrize("back", [1, 9, 40])
def test_signature_check_refuses_one_changed_byte_of_the_target(case: str, back: int) -> None:
    (request,) = captured_requests(case)
    changed = "0" if request.target[-back] != "0" else "1"
    target = request.target[:-back] + changed + request.target[len(request.target) - back + 1 :]
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, target=target))
    assert caught.value.code == "SignatureDoesNotMatch"


SIGNED_HEADERS = (
    "accept",
    "host",
    "user-agent",
    "x-acs-action",
    "x-acs-content-sha256",
    "x-acs-credentials-provider",
    "x-acs-signature-nonce",
    "x-acs-version",
)


@pytest.mark.parametrize("name", SIGNED_HEADERS)
def test_signature_check_refuses_one_changed_header(name: str) -> None:
    (request,) = captured_requests("create_success")
    headers = {**request.headers, name: request.headers[name] + "x"}
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, headers=headers))
    assert caught.value.code == "SignatureDoesNotMatch"


@pytest.mark.parametrize("name", [*SIGNED_HEADERS, "x-acs-date"])
def test_signature_check_refuses_a_missing_signed_header(name: str) -> None:
    (request,) = captured_requests("create_success")
    headers = {key: value for key, value in request.headers.items() if key != name}
    check = SignatureCheck(CAPTURED_ACCOUNT, Clock(time_of(request)))
    assert refusal(replace(request, headers=headers), check).code == "IncompleteSignature"


def test_signature_check_refuses_a_changed_date_although_within_tolerance() -> None:
    (request,) = captured_requests("create_success")
    later = (time_of(request) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, headers={**request.headers, "x-acs-date": later}))
    assert caught.value.code == "SignatureDoesNotMatch"


def test_signature_check_refuses_a_header_of_the_vendor_that_is_not_signed() -> None:
    (request,) = captured_requests("create_success")
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, headers={**request.headers, "x-acs-security-token": "t"}))
    assert caught.value.code == "IncompleteSignature"


def test_signature_check_refuses_a_body_that_was_not_hashed() -> None:
    (request,) = captured_requests("create_success")
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, body=b"x"))
    assert caught.value.code == "SignatureDoesNotMatch"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_signature_check_refuses_another_method(method: str) -> None:
    (request,) = captured_requests("create_success")
    with pytest.raises(VendorError) as caught:
        verify_alone(replace(request, method=method))
    assert caught.value.code == "SignatureDoesNotMatch"


def test_signature_check_refuses_another_secret() -> None:
    (request,) = captured_requests("create_success")
    account = Account(keys={"LTAIFAKEEXAMPLEKEYID": "fakeSecretExamplf"})
    with pytest.raises(VendorError) as caught:
        verify_alone(request, account)
    assert (caught.value.code, caught.value.status) == ("SignatureDoesNotMatch", 400)


def test_signature_check_refuses_an_unknown_key_with_status_404() -> None:
    check = SignatureCheck(Account(keys={}), Clock())
    error = refusal(signed("DescribeInstances", {"RegionId": REGION}), check)
    assert (error.code, error.status) == ("InvalidAccessKeyId.NotFound", 404)


@pytest.mark.parametrize("seconds", [300, -300])
def test_signature_check_accepts_a_clock_that_is_300_seconds_off(seconds: float) -> None:
    check = SignatureCheck(Account(keys={KEY: SECRET}), Clock(NOON + timedelta(seconds=seconds)))
    assert check.verify(signed("DescribeInstances", {"RegionId": REGION})) == KEY


@pytest.mark.parametrize("seconds", [301, -301, 86400])
def test_signature_check_refuses_a_clock_that_is_further_off(seconds: float) -> None:
    check = SignatureCheck(Account(keys={KEY: SECRET}), Clock(NOON + timedelta(seconds=seconds)))
    error = refusal(signed("DescribeInstances", {"RegionId": REGION}), check)
    assert (error.code, error.status) == ("InvalidTimeStamp.Expired", 400)


def test_signature_check_refuses_a_replay() -> None:
    clock = Clock()
    check = SignatureCheck(Account(keys={KEY: SECRET}), clock)
    request = signed("DescribeInstances", {"RegionId": REGION})
    check.verify(request)
    clock.pass_seconds(299)
    assert refusal(request, check).code == "SignatureNonceUsed"


def test_signature_check_forgets_nonces_that_can_no_longer_be_replayed() -> None:
    clock = Clock()
    check = SignatureCheck(Account(keys={KEY: SECRET}), clock)
    check.verify(signed("DescribeInstances", {"RegionId": REGION}, nonce="n-1"))
    clock.pass_seconds(600)
    again = signed("DescribeInstances", {"RegionId": REGION}, nonce="n-1", at=clock())
    assert check.verify(again) == KEY


def test_signature_check_remembers_no_nonce_of_a_request_that_it_refused() -> None:
    check = SignatureCheck(Account(keys={KEY: SECRET}), Clock())
    forged = signed("DescribeInstances", {"RegionId": REGION}, secret="wrong", nonce="n-1")
    assert refusal(forged, check).code == "SignatureDoesNotMatch"
    assert check.verify(signed("DescribeInstances", {"RegionId": REGION}, nonce="n-1")) == KEY


@pytest.mark.parametrize("token", ["", "another"])
def test_signature_check_refuses_temporary_keys_without_their_token(token: str) -> None:
    check = SignatureCheck(Account(keys={KEY: SECRET}, tokens={KEY: "sts"}), Clock())
    request = signed("DescribeInstances", {"RegionId": REGION}, token=token)
    assert refusal(request, check).code == "InvalidSecurityToken.MismatchWithAccessKey"


def test_signature_check_accepts_temporary_keys_with_their_token() -> None:
    check = SignatureCheck(Account(keys={KEY: SECRET}, tokens={KEY: "sts"}), Clock())
    assert check.verify(signed("DescribeInstances", {"RegionId": REGION}, token="sts")) == KEY


def test_canonical_query_encodes_again_what_was_encoded_like_a_form() -> None:
    assert canonical_query("b=a+b%2Cc&a=~%2A&c=d,e") == "a=~%2A&b=a%20b%2Cc&c=d%2Ce"
