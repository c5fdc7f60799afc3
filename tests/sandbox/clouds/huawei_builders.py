"""A small Huawei Cloud for tests, and requests signed as the vendor's SDK signs them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox.clouds.cloud import CloudSettings, VendorError, WireRequest
from sandbox.clouds.huawei import HuaweiCloud, project_of
from sandbox.clouds.huawei_signature import DATE_FORMAT, sign
from sandbox.clouds.inventory import Account, Inventory, Subnet
from sandbox.clouds.ledger import LedgerSettings
from sandbox.market import Market

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
REGION = "cn-north-4"
ZONE, OTHER_ZONE = "cn-north-4a", "cn-north-4b"
TYPE = "p3.2xlarge.8"
IMAGE = "aaaaaaaa-0000-4000-8000-000000000001"
VPC = "bbbbbbbb-0000-4000-8000-000000000001"
SUBNET = "cccccccc-0000-4000-8000-00000000000a"
OTHER_SUBNET = "cccccccc-0000-4000-8000-00000000000b"
GROUP = "dddddddd-0000-4000-8000-000000000001"
KEY_PAIR = "spotgpu-nodes"
KEY, SECRET = "HWSANDBOXKEY", "sandboxSecret"
PROJECT = project_of(REGION)
CAPTURES = Path(__file__).parents[2] / "data" / "wire" / "huawei"


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def an_inventory() -> Inventory:
    return Inventory(
        zones={REGION: (ZONE, OTHER_ZONE), "cn-east-3": ("cn-east-3a",)},
        images={REGION: frozenset({IMAGE}), "cn-east-3": frozenset()},
        security_groups={REGION: frozenset({GROUP}), "cn-east-3": frozenset()},
        subnets={
            SUBNET: Subnet(SUBNET, VPC, REGION, ZONE),
            OTHER_SUBNET: Subnet(OTHER_SUBNET, VPC, REGION, OTHER_ZONE),
        },
        key_pairs=frozenset({KEY_PAIR}),
    )


def a_cloud(
    clock: Callable[[], datetime] | None = None,
    *,
    account: Account | None = None,
    quota: int | None = None,
    boot_seconds: float = 0.0,
    end_seconds: float = 0.0,
) -> HuaweiCloud:
    """A cloud whose machines run at the next tick."""
    settings = CloudSettings(
        market=Market.seeded(7),
        inventory=an_inventory(),
        account=account or Account(keys={KEY: SECRET}),
        ledger=LedgerSettings(boot_seconds=boot_seconds, end_seconds=end_seconds),
        quota=quota,
    )
    if clock is not None:
        settings.clock = clock
    return HuaweiCloud(settings)


def signed(
    method: str,
    target: str,
    body: object = None,
    *,
    at: datetime = NOON,
    key: str = KEY,
    secret: str = SECRET,
    headers: Mapping[str, str] | None = None,
) -> WireRequest:
    """A request as the SDK sends it; ``target`` is path and query."""
    sent = {
        "host": "127.0.0.1:18083",
        "x-sdk-date": at.strftime(DATE_FORMAT),
        "content-type": "application/json" if method == "GET" else "application/json;charset=utf-8",
        "user-agent": "huaweicloud-usdk-python/3.0",
        **(headers or {}),
    }
    content = b"" if body is None else json.dumps(body).encode()
    request = WireRequest(method, target, sent, content)
    names = sorted(sent)
    value = sign(request, secret, names)
    sent["authorization"] = (
        f"SDK-HMAC-SHA256 Access={key}, SignedHeaders={';'.join(names)}, Signature={value}"
    )
    return request


def purchase(**changes: object) -> dict[str, Any]:
    """The server of a purchase of one spot machine; None takes a parameter away."""
    server = {
        "availability_zone": ZONE,
        "count": 1,
        "extendparam": {"chargingMode": 0, "marketType": "spot"},
        "flavorRef": TYPE,
        "imageRef": IMAGE,
        "name": "gpu-0",
        "nics": [{"subnet_id": SUBNET}],
        "root_volume": {"volumetype": "GPSSD", "size": 100},
        "security_groups": [{"id": GROUP}],
        "server_tags": [{"key": "spotgpu-pool", "value": "uid-1"}],
        "vpcid": VPC,
    } | changes
    return {name: value for name, value in server.items() if value is not None}


@dataclass
class Caller:
    """Calls a cloud without a network in between."""

    cloud: HuaweiCloud
    clock: Clock = field(default_factory=Clock)

    def call(
        self, method: str, path: str, body: object = None, *, root: str = "", **headers: str
    ) -> dict[str, Any]:
        """The answer's body; ``path`` follows the project, or ``root`` when given.

        Raises:
            VendorError: the cloud said no.
        """
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        target = f"{root or f'/v1/{PROJECT}'}{path}"
        self.cloud.ledger.advance()
        call = self.cloud.open(signed(method, target, body, at=self.clock(), headers=names))
        result = self.cloud.carry_out(call)
        self.cloud.ledger.advance()
        answer = self.cloud.answer(result.payload, "request-1").body
        found: dict[str, Any] = json.loads(answer or b"{}")
        return found

    def create(self, token: str = "", **changes: object) -> dict[str, Any]:
        """Job id and server ids of a purchase."""
        headers = {"x_client_token": token} if token else {}
        return self.call("POST", "/cloudservers", {"server": purchase(**changes)}, **headers)

    def buy(self, **changes: object) -> list[str]:
        """Ids of a purchase."""
        ids: list[str] = self.create(**changes)["serverIds"]
        return ids

    def seen(self, **which: object) -> list[dict[str, Any]]:
        """Servers of a list."""
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in which.items())
        found: list[dict[str, Any]] = self.call("GET", f"/cloudservers/detail?{query}")["servers"]
        return found

    def job(self, job_id: str) -> dict[str, Any]:
        """A job."""
        return self.call("GET", f"/jobs/{job_id}")

    def refusal(self, method: str, path: str, body: object = None, **options: Any) -> VendorError:
        """The error of a call that must be refused."""
        try:
            self.call(method, path, body, **options)
        except VendorError as error:
            return error
        raise AssertionError(f"{method} {path} was not refused")


def captured(case: str) -> dict[str, Any]:
    """One capture."""
    body: dict[str, Any] = json.loads((CAPTURES / f"{case}.json").read_text(encoding="utf-8"))
    return body


def captured_requests(case: str) -> list[WireRequest]:
    """The requests of a capture as a server sees them."""
    found: list[WireRequest] = []
    for exchange in captured(case)["exchanges"]:
        sent = exchange["request"]
        headers = {name.lower(): value for name, value in sent["headers"].items()}
        target = sent.get("raw_target", sent["path"])
        found.append(WireRequest(sent["method"], target, headers, sent.get("raw_body", "").encode()))
    return found
