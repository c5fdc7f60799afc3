"""Work by key: one task per key at a time, repeated until it succeeds, and nobody waits behind a bad key."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar

from crd_bridge.backoff import Backoff
from domain.contracts.errors import ClusterError

_log = logging.getLogger(__name__)

WorkKey = TypeVar("WorkKey", bound=Hashable)


class PostponedError(Exception):
    """The work cannot be done yet, for the reason given; it is tried again after a pause."""


@dataclass(frozen=True)
class Pace:
    """How much is done at once, and how often."""

    lanes: int = 16
    """Keys that are worked on at the same time."""
    repair_lanes: int = 4
    """The same for keys whose last attempt failed: in lanes of their own they never block the others."""
    gather_seconds: float = 0.0
    """Pause before work begins, so that marks which come together are served together."""
    backoff: Backoff = field(default_factory=Backoff)
    """Pauses after failures; a new mark ends the pause."""


ServedHook = Callable[[str, bool, float], None]
"""Called after each attempt as ``(name of the work, success, seconds since the key was marked)``."""


def ignore_served(_: str, __: bool, ___: float) -> None:  # noqa: FBT001 - the hook's arguments are positional
    """Count nothing."""


class KeyedTasks(Generic[WorkKey]):
    """Serves marked keys as long as its context is open; leaving it cancels what is under way."""

    def __init__(
        self,
        name: str,
        work: Callable[[WorkKey], Awaitable[None]],
        pace: Pace | None = None,
        on_served: ServedHook = ignore_served,
    ) -> None:
        """Describe the work.

        Args:
            name: For the log.
            work: Brings one key up to date, whatever changed. Raises when it must be repeated.
            pace: How much at once.
            on_served: Told of each attempt.
        """
        self._name = name
        self._work = work
        self._pace = pace or Pace()
        self._on_served = on_served
        self._lanes = asyncio.Semaphore(self._pace.lanes)
        self._repair_lanes = asyncio.Semaphore(self._pace.repair_lanes)
        self._marks: dict[WorkKey, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def unfinished(self) -> int:
        """Keys that wait, are worked on, or are paused after a failure."""
        return len(self._marks)

    def mark(self, key: WorkKey) -> None:
        """Have a key served, once more if it is being served now."""
        mark = self._marks.get(key)
        if mark is not None:
            mark.set()
            return
        self._marks[key] = asyncio.Event()
        task = asyncio.create_task(self._serve(key), name=f"{self._name} {key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: WorkKey) -> None:
        """Work until there was a success with no mark after its beginning."""
        mark, failures, marked_at = self._marks[key], 0, time.monotonic()
        try:
            while True:
                await asyncio.sleep(self._pace.gather_seconds)
                async with self._repair_lanes if failures else self._lanes:
                    mark.clear()
                    failures = 0 if await self._attempt(key, failures) else failures + 1
                self._on_served(self._name, failures == 0, time.monotonic() - marked_at)
                if not failures:
                    marked_at = time.monotonic()
                if failures:
                    await _wait(mark, self._pace.backoff.pause(failures))
                elif not mark.is_set():
                    return
        finally:
            del self._marks[key]

    async def _attempt(self, key: WorkKey, failures: int) -> bool:
        extra = {"work": self._name, "key": str(key), "failures": failures + 1}
        try:
            await self._work(key)
        except (PostponedError, ClusterError) as error:
            _log.warning("Postponed", extra={**extra, "reason": str(error)})
            return False
        except Exception:  # noqa: BLE001 - the edge of a key: a bug at one must not stop the others
            _log.exception("Failed", extra=extra)
            return False
        return True


async def _wait(mark: asyncio.Event, seconds: float) -> None:
    """Until marked, at most some seconds."""
    task = asyncio.ensure_future(mark.wait())
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
