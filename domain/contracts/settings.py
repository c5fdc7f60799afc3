"""What the operator's settings mean for a pool: durations and what is served, as workflow input."""

from typing import Final

from pydantic import Field, field_validator

from domain.contracts.model import Contract
from domain.contracts.money import ExchangeRate
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.pools import OrphanPolicy

MIN_DEAD_MAN_SECONDS: Final = 14_400.0
"""A switch is renewed at half of its time and looked at every hour: less would end machines in use."""


class PoolSettings(Contract):
    """Every duration that a pool's workflow uses beside its spec, in seconds; tests shrink them."""

    served_regions: tuple[RegionKey, ...] = ()
    """Regions whose queues have a worker; a pool that names another goes on without it."""
    enabled_providers: tuple[ProviderName, ...] = ()
    polling_interval_seconds: float = 30
    """How often a region's sync lists its machines."""
    stale_after_intervals: int = 3
    """An observation older than this many polling intervals is no ground for a decision."""
    confirm_absence_seconds: float = 5
    """A missing machine is read again after this long; two absent readings confirm."""
    newborn_seconds: float = 60
    """A machine's absence counts only from this long after its create answered."""
    min_stay_seconds: float = 10
    """Shortest stay in a public state, so that a slow API is never read as a failure."""
    price_max_age_seconds: float = 300
    stock_cooldown_seconds: float = 120
    """First pause of an offer that had no stock; doubles with each further refusal."""
    stock_cooldown_max_seconds: float = 3600
    quota_cooldown_seconds: float = 3600
    not_offered_cooldown_seconds: float = 86400
    round_retry_seconds: float = 60
    """Pause after a round in which no offer could be bought."""
    resolve_retry_seconds: float = 15
    """Pause between two looks for a launch of unknown outcome."""
    drain_seconds: float = 120
    """Deadline of draining one machine when nobody waits for a checkpoint."""
    terminate_recheck_seconds: float = 15
    """Longest pause between two looks at a machine that was told to end."""
    delete_stage_seconds: float = 600
    """Deadline of a stage of deletion, after which it is reported as stuck."""
    renew_after_seconds: float = 86400
    """Age of a run at which the workflow continues as new."""
    renew_after_events: int = 4000
    """Length of a history at which the workflow continues as new."""
    renew_after_machine_events: int = Field(default=200_000, ge=1)
    """Length of a history times machines at which it does: whoever takes a run up again judges each step of
    it anew, for all machines, within one workflow task."""
    status_interval_seconds: float = 1
    """Shortest time between two status writes."""
    create_heartbeat_seconds: float = 10
    """A purchase or a termination whose worker is silent for this long is tried again by another."""
    dead_man_seconds: float = 86400
    """How long after its purchase a cloud ends a machine by itself unless the region's sync renews this, at
    clouds that have such a switch; 0 sets none."""
    exchange_rates: tuple[ExchangeRate, ...] = ()
    """For offers in another currency than the pool's; without one of the last week they are not bought."""
    orphan_policy: OrphanPolicy = OrphanPolicy.RECLAIM
    operator_namespace: str = "spotgpu-system"

    @field_validator("dead_man_seconds")
    @classmethod
    def _leaves_time_to_renew(cls, value: float) -> float:
        if value and value < MIN_DEAD_MAN_SECONDS:
            raise ValueError(f"{value:g} is neither 0 nor at least {MIN_DEAD_MAN_SECONDS:g}")
        return value


class SweepSettings(Contract):
    """How the orphan sweep judges."""

    orphan_policy: OrphanPolicy = OrphanPolicy.RECLAIM
    confirm_after_seconds: float = 60
    """Pause between the two sightings that make a machine an orphan."""
    min_age_seconds: float = 660
    """Younger machines may belong to a create call that is still in flight (its limit is 10 minutes)."""
    leftovers_interval_seconds: float = 3600
    """Pause between two looks at retained machines, and at disks and addresses without a machine."""
    operator_namespace: str = "spotgpu-system"


class SyncSettings(Contract):
    """How a region is watched."""

    polling_interval_seconds: float = 30
    run_seconds: float = 3600
    """Length of one watching activity; the workflow continues as new after each."""
    failures_to_open: int = Field(default=5, ge=1)
    """Failed polls in a row that open the region's circuit."""
    dead_man_renew_seconds: float = Field(default=43_200, ge=0)
    """How old a dead-man switch gets before it is renewed, for machines that have one; 0 renews none."""
    dead_man_ahead_seconds: float = Field(default=86_400, ge=0)
    """How far ahead a renewal sets the switch."""
    dead_man_late_seconds: float = Field(default=21_600, ge=0)
    """A renewal that is overdue by this is told as a metric and in the log."""
    dead_man_check_seconds: float = Field(default=3_600, gt=0)
    """How often it is looked which renewals are due: one call of the cloud for 100 machines."""
