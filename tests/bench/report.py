"""The figures as JSON for machines and as Markdown for people."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from sandbox.operator_processes import BRIDGE, WORKER
from tests.bench.bulk import BulkResult
from tests.bench.overhead import ROUNDS, Overhead
from tests.bench.quiet import QuietResult
from tests.bench.region_calls import RegionCalls
from tests.bench.simulated import MACHINES
from tests.bench.takeover import TakeoverResult
from workflows.messages import POOL_WORKFLOW, REGION_SYNC_WORKFLOW

ORIENTATION = (
    "For orientation, Karpenter 1.15 with its simulated provider, which limits no rate, on the same control"
    " plane and 2 cores: 200 nodes Ready in 15.7 s, 6.2 CPU-s, 196 MB, 15 API requests a node, 7.5 % of a"
    " core while idle, 2 to 62 surplus machines after such a kill."
)
GOAL_EVENTS = 6


@dataclass
class Report:
    """Everything that one run of the bench measured."""

    machine: Mapping[str, str]
    at: datetime
    quiet: QuietResult | None = None
    takeover: TakeoverResult | None = None
    bulk: list[BulkResult] = field(default_factory=list[BulkResult])
    regions: list[RegionCalls] = field(default_factory=list[RegionCalls])
    overheads: list[Overhead] = field(default_factory=list[Overhead])

    def markdown(self) -> str:
        """Return the whole report."""
        parts = [f"# Measured {self.at:%Y-%m-%d}", _items(f"{k}: {v}" for k, v in self.machine.items())]
        if self.quiet is not None:
            parts += _quiet(self.quiet)
        if self.takeover is not None:
            parts += ["## Pools of a dead worker", _takeover(self.takeover)]
        if self.regions:
            parts += [f"## Calls of a quiet region with {MACHINES} machines", _region_table(self.regions)]
            parts += [_items(_region_parts(result)) for result in self.regions]
        if self.overheads:
            parts += ["## CPU time of a call", _overhead_table(self.overheads)]
        if self.bulk:
            parts += ["## Many machines at once", _table(self.bulk), ORIENTATION]
            parts += [line for result in self.bulk if not result.kills for line in _calls(result)]
        return "\n\n".join(parts) + "\n"


def write(report: Report, folder: Path) -> None:
    """Write ``bench.md`` and ``bench.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text(report.markdown())
    (folder / "bench.json").write_text(json.dumps(asdict(report), indent=1, default=str) + "\n")


def _quiet(result: QuietResult) -> list[str]:
    headline = (
        f"**{result.events_per_hour:.2f} events an hour** with its share of the region's sync (goal: at most"
        f" {GOAL_EVENTS}). {result.pools} pools with a machine each in one region, polled every 30 s;"
        " scheduled sweeps apart."
    )
    return ["## History of a quiet pool", headline, _items(_quiet_parts(result))]


def _takeover(result: TakeoverResult) -> str:
    first, last = result.answered_seconds[0], result.answered_seconds[-1]
    return (
        f"{result.pools} pools with histories of {result.events:.0f} events (median): a new worker had an"
        f" order carried out by the first after {first:.1f} s, by half of them after"
        f" {result.median_seconds:.1f} s, by the last after {last:.1f} s; {result.timed_out} workflow tasks"
        " timed out."
    )


def _quiet_parts(result: QuietResult) -> Iterator[str]:
    pool, sync, per = POOL_WORKFLOW, REGION_SYNC_WORKFLOW, result.events_per_renewal
    yield f"pools in {result.window_seconds:.0f} s without renewals: {_counts(result.window[pool])}"
    yield f"sync in the same time: {_counts(result.window[sync])}"
    hours = {pool: result.pool_renewal_hours, sync: result.sync_renewal_hours}
    for kind, name in ((pool, "a pool"), (sync, "the sync")):
        yield (
            f"renewal of {name}: {per[kind]:.1f} events every {hours[kind]:g} h (mean of"
            f" {result.renewals[kind]}; what {result.renewal_seconds:.0f} s held:"
            f" {_counts(result.renewal_window[kind])})"
        )
    yield f"so {result.pool_events:.2f} events an hour a pool, {result.sync_events:.2f} for the sync of all"


