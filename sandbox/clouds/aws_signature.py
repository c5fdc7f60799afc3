"""AWS Signature Version 4 as EC2 checks it: scope, clock, signed headers, body.

The body's hash is part of what is signed, although EC2's clients send no header with it. Wrong keys, wrong
secrets and wrong tokens all get the same answer, as at the vendor.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "ec2"
TOLERANCE: Final = timedelta(seconds=300)
"""A request that is further off the clock is refused."""
_AUTHORIZATION: Final = re.compile(
    rf"{ALGORITHM} Credential=(?P<key>[^/,\s]+)/(?P<date>\d{{8}})/(?P<region>[a-z0-9-]+)"
    r"/(?P<service>[a-z0-9]+)/aws4_request, "
    r"SignedHeaders=(?P<signed>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_DATE_FORMAT: Final = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Scope:
    """Who signed a request, for which day, region and service."""

    access_key_id: str
    date: str
    """For example ``20261129``."""
    region: str
    service: str = SERVICE

    @property
    def text(self) -> str:
        """The scope as it is signed."""
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def verify(request: WireRequest, account: Account, *, now: datetime, service: str = SERVICE) -> Scope:
    """Who signed this request to a service, and for which region.

    Raises:
        VendorError: the signature is missing, wrong, or of another time.
    """
    match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise _incomplete(f"an Authorization header of {ALGORITHM} is needed")
    scope = Scope(match["key"], match["date"], match["region"], match["service"])
    signed = match["signed"].split(";")
    _check_signed_names(request.headers, signed)
    _check_date(request.headers["x-amz-date"], scope, now)
    secret = account.keys.get(scope.access_key_id)
    if secret is None or scope.service != service:
        raise _not_valid()
    if not hmac.compare_digest(signature_of(request, scope, signed, secret), match["signature"]):
        raise _not_valid()
    expected = account.tokens.get(scope.access_key_id, "")
    if not hmac.compare_digest(expected, request.headers.get("x-amz-security-token", "")):
        raise _not_valid()
    return scope


def signature_of(request: WireRequest, scope: Scope, signed: Sequence[str], secret: str) -> str:
    """What the signature of a request must be, in hex. ``signed`` are names of headers in lower case."""
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in sorted(signed))
    canonical = "\n".join(
        (
            request.method,
            request.path,
            "&".join(sorted(request.query.split("&"))),
            headers,
            ";".join(sorted(signed)),
            hashlib.sha256(request.body).hexdigest(),
        )
    )
    moment = request.headers["x-amz-date"]
    text = f"{ALGORITHM}\n{moment}\n{scope.text}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in scope.text.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _check_signed_names(headers: Mapping[str, str], signed: Sequence[str]) -> None:
    """Every header that counts is signed, and every signed header is there."""
    counts = {"host", "x-amz-date", "content-type"} | {name for name in headers if name.startswith("x-amz-")}
    missing = sorted(counts - set(signed)) + sorted(set(signed) - set(headers))
    if missing:
        raise _incomplete(f"not signed or not sent: {', '.join(missing)}")


def _check_date(text: str, scope: Scope, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(text, _DATE_FORMAT).replace(tzinfo=UTC)
    except ValueError as exc:
        raise _incomplete("X-Amz-Date is no date in basic ISO 8601 form") from exc
    if not text.startswith(scope.date):
        raise _incomplete("the date of the scope is not that of X-Amz-Date")
    if abs(now - signed_at) > TOLERANCE:
        raise VendorError("RequestExpired", "Request has expired.", status=400)


def _incomplete(detail: str) -> VendorError:
    text = f"The request signature does not conform to AWS standards: {detail}."
    return VendorError("IncompleteSignature", text, status=400)


def _not_valid() -> VendorError:
    text = "AWS was not able to validate the provided access credentials"
    return VendorError("AuthFailure", text, status=401)
