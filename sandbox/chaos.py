"""The chaos matrix: each part killed, alone and in pairs, while a pool grows, shrinks and goes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from domain.contracts.offers import ProviderName
from sandbox.expectation import ExpectationError, expect
from sandbox.observer import NotThereError
from sandbox.outages import TARGETS, Outages
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool, small_pool

_LEVEL_SECONDS = 150
_MAX_INSTANCES = 5
_LEVELS = (1, 3, 2)
"""Before growing, after growing, after shrinking."""


class Stage(StrEnum):
    """What the pool is doing when something is killed."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    DELETION = "deletion"


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    targets: tuple[str, ...]
    stage: Stage
    delay_seconds: float
    """From the order (a patch or a deletion) to the kill."""
    outage_seconds: float
    cloud: ProviderName


@dataclass(frozen=True)
class Verdict:
    """What came of a case."""

    case: Case
    waited_for: str
    seconds: float
    """From the end of the outage to the end state."""
    end_state: str
    """``right``, or what is wrong."""
    orphans: tuple[str, ...]
    doubles: tuple[str, ...]
    most_live: int
    restarts: int
    """Processes of the operator that had to be started once more, as Kubernetes would."""

    @property
    def is_good(self) -> bool:
        """No orphan, no double, the end state right."""
        return self.end_state == "right" and not self.orphans and not self.doubles


def matrix(seed: int, *, stages: Sequence[Stage] = tuple(Stage)) -> list[Case]:
    """Every part alone and every pair of parts, in each of the stages, with seeded moments."""
    dice = random.Random(seed)  # noqa: S311 - moments of a test, not a secret
    sets = [*((target,) for target in TARGETS), *itertools.combinations(TARGETS, 2)]
    return [_case(dice, targets, stage) for targets in sets for stage in stages]


def singles(cases: Sequence[Case]) -> list[Case]:
    """Cases in which one part is killed."""
    return [case for case in cases if len(case.targets) == 1]


def pairs(cases: Sequence[Case], seed: int, count: int) -> list[Case]:
    """So many cases in which two parts are killed, chosen by the seed, in the order of the matrix."""
    candidates = [case for case in cases if len(case.targets) == 2]
    chosen = random.Random(seed).sample(range(len(candidates)), min(count, len(candidates)))  # noqa: S311 - a choice of cases
    return [candidates[index] for index in sorted(chosen)]


def run_cases(stack: Stack, cases: Sequence[Case], tell: Callable[[str], None]) -> list[Verdict]:
    """Run cases one after another, those of the same parts on one pool; tells each row when it is known."""
    tell(_HEADER)
    verdicts: list[Verdict] = []
    for number, (_, group) in enumerate(itertools.groupby(cases, key=lambda case: case.targets), 1):
        pool = WatchedPool(stack, "chaos", f"chaos-{number}")
        for verdict in _live_through(pool, {case.stage: case for case in group}):
            verdicts.append(verdict)
            tell(row(verdict))
    return verdicts


def row(verdict: Verdict) -> str:
    """One line of the table."""
    case = verdict.case
    return _ROW.format(
        " + ".join(case.cloud if target == "cloud" else target for target in case.targets),
        case.stage,
        f"{case.delay_seconds:.1f} s after the order, for {case.outage_seconds:.1f} s",
        verdict.waited_for,
        f"{verdict.seconds:.1f} s",
        verdict.end_state,
        len(verdict.orphans),
        len(verdict.doubles),
        verdict.most_live,
        verdict.restarts,
    )


_ROW = "{:<26} {:<10} {:<36} {:<34} {:>7}  {:<9} {:>7} {:>7} {:>9} {:>8}"
_HEADER = _ROW.format(
    "killed",
    "during",
    "when",
    "waited for",
    "took",
    "end state",
    "orphans",
    "doubles",
    "most live",
    "restarts",
)


# Machines are made and join for some seconds after an order. They are ended within one, a pool's even sooner.
_LATEST_KILL = {Stage.SCALE_UP: 2.5, Stage.SCALE_DOWN: 0.8, Stage.DELETION: 0.5}


