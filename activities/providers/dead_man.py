"""The dead-man switch: how clouds write its time, and what those without one say."""

from datetime import UTC, datetime
from typing import Final

from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.offers import ProviderName

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def to_second(at: datetime) -> str:
    """The time as ISO 8601 in UTC, rounded down to the second: ``2026-01-01T03:30:52Z``."""
    return at.astimezone(UTC).strftime(TIME_FORMAT)


def to_minute(at: datetime) -> str:
    """The time as ISO 8601 in UTC, rounded down to the minute, as some clouds keep it."""
    return to_second(at.replace(second=0, microsecond=0))


def no_switch(provider: ProviderName) -> ProviderError:
    """What a cloud without such a switch answers to a renewal."""
    text = "this cloud has no dead-man switch: machines without a pool are found by the orphan sweep"
    return ProviderError(ErrorCode.INVALID_REQUEST, text, provider=provider, operation="renew_dead_man")
