"""The one place where a ``ProviderError`` or ``ClusterError`` becomes a Temporal failure."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from domain.contracts.errors import (
    DISPOSITIONS,
    MAX_MESSAGE_CHARS,
    ClusterError,
    ErrorCode,
    ProviderError,
)

# A throttled call that names no delay: longer than the ordinary back-off, growing, and capped.
_THROTTLE_STEP: Final = timedelta(seconds=5)
_THROTTLE_CAP: Final = timedelta(seconds=30)
# What an attempt needs at least: a retry that could not end within schedule-to-close fails at once instead.
_ATTEMPT_RESERVE: Final = timedelta(seconds=2)


@contextmanager
def as_application_error() -> Generator[None]:
    """Map our faults to ``ApplicationError`` with the same code as type, delay and severity."""
    try:
        yield
    except ProviderError as error:
        details = (error.provider, error.operation, error.vendor_code)
        raise application_error(error.code, str(error), details, error.retry_after) from error
    except ClusterError as error:
        raise application_error(error.code, str(error), (error.operation,), error.retry_after) from error


def application_error(
    code: ErrorCode,
    message: str,
    details: tuple[str, ...] = (),
    retry_after: timedelta | None = None,
) -> ApplicationError:
    """The Temporal failure for a code.

    Args:
        code: Becomes the failure's type; what it asks for next is in ``DISPOSITIONS``.
        message: Free of secrets; cut at ``MAX_MESSAGE_CHARS``.
        details: Words for a person: cloud, operation, vendor's code.
        retry_after: The other side's wish; cut to what is left of the activity's time.
    """
    disposition = DISPOSITIONS[code]
    category = ApplicationErrorCategory.BENIGN if disposition.benign else ApplicationErrorCategory.UNSPECIFIED
    return ApplicationError(
        message[:MAX_MESSAGE_CHARS],
        *details,
        type=code.value,
        non_retryable=not disposition.retryable,
        next_retry_delay=_delay(code, retry_after) if disposition.retryable else None,
        category=category,
    )


def _delay(code: ErrorCode, retry_after: timedelta | None) -> timedelta | None:
    if retry_after is None and code is not ErrorCode.THROTTLED:
        return None
    if not activity.in_activity():
        return retry_after or _THROTTLE_STEP
    info = activity.info()
    delay = retry_after or min(_THROTTLE_STEP * info.attempt, _THROTTLE_CAP)
    if info.schedule_to_close_timeout is None:
        return delay
    left = info.scheduled_time + info.schedule_to_close_timeout - datetime.now(UTC)
    return max(min(delay, left - _ATTEMPT_RESERVE), timedelta())
