"""A stand-in for the pool's workflow: takes in what the bridge sends, and lets a test look."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from domain.contracts.facts import Demand, NodesSeen
from domain.contracts.model import Contract
from domain.contracts.resolved import ResolvedPool
from workflows.messages import (
    APPLY_SPEC,
    DEMAND,
    NODE_SEEN,
    POOL_WORKFLOW,
    ApplyAnswer,
    PoolInput,
    SpecEnvelope,
)

FINISH = "finish"
RENEW = "renew"
RECORD = "record"
STUCK = "stuck"
"""A pool of this name accepts an update and never completes it."""


class Record(Contract):
    """What came in, in order."""

    start: ResolvedPool
    applied: tuple[SpecEnvelope, ...] = ()
    nodes: tuple[NodesSeen, ...] = ()
    demands: tuple[Demand, ...] = ()


@workflow.defn(name=POOL_WORKFLOW)
class StandInPool:
    """Serves one uid, refuses others, and ends when told to finish."""

    @workflow.init
    def __init__(self, start: PoolInput) -> None:
        self._start = start
        self._applied: list[SpecEnvelope] = []
        self._nodes: list[NodesSeen] = []
        self._demands: list[Demand] = []
        self._order = ""

    @workflow.run
    async def run(self, start: PoolInput) -> None:
        await workflow.wait_condition(lambda: bool(self._order))
        if self._order == RENEW:
            workflow.continue_as_new(start, memo=workflow.memo())

    @workflow.update(name=APPLY_SPEC)
    async def apply_spec(self, envelope: SpecEnvelope) -> ApplyAnswer:
        self._applied.append(envelope)
        if envelope.resolved.name == STUCK:
            await asyncio.sleep(timedelta(days=1).total_seconds())
        return ApplyAnswer(accepted=True, generation=envelope.resolved.generation)

    @apply_spec.validator
    def _validate(self, envelope: SpecEnvelope) -> None:
        if envelope.resolved.uid != self._start.resolved.uid:
            raise ApplicationError("another uid", type="UidMismatch")

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, payloads: Sequence[RawValue]) -> None:
        if name == NODE_SEEN:
            self._nodes.append(NodesSeen.model_validate_json(payloads[0].payload.data))
        elif name == DEMAND:
            self._demands.append(Demand.model_validate_json(payloads[0].payload.data))
        else:
            self._order = name

    @workflow.query(name=RECORD)
    def record(self) -> Record:
        return Record(
            start=self._start.resolved,
            applied=tuple(self._applied),
            nodes=tuple(self._nodes),
            demands=tuple(self._demands),
        )
