"""What one judgement costs: ``python -m tests.bench.bench_judgement``.

It runs on the workflow's thread at every signal, so its cost is what a worker's core is spent on. Printed are
CPU milliseconds, the median of several runs; nothing here is asserted.
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

from domain.contracts.facts import NodeFact, NodesSeen, RegionObservation
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.offers import CapacityType
from domain.contracts.outcomes import Fact
from domain.contracts.pool_state import Market, PoolCarry
from domain.contracts.status import WorkflowRef
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_judgement import judge
from domain.decisions.pool_report import details, report
from tests.domain.decisions.builders import NOON, an_offer
from tests.domain.decisions.pool_inputs import GUANGZHOU, a_resolved, a_setting, a_state_of

SIZES = (10, 50, 200)
RUNS = 30
SETTINGS = a_setting()
REF = WorkflowRef(id="pool:default:bench", run_id="run")


def an_observation(state: PoolCarry) -> RegionObservation:
    """The region's whole list, as a sync signals it."""
    instances = tuple(
        Instance(
            provider=m.offer.provider,
            region=m.offer.region,
            zone=m.offer.zone,
            id=m.instance_id,
            provider_id=m.provider_id,
            instance_type=m.offer.instance_type.name,
            capacity_type=CapacityType.SPOT,
            state=InstanceState.RUNNING,
            created_at=NOON,
            tags={"spotgpu-launch": m.token},
        )
        for m in state.machines.values()
    )
    return RegionObservation(region=GUANGZHOU, as_of=NOON + timedelta(seconds=60), instances=instances)


def a_node_change(state: PoolCarry) -> NodesSeen:
    machine = next(iter(state.machines.values()))
    node = NodeFact(provider_id=machine.provider_id, name=machine.node_name, ready=True, gpus_allocatable=1)
    return NodesSeen(as_of=NOON + timedelta(seconds=60), nodes=(node,))


def an_empty_pool(state: PoolCarry) -> PoolCarry:
    """The same pool with every slot waiting and offers at hand: all of them are ordered in one judgement."""
    market = Market(offers=(an_offer("4.20"),), read_at=NOON, started_at=NOON)
    slots = tuple(slot.model_copy(update={"token": ""}) for slot in state.slots)
    return state.model_copy(update={"machines": {}, "slots": slots, "market": market})


def cpu_ms(work: Callable[[], object]) -> float:
    """Median CPU time of one call, in milliseconds."""
    spent: list[float] = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        spent.append((time.process_time() - start) * 1000)
    return median(spent)


def measure(size: int) -> tuple[float, ...]:
    """One row: CPU milliseconds of each kind of judgement for a pool of this size."""
    later = NOON + timedelta(seconds=61)
    resolved, state = a_resolved(minInstances=size, maxInstances=size), a_state_of(size)
    empty = an_empty_pool(state)

    def judging(known: PoolCarry, *facts: Fact) -> float:
        return cpu_ms(lambda: judge(resolved, SETTINGS, known, facts, now=later))

    return (
        judging(state),
        judging(state, a_node_change(state)),
        judging(state, an_observation(state)),
        judging(empty),
        cpu_ms(lambda: report(Draft(resolved, SETTINGS, state, later), REF)),
        cpu_ms(lambda: details(Draft(resolved, SETTINGS, state, later))),
    )


def main() -> None:
    """Print the table."""
    columns = ("machines", "nothing new", "one Node", "whole region", "order all", "report", "details")
    lines = ["  ".join(f"{name:>12}" for name in columns)]
    lines += ["  ".join([f"{size:12}", *(f"{value:12.2f}" for value in measure(size))]) for size in SIZES]
    sys.stdout.write("CPU ms per judgement, median\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
