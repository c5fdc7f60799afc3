"""What Huawei's error codes mean: one table, and the few codes whose text decides."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers import huawei_answers as answers
from activities.providers.huawei_sdk import AnsweredError, UnansweredError
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal, Rejected
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.HUAWEI

# Codes are matched whole: they are numbers. Where an answer has no code, its HTTP status stands for it.
# Source: error tables of ECS and of the API gateway, 2026. Unlisted: UNKNOWN.
ERROR_CODES: Final[Mapping[str, ErrorCode]] = {
    "APIGW.0308": ErrorCode.THROTTLED,
    "Common.1503": ErrorCode.THROTTLED,
    "Common.0024": ErrorCode.THROTTLED,
    "429": ErrorCode.THROTTLED,  # of a GET the client keeps the status only
    **dict.fromkeys(("Common.0001", "Ecs.0000", "Ecs.0002"), ErrorCode.UNAVAILABLE),
    **dict.fromkeys(("Ecs.1000", "Ecs.1001", "Ecs.1002", "Ecs.1100", "Ecs.1200"), ErrorCode.UNAVAILABLE),
    **dict.fromkeys(("Ecs.1201", "Ecs.1300", "500", "502", "503", "504"), ErrorCode.UNAVAILABLE),
    **dict.fromkeys(("Ecs.0204", "Ecs.0219"), ErrorCode.UNAVAILABLE),  # unless there was no host
    **dict.fromkeys(("APIGW.0301", "Common.0013", "401"), ErrorCode.UNAUTHENTICATED),
    # The project does not belong to the keys, or none was found for them.
    **dict.fromkeys(("Ecs.0004", "Ecs.0023", "Common.0018"), ErrorCode.UNAUTHENTICATED),
    **dict.fromkeys(("ProjectNotFound", "InvalidCredential"), ErrorCode.UNAUTHENTICATED),
    **dict.fromkeys(("APIGW.0302", "Pdp.0001", "Ecs.0003", "Ecs.0110", "403"), ErrorCode.FORBIDDEN),
    # Money: arrears, frozen account, no real-name authentication.
    **dict.fromkeys(("Ecs.0066", "Ecs.0067", "Ecs.0068", "Ecs.0069"), ErrorCode.FORBIDDEN),
    **dict.fromkeys(("Ecs.0070", "Ecs.0071", "Ecs.0030"), ErrorCode.FORBIDDEN),
    **dict.fromkeys(("Ecs.0114", "Ecs.0614", "404"), ErrorCode.NOT_FOUND),
    **dict.fromkeys(("Ecs.0100", "Ecs.0605", "Ecs.0603"), ErrorCode.CONFLICT),
    **dict.fromkeys(("Ecs.0005", "Ecs.0014", "Ecs.0031", "Ecs.0032"), ErrorCode.INVALID_REQUEST),
    **dict.fromkeys(("Ecs.0038", "Ecs.0314", "Common.0002", "400"), ErrorCode.INVALID_REQUEST),
    "InvalidRegion": ErrorCode.INVALID_REQUEST,
}

REFUSALS: Final[Mapping[str, ErrorCode]] = {
    **dict.fromkeys(("Ecs.0319", "Ecs.0044"), ErrorCode.INSUFFICIENT_CAPACITY),
    **dict.fromkeys(("Ecs.0029", "Ecs.0015", "Ecs.0909"), ErrorCode.INSUFFICIENT_CAPACITY),
    **dict.fromkeys(("Ecs.0001", "Ecs.0012", "Ecs.0013", "Ecs.0021"), ErrorCode.QUOTA),
    **dict.fromkeys(("Ecs.0022", "Ecs.0118", "Ecs.0913"), ErrorCode.QUOTA),
}

NOT_OFFERED: Final = frozenset({"Ecs.0029", "Ecs.0015", "Ecs.0909"})
"""Refusals that say: not sold there at all."""

# These codes say more in their texts. Example: "No valid host was found. There are not enough hosts."
NO_HOST: Final = re.compile(r"no valid host", re.IGNORECASE)
# The vendor documents no code of its own for a bid, only that it must lie between the market price and the
# on-demand price. Example: "The value of spotPrice is lower than the market price."
ABOUT_A_BID: Final = re.compile(r"spot ?_?price|\bbid\b|market price|竞价|出价", re.IGNORECASE)
BID_TOO_HIGH: Final = re.compile(r"higher|greater|exceed|more than|above|高于|大于|超过", re.IGNORECASE)

THROTTLE_RETRY_AFTER: Final = timedelta(seconds=30)
"""Limits are counted by the minute, and refused calls count too."""
BUSY_RETRY_AFTER: Final = timedelta(minutes=1)


def classify(vendor_code: str, message: str, *, creating: bool) -> ErrorCode:
    """The closed class of a vendor's code; for a few codes the text decides.

    Args:
        vendor_code: The cloud's word, or the HTTP status; empty when an error had neither.
        message: The cloud's text.
        creating: Whether a machine was being bought, so that an internal error may have made it.
    """
    code = {**ERROR_CODES, **REFUSALS}.get(vendor_code, ErrorCode.UNKNOWN)
    if vendor_code in ("Ecs.0204", "Ecs.0219") and NO_HOST.search(message):
        return ErrorCode.INSUFFICIENT_CAPACITY
    if code is ErrorCode.INVALID_REQUEST and ABOUT_A_BID.search(message):
        return ErrorCode.PRICE_TOO_LOW
    may_have_run = code is ErrorCode.UNAVAILABLE or vendor_code in ("", INSIDE_A_SUCCESS)
    return ErrorCode.UNKNOWN_OUTCOME if creating and may_have_run else code


def is_bid_too_high(fault: ProviderError) -> bool:
    """Whether a bid was refused for lying above the on-demand price, which the vendor takes without a bid."""
    return fault.code is ErrorCode.PRICE_TOO_LOW and BID_TOO_HIGH.search(str(fault)) is not None


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
        code = classify(fault.vendor_code, fault.message, creating=creating)
        waits = {ErrorCode.CONFLICT: BUSY_RETRY_AFTER, ErrorCode.THROTTLED: THROTTLE_RETRY_AFTER}
        raise ProviderError(
            code,
            fault.message,
            provider=NAME,
            operation=operation,
            vendor_code=fault.vendor_code,
            retry_after=waits.get(code),
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
    """The value that a fault of a purchase stands for.
INSIDE_A_SUCCESS: Final = "Common.0024"
"""A flow limit that comes with HTTP status 202, as if the request had been taken."""


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


def job_answer(job: answers.Job) -> LaunchResult:
    """What a failed purchase says: its outcome is known, so nothing in it means that a machine may exist.

    A fault of the vendor's own, such as a guest that did not start, means that this zone gave no machine. To
    send the purchase again would not help: its token stands for the job that failed.

    Raises:
        ProviderError: the job's code is not listed.
    """
    problem = job.problem
    code = classify(problem.code, problem.message, creating=False)
    fault = ProviderError(
        ErrorCode.INSUFFICIENT_CAPACITY if code is ErrorCode.UNAVAILABLE else code,
        problem.message or "the job gives no reason",
        provider=NAME,
        operation="ShowJob",
        vendor_code=problem.code,
    )
    return market_answer(fault)
