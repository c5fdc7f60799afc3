"""A small client of the switches of a simulated cloud, for tests, the demo and chaos runs.

    control = CloudControl(base_url)
    control.set_fault(Fault(kind=FaultKind.NO_STOCK, zone="ap-guangzhou-3", for_seconds=60))
    hook = control.set_hook(Hook(point=HookPoint.CARRIED_OUT, action="RunInstances", kill_pid=worker_pid))
    assert control.hook(hook).hits

Synchronous; in async code call it through ``asyncio.to_thread``.
"""

import urllib.error
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from http.client import HTTPResponse
from typing import Literal, cast
from urllib.parse import urlencode

from pydantic import BaseModel, TypeAdapter

from sandbox.clouds.admin import (
    PREFIX,
    AccountRequest,
    LedgerView,
    MachineRequest,
    MachineView,
    PriceRequest,
    ReclaimRequest,
    ReplayRequest,
    SettingsRequest,
    StockRequest,
)
from sandbox.clouds.faults import Fault, FaultReport, FaultRequest
from sandbox.clouds.hooks import Hook, HookReport
from sandbox.clouds.requests import RequestRecord

_TIMEOUT_SECONDS = 10.0
_MACHINES = TypeAdapter(list[MachineView])
_RECORDS = TypeAdapter(list[RequestRecord])
_FAULTS = TypeAdapter(list[FaultReport])
_HOOKS = TypeAdapter(list[HookReport])
_IDS = TypeAdapter(dict[Literal["ids"], list[int]])
_ID = TypeAdapter(dict[Literal["id"], int])


class ControlError(Exception):
    """The simulated cloud refused a switch, or is not there; the text says why."""


@dataclass(frozen=True)
class CloudControl:
    """The switches at ``base_url``, for example ``http://127.0.0.1:40123``."""

    base_url: str

    def machines(self, *, live: bool = False, tags: dict[str, str] | None = None) -> list[MachineView]:
        """Machines, oldest first: all that ever were, or those that hold capacity now."""
        query = {f"tag.{key}": value for key, value in (tags or {}).items()}
        if live:
            query["state"] = "live"
        return _MACHINES.validate_json(self._call("GET", "instances", query=query))

    def ledger(self) -> LedgerView:
        """Totals: machines, cost, requests by action."""
        return LedgerView.model_validate_json(self._call("GET", "ledger"))

    def requests(self, action: str = "", *, after: int = 0) -> list[RequestRecord]:
        """The request log of an action (or all), records with a number above ``after``."""
        query = {"action": action, "after": str(after)}
        return _RECORDS.validate_json(self._call("GET", "requests", query=query))

    def set_fault(self, *faults: Fault) -> list[int]:
        """Switch faults on; returns their numbers."""
        return _IDS.validate_json(self._call("POST", "faults", FaultRequest(faults=faults)))["ids"]

    def faults(self) -> list[FaultReport]:
        """Switches that are on."""
        return _FAULTS.validate_json(self._call("GET", "faults"))

    def clear_faults(self, number: int | None = None) -> None:
        """Switch off one, or all."""
        self._call("DELETE", "faults", query={} if number is None else {"id": str(number)})

    def set_hook(self, hook: Hook) -> int:
        """Add a hook; returns its number."""
        return _ID.validate_json(self._call("POST", "hooks", hook))["id"]

    def hook(self, number: int) -> HookReport:
        """One hook with its hits.

        Raises:
            ControlError: no such hook.
        """
        for report in self.hooks():
            if report.id == number:
                return report
        raise ControlError(f"no hook {number} at {self.base_url}")

    def hooks(self) -> list[HookReport]:
        """All hooks with their hits."""
        return _HOOKS.validate_json(self._call("GET", "hooks"))

    def release_hook(self, number: int) -> None:
        """Let requests go on that a hook holds."""
        self._call("POST", f"hooks/{number}/release")

    def clear_hooks(self) -> None:
        """Remove all hooks; what they held goes on."""
        self._call("DELETE", "hooks")

    def reclaim(self, machine_id: str, *, notice_seconds: float | None = None) -> None:
        """The cloud takes a machine back."""
        self._call("POST", "reclaim", ReclaimRequest(id=machine_id, notice_seconds=notice_seconds))

    def warn(self, machine_id: str) -> None:
        """A machine hears that it might be taken back, where its cloud has a word for it."""
        self._call("POST", "warn", MachineRequest(id=machine_id))

    def terminate(self, machine_id: str) -> None:
        """A machine disappears, ended by somebody else."""
        self._call("POST", "terminate", MachineRequest(id=machine_id))

    def set_capacity(self, zone: str, instance_type: str | None, capacity: int) -> None:
        """Fix how many machines can run there at once."""
        self._call("POST", "stock", StockRequest(zone=zone, instance_type=instance_type, capacity=capacity))

    def set_free(self, zone: str, instance_type: str, free: int) -> None:
        """Fix how many machines can still be bought there."""
        self._call("POST", "stock", StockRequest(zone=zone, instance_type=instance_type, free=free))

    def run_out(self, zone: str, instance_type: str | None = None) -> None:
        """Nothing more there; what runs goes on."""
        self._call("POST", "stock", StockRequest(zone=zone, instance_type=instance_type, free=0))

    def withdraw(self, zone: str, instance_type: str | None = None) -> None:
        """Stop selling there at all."""
        self._call("POST", "stock", StockRequest(zone=zone, instance_type=instance_type, withdrawn=True))

    def reset_stock(self, zone: str, instance_type: str | None = None) -> None:
        """Back to the seeded model."""
        self._call("POST", "stock", StockRequest(zone=zone, instance_type=instance_type, reset=True))

    def set_price(self, zone: str, instance_type: str | None, price: Decimal | None) -> None:
        """Fix the spot price, CNY an hour; None returns to the model."""
        self._call("POST", "price", PriceRequest(zone=zone, instance_type=instance_type, price=price))

    def replay(self, request: ReplayRequest) -> None:
        """Take capacity from a recording."""
        self._call("POST", "replay", request)

    def change_settings(self, settings: SettingsRequest) -> None:
        """Latencies, quota, rates."""
        self._call("POST", "settings", settings)

    def change_keys(self, keys: dict[str, str]) -> None:
        """From now on only these access keys are valid."""
        self._call("POST", "account", AccountRequest(keys=keys))

    def _call(
        self, method: str, path: str, body: BaseModel | None = None, query: dict[str, str] | None = None
    ) -> bytes:
        address = f"{self.base_url}{PREFIX}/{path}"
        if query:
            address += "?" + urlencode(query)
        content = None if body is None else body.model_dump_json().encode()
        request = urllib.request.Request(address, data=content, method=method)  # noqa: S310 - own loopback address
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
        try:
            # The stubs of urllib say Any; for http addresses it is an HTTPResponse.
            with cast("HTTPResponse", opener.open(request, timeout=_TIMEOUT_SECONDS)) as answer:
                return answer.read()
        except urllib.error.HTTPError as exc:
            text = exc.read().decode(errors="replace")
            raise ControlError(f"{method} {address}: {exc.code}: {text}") from exc
        except OSError as exc:
            raise ControlError(f"{method} {address}: {exc}") from exc
