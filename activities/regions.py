"""Watching a region for all pools at once, and listing an installation for the orphan sweep."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.service import RPCError

from activities.directory import PoolDirectory
from activities.failures import as_application_error
from activities.heartbeats import beating, pause
from activities.providers.base import Provider, ProviderSource
from activities.renewals import Renewals, SwitchSight
from activities.signatures import (
    InstallationReading,
    InstallationRequest,
    LeftoversReading,
    LeftoversRequest,
    WatchRegionRequest,
)
from activities.telemetry import metrics
from activities.turns import patient
from domain.contracts.errors import KEYS_REFUSED, ErrorCode, ProviderError
from domain.contracts.facts import OwnedMachine, RegionHealth, RegionObservation, RegionState
from domain.contracts.installation import Installation
from domain.contracts.instances import Instance, InstanceState
from domain.contracts.model import Contract
from domain.contracts.names import (
    TAG_EPOCH,
    TAG_INSTALLATION,
    TAG_LAUNCH,
    TAG_POOL,
    TAG_RETAINED,
    TAG_SLOT,
)
from domain.contracts.offers import RegionKey

OBSERVED: Final = "observed"
REGION_STATE: Final = "region_state"
MAX_MACHINES: Final = 3000
MAX_RETAINED: Final = 100
MAX_LEFTOVERS: Final = 100

_STALE_AFTER_FAILURES: Final = 3
"""Failed polls after which what pools know is older than three intervals."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_LONGEST_PROBE: Final = timedelta(minutes=5)
_SIGNALS_AT_ONCE: Final = 20
_REASON_CHARS: Final = 300


async def _stay(region: RegionKey) -> None:
    """Lanes are as fast as they always are."""


class RegionSight:
    """What a watcher remembers of a region: what it told to whom, and how its polls went.

    Lives as long as the process, so that the hourly renewal of the watching activity costs pools nothing.
    """

    def __init__(self) -> None:
        self.polled_at: datetime | None = None
        self.failures = 0
        """Polls that failed in a row."""
        self.throttled = 0
        """Those of them that came too fast for the cloud: it is well, so they open no circuit."""
        self.reason = ""
        self.code: ErrorCode | None = None
        """Of the newest failure; None after a success."""
        self.retry_after = timedelta()
        self.told: dict[str, str] = {}
        """Pool uid to the digest of the machines that it was last told of."""
        self.workflow_ids: dict[str, str] = {}
        self.told_health: tuple[RegionHealth, str] | None = None
        """What pools know: the health, and why the keys are refused if they are, without ids of requests."""
        self.announced = False
        """Whether every pool of the region was told everything once."""
        self.switches = SwitchSight()

    def health(self, failures_to_open: int) -> RegionHealth:
        """What the polls so far say of the region."""
        if self.failures - self.throttled >= failures_to_open:
            return RegionHealth.CIRCUIT_OPEN
        if self.failures >= (_STALE_AFTER_FAILURES if self.announced else 1):
            return RegionHealth.STALE
        return RegionHealth.OK


