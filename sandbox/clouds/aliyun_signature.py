"""ACS3-HMAC-SHA256 as Alibaba's gateway checks it: signature, clock, nonce.

The URL of a request is encoded like a form (a space is ``+``), but what is signed is encoded by RFC 3986, so
the query is decoded and encoded again before it is compared.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, quote

from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account

ALGORITHM: Final = "ACS3-HMAC-SHA256"
TOLERANCE: Final = timedelta(seconds=300)
"""A request that is further off the clock is refused."""
SIGNED_AT_LEAST: Final = frozenset(
    {
        "host",
        "x-acs-action",
        "x-acs-content-sha256",
        "x-acs-date",
        "x-acs-signature-nonce",
        "x-acs-version",
    }
)
_AUTHORIZATION: Final = re.compile(
    rf"{ALGORITHM} Credential=(?P<key>[^,\s]+),SignedHeaders=(?P<signed>[^,\s]+),"
    r"Signature=(?P<signature>[0-9a-f]+)"
)
_DATE_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class SignatureCheck:
    """Verifies requests of one account, and remembers their nonces for as long as they could be replayed."""

    def __init__(self, account: Account, clock: Callable[[], datetime]) -> None:
        self._account = account
        self._clock = clock
        self._nonces: dict[tuple[str, str], datetime] = {}

    def verify(self, request: WireRequest) -> str:
        """The access key id that signed this request.

        Raises:
            VendorError: the signature is missing, wrong, of another time, or was used before.
        """
        match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if match is None:
            raise _incomplete(f"an Authorization header of {ALGORITHM} is needed")
        key, signed = match["key"], match["signed"].split(";")
        secret = self._account.keys.get(key)
        if secret is None:
            raise VendorError("InvalidAccessKeyId.NotFound", "Specified access key is not found.", status=404)
        _check_signed_names(request.headers, signed)
        self._check_date(request.headers["x-acs-date"])
        if not hmac.compare_digest(signature_of(request, signed, secret), match["signature"]):
            raise _mismatch()
        _check_body(request)
        self._check_token(key, request.headers.get("x-acs-security-token", ""))
        self._check_nonce(key, request.headers["x-acs-signature-nonce"])
        return key

    def _check_date(self, text: str) -> None:
        try:
            signed_at = datetime.strptime(text, _DATE_FORMAT).replace(tzinfo=UTC)
        except ValueError as exc:
            text = "Specified time stamp or date value is not well formatted."
            raise VendorError("InvalidTimeStamp.Format", text, status=400) from exc
        if abs(self._clock() - signed_at) > TOLERANCE:
            text = "Specified time stamp or date value is expired."
            raise VendorError("InvalidTimeStamp.Expired", text, status=400)

    def _check_token(self, key: str, token: str) -> None:
        expected = self._account.tokens.get(key, "")
        if not hmac.compare_digest(expected, token):
            text = "Specified SecurityToken mismatch with the AccessKey."
            raise VendorError("InvalidSecurityToken.MismatchWithAccessKey", text, status=400)

    def _check_nonce(self, key: str, nonce: str) -> None:
        now = self._clock()
        # A nonce can come back only within the clock's tolerance on both sides; the oldest stand first.
        while self._nonces and next(iter(self._nonces.values())) <= now - 2 * TOLERANCE:
            del self._nonces[next(iter(self._nonces))]
        if (key, nonce) in self._nonces:
            text = "Specified signature nonce was used already."
            raise VendorError("SignatureNonceUsed", text, status=400)
        self._nonces[(key, nonce)] = now


def signature_of(request: WireRequest, signed: Sequence[str], secret: str) -> str:
    """What the signature of a request must be, in hex."""
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in sorted(signed))
    canonical = "\n".join(
        (
            request.method,
            request.path,
            canonical_query(request.query),
            headers,
            ";".join(sorted(signed)),
            request.headers["x-acs-content-sha256"],
        )
    )
    text = f"{ALGORITHM}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def canonical_query(query: str) -> str:
    """A query decoded, sorted by name, and encoded again by RFC 3986."""
    pairs = sorted(parse_qsl(query, keep_blank_values=True))
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)


def _check_signed_names(headers: Mapping[str, str], signed: Sequence[str]) -> None:
    """Every header that counts is signed, and every signed header is there.

    A host with a scheme, which the SDK sends when its endpoint was given as a URL, is no host.
    """
    counts = SIGNED_AT_LEAST | {name for name in headers if name.startswith("x-acs-")}
    missing = sorted(counts - set(signed)) + sorted(set(signed) - set(headers))
    if missing:
        raise _incomplete(f"not signed or not sent: {', '.join(missing)}")
    if "/" in headers["host"]:
        raise _mismatch()


def _check_body(request: WireRequest) -> None:
    if hashlib.sha256(request.body).hexdigest() != request.headers["x-acs-content-sha256"]:
        raise _mismatch()


def _incomplete(detail: str) -> VendorError:
    text = f"The request signature does not conform to Aliyun standards: {detail}."
    return VendorError("IncompleteSignature", text, status=400)


def _mismatch() -> VendorError:
    text = "Specified signature is not matched with our calculation."
    return VendorError("SignatureDoesNotMatch", text, status=400)
