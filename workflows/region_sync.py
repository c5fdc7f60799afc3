"""RegionSync: one per provider, account and region; watches for ever at almost no history."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities import signatures
from activities.signatures import WatchRegionRequest
from domain.contracts.settings import SyncSettings
from workflows import options
from workflows.messages import CONFIGURE, REGION_SYNC_WORKFLOW, RegionSyncInput

_PAUSE: Final = timedelta(seconds=30)
"""After a failure that no retry mends: a region that is no longer served, or a broken build."""


@workflow.defn(name=REGION_SYNC_WORKFLOW)
class RegionSync:
    """Keeps one watching activity running, and continues as new each time that it returns."""

    @workflow.init
    def __init__(self, request: RegionSyncInput) -> None:
        self._request = request
        self._inbox: list[tuple[str, Sequence[RawValue]]] = []

    @workflow.run
    async def run(self, request: RegionSyncInput) -> None:
        """Watch until the settings change or the hour is over, then start afresh."""
        workflow.set_current_details(_details(request))
        watch = asyncio.ensure_future(self._watch())
        settings = await self._next_settings(watch)
        if settings is not None:
            watch.cancel()
            await workflow.wait([watch])
        changed = {} if settings is None else {"settings": settings}
        workflow.continue_as_new(request.model_copy(update=changed))

    async def _watch(self) -> None:
        request = WatchRegionRequest(region=self._request.region, settings=self._request.settings)
        try:
            await workflow.execute_activity(
                signatures.watch_region,
                request,
                **options.watch_region(request.settings),
                summary=str(request.region),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            workflow.logger.error("Watching failed for good", extra={"reason": str(error.cause)})
            await workflow.sleep(_PAUSE, summary="after a failure that no retry mends")

    async def _next_settings(self, watch: "asyncio.Future[None]") -> SyncSettings | None:
        """Other settings that were sent, or None when the activity ended first."""
        while True:
            await workflow.wait_condition(lambda: watch.done() or bool(self._inbox))
            if not self._inbox:
                return None
            settings = _settings_in(*self._inbox.pop(0))
            if settings is not None and settings != self._request.settings:
                return settings

    @workflow.signal(dynamic=True)
    def receive(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Only keep it: a typed handler would wedge the workflow on a signal without payload."""
        self._inbox.append((name, payloads))


def _settings_in(name: str, payloads: Sequence[RawValue]) -> SyncSettings | None:
    """Decode ``configure``; anything else is logged and dropped."""
    if name == CONFIGURE and len(payloads) == 1:
        try:
            return SyncSettings.model_validate_json(payloads[0].payload.data)
        except ValueError:
            pass
    workflow.logger.warning("Signal refused", extra={"signal": name})
    return None


def _details(request: RegionSyncInput) -> str:
    settings = request.settings
    return (
        f"Lists the machines of `{request.region}` every {settings.polling_interval_seconds:g} s and tells"
        f" pools what changed. The circuit opens after {settings.failures_to_open} failures in a row."
    )
