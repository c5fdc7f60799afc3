"""Signatures: the captured requests of the vendor's SDK, and everything that must not pass."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.huawei_signature import DATE_FORMAT, verify
from sandbox.clouds.inventory import Account
from tests.sandbox.clouds.huawei_builders import (
    CAPTURES,
    KEY,
    NOON,
    SECRET,
    captured_requests,
    signed,
)

CAPTURED_ACCOUNT = Account(keys={"FAKEAKEXAMPLE": "fakeSkExample", "FAKEAKEXAMPLE2": "fakeSkExample"})
ACCOUNT = Account(keys={KEY: SECRET})
CASES = sorted(path.stem for path in CAPTURES.glob("*.json"))
LIST = "/v1/p/cloudservers/detail?limit=100&tags=a%3Db"


def time_of(request: WireRequest) -> datetime:
    return datetime.strptime(request.headers["x-sdk-date"], DATE_FORMAT).replace(tzinfo=UTC)


def verify_alone(request: WireRequest, account: Account = CAPTURED_ACCOUNT) -> str:
    """Verify at the request's own time."""
    return verify(request, account, now=time_of(request))


def refusal(request: WireRequest, account: Account = ACCOUNT, now: datetime = NOON) -> str:
    with pytest.raises(VendorError) as caught:
        verify(request, account, now=now)
    assert (caught.value.code, caught.value.status) == ("APIGW.0301", 401)
    return caught.value.message


@pytest.mark.parametrize("case", CASES)
def test_signature_accepts_captured_requests_at_their_own_time(case: str) -> None:
    keys = {verify_alone(request) for request in captured_requests(case)}
    assert keys <= {"FAKEAKEXAMPLE", "FAKEAKEXAMPLE2"}


def test_captures_hold_enough_requests_to_mean_something() -> None:
    assert sum(len(captured_requests(case)) for case in CASES) >= 25


@pytest.mark.parametrize("case", ["describe_by_ids", "describe_by_tags", "list_flavors"])
@pytest.mark.parametrize("back", [1, 5])
def test_signature_refuses_one_changed_byte_of_the_target(case: str, back: int) -> None:
    (request,) = captured_requests(case)
    changed = "0" if request.target[-back] != "0" else "1"
    target = request.target[:-back] + changed + request.target[len(request.target) - back + 1 :]
    text = refusal(replace(request, target=target), CAPTURED_ACCOUNT, time_of(request))
    assert "verify aksk signature fail" in text


@pytest.mark.parametrize("name", ["host", "user-agent", "content-type", "x-client-token", "x-project-id"])
def test_signature_refuses_one_changed_header(name: str) -> None:
    (request,) = captured_requests("create_success_v1")
    headers = {**request.headers, name: request.headers[name] + "x"}
    text = refusal(replace(request, headers=headers), CAPTURED_ACCOUNT, time_of(request))
    assert "verify aksk signature fail" in text


@pytest.mark.parametrize("name", ["host", "x-client-token", "x-project-id"])
def test_signature_refuses_a_missing_signed_header(name: str) -> None:
    (request,) = captured_requests("create_success_v1")
    headers = {key: value for key, value in request.headers.items() if key != name}
    text = refusal(replace(request, headers=headers), CAPTURED_ACCOUNT, time_of(request))
    assert f"not signed or not sent: {name}" in text


def test_signature_refuses_a_header_of_the_vendor_that_is_not_signed() -> None:
    request = signed("GET", LIST)
    headers = {**request.headers, "x-client-token": "t"}
    assert "x-client-token" in refusal(replace(request, headers=headers))


def test_signature_refuses_a_changed_body_and_another_method() -> None:
    (request,) = captured_requests("terminate_success")
    for changed in (replace(request, body=request.body + b" "), replace(request, method="PUT")):
        assert "verify aksk signature fail" in refusal(changed, CAPTURED_ACCOUNT, time_of(request))


def test_signature_refuses_another_secret_and_an_unknown_key() -> None:
    assert "verify aksk signature fail" in refusal(signed("GET", LIST, secret="other"))
    assert "does not exist" in refusal(signed("GET", LIST, key="NOBODY"))
    assert "missing or malformed" in refusal(WireRequest("GET", LIST, {"host": "h"}, b""))


@pytest.mark.parametrize("seconds", [300, -300])
def test_signature_accepts_a_clock_that_is_300_seconds_off(seconds: float) -> None:
    assert verify(signed("GET", LIST), ACCOUNT, now=NOON + timedelta(seconds=seconds)) == KEY


@pytest.mark.parametrize("seconds", [301, -301, 86400])
def test_signature_refuses_a_clock_that_is_further_off(seconds: float) -> None:
    assert "signature expired" in refusal(signed("GET", LIST), now=NOON + timedelta(seconds=seconds))


def test_signature_demands_the_security_token_of_temporary_keys() -> None:
    account = Account(keys={KEY: SECRET}, tokens={KEY: "sts"})
    assert "security token" in refusal(signed("GET", LIST), account)
    assert verify(signed("GET", LIST, headers={"x-security-token": "sts"}), account, now=NOON) == KEY
    assert "security token" in refusal(signed("GET", LIST, headers={"x-security-token": "sts"}))


def test_signature_encodes_path_and_query_again() -> None:
    request = signed("GET", "/v1/p/a%20b?name=%E6%B5%8B&empty=&z=1%2C2")
    assert verify(request, ACCOUNT, now=NOON) == KEY
    assert (
        verify(replace(request, target="/v1/p/a%20b?z=1,2&name=%E6%B5%8B&empty="), ACCOUNT, now=NOON) == KEY
    )
