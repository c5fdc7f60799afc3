"""List, watch, resume: a reflector keeps a cache of one collection and tells its subscribers what changed."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NoReturn

from activities.cluster.base import Cluster, Object, Resource, WatchEvent
from crd_bridge.backoff import Backoff
from crd_bridge.keyed_queue import QUEUE_CAPACITY, Key, KeyedQueue
from domain.contracts.errors import ClusterError

_log = logging.getLogger(__name__)

SHORTEST_WATCH_SECONDS = 1.0
RELIST_AFTER_FAILURES = 4


def key_of(item: Object) -> Key:
    """Namespace and name of an object."""
    metadata = item["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])


def version_of(item: Object) -> str:
    """The ``resourceVersion`` of an object."""
    return str(item["metadata"]["resourceVersion"])


def unchanged(item: Object) -> Object:
    """Cache objects whole."""
    return item


@dataclass(frozen=True)
class Change:
    """What became of one object; for DELETED the object as it was last seen."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object


@dataclass(frozen=True)
class Scope:
    """Which objects of a resource are watched."""

    resource: Resource
    namespace: str = ""
    """Empty: all namespaces."""
    label_selector: str = ""
    trim: Callable[[Object], Object] = field(default=unchanged, compare=False)
    """Cuts an object down to what is cached; must keep ``metadata`` with name, namespace and version."""


WatchHook = Callable[[Resource, str], None]
"""Called with the resource and ``list``, ``watch``, ``expired`` or ``error`` as each happens."""


def ignore_watch(_: Resource, __: str) -> None:
    """Count nothing."""


