"""What spot machines cost and how many there are: a seeded model over time, with switches for tests.

``MarketModel`` is pure: the same seed, place and moment give the same answer everywhere. ``Market`` lays
overrides and recorded traces over it. Nothing here knows which machines run; the ledger counts those.
"""

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from domain.contracts.catalogue import instance_type
from domain.contracts.offers import InstanceType, ProviderName

CURRENCY: Final = "CNY"

# Spot price of one GPU-hour in CNY, the middle of its range. With the zone's factor (0.92 to 1.08) and the
# wave (0.87 to 1.13) an A100 machine with one GPU stays between 3.6 and 7.4.
_GPU_HOUR: Final[Mapping[tuple[str, int], str]] = {
    ("T4", 16): "1.10",
    ("P40", 24): "1.60",
    ("V100", 16): "2.20",
    ("V100", 32): "2.60",
    ("A10", 24): "1.90",
    ("A10G", 24): "1.90",
    ("L4", 24): "1.80",
    ("L20", 48): "3.10",
    ("L40S", 48): "4.10",
    ("A40", 48): "3.00",
    ("A100", 40): "4.55",
    ("A100", 80): "6.00",
    ("H100", 80): "11.50",
    ("H100", 94): "12.50",
    ("H200", 141): "15.00",
    ("B200", 179): "24.00",
    ("RTX-PRO-6000", 96): "6.50",
    ("H20", 96): "7.50",
    ("PNV5b", 48): "3.50",
    ("PNV6", 96): "9.00",
}
_PRICE_STEP: Final = timedelta(minutes=10)
"""Prices and stock change at these steps, so that two reads within one step agree."""
_TENTH_OF_CENT: Final = Decimal("0.001")
"""The finest price that every vendor's price field can carry (Alibaba takes 3 decimals)."""
_EPOCH: Final = datetime(2020, 1, 1, tzinfo=UTC)


_Key = tuple[ProviderName, str, str | None]
_Value = TypeVar("_Value")


class Place(NamedTuple):
    """Where something is sold."""

    provider: ProviderName
    zone: str
    instance_type: str


class UnknownTypeError(LookupError):
    """The catalogue has no such instance type."""


@dataclass(frozen=True)
class MarketModel:
    """Prices and capacity as functions of a seed, a place and a moment.

    Attributes:
        seed: Any integer; another one gives another market.
    """

    seed: int

    def spot_price(self, place: Place, at: datetime) -> Decimal:
        """CNY for one instance-hour of spot at that moment, three decimals."""
        zone = 0.92 + 0.16 * self._fraction("zone", place.provider, place.zone)
        return _rounded(self._base(place) * Decimal(str(zone * (1 + 0.13 * self._wave("price", place, at)))))

    def on_demand_price(self, place: Place) -> Decimal:
        """CNY for one instance-hour without interruption: 4 to 10 times spot, constant."""
        factor = 5.0 + 2.8 * self._fraction("list", place.provider, place.instance_type)
        return _rounded(self._base(place) * Decimal(str(factor)))

    def capacity(self, place: Place, at: datetime) -> int:
        """Machines of this type that the zone can run at once; generous."""
        gpus = _row(place).gpu_count
        middle = 400 * (0.6 + 0.8 * self._fraction("stock", *place)) / gpus
        return max(10, int(middle * (1 + 0.2 * self._wave("stock", place, at))))

    def _base(self, place: Place) -> Decimal:
        row = _row(place)
        return Decimal(_GPU_HOUR[(row.gpu_model, row.gpu_memory_gb)]) * row.gpu_count

    def _wave(self, what: str, place: Place, at: datetime) -> float:
        """Slow and quick waves with a little noise, between -1 and 1."""
        step = (at - _EPOCH) // _PRICE_STEP
        day, hours = self._fraction(what, "day", *place), self._fraction(what, "hours", *place)
        noise = self._fraction(what, str(step), *place) * 2 - 1
        return (
            0.6 * math.sin(math.tau * (step / 144 + day))
            + 0.3 * math.sin(math.tau * (step / 33 + hours))
            + 0.1 * noise
        )

    def _fraction(self, *names: str) -> float:
        """A number in [0, 1) that depends on the seed and these names only, on every platform alike."""
        text = "\x1f".join((str(self.seed), *names))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def _row(place: Place) -> InstanceType:
    row = instance_type(place.provider, place.instance_type)
    if row is None:
        raise UnknownTypeError(f"{place.provider} sells no GPU instance type {place.instance_type!r}")
    return row


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_TENTH_OF_CENT, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Trace:
    """A recording of how many machines each zone had: the value of a sample holds until the next.

    Attributes:
        zones: Zone names in the order of the columns.
        samples: Seconds since the start and one count per zone, sorted by time, never empty.
    """

    zones: tuple[str, ...]
    samples: tuple[tuple[float, tuple[int, ...]], ...]

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """Read an ``availability.csv``: first column ``t_s``, then one column of counts for each zone.

        Raises:
            ValueError: not such a file; the text names the line.
        """
        with path.open(newline="", encoding="utf-8") as lines:
            return cls.parse(lines, str(path))

    @classmethod
    def parse(cls, lines: Iterable[str], source: str) -> "Trace":
        """Parse the lines of such a file; ``source`` is named in errors."""
        rows = csv.reader(lines)
        header = next(rows, list[str]())
        if header[:1] != ["t_s"] or len(header) < 2:
            raise ValueError(f"{source}: the first line must be 't_s,<zone>,...', not {','.join(header)!r}")
        samples = tuple(_sample(row, len(header), f"{source}:{number}") for number, row in enumerate(rows, 2))
        if not samples:
            raise ValueError(f"{source}: no samples after the header")
        return cls(zones=tuple(header[1:]), samples=samples)

    def count(self, zone: str, seconds: float) -> int:
        """Machines of a zone so many seconds after the start; before the first sample the first holds."""
        column = self.zones.index(zone)
        held = self.samples[0]
        for sample in self.samples:
            if sample[0] > seconds:
                break
            held = sample
        return held[1][column]


