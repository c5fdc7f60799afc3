"""What workloads ask for, on its way to the pools: sent when it changes, and once per run of a workflow."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activities.cluster.base import PODS, Object
from crd_bridge.collection import Collection
from crd_bridge.demand import assess_demand, trim_pod
from crd_bridge.keyed_queue import Key, KeyedQueue
from crd_bridge.keyed_tasks import KeyedTasks, Pace, PostponedError, ServedHook, ignore_served
from crd_bridge.parts import Parts, selector_text
from crd_bridge.pool_workflows import PoolWorkflows
from crd_bridge.watch import Change, Scope
from domain.contracts.facts import Demand, ProfileDemand
from domain.contracts.names import LABEL_PROFILE
from domain.contracts.resolved import ProfilePart
from workflows.messages import DEMAND

LABELLED_PODS = Scope(PODS, label_selector=LABEL_PROFILE, trim=trim_pod)
"""Every pod that names a profile; pods of profiles with a selector of their own are watched apart."""


@dataclass(frozen=True)
class _Source:
    """Pods of one selector, and the task that watches them."""

    pods: Collection
    task: asyncio.Task[None]


class DemandRelay:
    """Signals ``demand``. Run it, use ``tasks`` as a context, and tell it of profiles."""

    def __init__(
        self,
        parts: Parts,
        workflows: PoolWorkflows,
        collect: Callable[[Scope], Collection],
        *,
        gather_seconds: float = 0.5,
        on_served: ServedHook = ignore_served,
    ) -> None:
        """Wire up.

        Args:
            parts: Profiles as watched.
            workflows: Where signals go.
            collect: Makes what watches a scope; a scope without a namespace means every watched one.
            gather_seconds: How long changes are gathered into one signal.
            on_served: Told of each attempt to send.
        """
        self._parts = parts
        self._workflows = workflows
        self._collect = collect
        self._labelled = collect(LABELLED_PODS)
        self._selected: dict[tuple[str, str], _Source] = {}
        self._sent: dict[Key, tuple[ProfileDemand, ...]] = {}
        self._open: set[Key] = set()
        self._group: asyncio.TaskGroup | None = None
        self.tasks = KeyedTasks("demand", self._send, Pace(gather_seconds=gather_seconds), on_served)

    async def run(self) -> None:
        """Watch pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._watch(group, self._labelled)
            self._follow_selectors()

    def profiles_changed(self, pools: Iterable[Key]) -> None:
        """Profiles of these pools came, changed or went."""
        self._follow_selectors()
        for pool in pools:
            self.tasks.mark(pool)

    def send_all(self, pool: Key) -> None:
        """Send a pool's demand whatever was sent: a run answered that may hold an old one."""
        self._open.add(pool)
        self._sent.pop(pool, None)
        self.tasks.mark(pool)

    def forget(self, pool: Key) -> None:
        """The pool is gone."""
        self._open.discard(pool)
        self._sent.pop(pool, None)

    def _follow_selectors(self) -> None:
        """Watch exactly the selectors that profiles name."""
        if self._group is None:
            return  # not running yet; ``run`` begins with this
        wanted = self._parts.pod_selectors()
        for left in self._selected.keys() - wanted:
            self._selected.pop(left).task.cancel()
        for namespace, selector in sorted(wanted - self._selected.keys()):
            pods = self._collect(Scope(PODS, namespace, selector, trim_pod))
            self._selected[namespace, selector] = _Source(pods, self._watch(self._group, pods))

    def _watch(self, group: asyncio.TaskGroup, pods: Collection) -> asyncio.Task[None]:
        changes = pods.subscribe()

        async def watch() -> None:
            async with asyncio.TaskGroup() as both:
                both.create_task(pods.run())
                both.create_task(self._follow(changes))

        return group.create_task(watch())

    async def _follow(self, changes: KeyedQueue[Change]) -> None:
        """Any change of a pod concerns the pools of its namespace; what did not change is not sent."""
        async for (namespace, _), _ in changes:
            for pool in self._parts.pools_with_profiles(namespace):
                self.tasks.mark(pool)

    async def _send(self, pool: Key) -> None:
        if pool not in self._open:
            return
        sources = self._sources(pool)
        if not all(source.is_synced for source in sources):
            raise PostponedError(f"the pods of {'/'.join(pool)} have not been listed yet")
        demand = self._assess(pool, sources)
        if self._sent.get(pool) == demand.profiles:
            return
        if await self._workflows.signal(pool, DEMAND, demand):
            self._sent[pool] = demand.profiles
        else:
            self.forget(pool)  # no run: the next one gets it

    def _sources(self, pool: Key) -> list[Collection]:
        selectors = {
            selector_text(part.spec.pod_selector)
            for _, part in self._parts.profiles_of(pool)
            if isinstance(part, ProfilePart) and part.spec.pod_selector
        }
        keys = [(pool[0], selector) for selector in sorted(selectors)]
        return [self._labelled, *(self._selected[key].pods for key in keys if key in self._selected)]

    def _assess(self, pool: Key, sources: list[Collection]) -> Demand:
        """Work out the demand; of a profile that cannot be read the last known stays."""
        readable = [part for _, part in self._parts.profiles_of(pool) if isinstance(part, ProfilePart)]
        pods = (pod for source in sources for pod in source.objects() if _is_in(pool[0], pod))
        fresh = assess_demand(readable, pods, as_of=min(source.as_of for source in sources))
        broken = {name for name, part in self._parts.profiles_of(pool) if not isinstance(part, ProfilePart)}
        kept = tuple(entry for entry in self._sent.get(pool, ()) if entry.profile in broken)
        return fresh.model_copy(update={"profiles": fresh.profiles + kept})


def _is_in(namespace: str, pod: Object) -> bool:
    return pod["metadata"].get("namespace") == namespace
