"""The region's sync as keeper of dead-man switches: machines whose pool owns them are not ended by the cloud.

A switch is set when a machine is bought, a day ahead, and renewed after half of that for as long as the pool
says that the machine is its own. When nobody renews any more, because everything of ours is gone for good,
the cloud ends the machine. A machine that was bought without a switch never gets one here.

What is due is read from the cloud, so that a restart forgets nothing but the pools' last answers.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity

from activities.directory import PoolDirectory
from activities.providers.base import Capability, Provider
from activities.telemetry import metrics
from activities.turns import patient
from domain.contracts.errors import ProviderError
from domain.contracts.facts import OwnedMachine, OwnershipQuestion
from domain.contracts.offers import RegionKey
from domain.contracts.settings import SyncSettings

MAX_ASKED: Final = 500
"""Machines of one question to a pool."""
MAX_RENEWED: Final = 20
"""Machines of one poll: some clouds take a call for each, and the next list must not wait for long."""
_NAMED: Final = 5
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class SwitchSight:
    """What a watcher remembers of the switches of a region."""

    def __init__(self) -> None:
        self.checked_at: datetime | None = None
        self.times: dict[str, datetime] = {}
        """Machine to the moment at which the cloud ends it by itself."""
        self.owned: dict[str, bool] = {}
        """Machine to the last answer of its pool."""
        self.waiting: list[str] = []
        """Machines to renew, the most urgent first."""


class Renewals:
    """Renews the switches of one region."""

    def __init__(
        self, region: RegionKey, settings: SyncSettings, pools: PoolDirectory, sight: SwitchSight
    ) -> None:
        self._region = region
        self._ahead = timedelta(seconds=settings.dead_man_ahead_seconds)
        self._every = timedelta(seconds=settings.dead_man_renew_seconds)
        self._late = timedelta(seconds=settings.dead_man_late_seconds)
        self._check = timedelta(seconds=settings.dead_man_check_seconds)
        self._pools = pools
        self._sight = sight

    async def tend(self, provider: Provider, machines: Sequence[OwnedMachine], now: datetime) -> None:
        """Look what is due from time to time, and renew a few; a fault waits for the next look.

        Args:
            provider: The region's adapter.
            machines: Every living machine of the installation in the region, as just listed.
            now: When they were listed.

        Raises:
            RPCError: a pool could not be looked for.
        """
        if Capability.DEAD_MAN_SWITCH not in provider.capabilities or not self._every:
            return
        checked = self._sight.checked_at
        try:
            if checked is None or now - checked >= self._check:
                self._sight.checked_at = now
                await self._look(provider, machines, now)
            if self._sight.waiting:
                await self._renew(provider, now)
        except ProviderError as error:
            activity.logger.warning(
                "Dead-man switches could not be read or renewed",
                extra={"region": str(self._region), "reason": str(error)},
            )

    async def _look(self, provider: Provider, machines: Sequence[OwnedMachine], now: datetime) -> None:
        ids = [machine.instance_id for machine in machines]
        read = await asyncio.to_thread(provider.dead_man_times, ids) if ids else {}
        # A renewal that was broken off may have left a machine without its switch: it is due at once.
        lost = {each: now for each in ids if each in self._sight.times and each not in read}
        self._sight.times = read | lost
        self._sight.owned = {each: own for each, own in self._sight.owned.items() if each in set(ids)}
        due = [m for m in machines if self._sight.times.get(m.instance_id, _NEVER) <= now + self._slack]
        await self._ask(due)
        self._sight.waiting = sorted(
            (m.instance_id for m in due if self._sight.owned.get(m.instance_id)),
            key=lambda each: (self._sight.times[each], each),
        )
        self._tell_late(due, now)

    @property
    def _slack(self) -> timedelta:
        """What is left of a switch's time when it is due."""
        return self._ahead - self._every

    async def _ask(self, machines: Iterable[OwnedMachine]) -> None:
        """Ask each pool about its machines; one that does not answer leaves its last answer in force."""
        by_pool: dict[str, list[OwnedMachine]] = {}
        for machine in machines:
            by_pool.setdefault(machine.pool_uid, []).append(machine)
        for uid in sorted(by_pool):
            workflow_id = await self._pools.find(uid) if uid else None
            if workflow_id is None:
                continue
            for start in range(0, len(by_pool[uid]), MAX_ASKED):
                batch = tuple(by_pool[uid][start : start + MAX_ASKED])
                answers = await self._pools.ask_ownership(workflow_id, OwnershipQuestion(machines=batch))
                self._sight.owned |= {each.instance_id: each.owned for each in answers or ()}

    async def _renew(self, provider: Provider, now: datetime) -> None:
        batch, self._sight.waiting = self._sight.waiting[:MAX_RENEWED], self._sight.waiting[MAX_RENEWED:]
        at = now + self._ahead
        outcome = "failed"
        try:
            with patient():
                await asyncio.to_thread(provider.renew_dead_man, batch, at)
            outcome = "renewed"
            self._sight.times |= dict.fromkeys(batch, at)
        finally:
            metrics.DEAD_MAN_RENEWALS.labels(*self._labels, outcome).inc(len(batch))

    def _tell_late(self, due: Iterable[OwnedMachine], now: datetime) -> None:
        """Machines whose renewal is long overdue; those that their pool disowns are left to the switch."""
        limit = now + self._slack - self._late
        late = [
            machine.instance_id
            for machine in due
            if self._sight.times[machine.instance_id] <= limit
            and self._sight.owned.get(machine.instance_id, True)
        ]
        metrics.DEAD_MAN_LATE.labels(*self._labels).set(len(late))
        if late:
            activity.logger.error(
                "Dead-man switches are not renewed: the cloud will end machines",
                extra={
                    "region": str(self._region),
                    "machines": len(late),
                    "instance_ids": late[:_NAMED],
                    "first_ends_at": min(self._sight.times[each] for each in late).isoformat(),
                },
            )

    @property
    def _labels(self) -> tuple[str, str, str]:
        return (self._region.provider.value, self._region.account, self._region.region)
