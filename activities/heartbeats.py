"""Signs of life of long activities, and waits that end with the worker."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

_BEAT: Final = timedelta(seconds=2)
_BEATS_PER_TIMEOUT: Final = 3
WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""Type of the failure by which an activity hands over to another worker."""


def _pause_between() -> float:
    """Seconds between two beats: three fit into the time-out, however short it is."""
    timeout = activity.info().heartbeat_timeout
    return (min(_BEAT, timeout / _BEATS_PER_TIMEOUT) if timeout else _BEAT).total_seconds()


@contextmanager
def beating_thread() -> Generator[None]:
    """Heartbeats from a helper thread, for an activity whose own thread is blocked in a call."""
    ended = threading.Event()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(_beat_until, ended, _pause_between()), name="heartbeat", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat_until(ended: threading.Event, pause_seconds: float) -> None:
    # The start counts as the first beat; a call that ends before the next one is due needs none, and its
    # completion does not wait for the answer to one.
    while not ended.wait(pause_seconds):
        try:
            activity.heartbeat()
        except (TimeoutError, RuntimeError):
            # The event loop is busy or going down. The server notices what matters: that beats are missing.
            activity.logger.warning("Heartbeat not delivered", exc_info=True)


@asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Heartbeats beside an async activity."""
    beats = asyncio.create_task(_beat_always(_pause_between()))
    try:
        yield
    finally:
        beats.cancel()
        with suppress(asyncio.CancelledError):
            await beats


async def _beat_always(pause_seconds: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(pause_seconds)


async def pause(delay: timedelta) -> None:
    """Wait, but not longer than this worker lives.

    Raises:
        ApplicationError: ``WorkerShutdown``, so that another worker goes on within a second.
    """
    try:
        await asyncio.wait_for(activity.wait_for_worker_shutdown(), delay.total_seconds())
    except TimeoutError:
        return
    raise ApplicationError(
        "this worker shuts down",
        type=WORKER_SHUTDOWN,
        next_retry_delay=timedelta(seconds=1),
        category=ApplicationErrorCategory.BENIGN,
    )
