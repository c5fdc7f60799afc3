"""EC2's error codes, and what each means to a pool."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.aws_sdk import NOT_USABLE, AnsweredError, UnansweredError
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal, Rejected
from domain.contracts.offers import ProviderName

# Codes are matched by their longest listed prefix. Source: the table of errors in the EC2 API reference.
# Unlisted: UNKNOWN, and UNKNOWN_OUTCOME when a create call is answered so with a status from 500 on.
ERROR_CODES: Final[Mapping[str, ErrorCode]] = {
    "RequestLimitExceeded": ErrorCode.THROTTLED,
    "EC2ThrottledException": ErrorCode.THROTTLED,
    "RequestThrottled": ErrorCode.THROTTLED,
    "Throttl": ErrorCode.THROTTLED,
    "InternalError": ErrorCode.UNAVAILABLE,
    "InternalFailure": ErrorCode.UNAVAILABLE,
    "Unavailable": ErrorCode.UNAVAILABLE,
    "ServiceUnavailable": ErrorCode.UNAVAILABLE,
    "5": ErrorCode.UNAVAILABLE,  # a gateway's page: the SDK takes its status as the code
    "IdempotentParameterMismatch": ErrorCode.UNKNOWN_OUTCOME,
    "AuthFailure": ErrorCode.UNAUTHENTICATED,
    "ExpiredToken": ErrorCode.UNAUTHENTICATED,
    "IncompleteSignature": ErrorCode.UNAUTHENTICATED,
    "InvalidAccessKeyId": ErrorCode.UNAUTHENTICATED,
    "InvalidClientTokenId": ErrorCode.UNAUTHENTICATED,
    "MissingAuthenticationToken": ErrorCode.UNAUTHENTICATED,
    "RequestExpired": ErrorCode.UNAUTHENTICATED,
    "SignatureDoesNotMatch": ErrorCode.UNAUTHENTICATED,
    NOT_USABLE: ErrorCode.UNAUTHENTICATED,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ErrorCode.FORBIDDEN,
    "AccessDenied": ErrorCode.FORBIDDEN,  # this and the next four are of the Service Quotas API
    "InvalidSignature": ErrorCode.UNAUTHENTICATED,
    "UnrecognizedClient": ErrorCode.UNAUTHENTICATED,
    "TooManyRequests": ErrorCode.THROTTLED,
    "ServiceException": ErrorCode.UNAVAILABLE,
    "Blocked": ErrorCode.FORBIDDEN,
    "OperationNotPermitted": ErrorCode.FORBIDDEN,
    "OptInRequired": ErrorCode.FORBIDDEN,
    "PendingVerification": ErrorCode.FORBIDDEN,
    "UnauthorizedOperation": ErrorCode.FORBIDDEN,
    "InvalidInstanceID.NotFound": ErrorCode.NOT_FOUND,
    "NoSuchResource": ErrorCode.NOT_FOUND,  # Service Quotas
    "ConcurrentTagAccess": ErrorCode.CONFLICT,
    "IncorrectInstanceState": ErrorCode.CONFLICT,
    "IncorrectState": ErrorCode.CONFLICT,
    "FilterLimitExceeded": ErrorCode.INVALID_REQUEST,
    "Invalid": ErrorCode.INVALID_REQUEST,
    "MalformedQueryString": ErrorCode.INVALID_REQUEST,
    "Missing": ErrorCode.INVALID_REQUEST,
    "NoSuchVersion": ErrorCode.INVALID_REQUEST,
    "TagLimitExceeded": ErrorCode.INVALID_REQUEST,
    "UnknownParameter": ErrorCode.INVALID_REQUEST,
    "UnsupportedOperation": ErrorCode.INVALID_REQUEST,
    "ValidationError": ErrorCode.INVALID_REQUEST,
}

# These are whole codes, whatever the HTTP status: missing capacity comes with 400 or 500.
REFUSALS: Final[Mapping[str, ErrorCode]] = {
    "InsufficientInstanceCapacity": ErrorCode.INSUFFICIENT_CAPACITY,
    "InsufficientHostCapacity": ErrorCode.INSUFFICIENT_CAPACITY,
    "UnfulfillableCapacity": ErrorCode.INSUFFICIENT_CAPACITY,
    "Unsupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "SpotMaxPriceTooLow": ErrorCode.PRICE_TOO_LOW,
    "InstanceLimitExceeded": ErrorCode.QUOTA,
    "InsufficientFreeAddressesInSubnet": ErrorCode.QUOTA,
    "MaxFleetCountExceeded": ErrorCode.QUOTA,
    "MaxSpotInstanceCountExceeded": ErrorCode.QUOTA,
    "VcpuLimitExceeded": ErrorCode.QUOTA,
}

NOT_OFFERED: Final = frozenset({"Unsupported"})
"""Refusals that say: not sold there at all."""

CONCERNS_ONE_MACHINE: Final = frozenset(
    {
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "IncorrectInstanceState",
        "OperationNotPermitted",
    }
)
"""Codes with which one machine spoils a whole batch."""

BUSY_RETRY_AFTER: Final = timedelta(seconds=5)
"""A machine that is too young, or in the middle of something, settles within seconds."""


def classify(vendor_code: str, *, creating: bool, status: int = 0) -> ErrorCode:
    """The closed class of a vendor's code: a whole refusal, else by its longest listed prefix.

    Args:
        vendor_code: The cloud's word; empty when an error answer had none.
        creating: Whether a machine was being bought, so that an internal error may have made it.
        status: The HTTP status of the answer.
    """
    if vendor_code in REFUSALS:
        return REFUSALS[vendor_code]
    prefixes = [prefix for prefix in ERROR_CODES if vendor_code.startswith(prefix)]
    code = ERROR_CODES[max(prefixes, key=len)] if prefixes else ErrorCode.UNKNOWN
    failed = code is ErrorCode.UNAVAILABLE or (code is ErrorCode.UNKNOWN and status >= 500)
    may_have_run = failed or not vendor_code
    return ErrorCode.UNKNOWN_OUTCOME if creating and may_have_run else code


@contextmanager
def translate_errors(operation: str, *, creating: bool = False) -> Generator[None]:
    """Re-raise the failures of one call as ``ProviderError``.

    Args:
        operation: The API's name.
        creating: A machine is being bought, so that a lost answer leaves the outcome unknown.
    """
    lost = ErrorCode.UNKNOWN_OUTCOME if creating else ErrorCode.UNAVAILABLE
    try:
        yield
    except AnsweredError as fault:
        code = classify(fault.vendor_code, creating=creating, status=fault.status)
        raise ProviderError(
            code,
            fault.message,
            provider=ProviderName.AWS,
            operation=operation,
            vendor_code=fault.vendor_code,
            retry_after=BUSY_RETRY_AFTER if code is ErrorCode.CONFLICT else None,
        ) from fault
    except UnansweredError as fault:
        code = ErrorCode.UNAVAILABLE if fault.never_left else lost
        raise ProviderError(code, str(fault), provider=ProviderName.AWS, operation=operation) from fault
    except ValidationError as fault:
        fields = ", ".join(".".join(str(part) for part in error["loc"]) for error in fault.errors()[:3])
        text = f"unreadable answer: {fields}"
        # Cut off, since pydantic quotes what it read.
        raise ProviderError(lost, text, provider=ProviderName.AWS, operation=operation) from None


def market_answer(fault: ProviderError) -> LaunchResult:
    """The value that a fault of a create call stands for.

    Raises:
        ProviderError: the same fault, when it is no answer of the market.
    """
    match fault.code:
        case ErrorCode.INSUFFICIENT_CAPACITY | ErrorCode.QUOTA | ErrorCode.PRICE_TOO_LOW as code:
            return Refusal(
                code=code,
                vendor_code=fault.vendor_code,
                message=str(fault),
                not_offered=fault.vendor_code in NOT_OFFERED,
            )
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN as code:
            return Rejected(code=code, vendor_code=fault.vendor_code, message=str(fault))
        case _:
            raise fault
