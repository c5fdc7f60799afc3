"""Sessions of the metadata services: a token is put for a time and sent with each question."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from domain.contracts.offers import ProviderName


@dataclass(frozen=True)
class SessionRules:
    """How one vendor's service opens sessions."""

    path: str
    """Where a token is put."""
    token_header: str
    life_header: str
    """Carries the session's length in whole seconds."""
    required: bool = False
    """Whether nothing is answered without one."""


SESSION_RULES: Mapping[ProviderName, SessionRules] = {
    # Source: Alibaba Cloud ECS, instance metadata (April 2026); needed only where HttpTokens is "required".
    ProviderName.ALIYUN: SessionRules(
        "/latest/api/token", "X-aliyun-ecs-metadata-token", "X-aliyun-ecs-metadata-token-ttl-seconds"
    ),
    # Source: a public agent for several clouds; no page of the vendor.
    ProviderName.HUAWEI: SessionRules(
        "/meta-data/latest/api/token", "X-Metadata-Token", "X-Metadata-Token-Ttl-Seconds"
    ),
    # Source: EC2 user guide, "Use the Instance Metadata Service". Played as with HttpTokens "required".
    ProviderName.AWS: SessionRules(
        "/latest/api/token",
        "X-aws-ec2-metadata-token",
        "X-aws-ec2-metadata-token-ttl-seconds",
        required=True,
    ),
}

_LONGEST_SECONDS = 21_600


class Sessions:
    """All sessions of all machines. A token is good on its own machine, until its time is over."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._ends: dict[tuple[str, str], datetime] = {}

    def open(self, machine_id: str, seconds: str) -> str | None:
        """Return a new token; None when ``seconds`` is no whole number from 1 to 21600."""
        if not seconds.isascii() or not seconds.isdigit() or not 1 <= int(seconds) <= _LONGEST_SECONDS:
            return None
        token = secrets.token_urlsafe(40)
        self._ends[machine_id, token] = self._clock() + timedelta(seconds=int(seconds))
        return token

    def admits(self, rules: SessionRules, machine_id: str, token: str | None) -> bool:
        """Whether a question with this token, or without one, is answered."""
        if token is None:
            return not rules.required
        end = self._ends.get((machine_id, token))
        return end is not None and self._clock() < end