class RegionActivities:
    """Bound to live adapters and the directory of pools by ``workers.wiring``."""

    def __init__(
        self,
        providers: ProviderSource,
        installation: Installation,
        pools: PoolDirectory,
        *,
        jitter: Callable[[], float] = random.random,
        ease: Callable[[RegionKey], Awaitable[None]] = _stay,
    ) -> None:
        """Bind to live parts; ``ease`` is called after each poll and lets lanes that were slowed recover."""
        self._ease = ease
        self._providers = providers
        self._installation = installation
        self._pools = pools
        self._jitter = jitter
        self._sights: dict[str, RegionSight] = {}
        self._left_since: dict[str, dict[str, datetime]] = {}
        """Region to what has no machine there, and since when this process knows."""
        self._left_at: dict[str, datetime] = {}
        """Region to the newest look at that."""
        self._retained: dict[str, tuple[datetime, list[Instance]]] = {}
        """Region to the newest list of machines that deleted pools gave up."""

    @activity.defn(name="cloud.watch_region")
    async def watch_region(self, request: WatchRegionRequest) -> None:
        """Poll a region until the time is up, and signal to pools only what changed.

        Raises:
            ApplicationError: ``WorkerShutdown`` when another worker should go on.
        """
        sight = self._sight(request)
        watch = _Watch(self._providers, self._installation, self._pools, request, sight)
        until = datetime.now(UTC) + timedelta(seconds=request.settings.run_seconds)
        # Kept only if this run ends in order: after any other end somebody else may have told the pools.
        self._sights.pop(str(request.region), None)
        async with beating():
            while datetime.now(UTC) < until:
                await watch.poll()
                await self._ease(request.region)
                await pause(poll_delay(request, sight, self._jitter()))
        self._sights[str(request.region)] = sight

    def _sight(self, request: WatchRegionRequest) -> RegionSight:
        """The region's sight, or a new one when nobody looked for longer than three intervals."""
        name = str(request.region)
        sight = self._sights.get(name)
        interval = timedelta(seconds=request.settings.polling_interval_seconds)
        if sight is not None and sight.polled_at is not None:
            gap = datetime.now(UTC) - sight.polled_at
            if gap <= max(3 * interval, 2 * probe_delay(request, sight)):
                return sight
        return RegionSight()

    @activity.defn(name="cloud.list_installation")
    def list_installation(self, request: InstallationRequest) -> InstallationReading:
        """Every machine of this installation in one region that is not ended; one or two lists."""
        as_of = datetime.now(UTC)
        with patient(), as_application_error():
            provider = self._providers.provider(request.region)
            ours = provider.list_tagged({TAG_INSTALLATION: self._installation.id})
            retained = self._read_retained(provider, request, as_of)
        return InstallationReading(
            as_of=as_of,
            machines=_owned(request.region, ours)[:MAX_MACHINES],
            retained=_owned(request.region, retained)[:MAX_RETAINED],
            own_epoch=self._installation.epoch,
            highest_epoch=max((_epoch(i) for i in ours), default=0),
        )

    def _read_retained(
        self, provider: Provider, request: InstallationRequest, now: datetime
    ) -> list[Instance]:
        name = str(request.region)
        read_at, machines = self._retained.get(name, (_NEVER, []))
        if now - read_at >= timedelta(seconds=request.retained_age_seconds):
            read_at, machines = now, provider.list_tagged({TAG_RETAINED: self._installation.id})
            self._retained[name] = read_at, machines
        return machines

    @activity.defn(name="cloud.sweep_leftovers")
    def sweep_leftovers(self, request: LeftoversRequest) -> LeftoversReading:
        """Release what survived machines of ours; what others made, and what is new, is only told.

        New is what this process has not seen before for long enough: a cloud may make a disk before its
        machine, and a person an address before it is attached.
        """
        as_of = datetime.now(UTC)
        looked_at = self._left_at.get(str(request.region), _NEVER)
        if as_of - looked_at < timedelta(seconds=request.interval_seconds):
            return LeftoversReading(as_of=looked_at)
        with patient(), as_application_error():
            provider = self._providers.provider(request.region)
            found = sorted(provider.leftovers({TAG_INSTALLATION: self._installation.id}), key=lambda f: f.id)
            since = self._left_since.get(str(request.region), {})
            since = {each.id: since.get(each.id, as_of) for each in found}
            self._left_since[str(request.region)] = since
            limit = as_of - timedelta(seconds=request.min_age_seconds)
            ours = [each for each in found if each.ours]
            due = ours if request.release else []
            ripe = [each for each in due if since[each.id] <= limit][:MAX_LEFTOVERS]
            provider.release(ripe)
            self._left_at[str(request.region)] = as_of
        if ripe:
            activity.logger.info(
                "Addresses and disks released",
                extra={"region": str(request.region), "ids": [each.id for each in ripe]},
            )
        return LeftoversReading(
            as_of=as_of,
            released=tuple(ripe),
            waiting=tuple(each for each in ours if each not in ripe)[:MAX_LEFTOVERS],
            shown=tuple(each for each in found if not each.ours)[:MAX_LEFTOVERS],
        )


