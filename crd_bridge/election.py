"""Leadership by a Lease: at most one leader, which stops before its Lease can be taken by another."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from activities.cluster.base import LEASES, Cluster, Object
from crd_bridge.backoff import Backoff
from domain.contracts.errors import ClusterError, ErrorCode

_log = logging.getLogger(__name__)

RELEASE_SECONDS = 3.0
"""How long giving the Lease back may take; if it fails, the others wait for its end."""


@dataclass(frozen=True)
class LeaseDurations:
    """How fast leadership moves. Each must be shorter than the one before it.

    Raises:
        ValueError: They are not.
    """

    lease_seconds: float = 15.0
    """A Lease that was not renewed for this long may be taken."""
    renew_deadline_seconds: float = 10.0
    """A leader that could not renew for this long stops; the difference is the time it has for that."""
    retry_seconds: float = 2.0
    """Pause between two attempts to renew, and to take."""

    @classmethod
    def within(cls, lease_seconds: float) -> LeaseDurations:
        """The usual proportions for a Lease of so many seconds."""
        share = lease_seconds / cls.lease_seconds
        return cls(lease_seconds, cls.renew_deadline_seconds * share, cls.retry_seconds * share)

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_deadline_seconds > self.retry_seconds > 0:
            raise ValueError(
                "lease_seconds > renew_deadline_seconds > retry_seconds > 0 must hold, "
                f"but they are {self.lease_seconds}, {self.renew_deadline_seconds}, {self.retry_seconds}"
            )


@dataclass(frozen=True)
class _Sighting:
    """A Lease as it was last seen, and since when by the own clock it has been like this."""

    version: str
    since: float


class Elector:
    """Competes for one Lease and runs a task while it holds it.

    Clocks of different machines are never compared: a Lease is free when this process has seen it unchanged
    for its whole duration.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        durations: LeaseDurations | None = None,
        on_leading: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Describe an elector.

        Args:
            cluster: Where the Lease is.
            namespace: Of the Lease.
            name: Of the Lease; one per thing to be led.
            identity: Of this process; must be another one in every process and at every start.
            durations: How fast leadership moves.
            on_leading: Told when leadership begins and ends.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._durations = durations or LeaseDurations()
        self._on_leading = on_leading
        self._backoff = Backoff(self._durations.retry_seconds, self._durations.retry_seconds)
        self._seen: _Sighting | None = None
        self._held: Object | None = None
        self._renewed_at = 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run ``lead`` whenever leadership is held, until it returns by itself or this is cancelled.

        When leadership is lost, ``lead`` is cancelled and awaited, and the competition goes on. The Lease is
        given back at the end, also on cancellation and when ``lead`` raises, which ends this, too.
        """
        while True:
            await self._compete()
            if await self._lead_while_held(lead):
                return

    async def _compete(self) -> None:
        """Return once the Lease is held."""
        while True:
            if await self._try(self._acquire, self._durations.renew_deadline_seconds):
                return
            await asyncio.sleep(self._backoff.pause(1))

    async def _lead_while_held(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Return True when ``lead`` ended by itself, False when leadership was lost."""
        _log.info("Leading", extra={"lease": self._name, "identity": self._identity})
        self._on_leading(True)  # noqa: FBT003 - the hook's one argument is the state
        task = asyncio.ensure_future(lead())
        by_itself = False
        try:
            await self._renew_until_lost(task)
            by_itself = task.done()
        finally:
            await self._step_down(task)
        if by_itself or not task.cancelled():
            task.result()
        return by_itself

    async def _step_down(self, task: asyncio.Future[None]) -> None:
        """End the leader's task, and only then give the Lease back."""
        try:
            await _end(task)
        finally:
            self._on_leading(False)  # noqa: FBT003 - the hook's one argument is the state
            await self._release()
            _log.info("No longer leading", extra={"lease": self._name, "identity": self._identity})

    async def _renew_until_lost(self, task: asyncio.Future[None]) -> None:
        """Renew until the task ends, another holds the Lease, or the deadline passed without success."""
        while self._held is not None:
            await asyncio.wait({task}, timeout=self._durations.retry_seconds)
            left = self._renewed_at + self._durations.renew_deadline_seconds - time.monotonic()
            if task.done() or left <= 0:
                return
            await self._try(self._renew, left)

    async def _try(self, step: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """One attempt within a time; whatever the server does, it is only an attempt that failed."""
        try:
            async with asyncio.timeout(seconds):
                return await step()
        except (ClusterError, TimeoutError) as error:
            _log.warning("Lease not reached", extra={"lease": self._name, "reason": str(error)})
            return False

    async def _acquire(self) -> bool:
        """Take the Lease if it is free, new or one's own."""
        asked_at = time.monotonic()
        try:
            lease = await self._cluster.get(LEASES, self._name, self._namespace)
        except ClusterError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            fresh: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            fresh["metadata"] = {"name": self._name, "namespace": self._namespace}
            fresh["spec"] = self._spec({})
            self._hold(await self._cluster.create(LEASES, fresh, self._namespace), asked_at)
            return True
        if not self._is_free(lease, asked_at):
            return False
        self._hold(await self._replace(lease, self._spec(_spec_of(lease))), asked_at)
        return True

    def _is_free(self, lease: Object, now: float) -> bool:
        spec = _spec_of(lease)
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen is None or self._seen.version != version:
            self._seen = _Sighting(version, now)
        duration = float(spec.get("leaseDurationSeconds") or self._durations.lease_seconds)
        return now - self._seen.since >= duration

    async def _renew(self) -> bool:
        """Write the time anew under a version check. A conflict shows that another changed the Lease."""
        held = self._held
        if held is None:
            return False
        asked_at = time.monotonic()
        try:
            self._hold(await self._replace(held, self._spec(held["spec"])), asked_at)
        except ClusterError as error:
            if error.code is ErrorCode.CONFLICT:
                await self._look_again()
            elif error.code is ErrorCode.NOT_FOUND:
                self._held = None
            raise
        return True

    async def _look_again(self) -> None:
        """After a conflict: an own write whose answer was lost, or somebody else's label, is no loss."""
        lease = await self._cluster.get(LEASES, self._name, self._namespace)
        mine = _spec_of(lease).get("holderIdentity") == self._identity
        self._held = lease if mine else None

    async def _release(self) -> None:
        """Give the Lease back, so that the next leader need not wait for its end."""
        held, self._held = self._held, None
        if held is None:
            return
        spec = {**self._spec(held["spec"]), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._replace(held, spec)
        except (ClusterError, TimeoutError) as error:
            _log.warning("Lease not released", extra={"lease": self._name, "reason": str(error)})

    def _hold(self, lease: Object, asked_at: float) -> None:
        """The Lease counts from before it was asked for: no later than where the others count from."""
        self._held, self._renewed_at = lease, asked_at

    async def _replace(self, lease: Object, spec: Object) -> Object:
        metadata = {key: value for key, value in lease["metadata"].items() if key != "managedFields"}
        return await self._cluster.replace(
            LEASES, {**lease, "metadata": metadata, "spec": spec}, self._namespace
        )

    def _spec(self, earlier: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = earlier.get("holderIdentity") == self._identity
        moves = int(earlier.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._identity,
            # Rounded up: the field is whole seconds, and others may only wait longer, never shorter.
            "leaseDurationSeconds": math.ceil(self._durations.lease_seconds),
            "acquireTime": earlier.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": moves if mine or not earlier else moves + 1,
        }


def _spec_of(lease: Object) -> Object:
    spec: Object | None = lease.get("spec")
    return spec or {}


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel and wait until it really ended: two leaders' tasks never run in one process."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
