"""Pools as Temporal knows them: found by search attribute, told by signal, asked by query."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition, SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from domain.contracts.facts import OwnershipAnswer, OwnershipQuestion
from domain.contracts.model import Contract
from domain.contracts.offers import RegionKey

# The public face of a pool stands in workflows.messages, which this room may not import.
POOL_WORKFLOW: Final = "GPUSpotPool"
OWNERSHIP_QUERY: Final = "owns"

_POOL_UID: Final = SearchAttributeKey.for_keyword("PoolUid")
_PLAIN: Final = re.compile(r"[\w./:-]{1,200}")
_ASK_LIMIT: Final = timedelta(seconds=10)


class PoolDirectory(Protocol):
    """How activities find and reach running pools."""

    async def in_region(self, region: RegionKey) -> Mapping[str, str]:
        """Running pools that name the region: uid to workflow id."""
        ...

    async def find(self, pool_uid: str) -> str | None:
        """Workflow id of the running pool with this uid, or None when there is none."""
        ...

    async def tell(self, workflow_id: str, signal: str, payload: Contract) -> bool:
        """Signal a pool; False when it does not run any more."""
        ...

    async def ask_ownership(
        self, workflow_id: str, question: OwnershipQuestion
    ) -> tuple[OwnershipAnswer, ...] | None:
        """Ask a pool about machines; None when it gives no answer."""
        ...


class TemporalPools:
    """The directory on a live client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def in_region(self, region: RegionKey) -> Mapping[str, str]:
        """See ``PoolDirectory.in_region``."""
        return await self._running(f"Region = '{_quoted(region.search_value)}'")

    async def find(self, pool_uid: str) -> str | None:
        """See ``PoolDirectory.find``."""
        if not _PLAIN.fullmatch(pool_uid):
            return None
        found = await self._running(f"PoolUid = '{_quoted(pool_uid)}'")
        return next(iter(found.values()), None)

    async def tell(self, workflow_id: str, signal: str, payload: Contract) -> bool:
        """See ``PoolDirectory.tell``; by id without run id, so that it reaches the current run."""
        try:
            await self._client.get_workflow_handle(workflow_id).signal(signal, payload)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def ask_ownership(
        self, workflow_id: str, question: OwnershipQuestion
    ) -> tuple[OwnershipAnswer, ...] | None:
        """See ``PoolDirectory.ask_ownership``."""
        try:
            answers = await self._client.get_workflow_handle(workflow_id).query(
                OWNERSHIP_QUERY,
                question,
                result_type=list[OwnershipAnswer],
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=_ASK_LIMIT,
            )
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
            # No answer is an answer of its own here: the sweep never acts on silence.
            return None
        return tuple(answers)

    async def _running(self, condition: str) -> dict[str, str]:
        query = f"WorkflowType = '{POOL_WORKFLOW}' AND ExecutionStatus = 'Running' AND {condition}"
        found: dict[str, str] = {}
        async for execution in self._client.list_workflows(query):
            uid = _uid_of(execution)
            if uid:
                found[uid] = execution.id
        return found


def _uid_of(execution: WorkflowExecution) -> str:
    return execution.typed_search_attributes.get(_POOL_UID) or ""


def _quoted(text: str) -> str:
    """Text for a visibility query. It comes from tags, so what could end the string is refused.

    Raises:
        ValueError: The text holds other characters than names and ids do.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"not a name or id: {text[:64]!r}")
    return text
