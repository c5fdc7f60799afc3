"""Pools' workflows as the bridge reaches them: start or update, tell, signal, list."""

# The SDK's overloads for updates by name hold types that it leaves open.
# pyright: reportUnknownMemberType=false

import asyncio
import hashlib
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from crd_bridge.keyed_queue import Key
from crd_bridge.keyed_tasks import PostponedError
from domain.contracts.model import Contract
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from workflows.messages import (
    APPLY_SPEC,
    POOL_WORKFLOW,
    ApplyAnswer,
    PoolInput,
    SpecEnvelope,
    pool_workflow_id,
)
from workflows.options import POOLS_QUEUE, pool_task_timeout

LIST_SECONDS = 60.0

UID_MISMATCH = "UidMismatch"
"""Type of the pool's refusal of another resource's messages."""

MEMO_INSTALLATION = "installation"
MEMO_POOL = "pool"

_POOL_UID = SearchAttributeKey.for_keyword("PoolUid")
_POOL_NAMESPACE = SearchAttributeKey.for_keyword("PoolNamespace")
_POOL_NAME = SearchAttributeKey.for_keyword("PoolName")

_OPEN_POOLS = f"WorkflowType = '{POOL_WORKFLOW}' AND ExecutionStatus = 'Running'"
_ID_FORM = re.compile(r"pool:([^:]+):([^:]+)")

Answer = TypeVar("Answer")


class DeliveryError(PostponedError):
    """Temporal or the pool's workflow did not take a message; it must be sent again."""


class UidMismatchError(DeliveryError):
    """The workflow of this name serves another resource, which had the name before."""


class ForeignWorkflowError(DeliveryError):
    """The workflow belongs to another installation, which must not share the Temporal namespace."""


@dataclass(frozen=True)
class Delivered:
    """How an update ended."""

    run_id: str
    """The run that answered."""
    accepted: bool
    """False when the workflow knew everything already."""


def content_of(envelope: SpecEnvelope) -> str:
    """12 hex digits that are the same for the same resolved pool under the same settings."""
    return _hash(envelope.resolved.digest, envelope.settings.model_dump_json())


def update_id_of(envelope: SpecEnvelope, edit: str) -> str:
    """``{uid}:{generation}:{h}``: the same edit sent twice runs once.

    The content alone would not do for h: what changes and then changes back (a profile that is bound to a
    pool and taken away again) would be answered from its first outcome, and the pool would keep the change.
    """
    resolved = envelope.resolved
    return f"{resolved.uid}:{resolved.generation}:{_hash(content_of(envelope), edit)}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


