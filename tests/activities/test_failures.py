from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities.failures import as_application_error
from domain.contracts.errors import DISPOSITIONS, MAX_MESSAGE_CHARS, ClusterError, ErrorCode, ProviderError


def raised(error: Exception, environment: ActivityEnvironment | None = None) -> ApplicationError:
    def act() -> None:
        with as_application_error():
            raise error

    with pytest.raises(ApplicationError) as failure:
        (environment or ActivityEnvironment()).run(act)
    return failure.value


def a_provider_error(code: ErrorCode, retry_after: timedelta | None = None) -> ProviderError:
    return ProviderError(
        code,
        "x" * 2000,
        provider="tencent",
        operation="RunInstances",
        vendor_code="Limit",
        retry_after=retry_after,
    )


@pytest.mark.parametrize("code", list(ErrorCode))
def test_failure_carries_code_and_disposition(code: ErrorCode) -> None:
    failure = raised(a_provider_error(code))
    assert failure.type == code.value
    assert failure.non_retryable is not DISPOSITIONS[code].retryable
    assert (failure.category is ApplicationErrorCategory.BENIGN) is DISPOSITIONS[code].benign
    assert failure.details == ("tencent", "RunInstances", "Limit")
    assert len(failure.message) <= MAX_MESSAGE_CHARS


def test_cluster_error_becomes_a_failure_of_its_code() -> None:
    failure = raised(ClusterError(ErrorCode.FORBIDDEN, "no", operation="patch nodes/a", status=403))
    assert (failure.type, failure.non_retryable) == ("Forbidden", True)
    assert failure.details == ("patch nodes/a",)


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(KeyError), as_application_error():
        raise KeyError("a bug")


def test_throttled_waits_for_as_long_as_the_cloud_says() -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, schedule_to_close_timeout=None)
    failure = raised(a_provider_error(ErrorCode.THROTTLED, timedelta(seconds=7)), environment)
    assert failure.next_retry_delay == timedelta(seconds=7)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 5), (3, 15), (20, 30)])
def test_throttled_waits_longer_with_each_attempt_when_the_cloud_is_silent(
    attempt: int, seconds: int
) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt, schedule_to_close_timeout=None)
    failure = raised(a_provider_error(ErrorCode.THROTTLED), environment)
    assert failure.next_retry_delay == timedelta(seconds=seconds)


def test_delay_is_cut_to_what_is_left_of_the_activity() -> None:
    """A delay beyond schedule-to-close would fail at once instead of trying once more."""
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info,
        scheduled_time=datetime.now(UTC) - timedelta(seconds=100),
        schedule_to_close_timeout=timedelta(seconds=120),
    )
    failure = raised(a_provider_error(ErrorCode.THROTTLED, timedelta(minutes=5)), environment)
    assert failure.next_retry_delay is not None
    assert timedelta(seconds=10) < failure.next_retry_delay < timedelta(seconds=20)


def test_unavailable_leaves_the_delay_to_the_retry_policy() -> None:
    assert raised(a_provider_error(ErrorCode.UNAVAILABLE)).next_retry_delay is None
