"""The switches of a simulated cloud over HTTP: ``/_sandbox/...``, JSON both ways, loopback only."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from sandbox.clouds.cloud import Cloud
from sandbox.clouds.faults import Fault, FaultRequest
from sandbox.clouds.hooks import Hook
from sandbox.clouds.ledger import Machine, MachineState
from sandbox.clouds.requests import RequestRecord
from sandbox.market import Trace

PREFIX = "/_sandbox"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReclaimRequest(_Body):
    """Take a machine back; ``notice_seconds`` None means at once."""

    id: str
    notice_seconds: NonNegativeFloat | None = None


class MachineRequest(_Body):
    """Name a machine."""

    id: str


class StockRequest(_Body):
    """Fix how much there is. Exactly one of the four says what.

    ``capacity`` counts running machines, ``free`` counts only what can still be bought now; ``reset`` returns
    to the model; ``withdrawn`` stops the sale altogether.
    """

    zone: str
    instance_type: str | None = None
    capacity: NonNegativeInt | None = None
    free: NonNegativeInt | None = None
    reset: bool = False
    withdrawn: bool = False


class PriceRequest(_Body):
    """Fix a spot price in CNY an hour; None returns to the model."""

    zone: str
    instance_type: str | None = None
    price: Decimal | None = Field(default=None, gt=0)


class ReplayRequest(_Body):
    """Take a zone's capacity from a recorded ``availability.csv``, from now on or from ``start``."""

    zone: str
    instance_type: str | None = None
    path: str
    column: str
    start: datetime | None = None


class SettingsRequest(_Body):
    """Latencies and limits; what is left out stays."""

    boot_seconds: NonNegativeFloat | None = None
    end_seconds: NonNegativeFloat | None = None
    invisible_seconds: NonNegativeFloat | None = None
    quota: NonNegativeInt | None = None
    on_demand_quota: NonNegativeInt | None = None
    no_quota: bool = False
    """Lift both."""
    rates_per_second: dict[str, NonNegativeInt] = Field(default_factory=dict)
    default_rate_per_second: NonNegativeInt | None = None


class AccountRequest(_Body):
    """The keys that are valid from now on; all others are refused."""

    keys: dict[str, str] = Field(min_length=1)


class MachineView(BaseModel):
    """A machine as the admin API shows it."""

    id: str
    state: MachineState
    vendor_state: str
    region: str
    zone: str
    instance_type: str
    spot: bool
    price_per_hour: Decimal
    cost: Decimal
    tags: dict[str, str]
    name: str
    client_token: str
    user_data: str
    private_ip: str
    created_at: datetime
    running_at: datetime | None
    notice_at: datetime | None
    reclaim_at: datetime | None
    ended_at: datetime | None
    gone_at: datetime | None
    end_reason: str

    @property
    def left(self) -> bool:
        """Whether somebody must end it: it costs money, be it for its disk alone."""
        return self.ended_at is None or self.state is MachineState.STOPPED


class LedgerView(BaseModel):
    """Totals of a ledger."""

    machines: int
    live: int
    by_state: dict[str, int]
    cost: Decimal
    currency: str = "CNY"
    tokens_with_two_machines: list[str]
    requests: dict[str, int]


_Model = TypeVar("_Model", bound=BaseModel)
_Route = Callable[[web.Request], Awaitable[web.Response]]

_BODIES: Final[Mapping[str, type[BaseModel]]] = {
    "POST faults": Fault,
    "POST hooks": Hook,
    "POST reclaim": ReclaimRequest,
    "POST warn": MachineRequest,
    "POST terminate": MachineRequest,
    "POST stock": StockRequest,
    "POST price": PriceRequest,
    "POST replay": ReplayRequest,
    "POST settings": SettingsRequest,
    "POST account": AccountRequest,
}
"""What each switch takes, for the list of them; of ``faults`` what each fault has."""


