"""Huawei's request signature SDK-HMAC-SHA256, as the gateway checks it.

Source: the SDK's signer; its captured requests are the test vectors. Every refusal is HTTP 401 with the
gateway's one code, APIGW.0301; only the text says what was wrong.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account

ALGORITHM: Final = "SDK-HMAC-SHA256"
CODE: Final = "APIGW.0301"
MAX_SKEW_SECONDS: Final = 300
"""The vendor's gateway was seen to allow 15 minutes; the sandbox is as strict as its other clouds."""
DATE_FORMAT: Final = "%Y%m%dT%H%M%SZ"
SIGNED_AT_LEAST: Final = frozenset({"host", "x-sdk-date"})

_AUTHORIZATION: Final = re.compile(
    rf"{ALGORITHM} Access=(?P<key>[^,\s]+), SignedHeaders=(?P<signed>[a-z0-9;-]+), "
    r"Signature=(?P<signature>[0-9a-f]{64})"
)


def verify(request: WireRequest, account: Account, *, now: datetime) -> str:
    """Check who sent a request, and that nothing signed in it was changed.

    Returns:
        The access key id.

    Raises:
        VendorError: HTTP 401, ``APIGW.0301``.
    """
    match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise _refusal("the Authorization header is missing or malformed")
    signed = match["signed"].split(";")
    _check_signed_names(request, signed)
    _check_date(request.headers["x-sdk-date"], now)
    secret = account.keys.get(match["key"])
    if secret is None:
        raise _refusal("get secretKey failed, the access key does not exist")
    if not hmac.compare_digest(sign(request, secret, signed), match["signature"]):
        raise _refusal("verify aksk signature fail")
    token = account.tokens.get(match["key"], "")
    if not hmac.compare_digest(request.headers.get("x-security-token", ""), token):
        raise _refusal("the security token is missing or does not belong to the access key")
    return match["key"]


def sign(request: WireRequest, secret: str, signed: Sequence[str]) -> str:
    """The hexadecimal signature that belongs to a request; the key is the plain secret."""
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in sorted(signed))
    canonical = "\n".join(
        (
            request.method,
            _canonical_path(request.path),
            _canonical_query(request.query),
            headers,
            ";".join(sorted(signed)),
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{ALGORITHM}\n{request.headers['x-sdk-date']}\n{hashed}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _canonical_path(path: str) -> str:
    """Each part decoded and encoded again; it always ends with a slash, which the request's has not."""
    encoded = "/".join(quote(part, safe="~") for part in unquote(path).split("/"))
    return encoded if encoded.endswith("/") else f"{encoded}/"


def _canonical_query(query: str) -> str:
    pairs = sorted(parse_qsl(query, keep_blank_values=True))
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)


def _check_signed_names(request: WireRequest, signed: Sequence[str]) -> None:
    """Every header of the vendor is signed, and every signed header is there."""
    counts = SIGNED_AT_LEAST | {name for name in request.headers if name.startswith("x-")}
    missing = sorted(counts - set(signed)) + sorted(set(signed) - set(request.headers))
    if missing:
        raise _refusal(f"not signed or not sent: {', '.join(missing)}")


def _check_date(text: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(text, DATE_FORMAT).replace(tzinfo=UTC)
    except ValueError as exc:
        raise _refusal(f"X-Sdk-Date {text!r} is malformed") from exc
    if abs((now - signed_at).total_seconds()) > MAX_SKEW_SECONDS:
        server = now.strftime(DATE_FORMAT)
        raise _refusal(
            f"calc aksk signature fail:signature expired, signature time:{text},server time:{server}"
        )


def _refusal(detail: str) -> VendorError:
    return VendorError(CODE, f"Incorrect IAM authentication information: {detail}", status=401)
