"""The machines of one simulated cloud: what was bought, in which state it is, what it costs so far.

States follow the clock: ``advance`` carries out every change that is due and tells the listeners. Prices are
fixed at launch and charged by the second from creation to the moment a machine loses power.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum


class MachineState(StrEnum):
    """A machine's life, in order. Each cloud has its own words for these."""

    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    """The cloud accepted the order but could not start the machine; it stays listed and costs nothing."""
    STOPPED = "stopped"
    """The cloud took its power and keeps its disk: it holds no capacity, and is listed until it is ended."""
    ENDING = "ending"
    """Without power, still listed."""
    GONE = "gone"
    """No longer listed."""


class Boot(StrEnum):
    """How the start of a machine goes."""

    NORMAL = "normal"
    FAILS = "fails"
    NEVER = "never"
    """It stays pending until somebody ends it."""


class EndReason(StrEnum):
    """Who ended a machine."""

    NONE = ""
    USER = "user"
    RECLAIMED = "reclaimed"
    OUT_OF_BAND = "out-of-band"
    RELEASED = "released"
    """By the dead-man switch."""


@dataclass(frozen=True)
class Order:
    """What a create call asked for, in the words that all clouds share."""

    region: str
    zone: str
    instance_type: str
    spot: bool
    price_per_hour: Decimal
    image_id: str
    subnet_id: str
    user_data: str = ""
    """Decoded text."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
    client_token: str = ""
    release_at: datetime | None = None
    """Dead-man switch: the cloud ends the machine then by itself."""
    stops_on_reclaim: bool = False
    """Whether a reclaim stops the machine, where it usually ends it."""
    details: Mapping[str, object] = field(default_factory=dict[str, object])
    """Whatever else the dialect wants to give back in its describe call."""


@dataclass
class Machine:
    """One machine. Only the ledger changes it, but for ``tags`` (tag calls) and ``vendor_state`` (tests).

    Attributes:
        vendor_state: When set, the dialect reports this word instead of its own for ``state``.
        reclaim_at: When the cloud takes it back, once a notice was given.
        risk_at: When the cloud said that it might take it back, on clouds that say so.
    """

    id: str
    order: Order
    created_at: datetime
    visible_at: datetime
    private_ip: str
    boot: Boot
    tags: dict[str, str]
    state: MachineState = MachineState.PENDING
    running_at: datetime | None = None
    notice_at: datetime | None = None
    reclaim_at: datetime | None = None
    risk_at: datetime | None = None
    ended_at: datetime | None = None
    gone_at: datetime | None = None
    end_reason: EndReason = EndReason.NONE
    vendor_state: str = ""

    @property
    def live(self) -> bool:
        """Whether it holds capacity and costs money."""
        return self.state in (MachineState.PENDING, MachineState.RUNNING)

    def cost(self, now: datetime) -> Decimal:
        """Charge so far: whole seconds, rounded up, at the price of the launch; not rounded itself."""
        end = self.ended_at or now
        seconds = max(0, math.ceil((end - self.created_at).total_seconds()))
        return self.order.price_per_hour * seconds / 3600


@dataclass
class LedgerSettings:
    """Latencies of the cloud, changeable while it runs."""

    boot_seconds: float = 0.5
    """Pending this long, then running."""
    end_seconds: float = 0.5
    """Listed as ending this long after a terminate call, then gone."""
    invisible_seconds: float = 0.0
    """A new machine is missing from every list and describe answer this long (eventual consistency)."""


OnMachine = Callable[[Machine], None]
OnNotice = Callable[[Machine, datetime], None]


@dataclass
class Listeners:
    """Plain callables, called in the server's thread without any lock held; they must return quickly."""

    on_running: list[OnMachine] = field(default_factory=list[OnMachine])
    """The machine got power and starts its user data."""
    on_notice: list[OnNotice] = field(default_factory=list[OnNotice])
    """The cloud said that it takes the machine back at that time."""
    on_gone: list[OnMachine] = field(default_factory=list[OnMachine])
    """The machine lost power, whoever ended it; called once, also for one that never ran."""


