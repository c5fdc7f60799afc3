"""The bridge: while it leads, custom resources, Nodes and pods become messages to the pools' workflows."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from temporalio.client import Client

from activities.cluster.base import NODE_CLASSES, NODES, POOLS, PROFILES, STRATEGIES, Cluster, Object
from crd_bridge.backoff import Backoff
from crd_bridge.collection import Collection
from crd_bridge.demand_relay import DemandRelay
from crd_bridge.election import Elector, LeaseDurations
from crd_bridge.intents import pools_naming_node_class, pools_naming_strategy
from crd_bridge.keyed_queue import Key, KeyedQueue
from crd_bridge.keyed_tasks import KeyedTasks, Pace, ServedHook, ignore_served
from crd_bridge.node_relay import NodeRelay, SkipHook
from crd_bridge.nodes import trim_node
from crd_bridge.parts import Parts
from crd_bridge.pool_workflows import DeliveryError, PoolWorkflows
from crd_bridge.reconcile import Reconciler
from crd_bridge.watch import Change, Reflector, Scope, WatchHook, ignore_watch, key_of
from domain.contracts.settings import PoolSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BridgeHooks:
    """What is told to metrics; each is called often and must return at once."""

    on_leading: Callable[[bool], None] = lambda _: None
    on_watch: WatchHook = ignore_watch
    on_skipped_nodes: SkipHook = lambda _: None
    on_served: ServedHook = ignore_served
    """Work is ``pool``, ``node_seen`` or ``demand``; the seconds of a success are the lag."""


@dataclass(frozen=True)
class BridgeSettings:
    """How one bridge works. Durations are settings, so that tests can shrink them."""

    identity: str
    """Of this process; must differ between processes and between starts."""
    pool_settings: PoolSettings
    """Sent to every pool with its spec."""
    operator_namespace: str = "spotgpu-system"
    """Where the Lease is, and where node classes are looked for, too."""
    installation: str = ""
    """Id of this installation; workflows of another are never told that their resource is gone."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose pools are served; empty means all."""
    lease_name: str = "spotgpu-bridge"
    lease: LeaseDurations = field(default_factory=LeaseDurations)
    resync_interval: timedelta = timedelta(minutes=10)
    """How often everything is sent again, which heals whatever was missed."""
    revive_interval: timedelta = timedelta(minutes=1)
    """How often workflows that a human ended are looked for: until it runs again nobody keeps the pool."""
    answer_seconds: float = 10.0
    """How long a workflow may take to answer before it is asked again."""
    node_gather_seconds: float = 0.2
    demand_gather_seconds: float = 0.5
    pool_pace: Pace = field(default_factory=Pace)
    watch_backoff: Backoff = field(default_factory=Backoff)
    hooks: BridgeHooks = field(default_factory=BridgeHooks)


Taker = Callable[[Key, Change], None]


async def run_bridge(cluster: Cluster, client: Client, settings: BridgeSettings, stop: asyncio.Event) -> None:
    """Compete for the Lease and bridge while it is held, until ``stop`` is set.

    Everything that runs has ended when this returns, and the Lease is given back.

    Raises:
        Exception: A bug; the process should end and be started again. Faults of servers never raise.
    """
    elector = Elector(
        cluster,
        namespace=settings.operator_namespace,
        name=settings.lease_name,
        identity=settings.identity,
        durations=settings.lease,
        on_leading=settings.hooks.on_leading,
    )
    running = asyncio.ensure_future(elector.run(lambda: Bridge(cluster, client, settings).run()))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait({running, stopping})
    if not running.cancelled():
        running.result()