class AdminApi:
    """Routes of the switches of one cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._routes: dict[str, _Route] = {
            "GET instances": self.instances,
            "GET ledger": self.ledger,
            "GET requests": self.requests,
            "GET faults": self.faults,
            "POST faults": self.set_faults,
            "DELETE faults": self.clear_faults,
            "GET hooks": self.hooks,
            "POST hooks": self.set_hook,
            "DELETE hooks": self.clear_hooks,
            "POST hooks/{id}/release": self.release_hook,
            "POST reclaim": self.reclaim,
            "POST warn": self.warn,
            "POST terminate": self.terminate,
            "POST stock": self.stock,
            "POST price": self.price,
            "POST replay": self.replay,
            "POST settings": self.change_settings,
            "POST account": self.change_account,
        }

    def add_routes(self, app: web.Application) -> None:
        """Register every route below ``/_sandbox``; an unknown one is a 404, never the vendor's API."""
        for switch, route in self._routes.items():
            method, path = switch.split()
            app.router.add_route(method, f"{PREFIX}/{path}", route)
        app.router.add_get(PREFIX, self.index)
        app.router.add_get(f"{PREFIX}/", self.index)
        app.router.add_route("*", PREFIX + "/{path:.*}", self.unknown)

    async def index(self, _: web.Request) -> web.Response:
        """What there is to read and to switch."""
        switches = {
            switch.replace(" ", f" {PREFIX}/"): _explained(switch, route)
            for switch, route in self._routes.items()
        }
        return web.json_response(text=json.dumps(switches, indent=1) + "\n")

    async def unknown(self, request: web.Request) -> web.Response:
        """Name what there is instead."""
        known = ", ".join(self._routes)
        raise web.HTTPNotFound(text=f"no such switch: {request.method} {request.path}; there are {known}\n")

    async def instances(self, request: web.Request) -> web.Response:
        """Machines; ?state=live narrows to those that hold capacity, ?tag.KEY=VALUE by tag."""
        tags = {key[4:]: value for key, value in request.query.items() if key.startswith("tag.")}
        ledger = self._cloud.ledger
        machines = ledger.live() if request.query.get("state") == "live" else ledger.all()
        wanted = (m for m in machines if tags.items() <= m.tags.items())
        return _json([self._view(machine).model_dump(mode="json") for machine in wanted])

    async def ledger(self, _: web.Request) -> web.Response:
        """Totals: machines, cost, requests by action."""
        machines = self._cloud.ledger.all()
        by_state = {state.value: sum(m.state is state for m in machines) for state in MachineState}
        view = LedgerView(
            machines=len(machines),
            live=len(self._cloud.ledger.live()),
            by_state=by_state,
            cost=self._cloud.ledger.cost(),
            tokens_with_two_machines=_doubled_tokens(machines),
            requests=self._cloud.log.counts(),
        )
        return _json(view.model_dump(mode="json"))

    async def requests(self, request: web.Request) -> web.Response:
        """The request log; ?action= and ?after= (a record's number) narrow."""
        try:
            after = int(request.query.get("after", "0"))
        except ValueError as exc:
            raise _bad("after must be a record's number") from exc
        records = self._cloud.log.records(request.query.get("action", ""), after=after)
        return _json([_record_view(record) for record in records])

    async def faults(self, _: web.Request) -> web.Response:
        """Faults that are on, with how often each struck."""
        return _json([report.model_dump(mode="json") for report in self._cloud.faults.reports()])

    async def set_faults(self, request: web.Request) -> web.Response:
        """Switch faults on, as {"faults": [{...}]}; answers their numbers."""
        body = await _body(request, FaultRequest)
        return _json({"ids": [self._cloud.faults.set(fault) for fault in body.faults]})

    async def clear_faults(self, request: web.Request) -> web.Response:
        """Switch off all faults, or ?id= one."""
        number = request.query.get("id", "")
        if number and not number.isdecimal():
            raise _bad("id must be a fault's number")
        self._cloud.faults.clear(int(number) if number else None)
        return _json({})

    async def hooks(self, _: web.Request) -> web.Response:
        """All hooks with their hits."""
        return _json([report.model_dump(mode="json") for report in self._cloud.hooks.reports()])

    async def set_hook(self, request: web.Request) -> web.Response:
        """Add a hook; answers its number."""
        return _json({"id": self._cloud.hooks.set(await _body(request, Hook))})

    async def clear_hooks(self, _: web.Request) -> web.Response:
        """Remove all hooks and release what they hold."""
        self._cloud.hooks.clear()
        return _json({})

    async def release_hook(self, request: web.Request) -> web.Response:
        """Release what one hook holds."""
        try:
            self._cloud.hooks.release(int(request.match_info["id"]))
        except (KeyError, ValueError) as exc:
            raise _bad(f"no hook {request.match_info['id']}") from exc
        return _json({})

    async def reclaim(self, request: web.Request) -> web.Response:
        """Take a machine back, with a notice or at once."""
        body = await _body(request, ReclaimRequest)
        machine = self._live_machine(body.id)
        self._cloud.ledger.reclaim(machine.id, notice_seconds=body.notice_seconds)
        return _json(self._view(machine).model_dump(mode="json"))

    async def warn(self, request: web.Request) -> web.Response:
        """Let a machine hear that it might be taken back, where its cloud has a word for it."""
        machine = self._live_machine((await _body(request, MachineRequest)).id)
        self._cloud.ledger.warn(machine.id)
        return _json(self._view(machine).model_dump(mode="json"))

    async def terminate(self, request: web.Request) -> web.Response:
        """Take a machine away from every list at once, as by hand in the console."""
        machine = self._live_machine((await _body(request, MachineRequest)).id)
        self._cloud.ledger.vanish(machine.id)
        return _json(self._view(machine).model_dump(mode="json"))

    async def stock(self, request: web.Request) -> web.Response:
        """Fix, withdraw or reset stock of an offer, or of each type of a zone."""
        body = await _body(request, StockRequest)
        chosen = (body.capacity is not None, body.free is not None, body.reset, body.withdrawn)
        if sum(chosen) != 1:
            raise _bad("set exactly one of capacity, free, reset and withdrawn")
        self._known_zone(body.zone)
        provider, market = self._cloud.provider, self._cloud.market
        if body.withdrawn:
            market.withdraw(provider, body.zone, body.instance_type)
        elif body.free is not None:
            if body.instance_type is None and body.free > 0:
                raise _bad("free needs an instance_type; only free 0 goes for a whole zone")
            used = len(self._cloud.ledger.live(body.zone, body.instance_type or "")) if body.free else 0
            market.set_capacity(provider, body.zone, body.instance_type, used + body.free)
        else:
            market.set_capacity(provider, body.zone, body.instance_type, body.capacity)
        return _json({})

    async def price(self, request: web.Request) -> web.Response:
        """Fix or reset the spot price of an offer, or of each type of a zone."""
        body = await _body(request, PriceRequest)
        self._known_zone(body.zone)
        self._cloud.market.set_price(self._cloud.provider, body.zone, body.instance_type, body.price)
        return _json({})

    async def replay(self, request: web.Request) -> web.Response:
        """Replay a recorded column of capacity."""
        body = await _body(request, ReplayRequest)
        self._known_zone(body.zone)
        start = (body.start or self._cloud.clock()).astimezone(UTC)
        try:
            trace = Trace.read(Path(body.path))
            place = (self._cloud.provider, body.zone, body.instance_type)
            self._cloud.market.replay(place, trace, column=body.column, start=start)
        except (OSError, ValueError) as exc:
            raise _bad(str(exc)) from exc
        return _json({})

    async def change_settings(self, request: web.Request) -> web.Response:
        """Change latencies, quota and rates."""
        body = await _body(request, SettingsRequest)
        latencies = body.model_dump(
            include={"boot_seconds", "end_seconds", "invisible_seconds"}, exclude_none=True
        )
        for name, seconds in latencies.items():
            setattr(self._cloud.ledger.settings, name, seconds)
        for name in ("quota", "on_demand_quota"):
            limit: int | None = getattr(body, name)
            if limit is not None or body.no_quota:
                setattr(self._cloud.settings, name, limit)
        self._cloud.rates.per_second.update(body.rates_per_second)
        if body.default_rate_per_second is not None:
            self._cloud.rates.default = body.default_rate_per_second
        return _json({})

    async def change_account(self, request: web.Request) -> web.Response:
        """Rotate the account's keys."""
        body = await _body(request, AccountRequest)
        self._cloud.account.keys.clear()
        self._cloud.account.keys.update(body.keys)
        return _json({})

    def _known_zone(self, zone: str) -> None:
        if not self._cloud.inventory.region_of(zone):
            known = sorted(z for zones in self._cloud.inventory.zones.values() for z in zones)
            raise _bad(f"no zone {zone!r}; known: {', '.join(known)}")

    def _live_machine(self, machine_id: str) -> Machine:
        found = self._cloud.ledger.find([machine_id])
        if not found or not found[0].live:
            raise _bad(f"no live machine {machine_id!r}")
        return found[0]

    def _view(self, machine: Machine) -> MachineView:
        order = machine.order
        return MachineView(
            id=machine.id,
            state=machine.state,
            vendor_state=self._cloud.state_word(machine),
            region=order.region,
            zone=order.zone,
            instance_type=order.instance_type,
            spot=order.spot,
            price_per_hour=order.price_per_hour,
            cost=machine.cost(self._cloud.clock()),
            tags=machine.tags,
            name=order.name,
            client_token=order.client_token,
            user_data=order.user_data,
            private_ip=machine.private_ip,
            created_at=machine.created_at,
            running_at=machine.running_at,
            notice_at=machine.notice_at,
            reclaim_at=machine.reclaim_at,
            ended_at=machine.ended_at,
            gone_at=machine.gone_at,
            end_reason=machine.end_reason,
        )


def _doubled_tokens(machines: tuple[Machine, ...]) -> list[str]:
    """Client tokens that stand at more than one machine: each is a bug, of the caller or of the simulator."""
    seen: dict[str, int] = {}
    for machine in machines:
        token = machine.order.client_token
        seen[token] = seen.get(token, 0) + 1
    return sorted(token for token, count in seen.items() if token and count > 1)


def _record_view(record: RequestRecord) -> dict[str, object]:
    view = asdict(record)
    view["at"] = record.at.isoformat()
    view["finished_at"] = record.finished_at.isoformat() if record.finished_at else None
    return view


async def _body(request: web.Request, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(await request.read())
    except ValidationError as exc:
        raise _bad(str(exc)) from exc


def _explained(switch: str, route: _Route) -> dict[str, object]:
    """The first line of a route's docstring, and the fields of its body."""
    body = _BODIES.get(switch)
    does: dict[str, object] = {"does": (inspect.getdoc(route) or "").partition("\n")[0]}
    return does if body is None else {**does, "fields": list(body.model_fields)}


def _bad(text: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=f"{text}\n")


def _json(value: object) -> web.Response:
    return web.json_response(value)
