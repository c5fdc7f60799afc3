"""A small Alibaba Cloud for tests, and requests signed as the vendor's SDKs sign them."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sandbox.clouds.aliyun import AliyunCloud
from sandbox.clouds.aliyun_signature import signature_of
from sandbox.clouds.cloud import CloudSettings, VendorError, WireRequest
from sandbox.clouds.inventory import Account, Inventory, Subnet
from sandbox.clouds.ledger import LedgerSettings
from sandbox.market import Market

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
REGION = "cn-hangzhou"
ZONE, OTHER_ZONE = "cn-hangzhou-i", "cn-hangzhou-j"
TYPE = "ecs.gn7-c12g1.3xlarge"
VCPUS = 12
IMAGE = "m-bp1image"
GROUP = "sg-bp1group"
VSWITCH, OTHER_VSWITCH = "vsw-bp1zonei", "vsw-bp1zonej"
KEY_PAIR = "spotgpu-nodes"
KEY, SECRET = "LTAISANDBOXKEY", "sandboxSecret"
CAPTURES = Path(__file__).parents[2] / "data" / "wire" / "alibaba"
EMPTY_HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Nonces:
    """Numbers used once."""

    last: int = 0

    def next(self) -> str:
        self.last += 1
        return f"{self.last:032x}"


NONCES = Nonces()


def an_inventory() -> Inventory:
    return Inventory(
        zones={REGION: (ZONE, OTHER_ZONE), "cn-beijing": ("cn-beijing-h",)},
        images={REGION: frozenset({IMAGE})},
        security_groups={REGION: frozenset({GROUP})},
        subnets={
            VSWITCH: Subnet(VSWITCH, "vpc-bp1", REGION, ZONE),
            OTHER_VSWITCH: Subnet(OTHER_VSWITCH, "vpc-bp1", REGION, OTHER_ZONE),
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
    initializing_seconds: float = 0.0,
) -> AliyunCloud:
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
    return AliyunCloud(settings, initializing_seconds=initializing_seconds)


def signed(
    action: str,
    query: Mapping[str, str],
    *,
    at: datetime = NOON,
    key: str = KEY,
    secret: str = SECRET,
    nonce: str = "",
    token: str = "",
    version: str = "2014-05-26",
) -> WireRequest:
    """A request as the SDK sends it."""
    headers = {
        "host": "127.0.0.1:18082",
        "x-acs-version": version,
        "x-acs-action": action,
        "x-acs-date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "x-acs-signature-nonce": nonce or NONCES.next(),
        "x-acs-content-sha256": EMPTY_HASH,
        "accept": "application/json",
    }
    if token:
        headers |= {"x-acs-security-token": token, "x-acs-accesskey-id": key}
    names = sorted(headers)
    request = WireRequest("POST", f"/?{urlencode(query)}", headers, b"")
    signature = signature_of(request, names, secret)
    headers["authorization"] = (
        f"ACS3-HMAC-SHA256 Credential={key},SignedHeaders={';'.join(names)},Signature={signature}"
    )
    return request


def purchase(**changes: str) -> dict[str, str]:
    """Parameters of a purchase of one spot machine; an empty text takes a parameter away."""
    query = {
        "RegionId": REGION,
        "ZoneId": ZONE,
        "InstanceType": TYPE,
        "ImageId": IMAGE,
        "SecurityGroupIds.1": GROUP,
        "VSwitchId": VSWITCH,
        "InstanceName": "gpu-0",
        "SpotStrategy": "SpotAsPriceGo",
        "SystemDisk.Category": "cloud_essd",
        "SystemDisk.Size": "100",
        "Tag.1.Key": "spotgpu-pool",
        "Tag.1.Value": "uid-1",
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
        "ClientToken": "token-1",
    } | {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in query.items() if value}


@dataclass
class Caller:
    """Calls a cloud without a network in between."""

    cloud: AliyunCloud
    clock: Clock = field(default_factory=Clock)

    def call(self, action: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The answer's body.

        Raises:
            VendorError: the cloud said no.
        """
        call = self.cloud.open(signed(action, query, at=self.clock()))
        result = self.cloud.carry_out(call)
        self.cloud.ledger.advance()
        body: dict[str, Any] = json.loads(self.cloud.answer(result.payload, "request-1").body)
        return body

    def buy(self, **changes: str) -> list[str]:
        """Ids of a purchase."""
        answer = self.call("RunInstances", purchase(**changes))
        ids: list[str] = answer["InstanceIdSets"]["InstanceIdSet"]
        return ids

    def seen(self, **which: str) -> list[dict[str, Any]]:
        """Instances of a region."""
        query = {"RegionId": REGION} | {name.replace("__", "."): value for name, value in which.items()}
        found: list[dict[str, Any]] = self.call("DescribeInstances", query)["Instances"]["Instance"]
        return found

    def refusal(self, action: str, query: Mapping[str, str]) -> VendorError:
        """The error of a call that must be refused."""
        try:
            self.call(action, query)
        except VendorError as error:
            return error
        raise AssertionError(f"{action} was not refused")


def captured(case: str) -> dict[str, Any]:
    """One capture."""
    body: dict[str, Any] = json.loads((CAPTURES / f"{case}.json").read_text())
    return body


def captured_requests(case: str) -> list[WireRequest]:
    """The requests of a capture as a server sees them."""
    return [
        WireRequest(
            method=each["request"]["method"],
            target=each["request"]["raw_target"],
            headers={name.lower(): value for name, value in each["request"]["headers"].items()},
            body=each["request"].get("raw_body", "").encode(),
        )
        for each in captured(case)["exchanges"]
    ]