class Bridge:
    """One term of leadership: begins with an empty memory, lists everything and sends it once."""

    def __init__(self, cluster: Cluster, client: Client, settings: BridgeSettings) -> None:
        """Wire up; nothing is read yet."""
        self._cluster = cluster
        self._settings = settings
        self._parts = Parts()
        self._workflows = PoolWorkflows(
            client,
            settings.pool_settings,
            installation=settings.installation,
            answer_seconds=settings.answer_seconds,
        )
        self._pools = self._collect(Scope(POOLS))
        self._strategies = self._collect(Scope(STRATEGIES))
        self._profiles = self._collect(Scope(PROFILES))
        self._node_classes = self._collect(Scope(NODE_CLASSES), also=settings.operator_namespace)
        self._nodes = self._collect(Scope(NODES, trim=trim_node))
        self._uids: dict[str, Key] = {}
        self._loaded = False
        self._reconciler = Reconciler(
            cluster,
            self._pools,
            self._parts,
            self._workflows,
            operator_namespace=settings.operator_namespace,
            on_new_run=self._send_all,
        )
        self._pool_tasks = KeyedTasks(
            "pool", self._reconciler.serve, settings.pool_pace, settings.hooks.on_served
        )
        self._node_relay, self._demand_relay = self._relays(settings.hooks)

    def _relays(self, hooks: BridgeHooks) -> tuple[NodeRelay, DemandRelay]:
        nodes = NodeRelay(
            self._nodes,
            self._uids.get,
            self._workflows,
            gather_seconds=self._settings.node_gather_seconds,
            on_skipped=hooks.on_skipped_nodes,
            on_served=hooks.on_served,
        )
        demand = DemandRelay(
            self._parts,
            self._workflows,
            self._collect,
            gather_seconds=self._settings.demand_gather_seconds,
            on_served=hooks.on_served,
        )
        return nodes, demand

    async def run(self) -> None:
        """Bridge until cancelled."""
        async with AsyncExitStack() as stack:
            for tasks in (self._pool_tasks, self._node_relay.tasks, self._demand_relay.tasks):
                await stack.enter_async_context(tasks)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            self._watch(group)
            await self._load()
            group.create_task(self._demand_relay.run())
            group.create_task(self._resync())
            group.create_task(self._revive())

    def _watch(self, group: asyncio.TaskGroup) -> None:
        takers: tuple[tuple[Collection, Taker], ...] = (
            (self._pools, self._on_pool),
            (self._strategies, self._on_strategy),
            (self._profiles, self._on_profile),
            (self._node_classes, self._on_node_class),
            (self._nodes, self._node_relay.take),
        )
        for collection, take in takers:
            group.create_task(_follow(collection.subscribe(), take))
            group.create_task(collection.run())

    async def _load(self) -> None:
        """Wait until everything was listed once: no reference must look broken by haste."""
        for collection in (self._pools, self._strategies, self._profiles, self._node_classes, self._nodes):
            await collection.wait_synced()
        # The queues may not be empty yet, so the parts are read once more from the caches.
        for body in self._strategies.objects():
            self._parts.put_strategy(key_of(body), body)
        for body in self._node_classes.objects():
            self._parts.put_node_class(key_of(body), body)
        for body in self._profiles.objects():
            self._parts.put_profile(key_of(body), body)
        for body in self._pools.objects():
            self._uids[_uid_of(body)] = key_of(body)
        self._loaded = True

    async def _resync(self) -> None:
        """Send everything, now and again and again; look for workflows that nobody's resource asks for."""
        failures = 0
        while True:
            try:
                running = frozenset(await self._workflows.open_pools())
                failures = 0
            except DeliveryError as error:
                running, failures = None, failures + 1
                _log.warning("Open pools not listed", extra={"reason": str(error)})
            self._send_everything(running)
            pause = self._settings.resync_interval.total_seconds()
            await asyncio.sleep(
                min(pause, self._settings.watch_backoff.pause(failures)) if failures else pause
            )

    async def _revive(self) -> None:
        """Start again, long before the next full pass, what should run and does not."""
        while True:
            await asyncio.sleep(self._settings.revive_interval.total_seconds())
            try:
                running = frozenset(await self._workflows.open_pools())
            except DeliveryError as error:
                _log.warning("Open pools not listed", extra={"reason": str(error)})
                continue
            for key in sorted({key_of(body) for body in self._pools.objects()} - running):
                self._reconciler.force(key, restart=True)
                self._pool_tasks.mark(key)

    def _send_everything(self, running: frozenset[Key] | None) -> None:
        """Mark every pool, and every workflow that runs without one; None when it is not known what runs."""
        pools = {key_of(body) for body in self._pools.objects()}
        for key in sorted(pools):
            self._reconciler.force(key, restart=running is not None and key not in running)
        unasked = (key for key in (running or ()) if key not in pools and self._is_watched(key[0]))
        for key in (*sorted(pools), *sorted(unasked)):
            self._pool_tasks.mark(key)

    def _on_pool(self, key: Key, change: Change) -> None:
        if change.type == "DELETED":
            self._uids.pop(_uid_of(change.object), None)
            self._node_relay.forget(_uid_of(change.object))
            self._demand_relay.forget(key)
        else:
            self._uids[_uid_of(change.object)] = key
        self._mark((key,))

    def _on_strategy(self, key: Key, change: Change) -> None:
        self._parts.put_strategy(key, _present(change))
        self._mark(pools_naming_strategy(self._pools.objects(), key))

    def _on_profile(self, key: Key, change: Change) -> None:
        pools = self._parts.put_profile(key, _present(change))
        self._demand_relay.profiles_changed(pools)
        self._mark(pools)

    def _on_node_class(self, key: Key, change: Change) -> None:
        self._parts.put_node_class(key, _present(change))
        namespace = self._settings.operator_namespace
        self._mark(pools_naming_node_class(self._pools.objects(), key, operator_namespace=namespace))

    def _mark(self, pools: Iterable[Key]) -> None:
        if self._loaded:
            for key in pools:
                self._pool_tasks.mark(key)

    def _send_all(self, pool: Key) -> None:
        """Another run answers for a pool: give it what is signalled only on change."""
        body = self._pools.get(pool)
        if body is not None:
            self._node_relay.send_all(_uid_of(body))
            self._demand_relay.send_all(pool)

    def _is_watched(self, namespace: str) -> bool:
        return not self._settings.namespaces or namespace in self._settings.namespaces

    def _collect(self, scope: Scope, *, also: str = "") -> Collection:
        """Watch a scope; one without a namespace of its own in every watched namespace."""
        namespaces: tuple[str, ...] = (scope.namespace,)
        if scope.resource.namespaced and not scope.namespace and self._settings.namespaces:
            namespaces = tuple(dict.fromkeys((*self._settings.namespaces, *([also] if also else ()))))
        return Collection(
            [
                Reflector(
                    self._cluster,
                    replace(scope, namespace=namespace),
                    backoff=self._settings.watch_backoff,
                    on_watch=self._settings.hooks.on_watch,
                )
                for namespace in namespaces
            ]
        )


async def _follow(changes: KeyedQueue[Change], take: Taker) -> None:
    async for key, change in changes:
        take(key, change)


def _present(change: Change) -> Object | None:
    return None if change.type == "DELETED" else change.object


def _uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])
