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
# 400 or 500. Source: the table of errors in the EC2 API reference; for those that end with Exception, the
# service models of price list and quotas, and reports of their users. Unlisted: UNKNOWN, and UNKNOWN_OUTCOME
# when a create call is answered so with a status from 500 on.
ERRORS: Final = table(
    {
        ErrorCode.THROTTLED: {
            "RequestLimitExceeded": Example(503, "Request limit exceeded."),
            "EC2ThrottledException": Example(503, "(too many requests)"),
            "RequestThrottled": Example(503, "(too many requests)"),
            "Throttl": Example(400, "Rate exceeded", "Throttling"),
            "TooManyRequests": Example(429, "(too many requests)", "TooManyRequestsException"),
        },
        ErrorCode.UNAVAILABLE: {
            "InternalError": Example(500, "An internal error has occurred"),
            "InternalFailure": Example(500, "(an internal error)"),
            "Unavailable": Example(503, "The server is overloaded and can't handle the request."),
            "ServiceUnavailable": Example(503, "(the service is not available)"),
            "ServiceException": Example(500, "(an internal error of Service Quotas)"),
            "5": Example(502, "Bad Gateway", "502"),  # a gateway's page: the SDK takes its status as the code
        },
        ErrorCode.UNKNOWN_OUTCOME: {
            "IdempotentParameterMismatch": Example(
                400, "Arguments on this idempotent request are inconsistent with arguments used before."
            ),
        },
        ErrorCode.UNAUTHENTICATED: {
            "AuthFailure": Example(401, "AWS was not able to validate the provided access credentials"),
            "ExpiredToken": Example(400, "(the session token has expired)"),
            "IncompleteSignature": Example(400, "(a part of the signature is missing)"),
            "InvalidAccessKeyId": Example(403, "(the access key does not exist)"),
            "InvalidClientTokenId": Example(403, "(the access key does not exist)"),
            "InvalidSignature": Example(403, "(the signature does not match)", "InvalidSignatureException"),
            "MissingAuthenticationToken": Example(403, "(the request is not signed)"),
            "RequestExpired": Example(400, "Request has expired."),
            "SignatureDoesNotMatch": Example(403, "(the signature does not match)"),
            "UnrecognizedClient": Example(
                403, "(the access key is not known)", "UnrecognizedClientException"
            ),
            NOT_USABLE: None,
        },
        ErrorCode.FORBIDDEN: {
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted": Example(
                403, "The provided credentials do not have permission to create the service-linked role."
            ),
            "AccessDenied": Example(400, "You are not authorized to do this.", "AccessDeniedException"),
            "Blocked": Example(400, "(the account is blocked)"),
            "OperationNotPermitted": Example(400, "(the instance is protected from termination)"),
            "OptInRequired": Example(401, "You are not subscribed to this service."),
            "PendingVerification": Example(400, "Your account is currently being verified."),
            "UnauthorizedOperation": Example(403, "You are not authorized to perform this operation."),
        },
        ErrorCode.NOT_FOUND: {
            "InvalidInstanceID.NotFound": Example(400, "The instance ID 'i-0aaaa' does not exist"),
            "NoSuchResource": Example(400, "(there is no such quota)", "NoSuchResourceException"),
        },
        ErrorCode.CONFLICT: {
            "ConcurrentTagAccess": Example(400, "(the instance's tags are being changed)"),
            "IncorrectInstanceState": Example(400, "(the instance is in a state that does not allow this)"),
            "IncorrectState": Example(400, "(the resource is in a state that does not allow this)"),
        },
        ErrorCode.INVALID_REQUEST: {
            "FilterLimitExceeded": Example(400, "(too many filters)"),
            "Invalid": Example(400, "The image id '[ami-0aaaa]' does not exist", "InvalidAMIID.NotFound"),
            "MalformedQueryString": Example(400, "(the query cannot be read)"),
            "Missing": Example(400, "The request must contain the parameter ImageId", "MissingParameter"),
            NO_PRICE_LIST: None,
            "NoSuchVersion": Example(400, "(the API has no such version)"),
            "TagLimitExceeded": Example(400, "(the instance has too many tags)"),
            "UnknownParameter": Example(400, "(a parameter is not known)"),
            "UnsupportedOperation": Example(400, "(the operation is not supported)"),
            "ValidationError": Example(400, "(a parameter is not valid)"),
        },
        ErrorCode.INSUFFICIENT_CAPACITY: {
            "InsufficientInstanceCapacity": Example(
                500, "There is no Spot capacity available that matches your request."
            ),
            "InsufficientHostCapacity": Example(400, "(there are too few hosts)"),
            "UnfulfillableCapacity": Example(400, "(the capacity cannot be had)"),
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
            "InstanceLimitExceeded": Example(400, "(the quota of instances is used up)"),
            "MaxFleetCountExceeded": Example(400, "(the quota of fleets is used up)"),
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
