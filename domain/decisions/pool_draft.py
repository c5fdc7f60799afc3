"""The sheet on which one judgement of a pool is worked out: values in, new values and commands out."""

from datetime import datetime, timedelta
from typing import Any

from domain.contracts.announcements import Announcement, EventReason, EventType
from domain.contracts.commands import Command
from domain.contracts.names import TAG_LAUNCH
from domain.contracts.offers import Offer, RegionKey
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, PoolCarry, RegionView, Slot
from domain.contracts.pools import PauseScope
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings

_Place = tuple[str, str, str, str]
"""Provider, account, region and instance id: what an id is unique in."""


def seconds(amount: float) -> timedelta:
    """A number of seconds as a duration."""
    return timedelta(seconds=amount)


def instance_id_of(provider_id: str) -> str:
    """The instance id inside a provider id: the last path segment, for Alibaba without its region.

    Source: clouds.md section 7: ``qcloud:///100003/ins-x``, ``cn-shenzhen.i-x``, ``aws:///zone/i-x``.
    """
    return provider_id.rsplit("/", 1)[-1].rsplit(".", 1)[-1]


def launch_token_of(tags: dict[str, str]) -> str:
    """The launch that a machine's tags name, empty when they name none."""
    return tags.get(TAG_LAUNCH, "")


class Draft:
    """State under revision at one moment. Every change replaces a frozen value of ``state``.

    Machines are kept in a working copy that is folded back when ``state`` is read, since one observation
    changes many of them.
    """

    def __init__(
        self, resolved: ResolvedPool, settings: PoolSettings, state: PoolCarry, now: datetime
    ) -> None:
        self.resolved = resolved
        self.settings = settings
        self.now = now
        self.commands: list[Command] = []
        self.events: list[Announcement] = []
        self._state = state
        self._machines = state.machines
        self._is_copy = False
        self._tokens: dict[_Place, str] | None = None
        self._live: tuple[Machine, ...] | None = None

    @property
    def state(self) -> PoolCarry:
        """The pool's memory with every change so far."""
        if self._is_copy:
            self._state = self._state.model_copy(update={"machines": self._machines})
            self._is_copy = False
        return self._state

    def update(self, **changes: Any) -> None:  # noqa: ANN401 - any field of PoolCarry
        """Replace fields of the state; machines are changed by the methods below."""
        self._state = self._state.model_copy(update=changes)

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
                key=f"{self.resolved.uid}:{self._state.chain}:{reason}:{key}",
            )
        )

    def token(self, number: int) -> str:
        """The token of a launch of this chain: ``{pool uid}-{chain}-{number}``."""
        return f"{self.resolved.uid}-{self.state.chain}-{number}"

    # Machines -----------------------------------------------------------------------------------

    @property
    def machines(self) -> list[Machine]:
        """Every machine of the state, oldest order first."""
        return list(self._machines.values())

    def machine(self, token: str) -> Machine | None:
        """The machine of a launch."""
        return self._machines.get(token)

    def state_of(self, token: str) -> Machine:
        """The machine of a launch that is known to be there."""
        return self._machines[token]

    def live(self) -> tuple[Machine, ...]:
        """Machines that count against the ceiling: from the order on, until absence is confirmed."""
        if self._live is None:
            self._live = tuple(m for m in self._machines.values() if m.phase is not MachinePhase.GONE)
        return self._live

    def set_machine(self, token: str, **changes: Any) -> Machine:  # noqa: ANN401 - any field of Machine
        """Replace fields of one machine and return it."""
        machine = self._machines[token].model_copy(update=changes)
        self._put(machine)
        if "instance_id" in changes:
            self._tokens = None
        return machine

    def add_machine(self, machine: Machine) -> None:
        """Write a launch down."""
        self._put(machine)
        self._tokens = None

    def drop_machine(self, token: str) -> None:
        """Forget a machine that is gone."""
        self._own_machines().pop(token, None)
        self._tokens = None

    def machine_by_instance(self, region: RegionKey, instance_id: str) -> Machine | None:
        """The machine with this id in this region, if it is ours."""
        if self._tokens is None:
            self._tokens = {_place_of(m): token for token, m in self._machines.items() if m.instance_id}
        token = self._tokens.get((region.provider, region.account, region.region, instance_id))
        return None if token is None else self._machines[token]

    def _put(self, machine: Machine) -> None:
        self._own_machines()[machine.token] = machine

    def _own_machines(self) -> dict[str, Machine]:
        """The working copy, about to be changed: values that were handed out never are."""
        self._live = None
        if not self._is_copy:
            self._machines = dict(self._machines)
            self._is_copy = True
        return self._machines

    def leave(
        self, machine: Machine, reason: LeaveReason, detail: str, *, wait_for_replacement: bool = False
    ) -> Machine:
        """Take a machine out of its slot; the slot, if it stays, waits for the next launch."""
        slot = self.slot(machine.slot)
        if slot is not None and slot.token == machine.token:
            self.set_slot(slot.id, token="")
        return self.set_machine(
            machine.token,
            leave=reason,
            leave_detail=detail,
            leave_at=self.now,
            wait_for_replacement=wait_for_replacement,
        )

    # Slots --------------------------------------------------------------------------------------

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The wanted places, oldest first."""
        return self._state.slots

    def slot(self, slot_id: str) -> Slot | None:
        """A slot by id."""
        return next((s for s in self._state.slots if s.id == slot_id), None)

    def set_slot(self, slot_id: str, **changes: Any) -> None:  # noqa: ANN401 - any field of Slot
        """Replace fields of one slot."""
        self.update(
            slots=tuple(s.model_copy(update=changes) if s.id == slot_id else s for s in self._state.slots)
        )

    def drop_slot(self, slot_id: str) -> None:
        """Give a wanted place up."""
        self.update(slots=tuple(s for s in self._state.slots if s.id != slot_id))

    def occupant(self, slot: Slot) -> Machine | None:
        """The launch that fills a slot."""
        return self._machines.get(slot.token) if slot.token else None

    # Regions ------------------------------------------------------------------------------------

    def region(self, key: RegionKey) -> RegionView:
        """What is known of a region; a fresh view when nothing is."""
        return self._state.regions.get(str(key)) or RegionView(region=key)

    def set_region(self, key: RegionKey, **changes: Any) -> None:  # noqa: ANN401 - any field of RegionView
        """Replace fields of a region's view."""
        view = self.region(key).model_copy(update=changes)
        self.update(regions={**self._state.regions, str(key): view})

    def is_fresh(self, key: RegionKey) -> bool:
        """Whether the region's newest observation is young enough to decide on."""
        limit = seconds(self.settings.polling_interval_seconds * self.settings.stale_after_intervals)
        as_of = self.region(key).as_of
        return as_of is not None and self.now - as_of <= limit

    # Judgements that several rooms share ----------------------------------------------------------

    def paused(self, scope: PauseScope) -> bool:
        """Whether launches or disruptions are paused; the stricter of the spec and a human holds."""
        holds = {self.resolved.spec.paused.value, *self._state.manual_pauses}
        return scope.value in holds or PauseScope.ALL.value in holds

    def strategy_name(self) -> str:
        """Name of the strategy that the spec asks for, empty for the default."""
        return self.resolved.spec.strategy_ref


def _place_of(machine: Machine) -> _Place:
    offer: Offer = machine.offer
    return (offer.provider, offer.account, offer.region, machine.instance_id)