class _Watch:
    """One run of the watching activity."""

    def __init__(
        self,
        providers: ProviderSource,
        installation: Installation,
        pools: PoolDirectory,
        request: WatchRegionRequest,
        sight: RegionSight,
    ) -> None:
        self._providers = providers
        self._tags = {TAG_INSTALLATION: installation.id}
        self._pools = pools
        self._request = request
        self._region = request.region
        self._sight = sight
        self._renewals = Renewals(request.region, request.settings, pools, sight.switches)
        self._gate = asyncio.Semaphore(_SIGNALS_AT_ONCE)

    async def poll(self) -> None:
        """One list of the region, and what follows from it."""
        sight = self._sight
        # Taken before the call: what was bought meanwhile may be missing from the answer.
        as_of = datetime.now(UTC)
        sight.polled_at = as_of
        try:
            instances = await asyncio.to_thread(self._list)
        except ProviderError as error:
            sight.failures += 1
            sight.throttled += error.code is ErrorCode.THROTTLED
            sight.reason, sight.code = str(error)[:_REASON_CHARS], error.code
            sight.retry_after = error.retry_after or timedelta()
            activity.logger.warning(
                "Region could not be listed",
                extra={"region": str(self._region), "failures": sight.failures, "reason": sight.reason},
            )
        else:
            sight.failures = sight.throttled = 0
            sight.reason, sight.code, sight.retry_after = "", None, timedelta()
            await self._undisturbed(self._tell_changes(as_of, instances))
            provider = self._providers.provider(self._region)
            await self._undisturbed(self._renewals.tend(provider, _owned(self._region, instances), as_of))
        self._measure()
        await self._undisturbed(self._tell_health(datetime.now(UTC)))

    def _list(self) -> list[Instance]:
        instances = self._providers.provider(self._region).list_tagged(self._tags)
        labels = (self._region.provider.value, self._region.account, self._region.region)
        metrics.REGION_MACHINES.labels(*labels).set(len(instances))
        metrics.REGION_READ_TIME.labels(*labels).set(datetime.now(UTC).timestamp())
        return instances

    async def _undisturbed(self, telling: Awaitable[None]) -> None:
        """What could not be told is told after the next poll: only what arrived is remembered as told."""
        try:
            await telling
        except RPCError as error:
            activity.logger.warning(
                "Pools could not be told", extra={"region": str(self._region), "reason": error.message}
            )

    async def _tell_changes(self, as_of: datetime, instances: Iterable[Instance]) -> None:
        sight = self._sight
        by_pool = _by_pool(instances)
        known = list(sight.told)
        if not sight.announced:
            await self._learn_pools()
            known += sight.workflow_ids
        nothing: tuple[Instance, ...] = ()
        wanted = dict.fromkeys(known, nothing) | by_pool
        changed = [uid for uid in sorted(wanted) if sight.told.get(uid) != digest_of(wanted[uid])]
        await _all(self._observe(uid, as_of, wanted[uid]) for uid in changed)
        sight.announced = True

    async def _observe(self, uid: str, as_of: datetime, machines: tuple[Instance, ...]) -> None:
        observation = RegionObservation(region=self._region, as_of=as_of, instances=machines)
        delivered = await self._tell(uid, OBSERVED, observation)
        if not machines:
            self._sight.told.pop(uid, None)
        elif delivered:
            self._sight.told[uid] = digest_of(machines)

    async def _tell_health(self, now: datetime) -> None:
        sight = self._sight
        health = sight.health(self._request.settings.failures_to_open)
        # While a region fails, its cause may change: pools hear of it when a person is needed, or no more,
        # and when what that person tried fails for another reason.
        refused = health is not RegionHealth.OK and sight.code in KEYS_REFUSED
        news = (health, _steady(sight.reason) if refused else "")
        if news == sight.told_health:
            return
        await self._learn_pools()
        state = RegionState(
            region=self._region, as_of=now, health=health, reason=sight.reason, code=sight.code
        )
        await _all(self._tell(uid, REGION_STATE, state) for uid in sorted(sight.workflow_ids))
        sight.told_health = news

    async def _learn_pools(self) -> None:
        self._sight.workflow_ids |= await self._pools.in_region(self._region)

    async def _tell(self, uid: str, signal: str, payload: Contract) -> bool:
        """Signal one pool; False when nobody with this uid runs."""
        async with self._gate:
            workflow_id = self._sight.workflow_ids.get(uid) or await self._pools.find(uid)
            if workflow_id is None:
                return False
            delivered = await self._pools.tell(workflow_id, signal, payload)
        if delivered:
            self._sight.workflow_ids[uid] = workflow_id
        else:
            self._sight.workflow_ids.pop(uid, None)
        return delivered

    def _measure(self) -> None:
        is_open = self._sight.health(self._request.settings.failures_to_open) is RegionHealth.CIRCUIT_OPEN
        metrics.CIRCUIT_OPEN.labels(
            self._region.provider.value, self._region.account, self._region.region
        ).set(int(is_open))