def _region_table(results: list[RegionCalls]) -> str:
    """Calls an hour by part, and without the scheduled sweeps, as the history of a quiet pool is counted."""
    head = ["calls an hour", *(result.provider for result in results)]
    rows = [[part, *(f"{result.hourly[part]:.1f}" for result in results)] for part in results[0].hourly]
    totals = [
        ["without sweeps", *(f"{sum(r.hourly.values()) - r.hourly['sweeps']:.1f}" for r in results)],
        ["together", *(f"{sum(r.hourly.values()):.1f}" for r in results)],
        ["goal", *(str(r.goal) for r in results)],
    ]
    return _grid([head, *rows, *totals])


def _region_parts(result: RegionCalls) -> Iterator[str]:
    yield f"{result.provider}: {result.polls} polls took {_counts(result.poll)}"
    yield f"{result.provider}: a look which switches are due took {_counts(result.look)}"
    yield f"{result.provider}: the renewal of {MACHINES} switches took {_counts(result.renewal)}"
    yield f"{result.provider}: a sweep took {_counts(result.sweep)}"
    offers = _counts(result.offers)
    yield f"{result.provider}: a reading of offers, which no quiet pool asks for, took {offers}"


def _overhead_table(results: list[Overhead]) -> str:
    head = ["", "requests", "bytes sent", "bytes received", "CPU ms", "bare, CPU ms", "ratio"]
    rows = [
        [
            f"{each.provider}: {each.operation}",
            f"{each.requests}",
            f"{each.sent_bytes}",
            f"{each.received_bytes}",
            f"{each.cpu_ms:.2f}",
            f"{each.bare_ms:.2f}",
            f"{each.ratio:.1f}",
        ]
        for each in results
    ]
    return f"Medians of {ROUNDS}.\n\n{_grid([head, *rows])}"


_Row = tuple[str, Callable[[BulkResult], str]]
_ROWS: tuple[_Row, ...] = (
    ("rates", lambda r: r.rates),
    ("all ordered, s", lambda r: f"{r.ordered_seconds:.1f}"),
    ("all Nodes Ready, s", lambda r: f"{r.joined_seconds:.1f}"),
    ("told in the pool's status, s", lambda r: f"{r.told_seconds:.1f}"),
    ("CPU-s worker + bridge", lambda r: _pair(r.cpu_seconds, ".1f")),
    ("peak MB worker + bridge", lambda r: _pair(r.peak_mb, ".0f")),
    ("Kubernetes API requests a machine", lambda r: f"{r.api_requests_per_machine:.1f}"),
    ("cloud calls a machine", lambda r: f"{r.cloud_calls_per_machine:.1f}"),
    ("most purchases in a second", lambda r: f"{r.busiest_second}"),
    ("idle, % of a core, worker + bridge", lambda r: _pair(r.idle_cpu_percent, ".1f")),
    ("worker killed", lambda r: f"{r.kills} times"),
    (
        "machines bought / most at once / surplus",
        lambda r: f"{r.bought} / {r.most_at_once} / {r.surplus_at_end}",
    ),
)


def _table(results: list[BulkResult]) -> str:
    head = ["", *(result.title for result in results)]
    return _grid([head, *([name, *map(show, results)] for name, show in _ROWS)])


def _grid(rows: list[list[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pair(values: Mapping[str, float] | None, form: str) -> str:
    if values is None:
        return "-"
    return f"{values[WORKER]:{form}} + {values[BRIDGE]:{form}}"


def _calls(result: BulkResult) -> list[str]:
    lines = [f"Kubernetes API: {_counts(result.api_requests)}", f"cloud: {_counts(result.cloud_calls)}"]
    if result.idle_api_requests is not None:
        lines.append(f"Kubernetes API while idle: {_counts(result.idle_api_requests)}")
    return [f"Calls of {result.title}:", _items(lines)]


def _counts(counts: Mapping[str, int]) -> str:
    """Total, and the parts from the most frequent on."""
    total = sum(counts.values())
    parts = ", ".join(f"{number} {name}" for name, number in Counter(counts).most_common())
    return f"{total} ({parts})" if parts else "0"


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
