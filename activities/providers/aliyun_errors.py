"""What Alibaba's error codes mean: one table, matched by prefix."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from activities.providers.aliyun_sdk import AnsweredError, UnansweredError
from activities.providers.codes import Example, answer_of, classify_by_prefix, table
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult
from domain.contracts.offers import ProviderName

NAME: Final = ProviderName.ALIYUN

# Codes are matched by their longest listed beginning. An answer's HTTP status says nothing here: throttling
# comes with 400, a wrong key with 404, stock with 403, quota with 400 or 403.
# Source: error tables of RunInstances, DeleteInstance and other calls, ECS API reference 2021; for the
# gateway and RAM, their tables of errors and reports of users.
ERRORS: Final = table(
    {
        ErrorCode.THROTTLED: {
            "Throttling": Example(400, "Request was denied due to user flow control.", "Throttling.User"),
        },
        ErrorCode.UNAVAILABLE: {
            "InternalError": Example(500, "The request processing has failed due to some unknown error."),
            "ServiceUnavailable": Example(
                503, "The request has failed due to a temporary failure of the server."
            ),
            "SignatureNonceUsed": Example(400, "Specified signature nonce was used already."),
        },
        # The token was used for something else, or the cloud does not take it back: what it stands for is
        # looked for by tag, and only if there is nothing a new one is used.
        ErrorCode.UNKNOWN_OUTCOME: {
            "IdempotentParameterMismatch": Example(400, "The specified clientToken is used"),
            "InvalidClientToken.ValueNotSupported": Example(400, "The ClientToken provided is invalid."),
        },
        ErrorCode.UNAUTHENTICATED: {
            "InvalidAccessKeyId": Example(
                404, "Specified access key is not found.", "InvalidAccessKeyId.NotFound"
            ),
            "InvalidCredential": None,  # said by us before anything is sent
            "InvalidSecurityToken": Example(
                400, "Specified SecurityToken is expired.", "InvalidSecurityToken.Expired"
            ),
            "InvalidTimeStamp": Example(
                400, "Specified time stamp or date value is expired.", "InvalidTimeStamp.Expired"
            ),
            "SignatureDoesNotMatch": Example(400, "Specified signature does not match our calculation."),
            "IncompleteSignature": Example(
                400, "The request signature does not conform to Aliyun standards."
            ),
        },
        ErrorCode.FORBIDDEN: {
            "Forbidden": Example(
                403, "User not authorized to operate on the specified resource.", "Forbidden.RAM"
            ),
            # Spelt so by the vendor.
            "Forbbiden": Example(403, "User not authorized to operate on the specified resource."),
            "NoPermission": Example(
                403, "You are not authorized to do this action. You should be authorized by RAM."
            ),
            "InvalidUser.PassRoleForbidden": Example(
                403, "The RAM user does not have the privilege to pass a RAM role."
            ),
            "RealNameAuthenticationError": Example(
                403, "Your account has not passed the real-name authentication yet."
            ),
            "InvalidAccountStatus": Example(
                403, "Your account does not have enough balance.", "InvalidAccountStatus.NotEnoughBalance"
            ),
            "InsufficientBalance": Example(403, "Your account does not have enough balance."),
            "Account.Arrearage": Example(400, "Your account has an outstanding payment."),
            "PaymentMethodNotFound": Example(404, "No payment method has been registered on the account."),
            "InvalidOperation.DeletionProtection": Example(403, "(the instance is protected from deletion)"),
            "InstanceLockedForSecurity": Example(
                403, "The specified operation is denied as your instance is locked for security reasons."
            ),
        },
        ErrorCode.NOT_FOUND: {
            "InvalidInstanceId.NotFound": Example(404, "The specified InstanceId does not exist."),
            "InvalidInstanceIds.NotFound": Example(404, "The specified InstanceIds does not exist."),
            "InvalidResourceId.NotFound": Example(
                404, "The specified ResourceIds are not found in our records."
            ),
        },
        ErrorCode.CONFLICT: {
            "OperationDenied.CreatingConflict": Example(404, "Another Instance has been creating"),
            "IncorrectInstanceStatus": Example(
                403,
                "The current status of the resource does not support this operation.",
                "IncorrectInstanceStatus.Initializing",
            ),
        },
        ErrorCode.INVALID_REQUEST: {
            "Invalid": Example(400, "The specified SpotStrategy is not valid.", "InvalidSpotStrategy"),
            "Missing": Example(
                400, 'The input parameter "ImageId" that is mandatory is not supplied.', "MissingParameter"
            ),
            "UnsupportedParameter": Example(400, "The parameters is unsupported."),
        },
        ErrorCode.INSUFFICIENT_CAPACITY: {
            "OperationDenied.NoStock": Example(
                403, "The requested resource is sold out in the specified zone."
            ),
            "ResourceNotAvailable": Example(
                400, "Resource you requested is not available in this region or zone."
            ),
            "NodeControllerUnavailable": Example(403, "The Node Controller is temporarily unavailable."),
            "Zone.NotOnSale": Example(403, "The specified zone is not available for purchase."),
            "Zone.NotOpen": Example(403, "The specified zone is not granted to you to buy resources yet."),
            "OperationDenied.ZoneNotAllowed": Example(
                403, "The creation of Instance to the specified Zone is not allowed."
            ),
            "InvalidInstanceType.ZoneNotSupported": Example(
                403, "The specified zone does not support this instancetype."
            ),
            "InvalidInstanceType.NotSupported": Example(403, "The specified InstanceType is not Supported."),
            "InvalidInstanceType.ValueNotSupported": Example(
                400, "The specified InstanceType does not exist or beyond the permitted range."
            ),
            "InstanceType.Offline": Example(403, "The specified InstanceType has been offline"),
            "CategoryNotSupported": Example(
                403, "The specified zone does not offer the specified disk category."
            ),
            # A subnet is full: another one, or another zone, will do. As a quota of the account, which it is
            # called, it would close all spot offers of the family in the region.
            "QuotaExceeded.PrivateIpAddress": Example(400, "Don't have enough private IPs in this switch."),
        },
        ErrorCode.PRICE_TOO_LOW: {
            "InvalidSpotPriceLimit.LowerThanPublicPrice": Example(
                400, "The specified parameter can't be lower than current public price."
            ),
        },
        ErrorCode.QUOTA: {
            # Also QuotaExceeded, and all suffixes of both.
            "QuotaExceed": Example(
                403,
                "The number of the specified ECS instances has exceeded the quota",
                "QuotaExceed.ElasticQuota",
            ),
            "SecurityGroupInstanceLimitExceed": Example(
                403, "The maximum number of instances in a security group is exceeded."
            ),
        },
    }
)

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
    """What a fault of a create call stands for; see ``answer_of``."""
    return answer_of(fault, not_offered=fault.vendor_code.startswith(NOT_OFFERED))
