"""How the services beside EC2 speak: JSON 1.1, the action in a header, refusals in words of their own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sandbox.clouds.cloud import VendorError, WireAnswer, WireRequest

CONTENT_TYPE: Final = "application/x-amz-json-1.1"
TARGET_HEADER: Final = "x-amz-target"
SIGNATURE_WORDS: Final[Mapping[str, str]] = {
    "AuthFailure": "UnrecognizedClientException",
    "IncompleteSignature": "IncompleteSignatureException",
    "RequestExpired": "InvalidSignatureException",
}
"""What EC2 says of a signature, to what all these services say."""


@dataclass(frozen=True)
class Dialect:
    """One such service.

    Attributes:
        prefix: What its targets begin with; the action follows.
        words: What the shared parts and EC2's signature say, to the words of this service.
        failures: Words that come with HTTP 500; all others come with 400.
    """

    prefix: str
    words: Mapping[str, str]
    failures: frozenset[str]

    def concerns(self, request: WireRequest) -> bool:
        """Whether a request is for this service."""
        return request.headers.get(TARGET_HEADER, "").startswith(self.prefix)

    def action_of(self, request: WireRequest) -> str:
        """The action of a request that concerns it."""
        return request.headers[TARGET_HEADER].removeprefix(self.prefix)

    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """A success on the wire."""
        return _worded(200, payload, request_id)

    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """An error on the wire; its code comes as the type of a JSON object."""
        code = self.words.get(error.code, error.code)
        status = 500 if code in self.failures else 400
        return _worded(status, {"__type": code, "Message": error.message}, request_id)


def check_form(request: WireRequest, *, known: bool) -> None:
    """Refuse what is no JSON request for a known action.

    Raises:
        VendorError: in the words that all these services share.
    """
    if not known:
        raise VendorError("UnknownOperationException", "")
    if (request.method, request.target, request.headers["content-type"]) != ("POST", "/", CONTENT_TYPE):
        raise VendorError("SerializationException", f"The body of a POST to / must be {CONTENT_TYPE}.")


def _worded(status: int, body: Mapping[str, object], request_id: str) -> WireAnswer:
    headers = {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id}
    return WireAnswer(status, headers, json.dumps(body).encode())
