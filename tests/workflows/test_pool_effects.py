import pytest
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

from domain.contracts.errors import ErrorCode
from workflows.pool_effects import code_of, text_of


def a_failure(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "activity failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="cloud.list_pool",
        activity_id="1",
        retry_state=None,
    )
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("code", list(ErrorCode))
def test_failure_tells_its_class_and_its_text(code: ErrorCode) -> None:
    error = a_failure(ApplicationError("Secret keys: no such key", type=code.value))
    assert code_of(error) is code
    assert text_of(error) == f"{code}: Secret keys: no such key"


@pytest.mark.parametrize(
    "cause",
    [
        pytest.param(ApplicationError("a bug", type="ValueError"), id="not ours"),
        pytest.param(ApplicationError("no type"), id="untyped"),
        pytest.param(CancelledError("called back"), id="called back"),
    ],
)
def test_failure_of_another_kind_has_no_class(cause: BaseException) -> None:
    assert code_of(a_failure(cause)) is None
