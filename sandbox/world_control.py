"""The switches of the world process over HTTP, loopback only, and the client that sets them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from aiohttp import web

from domain.contracts.offers import ProviderName
from sandbox.faults import HttpFaults, Rule
from sandbox.machines import MachineFault, Machines
from sandbox.node_api import NodeApi
from sandbox.ports import HOST
from sandbox.tcp_faults import Direction, TcpFaults

_PREFIX = "/_sandbox"
_MACHINE_FAULT = [field.name for field in fields(MachineFault)]
_RULE = [field.name for field in fields(Rule)]
_SWITCHES = {
    f"GET {_PREFIX}/status": "Machines with their phase, and how often they asked the API server.",
    f"POST {_PREFIX}/machines/faults": f"Fault of the next machines: {', '.join(_MACHINE_FAULT)}.",
    f"DELETE {_PREFIX}/machines/faults": "Forget the faults that no machine had yet.",
    f"POST {_PREFIX}/proxies/{{name}}/{{switch}}": "A cloud's: refuse, accept. Of raw connections, too: "
    "cut, hold, release, delay?seconds=.",
    f"POST {_PREFIX}/rules/{{name}}": f"Rule of a cloud's proxy: {', '.join(_RULE)}.",
    f"DELETE {_PREFIX}/rules/{{name}}": "Forget its rules.",
    f"GET {_PREFIX}/hits/{{name}}": "Requests that its rules hit.",
}


class WorldControl:
    """Routes below ``/_sandbox/``. Switches answer GET too, since a cloud's hook can only fetch."""

    def __init__(
        self,
        machines: Machines,
        api: NodeApi,
        http: Mapping[str, HttpFaults],
        tcp: Mapping[str, TcpFaults],
    ) -> None:
        self._machines = machines
        self._api = api
        self._http = http
        self._tcp = tcp
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        """Listen on loopback."""
        app = web.Application()
        app.router.add_get(f"{_PREFIX}/status", self._status)
        app.router.add_post(f"{_PREFIX}/machines/faults", self._add_machine_fault)
        app.router.add_delete(f"{_PREFIX}/machines/faults", self._clear_machine_faults)
        app.router.add_route("*", _PREFIX + "/proxies/{name}/{switch}", self._switch)
        app.router.add_post(_PREFIX + "/rules/{name}", self._add_rule)
        app.router.add_delete(_PREFIX + "/rules/{name}", self._clear_rules)
        app.router.add_get(_PREFIX + "/hits/{name}", self._hits)
        app.router.add_get(_PREFIX, self._index)
        app.router.add_get(f"{_PREFIX}/", self._index)
        app.router.add_route("*", "/{path:.*}", _no_such_switch)
        runner = self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _index(self, _: web.Request) -> web.Response:
        """What there is to read and to switch, and the proxies by name."""
        view = {**_SWITCHES, "proxies": [*self._tcp, *self._http]}
        return web.json_response(text=json.dumps(view, indent=1) + "\n")

    async def _status(self, _: web.Request) -> web.Response:
        lives = [
            {
                "id": life.machine.id,
                "provider": life.provider,
                "phase": life.phase,
                "node": life.node_name,
                "note": life.note,
                "registrations_refused": life.registrations_refused,
            }
            for life in self._machines.lives()
        ]
        return web.json_response({"machines": lives, "api_requests": dict(self._api.requests)})

    async def _add_machine_fault(self, request: web.Request) -> web.Response:
        fields = await request.json()
        try:
            if fields.get("provider") is not None:
                fields["provider"] = ProviderName(fields["provider"])
            self._machines.faults.append(MachineFault(**fields))
        except (TypeError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"not a fault of machines: {error}") from error
        return web.json_response({})

    async def _clear_machine_faults(self, _: web.Request) -> web.Response:
        self._machines.faults.clear()
        return web.json_response({})

    async def _switch(self, request: web.Request) -> web.Response:
        """``accept``, ``refuse``, ``cut``; for raw connections also ``hold``, ``release`` and ``delay``."""
        name, switch = request.match_info["name"], request.match_info["switch"]
        if name in self._tcp:
            await _switch_tcp(self._tcp[name], switch, request.query)
        elif name in self._http and switch == "accept":
            await self._http[name].accept()
        elif name in self._http and switch == "refuse":
            await self._http[name].refuse()
        else:
            raise _unknown(f"switch {switch} of proxy {name}", [*self._tcp, *self._http])
        return web.json_response({})

    async def _add_rule(self, request: web.Request) -> web.Response:
        proxy = self._http_proxy(request)
        try:
            proxy.add(Rule.from_json(await request.json()))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return web.json_response({})

    async def _clear_rules(self, request: web.Request) -> web.Response:
        self._http_proxy(request).clear()
        return web.json_response({})

    async def _hits(self, request: web.Request) -> web.Response:
        hits = [{**asdict(hit), "at": hit.at.isoformat()} for hit in self._http_proxy(request).hits]
        return web.json_response(hits)

    def _http_proxy(self, request: web.Request) -> HttpFaults:
        name = request.match_info["name"]
        if name not in self._http:
            raise _unknown(f"HTTP proxy {name}", [*self._http])
        return self._http[name]


