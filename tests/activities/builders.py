"""Small builders for activity tests: what a test names, and defaults for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from domain.contracts.catalogue import instance_type
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.facts import OwnedMachine
from domain.contracts.instances import DiskSpec, LaunchRequest
from domain.contracts.money import PriceQuote
from domain.contracts.names import TAG_LAUNCH, TAG_POOL, TAG_SLOT
from domain.contracts.offers import CapacityType, Offer, ProviderName, Stock
from tests.fakes.provider import REGION, ZONE

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
TEMPLATE = """#!/bin/sh
INSTANCE_ID=$(curl -fsS {{ metadata.instanceIdURL }})
kubelet --provider-id={{ providerID }} --register-with-taints={{ taints }} --node-labels={{labels}} \\
  --hostname-override={{ nodeName }}
kubeadm join {{ join.server }} --token {{ join.token }} --discovery-token-ca-cert-hash {{ join.caCertHash }}
"""
JOIN = {"server": "10.0.0.1:6443", "token": "abcdef.0123456789abcdef", "caCertHash": "sha256:beef"}


def an_offer(
    price: str | None = "8.00", *, zone: str = ZONE, name: str = "GT4.4XLARGE96", stock: Stock = Stock.AMPLE
) -> Offer:
    row = instance_type(ProviderName.TENCENT, name)
    assert row is not None
    quote = (
        None
        if price is None
        else PriceQuote(per_hour=Decimal(price), currency="CNY", as_of=NOW, source="test")
    )
    return Offer(
        provider=REGION.provider,
        account=REGION.account,
        region=REGION.region,
        zone=zone,
        instance_type=row,
        capacity_type=CapacityType.SPOT,
        price=quote,
        stock=stock,
    )


def a_request(token: str = "uid-1-abcd1234-1", **changes: object) -> LaunchRequest:
    return LaunchRequest(
        token=token,
        offer=an_offer(),
        image_id="img-1",
        vpc_id="vpc-1",
        subnet_id="subnet-1",
        security_group_ids=("sg-1",),
        disk=DiskSpec(type="CLOUD_PREMIUM", size_gb=100),
        user_data_template=TEMPLATE,
        join_secret="cluster-join",
        labels={"b": "2", "a": "1"},
        taints=("spot=true:NoSchedule", "gpu=true:NoSchedule"),
        tags={TAG_POOL: "uid-1", TAG_SLOT: "s1", TAG_LAUNCH: token},
        name="pool-abcd1234-1",
    ).model_copy(update=changes)


def a_machine(
    number: int = 1, *, pool: str = "uid-1", age: timedelta = timedelta(hours=1), **changes: object
) -> OwnedMachine:
    return OwnedMachine(
        region=REGION,
        instance_id=f"ins-{number:04d}",
        pool_uid=pool,
        slot="s1",
        launch=f"{pool}-abcd1234-{number}",
        created_at=NOW - age,
        instance_type="GT4.4XLARGE96",
        zone=ZONE,
        epoch=1,
    ).model_copy(update=changes)


def a_fault(code: ErrorCode, **more: object) -> ProviderError:
    fault = ProviderError(
        code, "told to fail", provider="tencent", operation="RunInstances", vendor_code="Code.X"
    )
    fault.retry_after = more.get("retry_after")  # type: ignore[assignment]  # a test names what it gives
    return fault


def an_attempt(
    number: int = 1,
    *,
    of: int = 4,
    after: Sequence[object] = (),
    heartbeat: timedelta | None = None,
    on_beat: Callable[..., None] = lambda *_: None,
) -> ActivityEnvironment:
    """The environment of one attempt of an activity, which finds ``after`` in its last heartbeat."""
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info,
        attempt=number,
        heartbeat_details=after,
        heartbeat_timeout=heartbeat,
        retry_policy=RetryPolicy(maximum_attempts=of),
    )
    environment.on_heartbeat = on_beat
    return environment