def _case(dice: random.Random, targets: tuple[str, ...], stage: Stage) -> Case:
    return Case(
        targets=targets,
        stage=stage,
        delay_seconds=round(dice.uniform(0.0, _LATEST_KILL[stage]), 1),
        outage_seconds=round(dice.uniform(1.0, 4.0), 1),
        cloud=dice.choice([ProviderName.TENCENT, ProviderName.ALIYUN]),
    )


def _aimed(pool: WatchedPool, case: Case) -> Case:
    """The case with a cloud that the pool has machines at: to take another one away would hit nothing."""
    used = pool.clouds_used()
    return case if case.cloud in used or not used else replace(case, cloud=used[0])


def _live_through(pool: WatchedPool, cases: Mapping[Stage, Case]) -> list[Verdict]:
    """Let one pool grow, shrink and go; kill in those stages that have a case."""
    start, top, bottom = _LEVELS
    pool.apply(_manifest(start))
    expect(f"{start} machine at first", lambda: pool.at_level(start), within_seconds=_LEVEL_SECONDS)
    steps: list[tuple[Stage, Callable[[], None], Callable[[], object | None], str]] = [
        (
            Stage.SCALE_UP,
            lambda: pool.patch(minInstances=top),
            lambda: pool.at_level(top),
            f"{top} machines, one per slot, joined",
        ),
        (
            Stage.SCALE_DOWN,
            lambda: pool.patch(minInstances=bottom),
            lambda: pool.at_level(bottom),
            f"{bottom} machines, one per slot, joined",
        ),
        (Stage.DELETION, pool.delete, lambda: pool.is_gone() or None, "nothing left"),
    ]
    if Stage.SCALE_DOWN not in cases:
        del steps[1]  # what grew may go as it is
    verdicts: list[Verdict] = []
    for stage, order, look, waited_for in steps:
        order()
        if stage in cases:
            verdicts.append(_Outage(pool, _aimed(pool, cases[stage]), look, waited_for).run())
        else:
            expect(waited_for, look, within_seconds=_LEVEL_SECONDS)
    return verdicts


@dataclass
class _Outage:
    """One kill and what follows, watched all the time."""

    pool: WatchedPool
    case: Case
    look: Callable[[], object | None]
    waited_for: str
    most_live: int = 0
    restarts: int = 0

    def run(self) -> Verdict:
        outages = Outages(self.pool.stack, self.case.cloud)
        time.sleep(self.case.delay_seconds)
        for target in self.case.targets:
            outages.take_away(target)
        self._watch_for(self.case.outage_seconds)
        self.restarts += outages.give_back(self.case.targets)
        ended = time.monotonic()
        end_state = self._wait(outages)
        return Verdict(
            case=self.case,
            waited_for=self.waited_for,
            seconds=time.monotonic() - ended,
            end_state=end_state,
            orphans=tuple(self._orphans()),
            doubles=tuple(self.pool.doubles()),
            most_live=self.most_live,
            restarts=self.restarts,
        )

    def _wait(self, outages: Outages) -> str:
        try:
            expect(self.waited_for, lambda: self._look(outages), within_seconds=_LEVEL_SECONDS)
        except ExpectationError as error:
            return str(error)
        if self.most_live > _MAX_INSTANCES:
            return f"{self.most_live} machines lived at once, above maxInstances {_MAX_INSTANCES}"
        return "right"

    def _look(self, outages: Outages) -> object | None:
        self.restarts += outages.revive()
        self._count()
        return self.look()

    def _orphans(self) -> list[str]:
        try:
            return self.pool.orphans()
        except NotThereError:
            return [machine.id for machine in self.pool.left()]  # nobody can say whose they are

    def _watch_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._count()
            time.sleep(0.1)

    def _count(self) -> None:
        self.most_live = max(self.most_live, len(self.pool.live()))


def _manifest(level: int) -> dict[str, Any]:
    """A pool at both vendors that grows and shrinks one machine at a time, so that a kill hits the middle."""
    slowly = {"scaleUpStep": 1, "scaleDownStep": 1, "cooldownSeconds": 1}
    return small_pool(level, maxInstances=_MAX_INSTANCES, scaleStrategy=slowly)