async def _switch_tcp(proxy: TcpFaults, switch: str, query: Mapping[str, str]) -> None:
    match switch:
        case "accept":
            await proxy.accept()
        case "refuse":
            await proxy.refuse()
        case "cut":
            proxy.cut()
        case "hold":
            proxy.hold(*([Direction(query["direction"])] if "direction" in query else []))
        case "release":
            proxy.release()
        case "delay":
            proxy.delay_seconds = float(query.get("seconds", "0"))
        case _:
            raise _unknown(f"switch {switch}", ["accept", "refuse", "cut", "hold", "release", "delay"])


async def _no_such_switch(request: web.Request) -> web.Response:
    raise _unknown(f"switch {request.method} {request.path}", [*_SWITCHES])


def _unknown(what: str, known: list[str]) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=f"no {what}; there are {', '.join(known)}\n")


class WorldControlError(Exception):
    """The world refused a switch, or is not there; the text says why."""


@dataclass(frozen=True)
class WorldClient:
    """The switches at ``base_url``. Synchronous; in async code call it through ``asyncio.to_thread``."""

    base_url: str

    def status(self) -> dict[str, Any]:
        """``machines`` (id, provider, phase, node, note) and ``api_requests`` of the machines by verb."""
        return json.loads(self._call("GET", "status"))

    def switch_url(self, proxy: str, switch: str) -> str:
        """Address that a cloud's hook may fetch to turn a switch, for example ``hold?direction=up``."""
        return f"{self.base_url}{_PREFIX}/proxies/{proxy}/{switch}"

    def switch(self, proxy: str, switch: str) -> None:
        """Turn a switch of a proxy: accept, refuse, cut, hold, release, delay?seconds=1."""
        self._call("POST", f"proxies/{proxy}/{switch}")

    def add_rule(self, proxy: str, rule: Mapping[str, object]) -> None:
        """Add a rule to an HTTP proxy; fields as ``sandbox.faults.Rule``."""
        self._call("POST", f"rules/{proxy}", rule)

    def clear_rules(self, proxy: str) -> None:
        """Forget the rules of an HTTP proxy."""
        self._call("DELETE", f"rules/{proxy}")

    def hits(self, proxy: str) -> list[dict[str, Any]]:
        """Requests that rules of an HTTP proxy hit, oldest first."""
        return json.loads(self._call("GET", f"hits/{proxy}"))

    def add_machine_fault(self, fault: Mapping[str, object]) -> None:
        """Let something be wrong with the next machine; fields as ``sandbox.machines.MachineFault``."""
        self._call("POST", "machines/faults", fault)

    def clear_machine_faults(self) -> None:
        """Forget the faults that no machine had yet."""
        self._call("DELETE", "machines/faults")

    def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        address = f"{self.base_url}{_PREFIX}/{path}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data=content, method=method)  # noqa: S310 - own loopback address
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=10) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise WorldControlError(f"{method} {address}: {error.code}: {text}") from error
        except OSError as error:
            raise WorldControlError(f"{method} {address}: {error}") from error
