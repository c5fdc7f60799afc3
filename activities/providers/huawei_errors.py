"""What Huawei's error codes mean: one table, and the few codes whose text decides."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers import huawei_answers as answers
from activities.providers.codes import Example, answer_of, table
from activities.providers.huawei_sdk import AnsweredError, UnansweredError
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.HUAWEI

# Codes are matched whole: they are numbers. Where an answer has no code, its HTTP status stands for it.
# Source: error tables of ECS and of the API gateway, 2026; for a gateway's page, a report of a user. Most
# come with 400, or inside the job.
ERRORS: Final = table(
    {
        ErrorCode.THROTTLED: {
            "APIGW.0308": Example(429, "The throttling threshold has been reached"),
            "Common.1503": Example(429, "Api flow control Error"),
            "Common.0024": Example(202, "The traffic has exceeded the upper limit."),
            "429": Example(429, "(of a GET the client keeps the status only)", ""),
        },
        ErrorCode.UNAVAILABLE: {
            "Common.0001": Example(
                500, "A system exception occurred. Try again later or contact customer service."
            ),
            "Ecs.0000": Example(400, "Request error."),
            "Ecs.0002": Example(400, "Failed to submit the task."),
            "Ecs.1000": Example(400, "Failed to access the OpenStack."),
            "Ecs.1001": Example(400, "OpenStack access error."),
            "Ecs.1002": Example(400, "OpenStack access timed out."),
            "Ecs.1100": Example(400, "Failed to access the IAM."),
            "Ecs.1200": Example(400, "Failed to access the VPC."),
            "Ecs.1201": Example(400, "VPC access timed out."),
            "Ecs.1300": Example(400, "EVS access timed out."),
            # Unless there was no host.
            "Ecs.0204": Example(400, "Failed to create the ECS."),
            "Ecs.0219": Example(400, "Failed to quickly create server because the ECS status is error."),
            "500": Example(500, "(a page of a gateway)", ""),
            "502": Example(502, "The backend server is unreachable.", ""),
            "503": Example(503, "(a page of a gateway)", ""),
            "504": Example(504, "(a page of a gateway)", ""),
        },
        ErrorCode.UNAUTHENTICATED: {
            "APIGW.0301": Example(
                401, "Incorrect IAM authentication information: verify aksk signature fail"
            ),
            "Common.0013": Example(401, "Invalid token."),
            # The project does not belong to the keys, or none was found for them.
            "Ecs.0004": Example(400, "Authentication failed."),
            "Ecs.0023": Example(400, "The project ID in token does not match that in URL."),
            "Common.0018": Example(400, "Tenant ID in token is not the same as that in URL."),
            "401": Example(401, "(a page of a gateway)", ""),
            # Said by us before anything is bought.
            "ProjectNotFound": None,
            "InvalidCredential": None,
        },
        ErrorCode.FORBIDDEN: {
            "APIGW.0302": Example(403, "The IAM user is not authorized to access the API."),
            "Pdp.0001": Example(403, "Policy does not allow the action to be performed."),
            "Ecs.0003": Example(403, "The token role contains op_suspended."),
            "Ecs.0110": Example(403, "The token role is not allowed to perform this operation."),
            # Money: no real-name authentication, balance, budget, means of payment, suspended account.
            "Ecs.0066": Example(
                403,
                "This operation cannot be performed because real-name authentication has not been completed.",
            ),
            "Ecs.0067": Example(403, "Insufficient account balance."),
            "Ecs.0068": Example(403, "This operation cannot be performed by partners."),
            "Ecs.0069": Example(403, "You have not associated a payment method with your account."),
            "Ecs.0070": Example(403, "Insufficient budget. Contact the enterprise administrator"),
            "Ecs.0071": Example(
                403, "This operation cannot be performed because your account has been suspended."
            ),
            "Ecs.0030": Example(400, "The ECS has been frozen."),
            "403": Example(403, "(a page of a gateway)", ""),
        },
        ErrorCode.NOT_FOUND: {
            "Ecs.0114": Example(404, "The ECS could not be found."),
            "Ecs.0614": Example(404, "itemNotFound: Instance could not be found."),
            "404": Example(404, "(a page of a gateway)", ""),
        },
        ErrorCode.CONFLICT: {
            "Ecs.0100": Example(400, "The ECS status does not meet requirements."),
            "Ecs.0605": Example(400, "ECS locked."),
            "Ecs.0603": Example(501, "Other commands are being executed. Try again 1 minute later."),
        },
        ErrorCode.INVALID_REQUEST: {
            "Ecs.0005": Example(400, "Invalid request body."),
            "Ecs.0014": Example(400, "VPC parameters are invalid."),
            "Ecs.0031": Example(400, "Image does not exist."),
            "Ecs.0032": Example(400, "Image must be active."),
            "Ecs.0038": Example(400, "Subnet does not exist."),
            "Ecs.0314": Example(400, "Failed to obtain the key pair."),
            "Common.0002": Example(400, "Request body is null!"),
            "400": Example(400, "(a page of a gateway)", ""),
            "InvalidRegion": None,  # said by us before anything is sent
        },
        ErrorCode.INSUFFICIENT_CAPACITY: {
            "Ecs.0319": Example(400, "Check capacity: Capacity is not enough."),
            "Ecs.0044": Example(400, "Disk type has been sold out in AZ."),
            "Ecs.0029": Example(400, "Flavor does not exist."),
            "Ecs.0015": Example(400, "The disk of this type is not applicable to the ECS."),
            "Ecs.0909": Example(400, "The flavor does not support the disk type."),
            # A subnet is full: another one, or another zone, will do. As a quota of the account it would
            # close all spot offers of the family in the region.
            "Ecs.0012": Example(400, "The number of IP addresses in the subnet is insufficient."),
        },
        ErrorCode.QUOTA: {
            "Ecs.0001": Example(400, "The number of ECSs is beyond the quota limit."),
            "Ecs.0013": Example(400, "Insufficient EIP quota."),
            "Ecs.0021": Example(400, "The number of volumes is beyond the quota limit."),
            "Ecs.0022": Example(400, "The number of ECSs is beyond the ECS group quota limit."),
            "Ecs.0118": Example(400, "The number of ECSs is greater than the maximum number."),
            "Ecs.0913": Example(400, "Invalid number of ECSs."),
        },
    }
)

NOT_OFFERED: Final = frozenset({"Ecs.0029", "Ecs.0015", "Ecs.0909"})
"""Refusals that say: not sold there at all."""

INSIDE_A_SUCCESS: Final = "Common.0024"
"""A flow limit that comes with HTTP status 202, as if the request had been taken."""

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
    code = ERRORS[vendor_code].code if vendor_code in ERRORS else ErrorCode.UNKNOWN
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
    """What a fault of a create call stands for; see ``answer_of``."""
    return answer_of(fault, not_offered=fault.vendor_code in NOT_OFFERED)


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