@dataclass(frozen=True)
class _Purchase:
    fingerprint: str
    machine_ids: tuple[str, ...]


class TokenMismatchError(Exception):
    """A client token came back with other parameters.

    Attributes:
        machines: What the token bought the first time.
    """

    def __init__(self, token: str, machines: tuple["Machine", ...]) -> None:
        ids = ", ".join(machine.id for machine in machines)
        super().__init__(f"token {token} with other parameters already bought {ids}")
        self.machines = machines


class Ledger:
    """All machines of one cloud, ever. Safe to read and change from several threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        id_prefix: str,
        settings: LedgerSettings | None = None,
    ) -> None:
        """``clock`` gives aware UTC times; ``id_prefix`` is the vendor's, for example ``ins-``."""
        self.settings = settings or LedgerSettings()
        self.listeners = Listeners()
        self._clock = clock
        self._id_prefix = id_prefix
        self._machines: dict[str, Machine] = {}
        self._purchases: dict[tuple[str, str], _Purchase] = {}
        self._lock = threading.RLock()

    def buy(self, order: Order, count: int = 1, *, boot: Boot = Boot.NORMAL) -> tuple[Machine, ...]:
        """Enter new machines; capacity and limits were checked before."""
        with self._lock:
            return tuple(self._enter(order, boot) for _ in range(count))

    def remember(self, scope: str, token: str, fingerprint: str, machines: Iterable[Machine]) -> None:
        """Keep what a client token bought in a scope (account and region)."""
        with self._lock:
            ids = tuple(machine.id for machine in machines)
            self._purchases[(scope, token)] = _Purchase(fingerprint, ids)

    def bought_with(self, scope: str, token: str, fingerprint: str) -> tuple[Machine, ...] | None:
        """Machines that this token bought before, None for a new token.

        Raises:
            TokenMismatchError: the token was used with other parameters.
        """
        with self._lock:
            purchase = self._purchases.get((scope, token))
            if purchase is None:
                return None
            machines = self.find(purchase.machine_ids)
            if purchase.fingerprint != fingerprint:
                raise TokenMismatchError(token, machines)
            return machines

    def find(self, machine_ids: Iterable[str]) -> tuple[Machine, ...]:
        """Machines by id, gone ones included; unknown ids are left out."""
        with self._lock:
            return tuple(self._machines[key] for key in machine_ids if key in self._machines)

    def listed(self, now: datetime | None = None) -> tuple[Machine, ...]:
        """What the cloud's list shows now: not gone and visible; oldest first."""
        moment = now or self._clock()
        with self._lock:
            return tuple(
                machine
                for machine in self._machines.values()
                if machine.state is not MachineState.GONE and machine.visible_at <= moment
            )

    def all(self) -> tuple[Machine, ...]:
        """Every machine that ever was, oldest first."""
        with self._lock:
            return tuple(self._machines.values())

    def live(self, zone: str = "", instance_type: str = "") -> tuple[Machine, ...]:
        """Machines that hold capacity, narrowed by zone and type when given."""
        with self._lock:
            return tuple(
                machine
                for machine in self._machines.values()
                if machine.live
                and zone in ("", machine.order.zone)
                and instance_type in ("", machine.order.instance_type)
            )

    def terminate(self, machine_ids: Iterable[str]) -> None:
        """The user's terminate call; unknown and already ended ids are left alone."""
        for machine in self.find(machine_ids):
            self._end(machine, EndReason.USER)

    def vanish(self, machine_id: str) -> None:
        """Take a machine away at once and from every list, as somebody in the console would.

        Raises:
            KeyError: no such machine.
        """
        machine = self._machines[machine_id]
        self._end(machine, EndReason.OUT_OF_BAND, vanish=True)

    def reclaim(self, machine_id: str, *, notice_seconds: float | None) -> None:
        """The cloud takes a machine back: after a notice of so many seconds, or at once with None.

        It ends then, or stops if its order says so.

        Raises:
            KeyError: no such machine.
        """
        machine = self._machines[machine_id]
        if notice_seconds is None:
            self._end(machine, EndReason.RECLAIMED)
            return
        with self._lock:
            machine.notice_at = self._clock()
            machine.reclaim_at = machine.notice_at + timedelta(seconds=notice_seconds)
        for listener in self.listeners.on_notice:
            listener(machine, machine.reclaim_at)

    def warn(self, machine_id: str) -> None:
        """The cloud says that it might take a machine back soon: a hint that may come to nothing.

        Raises:
            KeyError: no such machine.
        """
        self._machines[machine_id].risk_at = self._clock()

    def advance(self) -> None:
        """Carry out what is due: machines start, notices expire, ended machines disappear."""
        now = self._clock()
        started = self._start_due(now)
        for machine in started:
            for listener in self.listeners.on_running:
                listener(machine)
        for machine in self.all():
            if machine.live and machine.reclaim_at is not None and machine.reclaim_at <= now:
                self._end(machine, EndReason.RECLAIMED)
            if machine.live and machine.order.release_at is not None and machine.order.release_at <= now:
                self._end(machine, EndReason.RELEASED)
        self._drop_due(now)

    def cost(self, now: datetime | None = None) -> Decimal:
        """Sum of all charges in the market's currency, not rounded."""
        moment = now or self._clock()
        return sum((machine.cost(moment) for machine in self.all()), Decimal(0))

    def _enter(self, order: Order, boot: Boot) -> Machine:
        number = len(self._machines) + 1
        now = self._clock()
        machine = Machine(
            id=f"{self._id_prefix}{_id_suffix(self._id_prefix, number, now)}",
            order=order,
            created_at=now,
            visible_at=now + timedelta(seconds=self.settings.invisible_seconds),
            private_ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            boot=boot,
            tags=dict(order.tags),
        )
        self._machines[machine.id] = machine
        return machine

    def _start_due(self, now: datetime) -> list[Machine]:
        latency = timedelta(seconds=self.settings.boot_seconds)
        started: list[Machine] = []
        with self._lock:
            for machine in self._machines.values():
                if machine.state is not MachineState.PENDING or machine.created_at + latency > now:
                    continue
                if machine.boot is Boot.FAILS:
                    machine.state, machine.ended_at = MachineState.FAILED, machine.created_at
                elif machine.boot is Boot.NORMAL:
                    machine.state, machine.running_at = MachineState.RUNNING, now
                    started.append(machine)
        return started

    def _drop_due(self, now: datetime) -> None:
        with self._lock:
            for machine in self._machines.values():
                due = machine.gone_at is not None and machine.gone_at <= now
                if machine.state is MachineState.ENDING and due:
                    machine.state = MachineState.GONE

    def _end(self, machine: Machine, reason: EndReason, *, vanish: bool = False) -> None:
        now = self._clock()
        latency = 0.0 if vanish else self.settings.end_seconds
        with self._lock:
            had_power = machine.live
            if not had_power and machine.state not in (MachineState.FAILED, MachineState.STOPPED):
                return
            machine.ended_at = machine.ended_at or now
            machine.end_reason = reason
            if reason is EndReason.RECLAIMED and machine.order.stops_on_reclaim:
                machine.state = MachineState.STOPPED
            else:
                machine.state = MachineState.GONE if vanish else MachineState.ENDING
                machine.gone_at = now + timedelta(seconds=latency)
        if had_power:
            for listener in self.listeners.on_gone:
                listener(machine)


def _id_suffix(prefix: str, number: int, now: datetime) -> str:
    """Eight characters that look like a vendor's id and never repeat within a ledger."""
    digest = hashlib.sha256(f"{prefix}{number}{now.timestamp()}".encode()).hexdigest()
    return f"{digest[:4]}{number:04x}"


def fingerprint(parameters: str) -> str:
    """Short hash of a canonical text of parameters, to compare repeats of a client token."""
    return hashlib.sha256(parameters.encode()).hexdigest()[:16]
