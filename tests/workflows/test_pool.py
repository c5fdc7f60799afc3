"""The pool's workflow on a real server, its activities against an outside in memory."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.worker import Replayer

from domain.contracts.announcements import EventReason
from domain.contracts.errors import ErrorCode
from domain.contracts.instances import InstanceState, LaunchAnswer, LaunchRequest, Refusal
from domain.contracts.status import PoolStatus
from domain.decisions import pool_departures
from tests.workflows.conftest import serving
from tests.workflows.outside import Outside
from tests.workflows.starts import a_resolved, edit, settings, start
from workflows import messages as m
from workflows.pool import GPUSpotPool
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER

pytestmark = pytest.mark.temporal


async def delete(handle: WorkflowHandle[Any, str], resolved: Any) -> str:
    await edit(handle, resolved.model_copy(update={"deleting": True, "generation": resolved.generation + 1}))
    return await handle.result()


def ready(outside: Outside, count: int) -> bool:
    return outside.status is not None and outside.status.ready_instances == count


def last_status(outside: Outside) -> PoolStatus:
    assert outside.status is not None
    return outside.status


async def another_run(handle: WorkflowHandle[Any, str], first: str | None, seconds: float = 20) -> None:
    """Wait until the chain has gone on in another run."""
    async with asyncio.timeout(seconds):
        while True:
            if (await handle.describe()).run_id != first:
                return
            await asyncio.sleep(0.1)


async def replays(handle: WorkflowHandle[Any, str]) -> None:
    """Replay what a pool has written; a difference is an error."""
    replayer = Replayer(
        workflows=[GPUSpotPool], data_converter=DATA_CONVERTER, workflow_runner=WORKFLOW_RUNNER
    )
    await replayer.replay_workflow(await handle.fetch_history())


async def at_rest(handle: WorkflowHandle[Any, str], seconds: float = 20, *, pause: float = 1) -> None:
    """Wait until the history has not grown for ``pause`` seconds: its last tasks ordered nothing."""
    async with asyncio.timeout(seconds):
        before = -1
        while True:
            length = (await handle.describe()).history_length
            if length == before:
                return
            before = length
            await asyncio.sleep(pause)


async def test_pool_reaches_its_level_and_leaves_nothing_behind(client: Client, outside: Outside) -> None:
    resolved = a_resolved()
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 2)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
        await outside.until(lambda: ready(outside, 2))
        assert not any(node.gpu_taint for node in outside.nodes.values())
        assert "deleted" in await delete(handle, resolved)
    assert outside.machines == {}
    assert outside.nodes == {}
    assert outside.finalizer_removed
    assert len(outside.creates) == len(set(outside.creates)) == 2


async def test_p13_pool_that_is_started_twice_has_one_workflow_and_buys_its_level_once(
    client: Client, outside: Outside
) -> None:
    resolved = a_resolved(minInstances=4, scaleStrategy={"scaleUpStep": 4})
    async with serving(client, outside):
        handle = await start(client, resolved)
        with pytest.raises(WorkflowAlreadyStartedError):
            await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 4)
        await at_rest(handle)
        assert len(outside.machines) == len(outside.creates) == 4
        await delete(handle, resolved)


async def test_pool_deletes_at_once_when_nothing_was_bought(client: Client, outside: Outside) -> None:
    resolved = a_resolved().model_copy(update={"deleting": True})
    async with serving(client, outside):
        handle = await start(client, resolved)
        await handle.result()
    assert outside.creates == []
    assert outside.finalizer_removed


async def test_pool_takes_the_next_zone_when_the_first_has_no_stock(client: Client, outside: Outside) -> None:
    refused = Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="SoldOut")

    def answer(request: LaunchRequest) -> LaunchAnswer | None:
        return LaunchAnswer(result=refused) if request.offer.zone.endswith("-3") else None

    outside.on_create = answer
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 1)
        assert next(iter(outside.machines.values())).zone == "ap-guangzhou-6"
        assert len(set(outside.creates)) == 3, "the first zone twice, each call with its own token"
        await delete(handle, resolved)


async def test_pool_resolves_a_launch_that_was_made_but_not_answered(
    client: Client, outside: Outside
) -> None:
    def answer(request: LaunchRequest) -> LaunchAnswer | None:
        outside.boot(request)
        raise ApplicationError("no answer", type=ErrorCode.UNKNOWN_OUTCOME, non_retryable=True)

    outside.on_create = answer
    resolved = a_resolved(minInstances=1, scaleStrategy={"scaleUpStep": 1})
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: outside.status is not None and outside.status.current_instances == 1)
        assert len(outside.machines) == 1
        assert any(e.reason is EventReason.LAUNCH_UNRESOLVED for e in outside.events)
        await delete(handle, resolved)
    assert outside.machines == {}
    assert len(outside.creates) == 1


async def test_pool_replaces_a_machine_that_vanished(client: Client, outside: Outside) -> None:
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved, settings(newborn_seconds=0.1))
        await outside.until(lambda: len(outside.machines) == 1)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: ready(outside, 1))
        lost = next(iter(outside.machines))
        outside.vanish(lost)
        await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
        await outside.until(lambda: len(outside.machines) == 1 and len(outside.creates) == 2)
        await outside.until(
            lambda: (
                outside.status is not None and [i.id for i in outside.status.interrupted_instances] == [lost]
            )
        )
        await delete(handle, resolved)


async def test_pool_replaces_at_once_on_a_notice(client: Client, outside: Outside) -> None:
    resolved = a_resolved(minInstances=1, maxInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 1)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: ready(outside, 1))
        (marked,) = outside.machines
        outside.machines[marked] = outside.machines[marked].model_copy(
            update={"state": InstanceState.INTERRUPTING, "reason": "Recycling"}
        )
        await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
        await outside.until(lambda: len(outside.creates) == 2)
        await outside.until(lambda: marked in outside.terminated)
        await delete(handle, resolved)


@pytest.mark.parametrize(
    "reasons",
    [
        pytest.param(("Recycling", "Stopping", "Stopped"), id="after its notice"),
        pytest.param(("Stopped",), id="stopped by hand"),
    ],
)
async def test_p12_pool_ends_a_machine_that_its_cloud_stopped_and_keeps_and_replaces_it_once(
    client: Client, outside: Outside, monkeypatch: pytest.MonkeyPatch, reasons: tuple[str, ...]
) -> None:
    """A stopped copy never becomes absent by itself, here not even when it was told to end once."""
    monkeypatch.setattr(pool_departures, "TELL_AGAIN", timedelta(seconds=1))
    resolved = a_resolved(minInstances=1, maxInstances=2)
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 1)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: ready(outside, 1))
        (kept,) = outside.machines
        outside.stubborn.add(kept)
        for reason in reasons:
            outside.machines[kept] = outside.machines[kept].model_copy(
                update={"state": InstanceState.INTERRUPTING, "reason": reason}
            )
            await handle.signal(m.OBSERVED, outside.observation(resolved.uid))
        await outside.until(lambda: kept in outside.terminated and len(outside.creates) == 2)
        outside.stubborn.clear()
        await outside.until(lambda: kept not in outside.machines)
        assert set(outside.terminated) == {kept}
        assert len(outside.terminated) >= 2, "told again"
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: ready(outside, 1) and last_status(outside).current_instances == 1)
        seen = last_status(outside)
        assert [(i.id, i.interrupt_reason) for i in seen.interrupted_instances] == [(kept, reasons[0])]
        assert (seen.interruptions_total, len(outside.creates), len(outside.machines)) == (1, 2, 1)
        await delete(handle, resolved)
    assert (outside.machines, len(outside.creates)) == ({}, 2)


async def test_pool_carries_everything_over_when_it_continues_as_new(
    client: Client, outside: Outside
) -> None:
    resolved = a_resolved()
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 2)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: ready(outside, 2))
        first = (await handle.describe()).run_id
        await handle.signal(m.RENEW)

        await another_run(handle, first)
        grown = resolved.model_copy(
            update={"generation": 2, "spec": resolved.spec.model_copy(update={"min_instances": 3})}
        )
        await edit(handle, grown)
        await outside.until(lambda: len(outside.machines) == 3)
        assert len(set(outside.creates)) == 3
        await delete(handle, grown)
    assert outside.machines == {}


async def test_pool_continues_as_new_once_its_run_is_heavy_to_take_up_again(
    client: Client, outside: Outside
) -> None:
    resolved = a_resolved()
    async with serving(client, outside):
        handle = await start(client, resolved, settings(renew_after_machine_events=60))
        first = (await handle.describe()).run_id
        await outside.until(lambda: len(outside.machines) == 2)
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await another_run(handle, first)
        await outside.until(lambda: ready(outside, 2))
        history = await client.get_workflow_handle(handle.id, run_id=first).fetch_history()
        assert 2 * len(history.events) >= 60
        assert len(set(outside.creates)) == 2
        await delete(handle, resolved)
    assert outside.machines == {}


async def test_pool_refuses_another_uid(client: Client, outside: Outside) -> None:
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved)
        other = a_resolved(name=resolved.name)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await edit(handle, other)
        assert isinstance(refused.value.cause, ApplicationError)
        assert refused.value.cause.type == "UidMismatch"
        await delete(handle, resolved)


@pytest.mark.timeout(120)
async def test_history_of_a_worker_without_a_cache_replays(client: Client, outside: Outside) -> None:
    """Each update meets a cold worker, which hands it over before results that were recorded already."""
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside, cached=0):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 1)
        for generation, level in enumerate((2, 1), start=2):
            spec = resolved.spec.model_copy(update={"min_instances": level})
            resolved = resolved.model_copy(update={"generation": generation, "spec": spec})
            await at_rest(handle)
            await edit(handle, resolved)
            await outside.until(
                lambda generation=generation: (
                    outside.status is not None and outside.status.observed_generation == generation
                )
            )
        await delete(handle, resolved)
    await replays(handle)
