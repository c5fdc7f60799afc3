"""Measures history, speed, memory and calls: ``python -m tests.bench``, from the repository's root.

Figures are printed and written to a run folder; nothing is asserted but that no machine is surplus.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.activities.providers.cloud_case import found_cases
from tests.bench import bulk, overhead, quiet, region_calls, takeover
from tests.bench.bulk import BulkPlan
from tests.bench.machine import describe_machine
from tests.bench.report import Report, write
from tests.bench.rig import tell

PLANS = {
    "50": BulkPlan("50 machines", 50),
    "200": BulkPlan("200 machines", 200, idle_seconds=60),
    "two": BulkPlan("200 machines, two workers", 200, workers=2),
    "lifted": BulkPlan("200 machines, rates lifted", 200, lifted=True),
    "kills": BulkPlan("50 machines, worker killed three times", 50, kills_at=(0.25, 0.5, 0.75)),
    "kill": BulkPlan("200 machines, rates lifted, worker killed once", 200, lifted=True, kills_at=(0.5,)),
}


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; returns 1 when a machine was surplus."""
    options = _options(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="spotgpu-bench-"))
    report = Report(describe_machine(), datetime.now(UTC))
    if "quiet" in options.only:
        tell("history of quiet pools")
        report.quiet = quiet.measure(options.quiet_seconds, folder / "quiet")
    if "takeover" in options.only:
        tell("pools of a dead worker")
        report.takeover = takeover.measure(folder / "takeover")
    if "clouds" in options.only:
        tell("calls of quiet regions, and what a call costs")
        for case in found_cases():
            report.regions.append(region_calls.measure(case))
            report.overheads += overhead.measure(case)
    for name, plan in PLANS.items():
        if name in options.only:
            tell(plan.title)
            report.bulk.append(bulk.measure(plan, folder / name))
        # After each, so that a failure of the next loses nothing.
        write(report, folder)
    tell(f"written: {folder}/bench.md and bench.json")
    sys.stdout.write(report.markdown())
    return int(any(result.surplus_at_end or result.most_at_once > result.wanted for result in report.bulk))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = ("quiet", "takeover", "clouds", *PLANS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="which measurements to take")
    parser.add_argument("--quiet-seconds", type=float, default=180, help="window without events")
    parser.add_argument("--folder", type=Path, help="where stacks, logs and results go; must not exist")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
