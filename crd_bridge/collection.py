"""One kind of object over one or several namespaces, seen as one."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from activities.cluster.base import Object
from crd_bridge.keyed_queue import QUEUE_CAPACITY, Key, KeyedQueue
from crd_bridge.watch import Change, Reflector


class Collection:
    """Reflectors whose scopes do not overlap. Stop it by cancelling ``run``."""

    def __init__(self, reflectors: Sequence[Reflector]) -> None:
        """Join at least one reflector."""
        self._reflectors = tuple(reflectors)

    @property
    def as_of(self) -> datetime:
        """When all of the cache was last known to be complete."""
        return min(reflector.as_of for reflector in self._reflectors)

    @property
    def is_synced(self) -> bool:
        """Whether everything was listed once."""
        return all(reflector.is_synced for reflector in self._reflectors)

    async def wait_synced(self) -> None:
        """Return once everything was listed."""
        for reflector in self._reflectors:
            await reflector.wait_synced()

    def get(self, key: Key) -> Object | None:
        """The object as it was last seen. Not to be changed by the caller."""
        return next((item for one in self._reflectors if (item := one.get(key)) is not None), None)

    def objects(self) -> list[Object]:
        """Every object, in no order. Not to be changed by the caller."""
        return [item for reflector in self._reflectors for item in reflector.objects()]

    def subscribe(self, capacity: int = QUEUE_CAPACITY) -> KeyedQueue[Change]:
        """One queue for all. Subscribe before ``run`` to get the first list."""
        queue: KeyedQueue[Change] = KeyedQueue(capacity)
        for reflector in self._reflectors:
            reflector.feed(queue)
        return queue

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
