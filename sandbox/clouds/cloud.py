"""One simulated cloud behind its wire: shared state, and the seams that a vendor's dialect fills.

A dialect subclasses ``Cloud``: it verifies signatures, checks parameter names, carries actions out on the
shared ledger and market, and words answers and errors as its vendor does. ``CloudServer`` drives it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final
from urllib.parse import urlsplit

from domain.contracts.catalogue import instance_type
from domain.contracts.offers import InstanceType, ProviderName
from sandbox.clouds.faults import FaultBoard, FaultKind, Target
from sandbox.clouds.hooks import HookBoard
from sandbox.clouds.inventory import Account, Inventory
from sandbox.clouds.ledger import Boot, Ledger, LedgerSettings, Machine, Order
from sandbox.clouds.leftovers import Leftovers
from sandbox.clouds.rates import RateLimits
from sandbox.clouds.requests import RequestLog
from sandbox.market import Market, Place, UnknownTypeError

PLENTY: Final = 100_000
"""The limit that is told where none is set, by vendors that have no word for it."""


@dataclass(frozen=True)
class WireRequest:
    """A request as it came in. ``target`` is the raw request target; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path, still quoted."""
        return urlsplit(self.target).path

    @property
    def query(self) -> str:
        """The query, still quoted, without the question mark."""
        return urlsplit(self.target).query


@dataclass(frozen=True)
class WireAnswer:
    """An answer as it goes out; the headers are sent exactly so."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class VendorError(Exception):
    """The vendor's refusal: its code, its text and its HTTP status."""

    def __init__(
        self, code: str, message: str, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Call:
    """A verified request. ``zone`` and ``instance_type`` are set for purchases, so that faults can aim."""

    action: str
    region: str
    access_key_id: str
    parameters: Mapping[str, object]
    zone: str = ""
    instance_type: str = ""
    client_token: str = ""
    decoded: object = None
    """What ``open`` made of the parameters, for the dialect's own ``carry_out``."""

    @property
    def target(self) -> Target:
        """What the fault switches look at."""
        return Target(self.action, self.region, self.zone, self.instance_type)


@dataclass(frozen=True)
class Result:
    """What an action gave: the payload of the answer, and what the request log should know."""

    payload: Mapping[str, object]
    machine_ids: tuple[str, ...] = ()
    note: str = ""


class ShortageKind(StrEnum):
    """Why the market says no to a purchase."""

    NO_STOCK = "no-stock"
    NOT_OFFERED = "not-offered"
    QUOTA = "quota"
    PRICE = "price"


class ShortageError(Exception):
    """A purchase that the market refuses; the dialect gives it the vendor's words."""

    def __init__(self, kind: ShortageKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass
class CloudSettings:
    """What a simulated cloud is made of, beside its dialect.

    Attributes:
        quota: Limit of the account for live spot machines, in the vendor's unit: vCPUs or machines, of a
            zone or a region; None means no limit.
        on_demand_quota: The same for machines that are not spot.
    """

    market: Market
    inventory: Inventory
    account: Account
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    clock: Callable[[], datetime] = utc_now
    quota: int | None = None
    on_demand_quota: int | None = None


class Cloud(ABC):
    """Shared state of one simulated cloud, and what a dialect must answer.

    Everything runs in the server's event loop, one request at a time between awaits, so a dialect needs no
    locks.
    """

    provider: ClassVar[ProviderName]
    id_prefix: ClassVar[str]
    """Start of the vendor's instance ids."""
    refusal_status: ClassVar[int] = 400
    """HTTP status of an error that is switched on without one."""
    rates_per_second: ClassVar[Mapping[str, int]] = {}
    """The vendor's limits by action."""
    default_rate_per_second: ClassVar[int] = 20

    def __init__(self, settings: CloudSettings) -> None:
        self.settings = settings
        self.market = settings.market
        self.inventory = settings.inventory
        self.account = settings.account
        self.clock = settings.clock
        self.ledger = Ledger(clock=settings.clock, id_prefix=self.id_prefix, settings=settings.ledger)
        self.leftovers = Leftovers()
        """Addresses and data disks, those that survived their machines included."""
        self.ledger.listeners.on_gone.append(self.leftovers.server_gone)
        self.faults = FaultBoard(settings.clock)
        self.hooks = HookBoard()
        self.log = RequestLog()
        self.rates = RateLimits(self.rates_per_second, self.default_rate_per_second)

    @abstractmethod
    def action_of(self, request: WireRequest) -> str:
        """The action's name as far as it can be told without verifying anything, else an empty text."""

    @abstractmethod
    def open(self, request: WireRequest) -> Call:
        """Verify the signature, decode the parameters and check their names.

        Raises:
            VendorError: in the vendor's words.
        """

    @abstractmethod
    def carry_out(self, call: Call) -> Result:
        """Do what was asked.

        Raises:
            VendorError: refused, nothing done.
        """

    @abstractmethod
    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """A success on the wire."""

    @abstractmethod
    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """An error on the wire."""

    def answer_to(self, request: WireRequest, request_id: str, payload: Mapping[str, object]) -> WireAnswer:
        """A success on the wire; a cloud whose services speak differently looks at the request."""
        del request
        return self.answer(payload, request_id)

    def refuse_to(self, request: WireRequest, request_id: str, error: VendorError) -> WireAnswer:
        """An error on the wire, likewise."""
        del request
        return self.refuse(error, request_id)

    @abstractmethod
    def throttled(self, call: Call) -> VendorError:
        """The vendor's error for too many requests."""

    @abstractmethod
    def failed(self) -> VendorError:
        """The vendor's internal error with HTTP status 500."""

    @abstractmethod
    def state_word(self, machine: Machine) -> str:
        """The vendor's word for a machine's state, for the admin API and describe calls alike."""

    def place(self, zone: str, instance_type: str) -> Place:
        """A place of this cloud in the market."""
        return Place(self.provider, zone, instance_type)

    def price(self, place: Place, *, spot: bool) -> Decimal:
        """CNY an hour now."""
        if spot:
            return self.market.spot_price(place, self.clock())
        return self.market.on_demand_price(place)

    def free(self, place: Place) -> int:
        """Machines that can still be bought there now."""
        used = len(self.ledger.live(place.zone, place.instance_type))
        return max(0, self.market.capacity(place, self.clock()) - used)

    def buy(self, order: Order, count: int = 1, *, max_price: Decimal | None = None) -> tuple[Machine, ...]:
        """Check an order against switches, market and quota, and enter its machines: all or none.

        Raises:
            ShortageError: refused, nothing bought.
        """
        place = self.place(order.zone, order.instance_type)
        target = Target("", order.region, order.zone, order.instance_type)
        self._check_switches(target)
        self._check_market(place, count)
        self._check_quota(order, count)
        if order.spot and max_price is not None and max_price < order.price_per_hour:
            raise ShortageError(ShortageKind.PRICE, f"the price is {order.price_per_hour} an hour now")
        return self.ledger.buy(order, count, boot=self._boot(target))

    def _check_switches(self, target: Target) -> None:
        for fault, kind in (
            (FaultKind.NOT_OFFERED, ShortageKind.NOT_OFFERED),
            (FaultKind.NO_STOCK, ShortageKind.NO_STOCK),
            (FaultKind.QUOTA, ShortageKind.QUOTA),
        ):
            if self.faults.strike(target, fault) is not None:
                raise ShortageError(kind, f"refused by a fault switch: {fault}")

    def _check_market(self, place: Place, count: int) -> None:
        try:
            free = self.free(place)
        except UnknownTypeError as exc:
            raise ShortageError(ShortageKind.NOT_OFFERED, str(exc)) from exc
        if not self.market.offered(place):
            raise ShortageError(ShortageKind.NOT_OFFERED, f"{place.instance_type} not sold in {place.zone}")
        if free < count:
            left = f"{free} left of {place.instance_type} in {place.zone}"
            raise ShortageError(ShortageKind.NO_STOCK, left)

    def quota_limit(self, *, spot: bool) -> int | None:
        """The account's limit in the vendor's unit; None means none."""
        return self.settings.quota if spot else self.settings.on_demand_quota

    def quota_units(self, instance_type: str, *, spot: bool) -> int:
        """What one machine takes of the quota: its vCPUs, where a dialect does not say otherwise."""
        del spot
        return self.row(instance_type).vcpu_count

    def counts_together(self, order: Order, other: Order) -> bool:
        """Whether a machine counts against the quota of an order: by region and capacity type."""
        return (order.region, order.spot) == (other.region, other.spot)

    def quota_used(self, order: Order) -> int:
        """What live machines take of the quota that an order needs."""
        return sum(
            self.quota_units(machine.order.instance_type, spot=machine.order.spot)
            for machine in self.ledger.live()
            if self.counts_together(order, machine.order)
        )

    def row(self, type_name: str) -> InstanceType:
        """The catalogue's row of a type; that a purchase names one was checked before."""
        row = instance_type(self.provider, type_name)
        if row is None:
            raise LookupError(f"no instance type {type_name}")
        return row

    def _check_quota(self, order: Order, count: int) -> None:
        limit = self.quota_limit(spot=order.spot)
        if limit is None:
            return
        used = self.quota_used(order)
        if used + count * self.quota_units(order.instance_type, spot=order.spot) > limit:
            raise ShortageError(ShortageKind.QUOTA, f"{used} of {limit} in use")

    def _boot(self, target: Target) -> Boot:
        fault = self.faults.strike(target, FaultKind.BOOT_FAILS, FaultKind.BOOT_NEVER)
        if fault is None:
            return Boot.NORMAL
        return Boot.FAILS if fault.kind is FaultKind.BOOT_FAILS else Boot.NEVER
