"""A bounded queue that keeps only the newest value of each key."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

QUEUE_CAPACITY = 10_000
"""Keys that a subscriber may leave waiting before its source waits for it."""

Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""

Value = TypeVar("Value")


class KeyedQueue(Generic[Value]):
    """Waiting keys in the order in which they came, each with its newest value only.

    A full queue makes ``put`` of a new key wait: the watch behind it pauses, and nothing is lost.
    """

    def __init__(self, capacity: int = QUEUE_CAPACITY) -> None:
        """Hold at most ``capacity`` keys."""
        self._capacity = capacity
        self._waiting: dict[Key, Value] = {}
        self._changed = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, key: Key, value: Value) -> None:
        """Add a key, or replace the value of one that waits; it keeps its place."""
        async with self._changed:
            await self._changed.wait_for(lambda: key in self._waiting or len(self._waiting) < self._capacity)
            self._waiting[key] = value
            self._changed.notify_all()

    async def take(self) -> tuple[Key, Value]:
        """Remove and return the key that waits longest, waiting for one."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting))
            key = next(iter(self._waiting))
            value = self._waiting.pop(key)
            self._changed.notify_all()
            return key, value

    async def __aiter__(self) -> AsyncIterator[tuple[Key, Value]]:
        while True:
            yield await self.take()
