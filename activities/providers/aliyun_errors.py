"""What Alibaba's error codes mean: one table, matched by prefix."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.aliyun_sdk import AnsweredError, UnansweredError
from activities.providers.codes import classify_by_prefix
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal, Rejected
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.ALIYUN

# Codes are matched by their longest listed prefix. An answer's HTTP status says nothing here: throttling
# comes with 400, a wrong key with 404, stock with 403, quota with 400 or 403.
# Source: error tables of RunInstances and DeleteInstance, ECS API reference 2021. Unlisted: UNKNOWN.
ERROR_CODES: Final[Mapping[str, ErrorCode]] = {
    "Throttling": ErrorCode.THROTTLED,
    "InternalError": ErrorCode.UNAVAILABLE,
    "ServiceUnavailable": ErrorCode.UNAVAILABLE,
    "IdempotentParameterMismatch": ErrorCode.UNKNOWN_OUTCOME,
    "InvalidAccessKeyId": ErrorCode.UNAUTHENTICATED,
    "InvalidCredential": ErrorCode.UNAUTHENTICATED,  # said by us before anything is sent
    "InvalidSecurityToken": ErrorCode.UNAUTHENTICATED,
    "InvalidTimeStamp": ErrorCode.UNAUTHENTICATED,
    "SignatureDoesNotMatch": ErrorCode.UNAUTHENTICATED,
    "IncompleteSignature": ErrorCode.UNAUTHENTICATED,
    "SignatureNonceUsed": ErrorCode.UNAVAILABLE,
    "Forbidden": ErrorCode.FORBIDDEN,
    "Forbbiden": ErrorCode.FORBIDDEN,  # spelt so by the vendor
    "NoPermission": ErrorCode.FORBIDDEN,
    "InvalidUser.PassRoleForbidden": ErrorCode.FORBIDDEN,
    "RealNameAuthenticationError": ErrorCode.FORBIDDEN,
    "InvalidAccountStatus": ErrorCode.FORBIDDEN,
    "InsufficientBalance": ErrorCode.FORBIDDEN,
    "Account.Arrearage": ErrorCode.FORBIDDEN,
    "PaymentMethodNotFound": ErrorCode.FORBIDDEN,
    "InvalidOperation.DeletionProtection": ErrorCode.FORBIDDEN,
    "InstanceLockedForSecurity": ErrorCode.FORBIDDEN,
    "InvalidInstanceId.NotFound": ErrorCode.NOT_FOUND,
    "InvalidInstanceIds.NotFound": ErrorCode.NOT_FOUND,
    "InvalidResourceId.NotFound": ErrorCode.NOT_FOUND,
    "OperationDenied.CreatingConflict": ErrorCode.CONFLICT,
    "IncorrectInstanceStatus": ErrorCode.CONFLICT,
    "Invalid": ErrorCode.INVALID_REQUEST,
    "Missing": ErrorCode.INVALID_REQUEST,
    "UnsupportedParameter": ErrorCode.INVALID_REQUEST,
}

REFUSALS: Final[Mapping[str, ErrorCode]] = {
    "OperationDenied.NoStock": ErrorCode.INSUFFICIENT_CAPACITY,
    "ResourceNotAvailable": ErrorCode.INSUFFICIENT_CAPACITY,
    "NodeControllerUnavailable": ErrorCode.INSUFFICIENT_CAPACITY,
    "Zone.NotOnSale": ErrorCode.INSUFFICIENT_CAPACITY,
    "Zone.NotOpen": ErrorCode.INSUFFICIENT_CAPACITY,
    "OperationDenied.ZoneNotAllowed": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.ZoneNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.NotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.ValueNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InstanceType.Offline": ErrorCode.INSUFFICIENT_CAPACITY,
    "CategoryNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidSpotPriceLimit.LowerThanPublicPrice": ErrorCode.PRICE_TOO_LOW,
    "QuotaExceed": ErrorCode.QUOTA,  # also QuotaExceeded and all their suffixes
    "SecurityGroupInstanceLimitExceed": ErrorCode.QUOTA,
}

NOT_OFFERED: Final = (
    "Zone.NotOnSale",
    "Zone.NotOpen",
    "OperationDenied.ZoneNotAllowed",
    "InvalidInstanceType.",
    "InstanceType.Offline",
    "CategoryNotSupported",
)
"""Prefixes of refusals that say: not sold there at all."""

CONCERNS_ONE_MACHINE: Final = (
    "InvalidInstanceId",
    "InvalidResourceId",
    "IncorrectInstanceStatus",
    "InvalidOperation.DeletionProtection",
    "InstanceLockedForSecurity",
)
"""Prefixes of codes with which one machine spoils a whole batch."""

BUSY_RETRY_AFTER: Final = timedelta(seconds=10)
"""A machine that is being made refuses to be deleted; the vendor's advice is 10 to 30 s."""


def classify(vendor_code: str, *, creating: bool) -> ErrorCode:
    """The closed class of this cloud's word; see ``classify_by_prefix``."""
    return classify_by_prefix(vendor_code, {**ERROR_CODES, **REFUSALS}, creating=creating)


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
        code = classify(fault.vendor_code, creating=creating)
        busy = BUSY_RETRY_AFTER if code is ErrorCode.CONFLICT else None
        raise ProviderError(
            code,
            fault.message,
            provider=NAME,
            operation=operation,
            vendor_code=fault.vendor_code,
            retry_after=fault.retry_after or busy,
        ) from fault
    except UnansweredError as fault:
        code = ErrorCode.UNAVAILABLE if fault.never_left else lost
        raise ProviderError(code, str(fault), provider=NAME, operation=operation) from fault
    except ValidationError as fault:
        fields = ", ".join(".".join(str(part) for part in error["loc"]) for error in fault.errors()[:3])
        text = f"unreadable answer: {fields}"
        # Cut off, since pydantic quotes what it read.
        raise ProviderError(lost, text, provider=NAME, operation=operation) from None


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
                not_offered=fault.vendor_code.startswith(NOT_OFFERED),
            )
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN as code:
            return Rejected(code=code, vendor_code=fault.vendor_code, message=str(fault))
        case _:
            raise fault
