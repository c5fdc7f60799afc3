"""Stops at exact points of a request, so that a test can kill its caller just there and prove it.

Each hit is recorded at the hook and in the request log before the hook acts.
"""

import asyncio
import itertools
import os
import signal
import urllib.request
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from sandbox.clouds.requests import RequestRecord


class HookPoint(StrEnum):
    """Where a request is stopped."""

    RECEIVED = "received"
    """Read and verified, nothing carried out."""
    CARRIED_OUT = "carried-out"
    """Done, not answered."""
    ANSWERED = "answered"
    """The answer was handed to the network."""


class Hook(BaseModel):
    """What to do when a request reaches a point. The steps run in the order of the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    point: HookPoint
    action: str = ""
    """Vendor's action name; empty means every action."""
    count: PositiveInt = 1
    """Act on this many requests, then rest."""
    kill_pid: int | None = Field(default=None, gt=1)
    """Send SIGKILL to this process; one that is gone already counts as killed."""
    touch: str = ""
    """Create this file; its content is the record's number."""
    url: str = ""
    """GET this address (5 s at most)."""
    block: bool = False
    """Hold the request until it is released or ``block_seconds`` are over."""
    block_seconds: PositiveFloat = 60.0


class HookReport(BaseModel):
    """A hook and the numbers of the requests that hit it."""

    id: int
    hook: Hook
    hits: list[int] = Field(default_factory=list[int])
    released: bool = False


@dataclass
class _Armed:
    report: HookReport
    release: asyncio.Event = field(default_factory=asyncio.Event)


class HookBoard:
    """The hooks of one server. Used in the server's event loop only; other threads go through its API."""

    def __init__(self) -> None:
        self._armed: dict[int, _Armed] = {}
        self._ids = itertools.count(1)

    def set(self, hook: Hook) -> int:
        """Add a hook; its number is used to look at it and to release it."""
        number = next(self._ids)
        self._armed[number] = _Armed(HookReport(id=number, hook=hook))
        return number

    def release(self, number: int) -> None:
        """Let the held requests go on, and hold no more.

        Raises:
            KeyError: no such hook.
        """
        armed = self._armed[number]
        armed.report.released = True
        armed.release.set()

    def clear(self) -> None:
        """Remove all hooks and let everything that is held go on."""
        for armed in self._armed.values():
            armed.release.set()
        self._armed.clear()

    def reports(self) -> tuple[HookReport, ...]:
        """All hooks, oldest first, those at rest included."""
        return tuple(armed.report for armed in self._armed.values())

    async def reach(self, point: HookPoint, record: RequestRecord) -> None:
        """Run the hooks of a point for one request."""
        for armed in tuple(self._armed.values()):
            hook = armed.report.hook
            if hook.point is not point or hook.action not in ("", record.action):
                continue
            if len(armed.report.hits) >= hook.count:
                continue
            armed.report.hits.append(record.number)
            record.points.append(f"{point}:{armed.report.id}")
            await _act(hook, armed.release, record)


async def _act(hook: Hook, release: asyncio.Event, record: RequestRecord) -> None:
    if hook.kill_pid is not None:
        _kill(hook.kill_pid)
    if hook.touch:
        await asyncio.to_thread(Path(hook.touch).write_text, f"{record.number}\n")
    if hook.url:
        await asyncio.to_thread(_get, hook.url)
    if hook.block:
        await _wait(release, hook.block_seconds)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # what was to be dead is dead


def _get(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes by a proxy
    with opener.open(url, timeout=5) as answer:
        answer.read()


async def _wait(release: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(release.wait(), seconds)
    except TimeoutError:
        return  # the limit is part of the hook: a test that died must not hold the server for ever
