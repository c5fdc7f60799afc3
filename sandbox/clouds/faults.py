"""Fault switches of a simulated cloud, settable while it runs."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt


class FaultKind(StrEnum):
    """What goes wrong."""

    THROTTLE = "throttle"
    """Answer that the caller asks too often."""
    FAIL = "fail"
    """Answer HTTP 500; nothing is carried out."""
    ERROR = "error"
    """Refuse with the vendor's ``code``, ``message`` and HTTP ``status``; nothing is carried out."""
    GARBLE = "garble"
    """Carry out, then answer HTTP 200 with a page that is not JSON."""
    EMPTY = "empty"
    """Carry out, then answer a success without its content (no ids)."""
    DROP = "drop"
    """Close the connection before anything is carried out."""
    DROP_ANSWER = "drop-answer"
    """Carry out, then close the connection without an answer."""
    HANG = "hang"
    """Carry out, then never answer: the caller runs into its time-out."""
    DELAY = "delay"
    """Wait ``seconds`` before carrying out."""
    DELAY_ANSWER = "delay-answer"
    """Carry out, wait ``seconds``, then answer."""
    NO_STOCK = "no-stock"
    """Refuse a purchase as sold out."""
    NOT_OFFERED = "not-offered"
    """Refuse a purchase because the type is not sold there."""
    QUOTA = "quota"
    """Refuse a purchase for the account's quota."""
    BOOT_FAILS = "boot-fails"
    """Accept a purchase whose machine then fails to start."""
    BOOT_NEVER = "boot-never"
    """Accept a purchase whose machine stays pending."""


class Fault(BaseModel):
    """One switch. Narrowed by action, zone and type; it wears off by count or by time, else it stays on.

    With ``every`` = k it strikes each k-th matching request (the k-th first).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: FaultKind
    action: str = ""
    """Vendor's action name, for example ``RunInstances``; empty means every action."""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    count: PositiveInt | None = None
    """Strike this many times, then wear off."""
    for_seconds: NonNegativeFloat | None = None
    """Wear off this long after it was set."""
    every: PositiveInt = 1
    seconds: NonNegativeFloat = 0.0
    """Length of a delay."""
    code: str = "SimulatedError"
    message: str = "a fault was switched on"
    status: PositiveInt | None = None
    """None: as the vendor refuses usually."""


class FaultReport(BaseModel):
    """A switch that is on, and how often it struck."""

    id: int
    fault: Fault
    strikes: int = 0
    matches: int = 0


@dataclass
class _Armed:
    report: FaultReport
    expires: datetime | None

    def expired(self, now: datetime) -> bool:
        fault = self.report.fault
        timed_out = self.expires is not None and now >= self.expires
        return timed_out or (fault.count is not None and self.report.strikes >= fault.count)


@dataclass(frozen=True)
class Target:
    """What a request is about, for matching."""

    action: str
    region: str = ""
    zone: str = ""
    instance_type: str = ""


class FaultBoard:
    """The switches that are on. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._armed: dict[int, _Armed] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def set(self, fault: Fault) -> int:
        """Switch a fault on; the number switches it off again."""
        with self._lock:
            number = next(self._ids)
            expires = None
            if fault.for_seconds is not None:
                expires = self._clock() + timedelta(seconds=fault.for_seconds)
            self._armed[number] = _Armed(FaultReport(id=number, fault=fault), expires)
            return number

    def clear(self, number: int | None = None) -> None:
        """Switch one off, or all of them."""
        with self._lock:
            if number is None:
                self._armed.clear()
            else:
                self._armed.pop(number, None)

    def strike(self, target: Target, *kinds: FaultKind) -> Fault | None:
        """The first switch of these kinds that hits the target now, counted as a strike."""
        now = self._clock()
        with self._lock:
            self._armed = {key: armed for key, armed in self._armed.items() if not armed.expired(now)}
            for armed in self._armed.values():
                fault = armed.report.fault
                if fault.kind not in kinds or not _matches(fault, target):
                    continue
                armed.report.matches += 1
                if armed.report.matches % fault.every == 0:
                    armed.report.strikes += 1
                    return fault
        return None

    def reports(self) -> tuple[FaultReport, ...]:
        """Switches that are on, oldest first."""
        now = self._clock()
        with self._lock:
            return tuple(a.report.model_copy() for a in self._armed.values() if not a.expired(now))


def _matches(fault: Fault, target: Target) -> bool:
    return all(
        wanted in ("", actual)
        for wanted, actual in (
            (fault.action, target.action),
            (fault.region, target.region),
            (fault.zone, target.zone),
            (fault.instance_type, target.instance_type),
        )
    )


class FaultRequest(BaseModel):
    """Body of the admin call that switches faults on."""

    model_config = ConfigDict(extra="forbid")

    faults: tuple[Fault, ...] = Field(min_length=1)
