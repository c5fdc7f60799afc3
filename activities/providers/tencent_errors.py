"""What Tencent's error codes mean: one table, matched by prefix."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.codes import Example, answer_of, classify_by_prefix, table
from activities.providers.tencent_sdk import AnsweredError, UnansweredError
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.TENCENT

# Codes are matched by their longest listed beginning; HTTP status says nothing, errors come with 200.
# Source: errorcodes of the SDK, whose texts are translated here or taken from its international edition; for
# the gateway and the tag service, their SDKs and reports of their users.
ERRORS: Final = table(
    {
        ErrorCode.THROTTLED: {
            "RequestLimitExceeded": Example(
                200,
                "Your current request times exceeds the frequency limit.",
                "RequestLimitExceeded.UinLimitExceeded",
            ),
        },
        ErrorCode.UNAVAILABLE: {
            "InternalError": Example(200, "Internal error.", "InternalError.TradeUnknownError"),
            "InternalServerError": Example(200, "Internal error of the operation."),
            "FailedOperation": Example(200, "The operation failed.", "FailedOperation.InquiryPriceFailed"),
        },
        ErrorCode.UNAUTHENTICATED: {
            "AuthFailure": Example(
                200, "The provided credentials could not be validated.", "AuthFailure.SignatureFailure"
            ),
            "InvalidCredential": None,  # raised by the SDK before it sends anything
        },
        ErrorCode.FORBIDDEN: {
            "AuthFailure.UnauthorizedOperation": Example(
                200, "You are not authorized to perform this operation. Check your CAM policies"
            ),
            "UnauthorizedOperation": Example(
                200,
                "Unauthorized operation. Make sure Multi-Factor Authentication (MFA) exists.",
                "UnauthorizedOperation.MFANotFound",
            ),
            "AccountQualificationRestrictions": Example(200, "The account is not qualified."),
            "InvalidAccount": Example(
                200, "The account's balance is insufficient.", "InvalidAccount.InsufficientBalance"
            ),
            "LimitExceeded.UserReturnQuota": Example(200, "Not returned, the quota of returns is used up."),
            "OperationDenied.AccountNotSupported": Example(200, "Not supported for this account."),
            "UnsupportedOperation.InstancesProtected": Example(200, "The instance is protected."),
        },
        ErrorCode.NOT_FOUND: {
            "InvalidInstanceId.NotFound": Example(200, "No such instance was found."),
            "ResourceNotFound.InvalidInstanceIdNotFound": Example(200, "The instance id was not found."),
            # Of the tag service.
            "InvalidParameterValue.ResourceIdInvalid": Example(200, "Resource ID error."),
        },
        ErrorCode.CONFLICT: {
            "OperationDenied.InstanceOperationInProgress": Example(
                200, "The instance is in another operation, try again later."
            ),
            "MutexOperation.TaskRunning": Example(200, "The same task is running."),
            "ResourceInUse": Example(200, "The resource is in use."),
            # Of the tag service.
            "FailedOperation.ResourceTagProcessing": Example(200, "The resource tag is being processed."),
            "UnsupportedOperation.InstanceState": Example(
                200,
                "Instances that are being made cannot do this.",
                "UnsupportedOperation.InstanceStatePending",
            ),
        },
        ErrorCode.INVALID_REQUEST: {
            "FailedOperation.IllegalTag": Example(
                200, "The tag's key has illegal characters.", "FailedOperation.IllegalTagKey"
            ),
            "FailedOperation.TagKeyReserved": Example(200, "The tag's key is reserved."),
            "InvalidAction": Example(
                200, "The request action=`RunInstances` is invalid or not found in service=`cvm`"
            ),
            "Invalid": Example(200, "Invalid image ID format.", "InvalidImageId.Malformed"),
            "Missing": Example(200, "A parameter is missing.", "MissingParameter"),
            "UnknownParameter": Example(200, "A parameter is unknown."),
            "ResourceNotFound": Example(
                200, "No such placement group.", "ResourceNotFound.InvalidPlacementSet"
            ),
            "NoSuchVersion": Example(
                200, "The specified api version=`2017-03-12` does not exist in service=`cvm`."
            ),
            "UnsupportedRegion": Example(200, "The action not support this region."),
            "UnsupportedOperation": Example(200, "The operation is not supported."),
            "LimitExceeded": Example(
                200, "An instance has at most five groups.", "LimitExceeded.AssociateUSGLimitExceeded"
            ),
        },
        ErrorCode.INSUFFICIENT_CAPACITY: {
            "ResourceInsufficient": Example(
                200, "The specified type is out of stock.", "ResourceInsufficient.SpecifiedInstanceType"
            ),
            "ResourcesSoldOut": Example(200, "The zone is sold out.", "ResourcesSoldOut.AvailableZone"),
            "ResourceUnavailable.InstanceType": Example(200, "The zone does not sell this type."),
            "ResourceNotFound.InvalidZoneInstanceType": Example(200, "The zone does not support this type."),
            "InvalidParameterValue.InsufficientOffering": Example(200, "Too little spot capacity."),
            "InvalidParameterValue.ZoneNotSupported": Example(200, "The zone is not supported."),
            "InvalidParameter.InvalidCloudDiskSoldOut": Example(200, "Disks are sold out."),
            "UnsupportedOperation.InvalidZone": Example(200, "The zone does not sell."),
            "UnsupportedOperation.NoInstanceTypeSupportSpot": Example(200, "The type has no spot billing."),
            "UnsupportedOperation.SpotUnsupportedRegion": Example(200, "The region has no spot instances."),
            "UnsupportedOperation.MinCountUnsupported": Example(
                200, "The region cannot deliver in part.", "UnsupportedOperation.MinCountUnsupportedRegion"
            ),
            # A subnet is full: another one, or another zone, will do.
            "FailedOperation.NoAvailableIpAddressCountInSubnet": Example(
                200, "The subnet's IPs are used up."
            ),
            "LimitExceeded.VpcSubnetNum": Example(200, "The subnet has too few IPs."),
        },
        ErrorCode.PRICE_TOO_LOW: {
            "InvalidParameterValue.InsufficientPrice": Example(200, "The bid failed."),
        },
        ErrorCode.QUOTA: {
            "LimitExceeded.SpotQuota": Example(200, "The quota of spot instances of the type is too small."),
            "LimitExceeded.UserSpotQuota": Example(200, "The quota of spot instances is too small."),
            "LimitExceeded.InstanceQuota": Example(200, "The quota is too small for so many instances."),
            "LimitExceeded.CvmInstanceQuota": Example(200, "The quota of instances is used up."),
            "InstancesQuotaLimitExceeded": Example(200, "More instances than the account has left to buy."),
        },
    }
)

NOT_OFFERED: Final = (
    "ResourceUnavailable.InstanceType",
    "ResourceNotFound.InvalidZoneInstanceType",
    "InvalidParameterValue.ZoneNotSupported",
    "UnsupportedOperation.InvalidZone",
    "UnsupportedOperation.NoInstanceTypeSupportSpot",
    "UnsupportedOperation.SpotUnsupportedRegion",
    "UnsupportedOperation.MinCountUnsupported",
)
"""Prefixes of refusals that say: not sold there at all."""

# One code says more in its text. One edition of the SDK calls it a quota; the other one, the vendor's own
# provisioner of nodes, and an answer that a user reports call it stock. Taken for a quota it would close all
# spot offers of the family in the region. Examples: "The spot instance offerings are out of stock.",
# "指定可用区竞价实例售罄。" (spot instances are sold out in the zone).
BY_TEXT: Final = "LimitExceeded.SpotQuota"
SOLD_OUT: Final = re.compile(r"sold ?out|out of stock|售罄", re.IGNORECASE)

MIXED_CHARGES: Final = "InvalidParameterValue.InstanceNotSupportedMixPricingModel"
"""A batch must have one charge type."""

BUSY_RETRY_AFTER: Final = timedelta(seconds=5)
"""A machine that is in the middle of something refuses; it settles within 5 to 10 s."""


def classify(vendor_code: str, *, creating: bool, message: str = "") -> ErrorCode:
    """The closed class of this cloud's word, see ``classify_by_prefix``; of one the text decides."""
    if vendor_code == BY_TEXT and SOLD_OUT.search(message):
        return ErrorCode.INSUFFICIENT_CAPACITY
    return classify_by_prefix(vendor_code, ERRORS, creating=creating)


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
        code = classify(fault.vendor_code, creating=creating, message=fault.message)
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
    """What a fault of a create call stands for; see ``answer_of``."""
    return answer_of(fault, not_offered=fault.vendor_code.startswith(NOT_OFFERED))


def concerns_one_machine(fault: ProviderError) -> bool:
    """Whether one machine may have spoiled a batch."""
    return (
        fault.code in (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)
        or fault.vendor_code == MIXED_CHARGES
        or fault.vendor_code == "UnsupportedOperation.InstancesProtected"
    )
