"""A small EC2 for tests, requests signed as the vendor's SDKs sign them, and answers as nested values."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree.ElementTree import Element, fromstring

from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.aws_signature import Scope, signature_of
from sandbox.clouds.aws_xml import NAMESPACE
from sandbox.clouds.cloud import CloudSettings, VendorError, WireRequest
from sandbox.clouds.inventory import Account, Inventory, Subnet
from sandbox.clouds.ledger import LedgerSettings
from sandbox.market import Market

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
REGION = "us-east-1"
ZONE, OTHER_ZONE = "us-east-1a", "us-east-1b"
TYPE = "g5.xlarge"
VCPUS = 4
IMAGE = "ami-0123456789abcdef0"
GROUP = "sg-0123456789abcdef0"
VPC = "vpc-0123456789abcdef0"
SUBNET, OTHER_SUBNET = "subnet-0123456789abcdefa", "subnet-0123456789abcdefb"
KEY_PAIR = "spotgpu-nodes"
KEY, SECRET = "ASIASANDBOXKEY", "sandboxSecret"
CAPTURES = Path(__file__).parents[2] / "data" / "wire" / "aws"
FORM = "application/x-www-form-urlencoded; charset=utf-8"


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
        zones={REGION: (ZONE, OTHER_ZONE), "eu-central-1": ("eu-central-1a",)},
        images={REGION: frozenset({IMAGE})},
        security_groups={REGION: frozenset({GROUP})},
        subnets={
            SUBNET: Subnet(SUBNET, VPC, REGION, ZONE),
            OTHER_SUBNET: Subnet(OTHER_SUBNET, VPC, REGION, OTHER_ZONE),
        },
        key_pairs=frozenset({KEY_PAIR}),
    )


def settings(
    clock: Callable[[], datetime] | None = None,
    *,
    account: Account | None = None,
    inventory: Inventory | None = None,
    quota: int | None = None,
    **ledger: float,
) -> CloudSettings:
    """A seeded market whose machines run at the next tick."""
    made = CloudSettings(
        market=Market.seeded(7),
        inventory=inventory or an_inventory(),
        account=account or Account(keys={KEY: SECRET}),
        ledger=LedgerSettings(**{"boot_seconds": 0.0, "end_seconds": 0.0, **ledger}),
        quota=quota,
    )
    if clock is not None:
        made.clock = clock
    return made


def signed(
    action: str,
    form: Mapping[str, str],
    *,
    at: datetime = NOON,
    key: str = KEY,
    secret: str = SECRET,
    token: str = "",
    region: str = REGION,
    version: str = "2016-11-15",
    target: str = "/",
) -> WireRequest:
    """A request as the SDK sends it."""
    headers = {
        "host": "127.0.0.1:18084",
        "content-type": FORM,
        "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        "amz-sdk-request": "attempt=1; max=1",
    } | ({"x-amz-security-token": token} if token else {})
    body = urlencode({"Action": action, "Version": version, **form}).encode()
    request = WireRequest("POST", target, headers, body)
    names = sorted(name for name in headers if name != "amz-sdk-request")
    scope = Scope(key, at.strftime("%Y%m%d"), region)
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope.text}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature_of(request, scope, names, secret)}"
    )
    return request


def purchase(**changes: str) -> dict[str, str]:
    """Parameters of a purchase of one spot machine; an empty text takes a parameter away."""
    form = {
        "ImageId": IMAGE,
        "InstanceType": TYPE,
        "MinCount": "1",
        "MaxCount": "1",
        "ClientToken": "token-1",
        "SubnetId": SUBNET,
        "SecurityGroupId.1": GROUP,
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
        "InstanceMarketOptions.MarketType": "spot",
        "TagSpecification.1.ResourceType": "instance",
        "TagSpecification.1.Tag.1.Key": "spotgpu-pool",
        "TagSpecification.1.Tag.1.Value": "uid-1",
    } | {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in form.items() if value}


def by_filter(**filters: str) -> dict[str, str]:
    """Filters of a describe call; two underscores are a colon, one is a hyphen, commas part values."""
    form: dict[str, str] = {}
    for number, (name, values) in enumerate(filters.items(), 1):
        form[f"Filter.{number}.Name"] = name.replace("__", ":").replace("_", "-")
        for place, value in enumerate(values.split(","), 1):
            form[f"Filter.{number}.Value.{place}"] = value
    return form


def content_of(element: Element) -> Any:
    """An answer's element as nested values: ``item`` elements as a list, no children as a text."""
    names = [child.tag.removeprefix(f"{{{NAMESPACE}}}") for child in element]
    if not names:
        return element.text or ""
    if set(names) == {"item"}:
        return [content_of(child) for child in element]
    return {name: content_of(child) for name, child in zip(names, element, strict=True)}


@dataclass
class Caller:
    """Calls a cloud without a network in between."""

    cloud: AwsCloud
    clock: Clock = field(default_factory=Clock)

    def call(self, action: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The answer's body.

        Raises:
            VendorError: the cloud said no.
        """
        call = self.cloud.open(signed(action, form, at=self.clock()))
        result = self.cloud.carry_out(call)
        self.cloud.ledger.advance()
        answer = self.cloud.answer(result.payload, "request-1")
        root = fromstring(answer.body)  # noqa: S314 our own cloud wrote it
        assert root.tag == f"{{{NAMESPACE}}}{action}Response"
        return content_of(root)

    def buy(self, **changes: str) -> list[str]:
        """Ids of a purchase."""
        return [each["instanceId"] for each in self.call("RunInstances", purchase(**changes))["instancesSet"]]

    def seen(self, form: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Instances of a region."""
        reservations = self.call("DescribeInstances", form or {})["reservationSet"] or []
        return [each for reservation in reservations for each in reservation["instancesSet"]]

    def requests(self, form: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Spot requests of a region."""
        return self.call("DescribeSpotInstanceRequests", form or {})["spotInstanceRequestSet"] or []

    def refusal(self, action: str, form: Mapping[str, str]) -> VendorError:
        """The error of a call that must be refused."""
        try:
            self.call(action, form)
        except VendorError as error:
            return error
        raise AssertionError(f"{action} was not refused")


def a_caller(**changes: Any) -> Caller:
    """A caller of a fresh cloud. ``capacity_status`` and ``terminated_seconds`` go to the cloud itself."""
    own = {name: changes.pop(name) for name in ("capacity_status", "terminated_seconds") if name in changes}
    clock = Clock()
    return Caller(AwsCloud(settings(clock, **changes), **own), clock)


def captured(case: str) -> dict[str, Any]:
    """One capture."""
    body: dict[str, Any] = json.loads((CAPTURES / f"{case}.json").read_text())
    return body


def captured_requests(case: str) -> list[WireRequest]:
    """The requests of a capture as a server sees them."""
    return [
        WireRequest(
            method=each["request"]["method"],
            target=each["request"]["path"],
            headers={name.lower(): value for name, value in each["request"]["headers"].items()},
            body=each["request"]["raw_body"].encode(),
        )
        for each in captured(case)["exchanges"]
    ]
