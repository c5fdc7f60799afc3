"""Faults: a closed set of codes, and what each code asks for next."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

MAX_MESSAGE_CHARS: Final = 512
"""Failure texts are kept in workflow history, which cuts them at 4 KB; a bounded text stays readable."""


class ErrorCode(StrEnum):
    """Why a call to a cloud or to the cluster failed. Closed: an unlisted vendor code is ``UNKNOWN``."""

    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    QUOTA = "Quota"
    PRICE_TOO_LOW = "PriceTooLow"
    INVALID_REQUEST = "InvalidRequest"
    UNAUTHENTICATED = "Unauthenticated"
    FORBIDDEN = "Forbidden"
    THROTTLED = "Throttled"
    UNAVAILABLE = "Unavailable"
    NOT_FOUND = "NotFound"
    CONFLICT = "Conflict"
    UNKNOWN_OUTCOME = "UnknownOutcome"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Disposition:
    """What a code asks of the caller."""

    retryable: bool
    """Whether the same call may be sent again."""
    benign: bool = False
    """Expected in normal operation: not logged or counted as a failure of ours."""


DISPOSITIONS: Final[dict[ErrorCode, Disposition]] = {
    ErrorCode.INSUFFICIENT_CAPACITY: Disposition(retryable=False, benign=True),
    ErrorCode.QUOTA: Disposition(retryable=False, benign=True),
    ErrorCode.PRICE_TOO_LOW: Disposition(retryable=False, benign=True),
    ErrorCode.INVALID_REQUEST: Disposition(retryable=False),
    ErrorCode.UNAUTHENTICATED: Disposition(retryable=False),
    ErrorCode.FORBIDDEN: Disposition(retryable=False),
    ErrorCode.THROTTLED: Disposition(retryable=True, benign=True),
    ErrorCode.UNAVAILABLE: Disposition(retryable=True),
    ErrorCode.NOT_FOUND: Disposition(retryable=False),
    ErrorCode.CONFLICT: Disposition(retryable=True, benign=True),
    ErrorCode.UNKNOWN_OUTCOME: Disposition(retryable=True),
    ErrorCode.UNKNOWN: Disposition(retryable=True),
}

KEYS_REFUSED: Final = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN})
"""What only a person can mend: in the Secret of the account, or in the account's rights."""


class ProviderError(Exception):
    """A cloud call failed. Market answers to a launch are values (``Refusal``), not this.

    Attributes:
        code: The closed class of the fault.
        provider: Cloud that answered, for example ``tencent``.
        operation: The API operation, for example ``RunInstances``.
        vendor_code: The cloud's own word, empty when there was no answer.
        retry_after: The cloud's own wish for the next attempt, if it stated one.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        provider: str,
        operation: str,
        vendor_code: str = "",
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(f"{provider} {operation}: {vendor_code or code}: {message}"[:MAX_MESSAGE_CHARS])
        self.code = code
        self.provider = provider
        self.operation = operation
        self.vendor_code = vendor_code
        self.retry_after = retry_after


class ClusterError(Exception):
    """A call to the Kubernetes API failed.

    Attributes:
        code: The closed class of the fault (``CONFLICT`` for a lost version check).
        operation: Verb and resource, for example ``patch nodes/gpu-1``.
        status: HTTP status, 0 when there was no answer.
        retry_after: The server's wish, if it stated one.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        operation: str,
        status: int = 0,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(f"kubernetes {operation}: {status or code}: {message}"[:MAX_MESSAGE_CHARS])
        self.code = code
        self.operation = operation
        self.status = status
        self.retry_after = retry_after
