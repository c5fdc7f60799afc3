"""Signed requests to the Tencent simulator, made without the SDK."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from domain.contracts.offers import ProviderName
from sandbox.clouds import tencent_signature as signature
from sandbox.clouds.cloud import CloudSettings, WireRequest, utc_now
from sandbox.clouds.inventory import Account, Inventory, Subnet
from sandbox.clouds.ledger import LedgerSettings
from sandbox.clouds.tencent import TencentCloud
from sandbox.market import Market

WIRE = Path(__file__).parents[2] / "data" / "wire" / "tencent"
KEY_ID, SECRET = "AKIDEXAMPLEFAKE", "fakeSecretKeyExample"
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
REGION, ZONE, TYPE = "ap-guangzhou", "ap-guangzhou-6", "GN7.2XLARGE32"
VCPUS = 8
PROVIDER = ProviderName.TENCENT
INVENTORY = Inventory(
    zones={REGION: ("ap-guangzhou-3", ZONE)},
    images={REGION: frozenset({"img-487zeit5"})},
    security_groups={REGION: frozenset({"sg-1234abcd"})},
    subnets={
        "subnet-1234abcd": Subnet("subnet-1234abcd", "vpc-1234abcd", REGION, ZONE),
        "subnet-3333abcd": Subnet("subnet-3333abcd", "vpc-1234abcd", REGION, "ap-guangzhou-3"),
    },
    key_pairs=frozenset({"skey-1234abcd"}),
)
PURCHASE: Mapping[str, object] = {
    "InstanceChargeType": "SPOTPAID",
    "Placement": {"Zone": ZONE},
    "InstanceType": TYPE,
    "ImageId": "img-487zeit5",
    "VirtualPrivateCloud": {"VpcId": "vpc-1234abcd", "SubnetId": "subnet-1234abcd"},
    "SecurityGroupIds": ["sg-1234abcd"],
    "ClientToken": "token-1",
}


class Clock:
    """A clock that tests set."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def a_cloud(now: datetime | None = NOW, **ledger: float) -> TencentCloud:
    """A cloud whose clock stands still at ``now``, or goes with the wall for None."""
    settings = CloudSettings(
        market=Market.seeded(1),
        inventory=INVENTORY,
        account=Account({KEY_ID: SECRET}),
        ledger=LedgerSettings(**ledger),
        clock=Clock(now) if now else utc_now,
    )
    return TencentCloud(settings)


def signed(
    action: str,
    body: Mapping[str, object],
    *,
    at: datetime = NOW,
    service: str = "cvm",
    version: str = "2017-03-12",
    secret: str = SECRET,
) -> WireRequest:
    """A request as the SDK would send it."""
    headers = {
        "content-type": "application/json",
        "host": "127.0.0.1:18081",
        "x-tc-action": action,
        "x-tc-version": version,
        "x-tc-region": REGION,
        "x-tc-timestamp": str(int(at.timestamp())),
    }
    request = WireRequest("POST", "/", headers, json.dumps(body).encode())
    date, names = at.strftime("%Y-%m-%d"), ["content-type", "host"]
    value = signature.sign(request, secret, date=date, service=service, signed=names)
    headers["authorization"] = (
        f"TC3-HMAC-SHA256 Credential={KEY_ID}/{date}/{service}/tc3_request, "
        f"SignedHeaders=content-type;host, Signature={value}"
    )
    return request


def captured() -> list[tuple[str, WireRequest]]:
    """Every request of the captures, with the name of its case."""
    found: list[tuple[str, WireRequest]] = []
    for file in sorted(WIRE.glob("*.json")):
        case = json.loads(file.read_text(encoding="utf-8"))
        for exchange in case["exchanges"]:
            sent = exchange["request"]
            headers = {name.lower(): value for name, value in sent["headers"].items()}
            target = sent.get("raw_target", sent["path"])
            body = sent.get("raw_body", "").encode()
            found.append((case["case"], WireRequest(sent["method"], target, headers, body)))
    return found


def time_of(request: WireRequest) -> datetime:
    """When a request was signed."""
    return datetime.fromtimestamp(int(request.headers["x-tc-timestamp"]), UTC)
