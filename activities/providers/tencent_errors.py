"""What Tencent's error codes mean: one table, matched by prefix."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.codes import classify_by_prefix
from activities.providers.tencent_sdk import AnsweredError, UnansweredError
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal, Rejected
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.TENCENT

# Codes are matched by their longest listed prefix; HTTP status says nothing, errors come with 200.
# Source: errorcodes of the SDK. Unlisted: UNKNOWN.
ERROR_CODES: Final[Mapping[str, ErrorCode]] = {
    "RequestLimitExceeded": ErrorCode.THROTTLED,
    "InternalError": ErrorCode.UNAVAILABLE,
    "InternalServerError": ErrorCode.UNAVAILABLE,
    "FailedOperation": ErrorCode.UNAVAILABLE,
    "AuthFailure": ErrorCode.UNAUTHENTICATED,
    "InvalidCredential": ErrorCode.UNAUTHENTICATED,  # raised by the SDK before it sends anything
    "AuthFailure.UnauthorizedOperation": ErrorCode.FORBIDDEN,
    "UnauthorizedOperation": ErrorCode.FORBIDDEN,
    "AccountQualificationRestrictions": ErrorCode.FORBIDDEN,
    "InvalidAccount": ErrorCode.FORBIDDEN,  # InsufficientBalance, UnpaidOrder
    "InvalidInstanceId.NotFound": ErrorCode.NOT_FOUND,
    "ResourceNotFound.InvalidInstanceIdNotFound": ErrorCode.NOT_FOUND,
    "InvalidParameterValue.ResourceIdInvalid": ErrorCode.NOT_FOUND,  # tag service
    "OperationDenied.InstanceOperationInProgress": ErrorCode.CONFLICT,
    "MutexOperation.TaskRunning": ErrorCode.CONFLICT,
    "ResourceInUse": ErrorCode.CONFLICT,
    "FailedOperation.ResourceTagProcessing": ErrorCode.CONFLICT,  # tag service
    "UnsupportedOperation.InstanceState": ErrorCode.CONFLICT,
    "LimitExceeded.UserReturnQuota": ErrorCode.FORBIDDEN,
    "UnsupportedOperation.InstancesProtected": ErrorCode.FORBIDDEN,
    "FailedOperation.IllegalTag": ErrorCode.INVALID_REQUEST,
    "FailedOperation.TagKeyReserved": ErrorCode.INVALID_REQUEST,
    "InvalidAction": ErrorCode.INVALID_REQUEST,
    "Invalid": ErrorCode.INVALID_REQUEST,
    "Missing": ErrorCode.INVALID_REQUEST,
    "UnknownParameter": ErrorCode.INVALID_REQUEST,
    "ResourceNotFound": ErrorCode.INVALID_REQUEST,
    "OperationDenied.AccountNotSupported": ErrorCode.FORBIDDEN,
    "NoSuchVersion": ErrorCode.INVALID_REQUEST,
    "UnsupportedRegion": ErrorCode.INVALID_REQUEST,
    "UnsupportedOperation": ErrorCode.INVALID_REQUEST,
    "LimitExceeded": ErrorCode.INVALID_REQUEST,
}

REFUSALS: Final[Mapping[str, ErrorCode]] = {
    "ResourceInsufficient": ErrorCode.INSUFFICIENT_CAPACITY,
    "ResourcesSoldOut": ErrorCode.INSUFFICIENT_CAPACITY,
    "ResourceUnavailable.InstanceType": ErrorCode.INSUFFICIENT_CAPACITY,
    "ResourceNotFound.InvalidZoneInstanceType": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidParameterValue.InsufficientOffering": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidParameterValue.ZoneNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidParameter.InvalidCloudDiskSoldOut": ErrorCode.INSUFFICIENT_CAPACITY,
    "UnsupportedOperation.InvalidZone": ErrorCode.INSUFFICIENT_CAPACITY,
    "UnsupportedOperation.NoInstanceTypeSupportSpot": ErrorCode.INSUFFICIENT_CAPACITY,
    "UnsupportedOperation.SpotUnsupportedRegion": ErrorCode.INSUFFICIENT_CAPACITY,
    "FailedOperation.NoAvailableIpAddressCountInSubnet": ErrorCode.INSUFFICIENT_CAPACITY,
    "LimitExceeded.VpcSubnetNum": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidParameterValue.InsufficientPrice": ErrorCode.PRICE_TOO_LOW,
    "LimitExceeded.SpotQuota": ErrorCode.QUOTA,
    "LimitExceeded.UserSpotQuota": ErrorCode.QUOTA,
    "LimitExceeded.InstanceQuota": ErrorCode.QUOTA,
    "LimitExceeded.CvmInstanceQuota": ErrorCode.QUOTA,
    "InstancesQuotaLimitExceeded": ErrorCode.QUOTA,
}

NOT_OFFERED: Final = (
    "ResourceUnavailable.InstanceType",
    "ResourceNotFound.InvalidZoneInstanceType",
    "InvalidParameterValue.ZoneNotSupported",
    "UnsupportedOperation.InvalidZone",
    "UnsupportedOperation.NoInstanceTypeSupportSpot",
    "UnsupportedOperation.SpotUnsupportedRegion",
)
"""Prefixes of refusals that say: not sold there at all."""

MIXED_CHARGES: Final = "InvalidParameterValue.InstanceNotSupportedMixPricingModel"
"""A batch must have one charge type."""

BUSY_RETRY_AFTER: Final = timedelta(seconds=5)
"""A machine that is in the middle of something refuses; it settles within 5 to 10 s."""


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
        raise ProviderError(
            code,
            fault.message,
            provider=NAME,
            operation=operation,
            vendor_code=fault.vendor_code,
            retry_after=BUSY_RETRY_AFTER if code is ErrorCode.CONFLICT else None,
        ) from fault
    except UnansweredError as fault:
        code = ErrorCode.UNAVAILABLE if fault.never_left else lost
        raise ProviderError(
            code, str(fault), provider=NAME, operation=operation, vendor_code=fault.vendor_code
        ) from fault
    except ValidationError as fault:
        code = ErrorCode.UNKNOWN_OUTCOME if creating else ErrorCode.UNAVAILABLE
        fields = ", ".join(".".join(str(part) for part in error["loc"]) for error in fault.errors()[:3])
        text = f"unreadable answer: {fields}"
        # Cut off, since pydantic quotes what it read.
        raise ProviderError(code, text, provider=NAME, operation=operation) from None


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


def concerns_one_machine(fault: ProviderError) -> bool:
    """Whether one machine may have spoiled a batch."""
    return (
        fault.code in (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)
        or fault.vendor_code == MIXED_CHARGES
        or fault.vendor_code == "UnsupportedOperation.InstancesProtected"
    )
