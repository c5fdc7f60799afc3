"""Tencent's request signature TC3-HMAC-SHA256, as the server checks it.

Source: Tencent Cloud API documentation, "Signature v3"; captured requests of the SDK are the test vectors.
"""

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Final

from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account

ALGORITHM: Final = "TC3-HMAC-SHA256"
MAX_SKEW_SECONDS: Final = 300

_AUTHORIZATION: Final = re.compile(
    rf"{ALGORITHM} Credential=(?P<id>[^/\s]+)/(?P<date>\d{{4}}-\d\d-\d\d)/(?P<service>[a-z]+)/tc3_request, "
    r"SignedHeaders=(?P<headers>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def verify(request: WireRequest, account: Account, *, service: str, now: datetime) -> str:
    """Check who sent a request, and that nothing signed in it was changed.

    Returns:
        The access key id.

    Raises:
        VendorError: an ``AuthFailure`` code.
    """
    match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise VendorError("AuthFailure.InvalidAuthorization", "The Authorization header is malformed.")
    timestamp = _timestamp(request)
    if abs(now.timestamp() - timestamp) > MAX_SKEW_SECONDS:
        raise VendorError("AuthFailure.SignatureExpire", "The signature has expired; check the system time.")
    secret = account.keys.get(match["id"])
    if secret is None:
        raise VendorError("AuthFailure.SecretIdNotFound", "The SecretId is not found.")
    date = datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d")
    in_scope = match["date"] == date and match["service"] == service
    signed = match["headers"].split(";")
    if not in_scope or not {"content-type", "host"} <= set(signed):
        raise _mismatch()
    expected = sign(request, secret, date=date, service=service, signed=signed)
    if not hmac.compare_digest(expected, match["signature"]):
        raise _mismatch()
    token = account.tokens.get(match["id"], "")
    if request.headers.get("x-tc-token", "") != token:
        raise VendorError("AuthFailure.TokenFailure", "The token is invalid.")
    return match["id"]


def sign(request: WireRequest, secret: str, *, date: str, service: str, signed: list[str]) -> str:
    """The hexadecimal signature that belongs to a request."""
    lines = "".join(f"{name}:{request.headers.get(name, '').strip()}\n" for name in signed)
    query = request.query if request.method == "GET" else ""
    body = b"" if request.method == "GET" else request.body
    canonical = "\n".join(
        (
            request.method,
            request.path or "/",
            query,
            lines,
            ";".join(signed),
            hashlib.sha256(body).hexdigest(),
        )
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    scope = f"{date}/{service}/tc3_request"
    text = f"{ALGORITHM}\n{request.headers.get('x-tc-timestamp', '')}\n{scope}\n{hashed}"
    key = f"TC3{secret}".encode()
    for part in (date, service, "tc3_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _timestamp(request: WireRequest) -> int:
    text = request.headers.get("x-tc-timestamp", "")
    if not text.isdecimal():
        raise VendorError("MissingParameter", "The header X-TC-Timestamp is missing or not a number.")
    return int(text)


def _mismatch() -> VendorError:
    return VendorError("AuthFailure.SignatureFailure", "The provided credentials could not be validated.")
