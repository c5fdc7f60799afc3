"""EC2's error codes, and what each means to a pool."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.aws_sdk import NO_PRICE_LIST, NOT_USABLE, AnsweredError, UnansweredError
from activities.providers.codes import Example, answer_of, class_by_prefix, table
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult
from domain.contracts.offers import ProviderName

# Codes are matched by their longest listed beginning, whatever the HTTP status: missing capacity comes with
# 400 or 500. Source: the table of errors in the EC2 API reference; for those that end with Exception, and for
# what any service may say of keys and pace, the service models; reports of users, whose texts go before both.
# Unlisted: UNKNOWN, and UNKNOWN_OUTCOME when a create call is answered so with a status from 500 on.
ERRORS: Final = table(
    {
        ErrorCode.THROTTLED: {
            "RequestLimitExceeded": Example(503, "Request limit exceeded."),
            "EC2ThrottledException": Example(503, "(too many requests)"),
            "RequestThrottled": Example(403, "The request was denied due to request throttling."),
            "Throttl": Example(400, "Rate exceeded", "Throttling"),
            "TooManyRequests": Example(400, "Rate exceeded", "TooManyRequestsException"),
        },
        ErrorCode.UNAVAILABLE: {
            "InternalError": Example(500, "An internal error has occurred"),
            "InternalFailure": Example(
                500, "The request processing has failed because of an unknown error, exception, or failure."
            ),
            "Unavailable": Example(503, "The server is overloaded and can't handle the request."),
            "ServiceUnavailable": Example(
                503, "The request has failed due to a temporary failure of the server."
            ),
            "ServiceException": Example(500, "Something went wrong."),
            "5": Example(502, "Bad Gateway", "502"),  # a gateway's page: the SDK takes its status as the code
        },
        ErrorCode.UNKNOWN_OUTCOME: {
            "IdempotentParameterMismatch": Example(
                400, "Arguments on this idempotent request are inconsistent with arguments used before."
            ),
        },
        ErrorCode.UNAUTHENTICATED: {
            "AuthFailure": Example(401, "AWS was not able to validate the provided access credentials"),
            "ExpiredToken": Example(403, "The security token included in the request is expired"),
            "IncompleteSignature": Example(400, "The request signature does not conform to AWS standards."),
            "InvalidAccessKeyId": Example(
                403, "The AWS Access Key Id you provided does not exist in our records."
            ),
            "InvalidClientTokenId": Example(403, "The security token included in the request is invalid."),
            "InvalidSignature": Example(
                400,
                "The request signature we calculated does not match the signature you provided.",
                "InvalidSignatureException",
            ),
            "MissingAuthenticationToken": Example(403, "Request is missing Authentication Token"),
            "RequestExpired": Example(400, "Request has expired."),
            "SignatureDoesNotMatch": Example(
                403, "The request signature we calculated does not match the signature you provided."
            ),
            "UnrecognizedClient": Example(
                400, "The security token included in the request is invalid.", "UnrecognizedClientException"
            ),
            NOT_USABLE: None,
        },
        ErrorCode.FORBIDDEN: {
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted": Example(
                403, "The provided credentials do not have permission to create the service-linked role."
            ),
            "AccessDenied": Example(400, "You are not authorized to do this.", "AccessDeniedException"),
            "Blocked": Example(
                400, "This account is currently blocked and not recognized as a valid account."
            ),
            "OperationNotPermitted": Example(
                400,
                "The instance 'i-0aaaa' may not be terminated. Modify its 'disableApiTermination'",
            ),
            "OptInRequired": Example(401, "You are not subscribed to this service."),
            "PendingVerification": Example(400, "Your account is currently being verified."),
            "UnauthorizedOperation": Example(403, "You are not authorized to perform this operation."),
        },
        ErrorCode.NOT_FOUND: {
            "InvalidInstanceID.NotFound": Example(400, "The instance ID 'i-0aaaa' does not exist"),
            "NoSuchResource": Example(
                400,
                "The request failed because the specified service does not exist.",
                "NoSuchResourceException",
            ),
        },
        ErrorCode.CONFLICT: {
            "ConcurrentTagAccess": Example(
                400, "You can't run simultaneous commands to modify a tag for a specific resource."
            ),
            "IncorrectInstanceState": Example(
                400, "The instance 'i-0aaaa' is not in a state from which it can be started."
            ),
            "IncorrectState": Example(400, "Instance 'i-0aaaa' is not 'running'."),
        },
        ErrorCode.INVALID_REQUEST: {
            "FilterLimitExceeded": Example(
                400, "The maximum number of filter values specified on a single call is 200"
            ),
            "Invalid": Example(400, "The image id '[ami-0aaaa]' does not exist", "InvalidAMIID.NotFound"),
            "MalformedQueryString": Example(404, "The query string contains a syntax error."),
            "Missing": Example(400, "The request must contain the parameter ImageId", "MissingParameter"),
            NO_PRICE_LIST: None,
            "NoSuchVersion": Example(
                400, "The requested version (2016-11-15) of service AmazonEC2 does not exist"
            ),
            "TagLimitExceeded": Example(400, "The resultant tag set must not have more than 50 user tags."),
            "UnknownParameter": Example(400, "The parameter NetworkCardIndex is not recognized"),
            "UnsupportedOperation": Example(
                400, "The functionality you requested is not available in this region"
            ),
            "ValidationError": Example(
                400, "The input fails to satisfy the constraints specified by an AWS service."
            ),
        },
        ErrorCode.INSUFFICIENT_CAPACITY: {
            "InsufficientInstanceCapacity": Example(
                500, "There is no Spot capacity available that matches your request."
            ),
            "InsufficientHostCapacity": Example(
                500, "There is not enough capacity to fulfill your Dedicated Host request."
            ),
            "UnfulfillableCapacity": Example(
                400, "Unable to fulfill capacity due to your request configuration."
            ),
            "Unsupported": Example(
                400, "Your requested instance type is not supported in your requested Availability Zone."
            ),
            # A subnet is full: another one, or another zone, will do. As a quota of the account it would
            # close all spot offers of the family in the region.
            "InsufficientFreeAddressesInSubnet": Example(
                400, "There are not enough free addresses in subnet 'subnet-0aaaa'."
            ),
        },
        ErrorCode.PRICE_TOO_LOW: {
            "SpotMaxPriceTooLow": Example(
                400, "Your Spot request price is lower than the minimum required fulfillment price."
            ),
        },
        ErrorCode.QUOTA: {
            "InstanceLimitExceeded": Example(
                400, "You have requested more instances (1) than your current instance limit of 0 allows"
            ),
            "MaxFleetCountExceeded": Example(
                400, "You've reached your quota for maximum Fleet Requests for this account."
            ),
            "MaxSpotInstanceCountExceeded": Example(400, "Max spot instance count exceeded"),
            "VcpuLimitExceeded": Example(
                400, "You have requested more vCPU capacity than your current vCPU limit allows."
            ),
        },
    }
)

WHOLE: Final = frozenset({"Unsupported"})
"""Words that are no beginnings: ``UnsupportedTenancy`` is about the request."""

# One code says more in its text: that the type is not sold there, as ``Unsupported`` says it, or that two
# parameters of the request exclude each other. The vendor lists no texts; examples of the first kind:
# "The requested instance type is not supported in the requested Availability Zone."
# "Spot Instances are not available for the requested instance type."
BY_TEXT: Final = "InvalidParameterCombination"
NOT_SOLD_HERE: Final = re.compile(
    r"(instance type|spot)\b.*\bnot (supported|available|offered)\b.*\b(availability zone|region)"
    r"|spot (instance|request|market|capacity).*\bnot (supported|available|offered)\b.*\binstance type"
    r"|instance type\b.*\bnot (supported|available|offered)\b.*\bspot",
    re.IGNORECASE,
)

NOT_OFFERED: Final = frozenset({"Unsupported", BY_TEXT})
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


def classify(vendor_code: str, *, creating: bool, status: int = 0, message: str = "") -> ErrorCode:
    """The closed class of a vendor's code, by the longest word that it begins with; of one the text decides.

    Args:
        vendor_code: The cloud's word; empty when an error answer had none.
        creating: Whether a machine was being bought, so that an internal error may have made it.
        status: The HTTP status of the answer.
        message: Its text.
    """
    if vendor_code == BY_TEXT and NOT_SOLD_HERE.search(message):
        return ErrorCode.INSUFFICIENT_CAPACITY
    listed = {word: row for word, row in ERRORS.items() if word == vendor_code or word not in WHOLE}
    code = class_by_prefix(vendor_code, listed)
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
        code = classify(fault.vendor_code, creating=creating, status=fault.status, message=fault.message)
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
    """What a fault of a create call stands for; see ``answer_of``."""
    return answer_of(fault, not_offered=fault.vendor_code in NOT_OFFERED)
