"""The sheet on which one judgement of a pool is worked out: values in, new values and commands out."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from domain.contracts.announcements import Announcement, EventReason, EventType
from domain.contracts.commands import Command
from domain.contracts.names import TAG_LAUNCH
from domain.contracts.offers import RegionKey
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, PoolCarry, RegionView, Slot
from domain.contracts.pools import PauseScope
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings

_MAX_INTERRUPTED = 20
"""How many interrupted machines the status keeps."""


def seconds(amount: float) -> timedelta:
    """A number of seconds as a duration."""
    return timedelta(seconds=amount)


def instance_id_of(provider_id: str) -> str:
    """The instance id inside a provider id: the last path segment, for Alibaba without its region.

    Source: clouds.md section 7: ``qcloud:///100003/ins-x``, ``cn-shenzhen.i-x``, ``aws:///zone/i-x``.
    """
    return provider_id.rsplit("/", 1)[-1].rsplit(".", 1)[-1]


@dataclass
class Draft:
    """State under revision at one moment. Every change replaces a frozen value of ``state``."""

    resolved: ResolvedPool
    settings: PoolSettings
    state: PoolCarry
    now: datetime
    commands: list[Command] = field(default_factory=list[Command])
    events: list[Announcement] = field(default_factory=list[Announcement])

    def update(self, **changes: Any) -> None:  # noqa: ANN401 - any field of PoolCarry
        """Replace fields of the state."""
        self.state = self.state.model_copy(update=changes)

    def order(self, command: Command) -> None:
        """Add a command."""
        self.commands.append(command)

    def announce(self, reason: EventReason, message: str, key: str, *, warning: bool = False) -> None:
        """Add an Event; the same ``key`` is published once."""
        kind = EventType.WARNING if warning else EventType.NORMAL
        self.events.append(
            Announcement(
                reason=reason,
                message=message,
                type=kind,
                at=self.now,
                key=f"{self.resolved.uid}:{self.state.chain}:{reason}:{key}",
            )
        )

    # Machines -----------------------------------------------------------------------------------

    @property
    def machines(self) -> list[Machine]:
        """Every machine of the state, oldest order first."""
        return list(self.state.machines.values())

    def live(self) -> list[Machine]:
        """Machines that count against the ceiling: from the order on, until absence is confirmed."""
        return [m for m in self.state.machines.values() if m.phase is not MachinePhase.GONE]

    def set_machine(self, token: str, **changes: Any) -> Machine:  # noqa: ANN401 - any field of Machine
        """Replace fields of one machine and return it."""
        machine = self.state.machines[token].model_copy(update=changes)
        self.update(machines={**self.state.machines, token: machine})
        return machine

    def add_machine(self, machine: Machine) -> None:
        """Write a launch down."""
        self.update(machines={**self.state.machines, machine.token: machine})

    def drop_machine(self, token: str) -> None:
        """Forget a machine that is gone."""
        self.update(machines={t: m for t, m in self.state.machines.items() if t != token})

    def machine_by_instance(self, region: RegionKey, instance_id: str) -> Machine | None:
        """The machine with this id in this region, if it is ours."""
        for machine in self.state.machines.values():
            if machine.instance_id == instance_id and machine.offer.region_key == region:
                return machine
        return None

    def leave(
        self, machine: Machine, reason: LeaveReason, detail: str, *, wait_for_replacement: bool = False
    ) -> None:
        """Take a machine out of its slot; the slot, if it stays, waits for the next launch."""
        self.set_machine(
            machine.token,
            leave=reason,
            leave_detail=detail,
            leave_at=self.now,
            wait_for_replacement=wait_for_replacement,
        )
        slot = self.slot(machine.slot)
        if slot is not None and slot.token == machine.token:
            self.set_slot(slot.id, token="")

    # Slots --------------------------------------------------------------------------------------

    def slot(self, slot_id: str) -> Slot | None:
        """A slot by id."""
        return next((s for s in self.state.slots if s.id == slot_id), None)

    def set_slot(self, slot_id: str, **changes: Any) -> None:  # noqa: ANN401 - any field of Slot
        """Replace fields of one slot."""
        self.update(
            slots=tuple(s.model_copy(update=changes) if s.id == slot_id else s for s in self.state.slots)
        )

    def occupant(self, slot: Slot) -> Machine | None:
        """The launch that fills a slot."""
        return self.state.machines.get(slot.token) if slot.token else None

    # Regions ------------------------------------------------------------------------------------

    def region(self, key: RegionKey) -> RegionView:
        """What is known of a region; a fresh view when nothing is."""
        return self.state.regions.get(str(key)) or RegionView(region=key)

    def set_region(self, key: RegionKey, **changes: Any) -> None:  # noqa: ANN401 - any field of RegionView
        """Replace fields of a region's view."""
        view = self.region(key).model_copy(update=changes)
        self.update(regions={**self.state.regions, str(key): view})

    def is_fresh(self, key: RegionKey) -> bool:
        """Whether the region's newest observation is young enough to decide on."""
        limit = seconds(self.settings.polling_interval_seconds * self.settings.stale_after_intervals)
        as_of = self.region(key).as_of
        return as_of is not None and self.now - as_of <= limit

    # Judgements that several rooms share ----------------------------------------------------------

    def paused(self, scope: PauseScope) -> bool:
        """Whether launches or disruptions are paused; the stricter of the spec and a human holds."""
        holds = {self.resolved.spec.paused.value, *self.state.manual_pauses}
        return scope.value in holds or PauseScope.ALL.value in holds

    def strategy_name(self) -> str:
        """Name of the strategy that the spec asks for, empty for the default."""
        return self.resolved.spec.strategy_ref

    def interrupted_list(self) -> int:
        """How many interrupted machines the status keeps."""
        return _MAX_INTERRUPTED


def launch_token_of(tags: dict[str, str]) -> str:
    """The launch that a machine's tags name, empty when they name none."""
    return tags.get(TAG_LAUNCH, "")
