"""All settings of worker and bridge: the only reader of the environment, every one with unit and reason.

The Temporal connection is not among them: it comes from ``temporalio.envconfig``, that is from
``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE``, ``TEMPORAL_API_KEY``, ``TEMPORAL_TLS_*`` and the profiles of the
``temporal`` command line.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from domain.contracts.money import ExchangeRate
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.pools import OrphanPolicy
from domain.contracts.settings import PoolSettings, SweepSettings, SyncSettings
from workers.errors import ConfigurationError

PREFIX: Final = "SPOTGPU_"
_RATE: Final = re.compile(r"([A-Z]{3})/([A-Z]{3})=(\d+(?:\.\d+)?)@(\d{4}-\d\d-\d\d)")
_POD_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# Kubernetes sets SPOTGPU_SERVICE_HOST and the like in every pod beside a Service named spotgpu*; the other
# two belong to the sandbox and to the tests.
_FOREIGN: Final = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT|_PORT$|_PORT_\d+_|^SPOTGPU_(SANDBOX|TEST)_")


class Settings(BaseSettings):
    """Environment variables are the upper-case names with the prefix ``SPOTGPU_``."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    regions: Annotated[tuple[RegionKey, ...], NoDecode] = ()
    """Served regions, comma-separated ``provider:account:region``, for example
    ``tencent:tencent-credentials:ap-guangzhou``. The account is the name of the credentials Secret. A pool
    that names another region goes on without it. Default none: a worker then serves no cloud."""
    endpoints: Annotated[dict[ProviderName, str], NoDecode] = Field(default_factory=dict[ProviderName, str])
    """Other API addresses, comma-separated ``provider=URL``, for example
    ``tencent=http://127.0.0.1:8001``: simulators and private gateways. Default: the vendors' own."""
    operator_namespace: str = "spotgpu-system"
    """Namespace of the operator: its Secrets, its installation ConfigMap and its Leases live there."""
    kubeconfig: str = ""
    """File with the address and identity for the Kubernetes API. Default: the pod's service account, else
    ``KUBECONFIG`` or the file in the home folder, as kubectl does."""

    polling_interval_seconds: float = Field(default=30, gt=0)
    """Seconds between two lists of a region. 30 sees a loss soon and stays far below the vendors' limits."""
    watch_seconds: float = Field(default=3600, gt=0)
    """Seconds of one watching activity. An hour keeps the history of a region short."""
    failures_to_open: int = Field(default=5, ge=1)
    """Failed lists in a row after which a region's circuit opens. 5 outlasts a vendor's hiccup."""
    sweep_interval_seconds: float = Field(default=600, gt=0)
    """Seconds between two orphan sweeps. Ten minutes bound what an orphan costs."""
    sweep_confirm_seconds: float = Field(default=60, gt=0)
    """Seconds between the two sightings that make an orphan. 60 outlasts a pool that is being restarted."""
    sweep_min_age_seconds: float = Field(default=660, ge=0)
    """Age in seconds below which no machine is an orphan: a create call may be in flight for ten minutes."""
    sweep_leftovers_interval_seconds: float = Field(default=3600, ge=0)
    """Seconds between two looks at retained machines, and at disks and addresses without a machine. They cost
    little or are meant to stay, and each look is a few calls of the cloud."""
    orphan_policy: OrphanPolicy = OrphanPolicy.RECLAIM
    """Reclaim ends orphans, Report only tells of them; a pool may override it for its machines."""
    pool: PoolSettings = Field(default_factory=PoolSettings)
    """Durations of the pools, each as ``SPOTGPU_POOL__<NAME>``, for example
    ``SPOTGPU_POOL__CONFIRM_ABSENCE_SECONDS=5``; names and defaults as in ``domain/contracts/settings.py``."""

    exchange_rates: Annotated[tuple[ExchangeRate, ...], NoDecode] = ()
    """For clouds that bill in another currency than a pool counts in, comma-separated
    ``BASE/QUOTE=rate@day``, for example ``USD/CNY=7.12@2026-11-28``: the worth of one unit of BASE. A rate
    older than a week is not used: the offers are then left out, and the pool says so."""
    buy_calls_per_second: float = Field(default=9, gt=0)
    """Calls a second and region in the lane of purchases. Nine tenths of the vendors' usual 10: calls that
    leave evenly spaced arrive less evenly."""
    read_calls_per_second: float = Field(default=9, gt=0)
    """Calls a second and region in the lane of readings, the sync's share included. Nine tenths of the least
    that a cloud is known to admit of one reading."""
    end_calls_per_second: float = Field(default=5, gt=0)
    """Calls a second and region in the lane of terminations and drains."""
    cloud_threads: int = Field(default=10, ge=1)
    """Simultaneous calls a region; more would only wait for the rate."""
    end_slots: int = Field(default=50, ge=1)
    """Simultaneous terminations and drains a region; a drain waits for minutes and costs no thread."""
    cluster_slots: int = Field(default=50, ge=1)
    """Simultaneous activities on the Kubernetes API."""
    secret_max_age_seconds: float = Field(default=30, ge=0)
    """Seconds for which a Secret that was read is used again. A rotated one works after this long."""

    max_cached_workflows: int = Field(default=4000, ge=1)
    """Workflows kept in memory, about 120 kB each. Fewer than there are pools costs three times the CPU."""
    sticky_seconds: float = Field(default=5, gt=0)
    """Seconds for which the server waits for a dead worker before it asks another."""
    graceful_shutdown_seconds: float = Field(default=60, ge=0)
    """Seconds that running activities get at SIGTERM. Above the longest cloud call."""
    connect_seconds: float = Field(default=10, ge=0)
    """Seconds for which a start waits for Temporal and the Kubernetes API. Longer only hides that they are
    not there."""
    health_host: str = "127.0.0.1"
    """Address for liveness, readiness and metrics; ``0.0.0.0`` in a pod."""
    health_port: int = Field(default=8080, ge=0, le=65535)
    """Port for the same; 0 takes a free one, which the log names."""
    temporal_metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of the Temporal SDK's own metrics; 0 turns them off."""
    lease_seconds: int = Field(default=15, ge=1)
    """Seconds after which another bridge takes over from one that died. It renews the Lease every 2 of 15 and
    stops leading when it could not for 10 of 15, so a shorter one asks the API server more often."""
    status_read_seconds: float = Field(default=15, gt=0)
    """Seconds for which one reading of all pools serves the pool metrics of the bridge; nothing is read while
    nobody asks for metrics."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """DEBUG, INFO, WARNING or ERROR."""

    @field_validator("regions", mode="before")
    @classmethod
    def _parse_regions(cls, value: object) -> object:
        return [_region(item) for item in _items(value)] if isinstance(value, str) else value

    @field_validator("regions")
    @classmethod
    def _refuse_duplicates(cls, regions: tuple[RegionKey, ...]) -> tuple[RegionKey, ...]:
        names = [str(region) for region in regions]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        return regions

    @field_validator("exchange_rates", mode="before")
    @classmethod
    def _parse_rates(cls, value: object) -> object:
        return [_exchange_rate(item) for item in _items(value)] if isinstance(value, str) else value

    @field_validator("endpoints", mode="before")
    @classmethod
    def _parse_endpoints(cls, value: object) -> object:
        return dict(_endpoint(item) for item in _items(value)) if isinstance(value, str) else value

    @property
    def kubeconfig_file(self) -> Path | None:
        """The file to use, chosen as kubectl would; None for the service account of this pod."""
        if self.kubeconfig:
            return Path(self.kubeconfig)
        if _POD_TOKEN.exists():
            return None
        named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        # One file is read. Of several that are named, the first that exists, since it leads for kubectl, too.
        known = [path for path in named if path.exists()] or named
        return known[0] if known else Path.home() / ".kube" / "config"

    @property
    def enabled_providers(self) -> tuple[ProviderName, ...]:
        """Providers with a served region, in a fixed order."""
        return tuple(sorted({region.provider for region in self.regions}))

    def for_pools(self) -> PoolSettings:
        """What pools get with every envelope."""
        return self.pool.model_copy(
            update={
                "served_regions": self.regions,
                "enabled_providers": self.enabled_providers,
                "polling_interval_seconds": self.polling_interval_seconds,
                "orphan_policy": self.orphan_policy,
                "operator_namespace": self.operator_namespace,
                "exchange_rates": self.exchange_rates,
            }
        )

    def for_syncs(self) -> SyncSettings:
        """What region syncs get."""
        return SyncSettings(
            polling_interval_seconds=self.polling_interval_seconds,
            run_seconds=self.watch_seconds,
            failures_to_open=self.failures_to_open,
            dead_man_ahead_seconds=self.pool.dead_man_seconds,
            dead_man_renew_seconds=self.pool.dead_man_seconds / 2,
            dead_man_late_seconds=self.pool.dead_man_seconds / 4,
        )

    def for_sweeps(self) -> SweepSettings:
        """What orphan sweeps get."""
        return SweepSettings(
            orphan_policy=self.orphan_policy,
            confirm_after_seconds=self.sweep_confirm_seconds,
            min_age_seconds=self.sweep_min_age_seconds,
            leftovers_interval_seconds=self.sweep_leftovers_interval_seconds,
            operator_namespace=self.operator_namespace,
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _region(item: str) -> dict[str, str]:
    parts = item.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"{item!r} is not of the form provider:account:region")
    return dict(zip(("provider", "account", "region"), parts, strict=True))


def _exchange_rate(item: str) -> ExchangeRate:
    found = _RATE.fullmatch(item)
    if found is None:
        raise ValueError(f"{item!r} is not of the form BASE/QUOTE=rate@day, as USD/CNY=7.12@2026-11-28")
    base, quote, rate, day = found.groups()
    try:
        as_of = datetime.combine(date.fromisoformat(day), time(), UTC)
        return ExchangeRate(
            base=base, quote=quote, rate=Decimal(rate), as_of=as_of, source="operator setting"
        )
    except ValueError as error:
        raise ValueError(f"{item!r} has no day of the calendar or no rate above zero") from error


def _endpoint(item: str) -> tuple[str, str]:
    provider, equals, url = item.partition("=")
    if not equals or not url.startswith(("http://", "https://")):
        raise ValueError(f"{item!r} is not of the form provider=http://host:port")
    return provider.strip(), url.strip()


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read and check the environment.

    Args:
        environment: For its names only; values come from the process's own environment.

    Raises:
        ConfigurationError: A value is wrong or a variable with our prefix is unknown.
    """
    _refuse_unknown(os.environ if environment is None else environment)
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = PREFIX + "__".join(str(part) for part in first["loc"][:2]).upper()
        if first["loc"] and first["loc"][0] != "pool":
            name = PREFIX + str(first["loc"][0]).upper()
        said = first["msg"].removeprefix("Value error, ")
        given = first["input"]
        # The validators of this file name the word themselves.
        named = f", not {given!r}" if first["type"] != "value_error" and isinstance(given, str) else ""
        raise ConfigurationError(f"setting {name}: {said}{named}") from error


def _refuse_unknown(names: Iterable[str]) -> None:
    # The durations of pools are set one by one, never as SPOTGPU_POOL.
    known = {PREFIX + field.upper() for field in Settings.model_fields if field != "pool"}
    known |= {f"{PREFIX}POOL__{field.upper()}" for field in PoolSettings.model_fields}
    for name in sorted(names):
        if not name.startswith(PREFIX) or name in known or _FOREIGN.search(name):
            continue
        # Without the prefix: what all have in common makes none alike.
        bare = [word.removeprefix(PREFIX) for word in known]
        near = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1)
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        raise ConfigurationError(f"setting {name} is not known{hint}")
