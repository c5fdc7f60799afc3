from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.clouds.cloud import VendorError, WireRequest
from tests.sandbox.clouds.tencent_signing import KEY_ID, NOW, a_cloud, captured, signed, time_of

CAPTURED = captured()
CASES = pytest.mark.parametrize(
    "request_", [r for _, r in CAPTURED], ids=[f"{i}-{n}" for i, (n, _) in enumerate(CAPTURED)]
)


def refusal(request: WireRequest, **cloud: object) -> str:
    with pytest.raises(VendorError) as raised:
        a_cloud(time_of(request) if "now" not in cloud else cloud["now"]).open(request)
    return raised.value.code


def with_header(request: WireRequest, name: str, value: str) -> WireRequest:
    return replace(request, headers={**request.headers, name: value})


def test_captures_are_there():
    assert len(CAPTURED) == 17


@CASES
def test_captured_request_verifies_at_its_own_time(request_: WireRequest):
    call = a_cloud(time_of(request_)).open(request_)
    assert call.access_key_id == KEY_ID
    assert call.action == request_.headers["x-tc-action"]


@CASES
def test_captured_request_is_refused_when_one_byte_changed(request_: WireRequest):
    if request_.method == "GET":
        changed = replace(request_, target=request_.target.replace("0001", "0002"))
    else:
        changed = replace(request_, body=request_.body.replace(b'"', b"'", 1))
    assert refusal(changed) == "AuthFailure.SignatureFailure"


@CASES
def test_captured_request_is_refused_when_a_signed_header_changed(request_: WireRequest):
    assert refusal(with_header(request_, "host", "127.0.0.1:18082")) == "AuthFailure.SignatureFailure"
    later = str(int(request_.headers["x-tc-timestamp"]) + 1)
    assert refusal(with_header(request_, "x-tc-timestamp", later)) == "AuthFailure.SignatureFailure"


@CASES
def test_captured_request_is_refused_when_the_clock_is_more_than_300_s_off(request_: WireRequest):
    at = time_of(request_)
    for seconds in (-300, 300):
        a_cloud(at + timedelta(seconds=seconds)).open(request_)
    for seconds in (-301, 301):
        now = at + timedelta(seconds=seconds)
        assert refusal(request_, now=now) == "AuthFailure.SignatureExpire"


def test_request_is_refused_with_another_key_or_secret():
    assert refusal(signed("DescribeInstances", {}, secret="other")) == "AuthFailure.SignatureFailure"
    request = signed("DescribeInstances", {})
    stolen = request.headers["authorization"].replace(KEY_ID, "AKIDUNKNOWN")
    assert refusal(with_header(request, "authorization", stolen)) == "AuthFailure.SecretIdNotFound"


def test_request_is_refused_when_signed_for_another_service_or_day():
    assert refusal(signed("DescribeInstances", {}, service="tag")) == "AuthFailure.SignatureFailure"
    request = signed("DescribeInstances", {})
    other_day = request.headers["authorization"].replace("2026-07-01", "2026-07-02")
    assert refusal(with_header(request, "authorization", other_day)) == "AuthFailure.SignatureFailure"


@pytest.mark.parametrize("value", ["", "Bearer x", "TC3-HMAC-SHA256 Credential=a/b/c"])
def test_request_is_refused_without_a_proper_authorization(value: str):
    request = with_header(signed("DescribeInstances", {}), "authorization", value)
    assert refusal(request) == "AuthFailure.InvalidAuthorization"


def test_session_token_must_be_the_one_of_the_key():
    cloud = a_cloud()
    cloud.account.tokens[KEY_ID] = "session"
    request = signed("DescribeInstances", {})
    with pytest.raises(VendorError, match=r"AuthFailure\.TokenFailure"):
        cloud.open(request)
    assert cloud.open(with_header(request, "x-tc-token", "session")).access_key_id == KEY_ID
    with pytest.raises(VendorError, match=r"AuthFailure\.TokenFailure"):
        a_cloud(NOW).open(with_header(request, "x-tc-token", "unasked"))