def _sample(row: list[str], width: int, where: str) -> tuple[float, tuple[int, ...]]:
    if len(row) != width:
        raise ValueError(f"{where}: {len(row)} columns, expected {width}")
    try:
        return float(row[0]), tuple(int(cell) for cell in row[1:])
    except ValueError as exc:
        raise ValueError(f"{where}: not a number: {exc}") from exc


@dataclass(frozen=True)
class _Replay:
    trace: Trace
    column: str
    start: datetime

    def capacity(self, at: datetime) -> int:
        return self.trace.count(self.column, (at - self.start).total_seconds())


@dataclass
class Market:
    """The model with what a test or a demo laid over it. An override holds until it is taken back.

    An override is looked for from the exact place to the whole zone (``instance_type`` None).
    """

    model: MarketModel
    _capacity: dict[_Key, int] = field(default_factory=dict[_Key, int])
    _price: dict[_Key, Decimal] = field(default_factory=dict[_Key, Decimal])
    _replays: dict[_Key, _Replay] = field(default_factory=dict[_Key, _Replay])
    _withdrawn: set[_Key] = field(default_factory=set[_Key])

    @classmethod
    def seeded(cls, seed: int) -> "Market":
        """A market without overrides."""
        return cls(MarketModel(seed))

    def spot_price(self, place: Place, at: datetime) -> Decimal:
        """CNY for one instance-hour of spot."""
        for key in _keys(place):
            if key in self._price:
                return self._price[key]
        return self.model.spot_price(place, at)

    def on_demand_price(self, place: Place) -> Decimal:
        """CNY for one instance-hour without interruption."""
        return self.model.on_demand_price(place)

    def capacity(self, place: Place, at: datetime) -> int:
        """Machines that can run there at once, those that run already included."""
        for key in _keys(place):
            if key in self._capacity:
                return self._capacity[key]
            if key in self._replays:
                return self._replays[key].capacity(at)
        return self.model.capacity(place, at)

    def offered(self, place: Place) -> bool:
        """Whether the type is sold in that zone at all."""
        return not any(key in self._withdrawn for key in _keys(place))

    def set_capacity(
        self, provider: ProviderName, zone: str, instance_type: str | None, capacity: int | None
    ) -> None:
        """Fix the capacity of an offer, or of each type of a zone; None returns to the model."""
        _override(self._capacity, (provider, zone, instance_type), capacity)

    def set_price(
        self, provider: ProviderName, zone: str, instance_type: str | None, price: Decimal | None
    ) -> None:
        """Fix the spot price of an offer, or of each type of a zone; None returns to the model."""
        _override(self._price, (provider, zone, instance_type), price)

    def run_out(self, provider: ProviderName, zone: str, instance_type: str | None = None) -> None:
        """No machine more there; what runs goes on running."""
        self.set_capacity(provider, zone, instance_type, 0)

    def withdraw(self, provider: ProviderName, zone: str, instance_type: str | None = None) -> None:
        """Stop selling a type in a zone at all, which is another answer than sold out."""
        self._withdrawn.add((provider, zone, instance_type))

    def replay(
        self,
        place: _Key,
        trace: Trace,
        *,
        column: str,
        start: datetime,
    ) -> None:
        """Take the capacity of an offer (or zone) from a recorded column; ``start`` is its second 0."""
        if column not in trace.zones:
            raise ValueError(f"no column {column!r} in the trace; it has {', '.join(trace.zones)}")
        self._replays[place] = _Replay(trace, column, start)

    def reset(self) -> None:
        """Forget every override and replay."""
        for layer in (self._capacity, self._price, self._replays, self._withdrawn):
            layer.clear()


def _keys(place: Place) -> tuple[_Key, ...]:
    return ((place.provider, place.zone, place.instance_type), (place.provider, place.zone, None))


def _override(
    layer: dict[_Key, _Value],
    key: _Key,
    value: _Value | None,
) -> None:
    """Set or take back; a whole zone's override replaces those of its single types."""
    if key[2] is None:
        for narrower in [known for known in layer if known[:2] == key[:2]]:
            del layer[narrower]
    if value is None:
        layer.pop(key, None)
    else:
        layer[key] = value
