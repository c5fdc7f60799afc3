"""The operator's settings that the sandbox shortens, so that minutes of waiting become seconds.

Only settings of the operator stand here, never a field of a user's resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shortened:
    """One setting."""

    variable: str
    value: str
    usual: str
    """The operator's default."""
    meaning: str


SHORTENED = (
    Shortened("SPOTGPU_POLLING_INTERVAL_SECONDS", "2", "30", "between two lists of a region"),
    Shortened("SPOTGPU_SWEEP_INTERVAL_SECONDS", "20", "600", "between two orphan sweeps"),
    Shortened("SPOTGPU_SWEEP_CONFIRM_SECONDS", "5", "60", "between the two sightings of an orphan"),
    Shortened("SPOTGPU_SWEEP_MIN_AGE_SECONDS", "60", "660", "age below which nothing is an orphan"),
    Shortened("SPOTGPU_SWEEP_LEFTOVERS_INTERVAL_SECONDS", "20", "3600", "between two looks for leftovers"),
    Shortened("SPOTGPU_LEASE_SECONDS", "3", "15", "until another bridge takes over from a dead one"),
    Shortened("SPOTGPU_SECRET_MAX_AGE_SECONDS", "2", "30", "for which a Secret that was read is used again"),
    Shortened("SPOTGPU_STATUS_READ_SECONDS", "5", "15", "between two readings of all pools for metrics"),
    Shortened("SPOTGPU_STICKY_SECONDS", "2", "5", "until another worker is asked for a dead one's pools"),
    Shortened("SPOTGPU_GRACEFUL_SHUTDOWN_SECONDS", "5", "60", "for activities when a worker is stopped"),
    Shortened("SPOTGPU_POOL__CREATE_HEARTBEAT_SECONDS", "3", "10", "until a dead worker's call is repeated"),
    Shortened("SPOTGPU_POOL__CONFIRM_ABSENCE_SECONDS", "1", "5", "until a missing machine is read again"),
    Shortened("SPOTGPU_POOL__NEWBORN_SECONDS", "10", "60", "during which a new machine's absence is nothing"),
    Shortened("SPOTGPU_POOL__MIN_STAY_SECONDS", "1", "10", "shortest stay in a public state"),
    Shortened("SPOTGPU_POOL__PRICE_MAX_AGE_SECONDS", "10", "300", "age at which a price is read again"),
    Shortened("SPOTGPU_POOL__STOCK_COOLDOWN_SECONDS", "5", "120", "first pause of a sold-out offer"),
    Shortened("SPOTGPU_POOL__ROUND_RETRY_SECONDS", "5", "60", "pause when nothing could be bought"),
    Shortened("SPOTGPU_POOL__RESOLVE_RETRY_SECONDS", "2", "15", "between looks for a lost purchase"),
    Shortened("SPOTGPU_POOL__DRAIN_SECONDS", "20", "120", "deadline of a drain"),
    Shortened("SPOTGPU_POOL__TERMINATE_RECHECK_SECONDS", "2", "15", "between looks at an ending machine"),
)


def shortened_environment() -> Mapping[str, str]:
    """Variable to value, for the operator's processes."""
    return {setting.variable: setting.value for setting in SHORTENED}


def shortened_lines() -> list[str]:
    """One line for each setting, for people."""
    width = max(len(setting.variable) for setting in SHORTENED)
    return [
        f"  {setting.variable:<{width}} = {setting.value:>3} s (usually {setting.usual} s) {setting.meaning}"
        for setting in SHORTENED
    ]