class PoolWorkflows:
    """All workflows of type ``GPUSpotPool`` of one Temporal namespace. Every method is safe to repeat."""

    def __init__(
        self, client: Client, settings: PoolSettings, *, installation: str, answer_seconds: float = 10.0
    ) -> None:
        """Bind to a client.

        Args:
            client: With the converter of ``workflows.runtime``.
            settings: What every pool is told beside its spec.
            installation: Id of this installation; empty leaves workflows of others unrecognised.
            answer_seconds: How long a workflow may take to answer; none does while no worker runs.
        """
        self._client = client
        self._settings = settings
        self._installation = installation
        self._answer_seconds = answer_seconds

    def envelope(self, resolved: ResolvedPool) -> SpecEnvelope:
        """What is sent for a resolved pool."""
        return SpecEnvelope(resolved=resolved, settings=self._settings)

    async def apply(self, resolved: ResolvedPool, *, edit: str) -> Delivered:
        """Start the workflow if none runs, and have it take over the resolved pool.

        When no worker answers, the workflow was started all the same, with the pool as its start input.

        Args:
            resolved: The pool.
            edit: Names this edit among all of the pool; the same in each repetition of one edit.

        Raises:
            UidMismatchError: A workflow of an earlier resource of this name runs.
            DeliveryError: There was no answer, or the workflow refused.
        """
        envelope = self.envelope(resolved)
        start = self._start(resolved)

        async def send() -> Delivered:
            try:
                handle = await self._client.start_update_with_start_workflow(
                    APPLY_SPEC,
                    envelope,
                    start_workflow_operation=start,
                    wait_for_stage=WorkflowUpdateStage.COMPLETED,
                    id=update_id_of(envelope, edit),
                    result_type=ApplyAnswer,
                )
            finally:
                await _settle(start)
            answer = await handle.result()
            return Delivered(run_id=handle.workflow_run_id or "", accepted=answer.accepted)

        return await self._within(send(), f"apply_spec to {start_id(resolved)}")

    async def apply_if_open(self, resolved: ResolvedPool, *, edit: str) -> bool:
        """Have a workflow that runs take over the resolved pool; False when none runs.

        Raises:
            DeliveryError: As ``apply``.
        """
        envelope = self.envelope(resolved)
        handle = self._client.get_workflow_handle(start_id(resolved))
        sending = handle.execute_update(
            APPLY_SPEC, envelope, id=update_id_of(envelope, edit), result_type=ApplyAnswer
        )
        return await self._within(_unless_closed(sending), f"apply_spec to {handle.id}") is not None

    async def last_resolved(self, pool: Key) -> ResolvedPool | None:
        """What the run that is open was started with; None when none is open. Needs no worker.

        Raises:
            ForeignWorkflowError: It belongs to another installation.
            DeliveryError: Temporal did not answer.
        """
        handle = self._client.get_workflow_handle(pool_workflow_id(*pool))
        description = await self._within(_unless_closed(handle.describe()), f"describe {handle.id}")
        if description is None or description.status is not WorkflowExecutionStatus.RUNNING:
            return None
        owner = await description.memo_value(MEMO_INSTALLATION, default="", type_hint=str)
        if self._installation and owner and owner != self._installation:
            raise ForeignWorkflowError(
                f"{handle.id} belongs to installation {owner}, this is {self._installation}: "
                "give each installation a Temporal namespace of its own"
            )
        started = await self._within(self._start_input(handle.id, description.run_id), f"read {handle.id}")
        return started.resolved

    async def signal(self, pool: Key, name: str, payload: Contract) -> bool:
        """Signal the workflow that runs; False when none does.

        Raises:
            DeliveryError: Temporal did not answer.
        """
        handle = self._client.get_workflow_handle(pool_workflow_id(*pool))

        async def send() -> bool:
            await handle.signal(name, payload)
            return True

        return await self._within(_unless_closed(send()), f"signal {name} to {handle.id}") or False

    async def open_pools(self) -> list[Key]:
        """Namespace and name of each workflow that runs, a moment late.

        Raises:
            DeliveryError: Temporal did not answer.
        """

        async def read() -> list[Key]:
            ids = [found.id async for found in self._client.list_workflows(_OPEN_POOLS)]
            return [(match[1], match[2]) for one in ids if (match := _ID_FORM.fullmatch(one))]

        return await self._within(read(), "list of open pools", seconds=LIST_SECONDS)

    def _start(self, resolved: ResolvedPool) -> WithStartWorkflowOperation[Any, Any]:
        pool = f"{resolved.namespace}/{resolved.name}"
        return WithStartWorkflowOperation(
            POOL_WORKFLOW,
            PoolInput(resolved=resolved, settings=self._settings),
            id=start_id(resolved),
            task_queue=POOLS_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={MEMO_POOL: pool, MEMO_INSTALLATION: self._installation},
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(_POOL_UID, resolved.uid),
                    SearchAttributePair(_POOL_NAMESPACE, resolved.namespace),
                    SearchAttributePair(_POOL_NAME, resolved.name),
                ]
            ),
            task_timeout=pool_task_timeout(resolved.spec.max_instances),
            static_summary=f"GPU spot pool {pool}",
        )

    async def _start_input(self, workflow_id: str, run_id: str) -> PoolInput:
        handle = self._client.get_workflow_handle(workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                decoded = await self._client.data_converter.decode(list(payloads), [PoolInput])
                return decoded[0]
        raise DeliveryError(f"the history of {workflow_id} has no beginning")

    async def _within(
        self, sending: Coroutine[Any, Any, Answer], what: str, *, seconds: float = 0.0
    ) -> Answer:
        """Wait so long for an answer, and speak of what went wrong in our words.

        In a task of its own: the SDK turns a cancellation of its calls into another exception, which would
        make a cancelled caller go on.
        """
        task = asyncio.ensure_future(sending)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds or self._answer_seconds)
        finally:
            await _cancelled(task)
        if not done:
            waited = seconds or self._answer_seconds
            raise DeliveryError(f"{what}: no answer within {waited:g} s. Does a worker run?")
        try:
            return task.result()
        except WorkflowUpdateFailedError as error:
            raise _refusal(what, error) from error
        except RPCTimeoutOrCancelledError as error:
            raise DeliveryError(f"{what}: the call timed out. Does a worker run?") from error
        except RPCError as error:
            raise DeliveryError(f"{what}: {error.status.name}: {error.message}") from error


def start_id(resolved: ResolvedPool) -> str:
    """Id of the pool's workflow."""
    return pool_workflow_id(resolved.namespace, resolved.name)


async def _unless_closed(sending: Coroutine[Any, Any, Answer]) -> Answer | None:
    """None when no workflow runs under the id."""
    try:
        return await sending
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def _refusal(what: str, error: WorkflowUpdateFailedError) -> DeliveryError:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == UID_MISMATCH:
        return UidMismatchError(f"{what}: {cause.message}")
    return DeliveryError(f"{what}: refused: {cause}")


async def _settle(start: WithStartWorkflowOperation[Any, Any]) -> None:
    """Look at the operation's own outcome, which would complain in the log that nobody did."""
    outcome = asyncio.ensure_future(start.workflow_handle())
    await asyncio.wait({outcome}, timeout=0)
    if not outcome.cancel():
        _ = outcome.cancelled() or outcome.exception()


async def _cancelled(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        # Looked at, or the log would complain of a failure that nobody saw.
        _ = task.cancelled() or task.exception()
