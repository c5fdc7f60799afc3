"""Lives of pools whose histories are recorded and replayed: one story per shape of history."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from domain.contracts.errors import ErrorCode
from domain.contracts.instances import InstanceState, LaunchAnswer, LaunchRequest, Refusal
from tests.workflows.outside import Outside
from tests.workflows.starts import a_resolved, edit, settings, start
from workflows import messages as m

Story = Callable[[Client, Outside], Awaitable[list[WorkflowHandle[Any, str]]]]
"""Lives one life to its end and returns a handle per run, first run first."""


async def plain_life(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """Bought, joined, scaled up by an edit, scaled down by an edit, deleted."""
    resolved = a_resolved(name="story-plain")
    handle = await start(client, resolved)
    await _up(handle, outside, resolved.uid, 2)
    for generation, level in ((2, 3), (3, 1)):
        spec = resolved.spec.model_copy(update={"min_instances": level})
        resolved = resolved.model_copy(update={"generation": generation, "spec": spec})
        await edit(handle, resolved)
        await outside.until(lambda level=level: len(outside.machines) == level)
    return await _end(client, handle, resolved)


async def refused_and_unanswered(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """One zone without stock, and one create call that made a machine but never answered."""
    calls = 0

    def answer(request: LaunchRequest) -> LaunchAnswer | None:
        nonlocal calls
        calls += 1
        if request.offer.zone.endswith("-3"):
            refused = Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="SoldOut")
            return LaunchAnswer(result=refused)
        if calls <= 4:
            outside.boot(request)
            raise ApplicationError("no answer", type=ErrorCode.UNKNOWN_OUTCOME, non_retryable=True)
        return None

    outside.on_create = answer
    resolved = a_resolved(name="story-refused")
    handle = await start(client, resolved)
    await _up(handle, outside, resolved.uid, 2)
    return await _end(client, handle, resolved)


async def taken_back(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """One machine under a notice, one that vanishes; both are replaced."""
    resolved = a_resolved(name="story-taken")
    handle = await start(client, resolved, settings(newborn_seconds=0.1))
    await _up(handle, outside, resolved.uid, 2)
    marked, lost = list(outside.machines)
    outside.machines[marked] = outside.machines[marked].model_copy(
        update={"state": InstanceState.INTERRUPTING, "reason": "Recycling"}
    )
    outside.vanish(lost)
    await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
    await outside.until(lambda: marked in outside.terminated and len(outside.machines) == 2)
    return await _end(client, handle, resolved)


async def renewed(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """A run that continues as new, and interventions on both sides of it, right and wrong."""
    resolved = a_resolved(name="story-renewed")
    handle = await start(client, resolved)
    await _up(handle, outside, resolved.uid, 2)
    first = (await handle.describe()).run_id
    order = {"by": "story", "reason": "to be recorded"}
    await handle.execute_update("scale_to", {**order, "instances": 3}, result_type=m.InterventionAnswer)
    await outside.until(lambda: len(outside.machines) == 3)
    await handle.signal("pause", {**order, "scope": "Launches"})
    await handle.signal("pause")
    await handle.signal(m.RENEW)
    while (await handle.describe()).run_id == first:
        await outside.until(lambda: True)
    await handle.signal("resume", {**order, "scope": "Launches"})
    await handle.execute_update("resync", order, result_type=m.InterventionAnswer)
    last = await _end(client, handle, resolved)
    return [client.get_workflow_handle(handle.id, run_id=first), *last]


async def renewed_by_weight(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """A run that continues as new by itself, since it would take long to take it up again."""
    resolved = a_resolved(name="story-heavy")
    light = settings(renew_after_machine_events=120)
    handle = await start(client, resolved, light)
    first = (await handle.describe()).run_id
    await _up(handle, outside, resolved.uid, 2)
    order = {"by": "story", "reason": "to be recorded"}
    while (await handle.describe()).run_id == first:
        await handle.execute_update("resync", order, result_type=m.InterventionAnswer)
    await edit(handle, resolved.model_copy(update={"generation": 2}))
    last = await _end(client, handle, resolved.model_copy(update={"generation": 2}))
    return [client.get_workflow_handle(handle.id, run_id=first), *last]


async def drain_forced(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """A deletion whose drains do not end, until a person goes on without them."""
    resolved = a_resolved(name="story-forced")
    handle = await start(client, resolved)
    await _up(handle, outside, resolved.uid, 2)
    outside.drains_hang = True
    await edit(handle, resolved.model_copy(update={"deleting": True, "generation": 2}))
    order = {"by": "story", "reason": "to be recorded", "stage": "Drain"}
    await handle.execute_update("force_delete", order, result_type=m.InterventionAnswer)
    await handle.result()
    outside.drains_hang = False
    return [handle]


async def told_nothing_new(client: Client, outside: Outside) -> list[WorkflowHandle[Any, str]]:
    """A pool at its level that hears again and again what it knows: tasks that order nothing."""
    resolved = a_resolved(name="story-quiet")
    handle = await start(client, resolved)
    await _up(handle, outside, resolved.uid, 2)
    for _ in range(6):
        await asyncio.sleep(0.3)
        await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
    return await _end(client, handle, resolved)


STORIES: dict[str, Story] = {
    "plain_life": plain_life,
    "refused_and_unanswered": refused_and_unanswered,
    "taken_back": taken_back,
    "renewed": renewed,
    "renewed_by_weight": renewed_by_weight,
    "drain_forced": drain_forced,
    "told_nothing_new": told_nothing_new,
    "taken_back_by_rules_1": taken_back,
}


async def _up(handle: WorkflowHandle[Any, str], outside: Outside, uid: str, count: int) -> None:
    await outside.until(lambda: len(outside.machines) == count)
    await handle.signal(m.NODE_SEEN, outside.seen_nodes())
    await handle.signal(m.OBSERVED, outside.observation(uid))
    await outside.until(lambda: outside.status is not None and outside.status.ready_instances == count)


async def _end(
    client: Client, handle: WorkflowHandle[Any, str], resolved: Any
) -> list[WorkflowHandle[Any, str]]:
    await edit(handle, resolved.model_copy(update={"deleting": True, "generation": resolved.generation + 1}))
    await handle.result()
    last = await handle.describe()
    return [client.get_workflow_handle(handle.id, run_id=last.run_id)]
