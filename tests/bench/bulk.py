"""Many machines wanted at once: how fast, at what cost, and with a worker killed in between."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from domain.contracts.offers import ProviderName
from sandbox.clouds.tencent import TencentCloud
from sandbox.operator_processes import PROCESSES, WORKER
from tests.bench.meters import Usage, most_at_once
from tests.bench.rig import Rig, now, running, tell, wait_until
from tests.busiest import busiest
from workers.settings import Settings

POOL = "bench"
PURCHASE = "RunInstances"
COUNTED_SECONDS = 10.0
"""By then workers that started together know of each other."""
SETTLE_SECONDS = 45.0
"""Longer than a polling interval: what the last join led to is over by then."""
LIMIT_SECONDS = 400.0
LIFTED: Mapping[str, str] = {
    "SPOTGPU_BUY_CALLS_PER_SECOND": "1000",
    "SPOTGPU_READ_CALLS_PER_SECOND": "1000",
    "SPOTGPU_END_CALLS_PER_SECOND": "1000",
}


@dataclass(frozen=True)
class BulkPlan:
    """One run."""

    title: str
    wanted: int
    lifted: bool = False
    """Neither the cloud nor the operator's budget limits the rate: what is left is our own speed."""
    kills_at: tuple[float, ...] = ()
    """Shares of the wanted machines at which the worker is killed and started again."""
    idle_seconds: float = 0.0
    workers: int = 1


@dataclass(frozen=True)
class BulkResult:
    """What one run measured. Times in seconds since the pool was applied."""

    title: str
    wanted: int
    rates: str
    ordered_seconds: float
    joined_seconds: float
    told_seconds: float
    """Until the pool's status says that all are ready."""
    cpu_seconds: dict[str, float]
    """By kind of process, from the apply until all were ready; of the last worker only if one was killed."""
    peak_mb: dict[str, float]
    api_requests: dict[str, int]
    """By identity, verb and resource, until all were ready."""
    cloud_calls: dict[str, int]
    busiest_second: int
    """Most purchases that arrived within any second."""
    idle_cpu_percent: dict[str, float] | None
    """Of one core, by kind of process."""
    idle_api_requests: dict[str, int] | None
    kills: int
    surplus_at_end: int
    most_at_once: int
    bought: int

    @property
    def api_requests_per_machine(self) -> float:
        return sum(self.api_requests.values()) / self.wanted

    @property
    def cloud_calls_per_machine(self) -> float:
        return sum(self.cloud_calls.values()) / self.wanted


def measure(plan: BulkPlan, folder: Path) -> BulkResult:
    """Run the plan on a stack of its own."""
    with running(folder, LIFTED if plan.lifted else {}, workers=plan.workers) as rig:
        rig.lift_stock()
        if plan.lifted:
            rig.lift_cloud_rates()
        if plan.workers > 1:
            time.sleep(COUNTED_SECONDS)
        return _measure(plan, rig)


@dataclass
class _Times:
    """Seconds since the pool was applied."""

    ordered: float = 0.0
    joined: float = 0.0
    told: float = 0.0


def _measure(plan: BulkPlan, rig: Rig) -> BulkResult:
    cloud = rig.stack.cloud(ProviderName.TENCENT)
    before, first_call, since = rig.usage(), len(cloud.requests()), now()
    rig.apply_pool(
        POOL,
        minInstances=plan.wanted,
        maxInstances=plan.wanted,
        scaleStrategy={"scaleUpStep": plan.wanted, "cooldownSeconds": 0},
    )
    times = _follow(plan, rig, since)
    until, after = now(), rig.usage()
    records = cloud.requests(after=first_call)
    requests = rig.audit.count(since, until)
    tell(f"  all ready after {times.told:.1f} s; settling for {SETTLE_SECONDS:.0f} s")
    time.sleep(SETTLE_SECONDS)
    idle_cpu, idle_requests = _idle(rig, plan.idle_seconds) if plan.idle_seconds else (None, None)
    machines = cloud.machines()
    return BulkResult(
        title=plan.title,
        wanted=plan.wanted,
        rates=_rates(plan),
        ordered_seconds=times.ordered,
        joined_seconds=times.joined,
        told_seconds=times.told,
        cpu_seconds={name: _spent(before, after, name, plan) for name in PROCESSES},
        peak_mb={name: value.peak_mb for name, value in after.items()},
        api_requests=dict(requests),
        cloud_calls=dict(Counter(record.action for record in records)),
        busiest_second=busiest(record.at.timestamp() for record in records if record.action == PURCHASE),
        idle_cpu_percent=idle_cpu,
        idle_api_requests=idle_requests,
        kills=len(plan.kills_at),
        surplus_at_end=len(cloud.machines(live=True)) - plan.wanted,
        most_at_once=most_at_once(machines),
        bought=len(machines),
    )


def _follow(plan: BulkPlan, rig: Rig, since: datetime) -> _Times:
    """Watch from the apply until the pool says that all are ready; kill the worker on the way."""
    cloud, times, kills = rig.stack.cloud(ProviderName.TENCENT), _Times(), list(plan.kills_at)
    ordered: list[datetime] = []

    def advance() -> bool:
        nonlocal ordered
        if not times.ordered:
            ordered = sorted(machine.created_at for machine in cloud.machines(live=True))
            if len(ordered) >= plan.wanted:
                times.ordered = (ordered[plan.wanted - 1] - since).total_seconds()
        if kills and len(ordered) >= kills[0] * plan.wanted:
            _kill_worker(rig, len(ordered), kills.pop(0))
        if not times.joined and times.ordered and rig.ready_nodes() >= plan.wanted:
            times.joined = (now() - since).total_seconds()
        if times.joined and rig.status(POOL).get("readyInstances", 0) >= plan.wanted:
            times.told = (now() - since).total_seconds()
        return bool(times.told)

    wait_until(f"{plan.wanted} machines ready", advance, LIMIT_SECONDS)
    return times


def _kill_worker(rig: Rig, ordered: int, share: float) -> None:
    rig.stack.operator.kill(WORKER)
    tell(f"  worker killed at {ordered} machines ({share:.0%}), started again")
    rig.stack.operator.start(WORKER)


def _spent(before: Mapping[str, Usage], after: Mapping[str, Usage], name: str, plan: BulkPlan) -> float:
    """CPU seconds of the run; of a worker that was started in it, all of them."""
    began = 0.0 if plan.kills_at and name == WORKER else before[name].cpu_seconds
    return after[name].cpu_seconds - began


def _idle(rig: Rig, seconds: float) -> tuple[dict[str, float], dict[str, int]]:
    """CPU in percent of a core by process, and requests to the Kubernetes API, while nothing happens."""
    before, since, began = rig.usage(), now(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = rig.usage(), time.monotonic() - began
    percent = {
        name: 100 * (after[name].cpu_seconds - before[name].cpu_seconds) / elapsed for name in PROCESSES
    }
    return percent, dict(rig.audit.count(since, now()))


def _rates(plan: BulkPlan) -> str:
    if plan.lifted:
        return "no limit, neither the cloud's nor the operator's"
    cloud = TencentCloud.rates_per_second[PURCHASE]
    return f"cloud {cloud} purchases/s, operator's budget {Settings().buy_calls_per_second:g} calls/s"