class Reflector:
    """One collection: its cache, and a queue of changes for each subscriber. Stop it by cancelling ``run``.

    The cache and the queues outlive interruptions; what was missed meanwhile arrives as changes.
    """

    def __init__(
        self,
        cluster: Cluster,
        scope: Scope,
        *,
        backoff: Backoff | None = None,
        watch_seconds: tuple[int, int] = (240, 300),
        on_watch: WatchHook = ignore_watch,
    ) -> None:
        """Describe a reflector.

        Args:
            cluster: Where to look.
            scope: What to look at.
            backoff: Pauses after failures.
            watch_seconds: Shortest and longest life of one watch; drawn anew each time, so that watches of
                many resources do not all end together.
            on_watch: Told of lists, watches and failures.
        """
        self.scope = scope
        self._cluster = cluster
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._on_watch = on_watch
        self._cache: dict[Key, Object] = {}
        self._queues: list[KeyedQueue[Change]] = []
        self._synced = asyncio.Event()
        self._version = ""
        self._as_of = datetime.fromtimestamp(0, UTC)

    @property
    def as_of(self) -> datetime:
        """When the cache was last known to be complete: the last list, event or bookmark."""
        return self._as_of

    @property
    def is_synced(self) -> bool:
        """Whether the collection was listed once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once the collection was listed."""
        await self._synced.wait()

    def get(self, key: Key) -> Object | None:
        """The object as it was last seen. Not to be changed by the caller."""
        return self._cache.get(key)

    def objects(self) -> list[Object]:
        """Every object, in no order. Not to be changed by the caller."""
        return list(self._cache.values())

    def subscribe(self, capacity: int = QUEUE_CAPACITY) -> KeyedQueue[Change]:
        """A queue of everything that changes from now on. Subscribe before ``run`` to get the first list."""
        queue: KeyedQueue[Change] = KeyedQueue(capacity)
        self.feed(queue)
        return queue

    def feed(self, queue: KeyedQueue[Change]) -> None:
        """Put everything that changes from now on into a queue that may have other sources, too."""
        self._queues.append(queue)

    async def run(self) -> NoReturn:
        """List and watch until cancelled. No failure of the server ends it."""
        failures = 0
        while True:
            version, began = self._version, time.monotonic()
            try:
                await self._follow()
            except ClusterError as error:
                failures = 1 if self._version != version else failures + 1
                await self._recover(error, failures)
                continue
            # A server that ends every watch at once, without a word, must not be asked in a tight loop.
            idle = self._version == version and time.monotonic() - began < SHORTEST_WATCH_SECONDS
            failures = failures + 1 if idle else 0
            if idle:
                await asyncio.sleep(self._backoff.pause(failures))

    async def _follow(self) -> None:
        """Catch up by a list if there is no version to go on from, then watch until the server ends it."""
        if not self._version:
            await self._list()
        seconds = random.randint(*self._watch_seconds)  # noqa: S311 - spreads load, guards nothing
        self._on_watch(self.scope.resource, "watch")
        events: AsyncGenerator[WatchEvent, None] = self._cluster.watch(
            self.scope.resource,
            resource_version=self._version,
            namespace=self.scope.namespace,
            label_selector=self.scope.label_selector,
            timeout_seconds=seconds,
        )
        async with aclosing(events):
            async for event in events:
                await self._take(event)

    async def _list(self) -> None:
        """Read every page, and tell of the difference to the cache.

        The difference is told before the version is taken over: if this is interrupted, it is listed again.
        """
        self._on_watch(self.scope.resource, "list")
        asked_at = datetime.now(UTC)
        fresh, version = await self._read_pages()
        for key in sorted(self._cache.keys() - fresh.keys()):
            await self._tell(key, Change("DELETED", self._cache.pop(key)))
        for key, item in fresh.items():
            known = self._cache.get(key)
            if known is None or version_of(known) != version_of(item):
                self._cache[key] = item
                await self._tell(key, Change("MODIFIED" if known else "ADDED", item))
        self._version, self._as_of = version, asked_at
        self._synced.set()

    async def _read_pages(self) -> tuple[dict[Key, Object], str]:
        fresh: dict[Key, Object] = {}
        token = ""
        while True:
            page = await self._cluster.list_page(
                self.scope.resource,
                namespace=self.scope.namespace,
                label_selector=self.scope.label_selector,
                continue_token=token,
            )
            fresh.update(self._trimmed(page.items))
            token = page.continue_token
            if not token:
                return fresh, page.resource_version

    def _trimmed(self, items: Iterable[Object]) -> Iterable[tuple[Key, Object]]:
        return ((key_of(item), self.scope.trim(item)) for item in items)

    async def _take(self, event: WatchEvent) -> None:
        """Bring one event into the cache and tell of it; the version moves on last."""
        if event.type != "BOOKMARK":
            key, item = key_of(event.object), self.scope.trim(event.object)
            known = self._cache.get(key)
            if event.type == "DELETED":
                self._cache.pop(key, None)
                change = Change("DELETED", item)
            else:
                self._cache[key] = item
                change = Change("MODIFIED" if known else "ADDED", item)
            await self._tell(key, change)
        self._as_of = datetime.now(UTC)
        self._version = version_of(event.object)

    async def _tell(self, key: Key, change: Change) -> None:
        for queue in self._queues:
            await queue.put(key, change)

    async def _recover(self, error: ClusterError, failures: int) -> None:
        """Decide what to go on from, and pause.

        A version may also be refused without the word "expired": one from before a restore of the server's
        store lies in its future. So after some failures in a row the collection is listed again.
        """
        expired = error.status == 410
        self._on_watch(self.scope.resource, "expired" if expired else "error")
        stated = error.retry_after.total_seconds() if error.retry_after else 0.0
        seconds = self._backoff.pause(failures, at_least=min(stated, self._backoff.longest_seconds))
        if expired or failures >= RELIST_AFTER_FAILURES:
            self._version = ""
        if expired and failures == 1:
            return
        extra = {"resource": self.scope.resource.plural, "reason": str(error), "pause_seconds": seconds}
        _log.warning("Watch interrupted", extra=extra)
        await asyncio.sleep(seconds)
