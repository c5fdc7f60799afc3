"""Every manual intervention, as an update and as a signal of the same name and payload."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from domain.contracts.announcements import EventReason
from domain.contracts.instances import LaunchAnswer, LaunchRequest
from tests.workflows.conftest import serving
from tests.workflows.outside import Outside
from tests.workflows.starts import a_resolved, edit, start
from workflows import messages as m

pytestmark = pytest.mark.temporal

WHO = {"by": "ann", "reason": "a drill"}


class Desk:
    """Gives orders in one of the two ways and waits until they are recorded."""

    def __init__(self, handle: WorkflowHandle[Any, str], outside: Outside, how: str) -> None:
        self.handle, self.outside, self.how = handle, outside, how

    async def order(self, name: str, **fields: object) -> None:
        before = self.recorded()
        payload = {**WHO, **fields}
        if self.how == "update":
            answer = await self.handle.execute_update(name, payload, result_type=m.InterventionAnswer)
            assert answer.done
        else:
            await self.handle.signal(name, payload)
        await self.outside.until(lambda: self.recorded() == before + 1)

    def recorded(self) -> int:
        found = [e for e in self.outside.events if e.reason is EventReason.INTERVENTION]
        assert all("by ann (a drill)" in e.message for e in found)
        return len(found)

    async def up(self, count: int) -> None:
        """Wait until so many machines are ready."""
        await self.outside.until(lambda: len(self.outside.machines) == count)
        await self.handle.signal(m.NODE_SEEN, self.outside.seen_nodes())
        await self.outside.until(lambda: self.ready() == count)

    def ready(self) -> int:
        return self.outside.status.ready_instances if self.outside.status else 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["update", "signal"])
async def test_every_intervention_does_what_it_says(client: Client, outside: Outside, how: str) -> None:
    resolved = a_resolved(minInstances=1, maxInstances=4)
    async with serving(client, outside):
        handle = await start(client, resolved)
        desk = Desk(handle, outside, how)
        await desk.up(1)
        (first,) = outside.machines

        await desk.order("quarantine_zone", provider="tencent", zone="ap-guangzhou-3", minutes=5)
        await desk.order("scale_to", instances=2)
        await desk.up(2)
        assert [i.zone for i in outside.machines.values()][1] == "ap-guangzhou-6"

        await desk.order("clear_zone", provider="tencent", zone="ap-guangzhou-3")
        await desk.order("replace_instance", id=first)
        await outside.until(lambda: len(outside.machines) == 3)
        assert first not in outside.terminated, "the replacement comes first"
        await handle.signal(m.NODE_SEEN, outside.seen_nodes())
        await outside.until(lambda: first in outside.terminated)
        await desk.up(2)
        assert [i.zone for i in outside.machines.values()][1] == "ap-guangzhou-3"

        await desk.order("pause", scope="Launches")
        ended = next(iter(outside.machines))
        await desk.order("terminate_instance", id=ended)
        await outside.until(lambda: ended in outside.terminated)
        creates = len(outside.creates)
        await desk.order("resync")
        assert len(outside.creates) == creates, "launches are paused"
        await desk.order("resume", scope="Launches")
        await desk.up(2)

        await _delete_by_force(desk, resolved)
    assert outside.finalizer_removed


async def _delete_by_force(desk: Desk, resolved: Any) -> None:
    """A deletion that cannot end by itself: the cloud keeps showing a machine that was told to end."""
    stubborn = next(iter(desk.outside.machines.values()))
    desk.outside.stubborn.add(stubborn.id)
    await edit(desk.handle, resolved.model_copy(update={"deleting": True, "generation": 2}))
    await desk.outside.until(lambda: stubborn.id in desk.outside.terminated)
    await desk.order("force_delete", stage="Terminate")
    await desk.handle.result()


async def test_forced_drain_does_not_hold_the_name_of_the_pool(client: Client, outside: Outside) -> None:
    """A successor of the same name is served only when this workflow has ended."""
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved)
        desk = Desk(handle, outside, "update")
        await desk.up(1)
        outside.drains_hang = True
        await edit(handle, resolved.model_copy(update={"deleting": True, "generation": 2}))
        await desk.order("force_delete", stage="Drain")
        await asyncio.wait_for(handle.result(), 30)
        assert outside.finalizer_removed
        outside.drains_hang = False


WRONG = [
    pytest.param("pause", {"by": "ann", "scope": "Launches"}, id="reason missing"),
    pytest.param("pause", {**WHO, "scope": "Everything"}, id="unknown scope"),
    pytest.param("resume", {**WHO, "scope": "Launches"}, id="nothing paused"),
    pytest.param("scale_to", {**WHO, "instances": 99}, id="above maxInstances"),
    pytest.param("scale_to", {**WHO, "instances": "many"}, id="wrong type"),
    pytest.param("scale_to", {**WHO, "instances": 3, "x": 1}, id="unknown field"),
    pytest.param("terminate_instance", {**WHO, "id": "ins-nope"}, id="unknown instance"),
    pytest.param("replace_instance", {**WHO}, id="id missing"),
    pytest.param(
        "quarantine_zone", {**WHO, "provider": "tencent", "zone": "mars-1", "minutes": 5}, id="unknown zone"
    ),
    pytest.param("force_delete", {**WHO, "stage": "Drain"}, id="not deleting"),
    pytest.param("force_delete", {**WHO, "stage": "Everything"}, id="unknown stage"),
]


async def test_wrong_orders_are_seen_as_refused_and_the_pool_goes_on(
    client: Client, outside: Outside
) -> None:
    resolved = a_resolved(minInstances=1)
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: len(outside.machines) == 1)
        refused = 0
        for name, payload in (param.values for param in WRONG):
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update(str(name), payload)
            await handle.signal(str(name), payload)
            refused += 1
        await handle.signal("pause")
        await handle.signal("pause", "not an object")
        await handle.signal("no_such_order", WHO)
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("pause")
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("no_such_order", WHO)
        await outside.until(lambda: _refusals(outside) == refused + 3)
        before = len(outside.creates)
        grown = resolved.model_copy(
            update={"generation": 2, "spec": resolved.spec.model_copy(update={"min_instances": 2})}
        )
        await edit(handle, grown)
        await outside.until(lambda: len(outside.machines) == 2)
        assert len(outside.creates) == before + 1, "the wrong orders changed nothing"
        await edit(handle, grown.model_copy(update={"deleting": True, "generation": 3}))
        await handle.result()


def _refusals(outside: Outside) -> int:
    found = [e for e in outside.events if e.reason is EventReason.INTERVENTION_REFUSED]
    assert all("refused: " in e.message and len(e.message) > len("x refused: ") for e in found)
    assert not any("PauseScope" in e.message for e in found), "names of payloads, not of our classes"
    return len(found)


async def test_order_that_was_sent_while_no_worker_ran_is_carried_out(
    client: Client, outside: Outside
) -> None:
    resolved = a_resolved(minInstances=1)
    handle = await start(client, resolved)
    await handle.signal("scale_to", {**WHO, "instances": 3})
    waiting = asyncio.create_task(
        handle.execute_update("pause", {**WHO, "scope": "Disruptions"}, result_type=m.InterventionAnswer)
    )
    async with serving(client, outside):
        await outside.until(lambda: len(outside.machines) == 3)
        assert "paused" in (await waiting).done
        await edit(handle, resolved.model_copy(update={"deleting": True, "generation": 2}))
        await handle.result()


async def test_p08_purchase_that_is_queued_when_the_pool_is_deleted_is_called_back(
    client: Client, outside: Outside
) -> None:
    asked = asyncio.Event()

    def answer(request: LaunchRequest) -> LaunchAnswer | None:
        asked.set()
        return None

    outside.on_create = answer
    outside.hold_creates = asyncio.Event()
    resolved = a_resolved(minInstances=2)
    async with serving(client, outside):
        handle = await start(client, resolved)
        await outside.until(lambda: outside.waiting_creates == 2)
        await edit(handle, resolved.model_copy(update={"deleting": True, "generation": 2}))
        await handle.result()
        assert not asked.is_set(), "called back before the call left"
    assert outside.machines == {}
    assert outside.finalizer_removed