def poll_delay(request: WatchRegionRequest, sight: RegionSight, jitter: float) -> timedelta:
    """How long to wait for the next poll.

    Args:
        request: Says how often the region is polled.
        sight: How its polls went.
        jitter: From 0 to 1, moves a poll by up to a tenth to either side, so that on average they come as
            often as they should. What the cloud itself wished is never undercut.
    """
    return max(probe_delay(request, sight) * (0.9 + 0.2 * jitter), sight.retry_after)


def probe_delay(request: WatchRegionRequest, sight: RegionSight) -> timedelta:
    """The polling interval, doubled with every failure once the circuit is open, up to five minutes."""
    interval = timedelta(seconds=request.settings.polling_interval_seconds)
    beyond = sight.failures - sight.throttled - request.settings.failures_to_open + 1
    if beyond <= 0:
        return interval
    return max(interval, min(interval * 2 ** min(beyond, 16), _LONGEST_PROBE))


def digest_of(machines: tuple[Instance, ...]) -> str:
    """Changes exactly when one of the machines, sorted by id, does."""
    digest = hashlib.sha256()
    for machine in machines:
        digest.update(machine.model_dump_json().encode())
    return digest.hexdigest()


def _by_pool(instances: Iterable[Instance]) -> dict[str, tuple[Instance, ...]]:
    groups: dict[str, list[Instance]] = {}
    for instance in sorted(instances, key=lambda i: i.id):
        uid = instance.tags.get(TAG_POOL, "")
        if uid:
            groups.setdefault(uid, []).append(instance)
    return {uid: tuple(machines) for uid, machines in groups.items()}


def _owned(region: RegionKey, instances: Iterable[Instance]) -> tuple[OwnedMachine, ...]:
    """Machines that still run, oldest first."""
    alive = [i for i in instances if i.state is not InstanceState.TERMINATED]
    return tuple(_owned_machine(region, i) for i in sorted(alive, key=lambda i: (i.created_at, i.id)))


def _owned_machine(region: RegionKey, instance: Instance) -> OwnedMachine:
    tags = instance.tags
    return OwnedMachine(
        region=region,
        instance_id=instance.id,
        pool_uid=tags.get(TAG_POOL, ""),
        slot=tags.get(TAG_SLOT, ""),
        launch=tags.get(TAG_LAUNCH, ""),
        created_at=instance.created_at,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        epoch=_epoch(instance),
    )


def _epoch(instance: Instance) -> int:
    """The epoch that a machine carries; 0 when somebody removed or changed the tag."""
    text = instance.tags.get(TAG_EPOCH, "")
    return int(text) if text.isdecimal() else 0


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Wait for every call, then raise the first failure."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _steady(reason: str) -> str:
    """A reason without words that differ from call to call, such as the id of a request."""
    return " ".join(word for word in reason.split() if not any(sign.isdigit() for sign in word))
