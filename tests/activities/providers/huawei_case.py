"""Huawei's answers to the conformance suite."""

from activities.providers.base import Capability, Credentials, Provider
from activities.providers.huawei import HuaweiProvider, HuaweiSettings, client_token
from activities.providers.huawei_errors import ERRORS
from domain.contracts.instances import DiskSpec
from domain.contracts.offers import CapacityType, ProviderName, RegionKey
from sandbox.clouds.huawei import HuaweiCloud, project_of
from tests.activities.providers.cloud_case import CloudCase
from tests.sandbox.clouds.huawei_builders import (
    GROUP,
    IMAGE,
    OTHER_SUBNET,
    OTHER_ZONE,
    REGION,
    SUBNET,
    TYPE,
    VPC,
    ZONE,
    an_inventory,
)


def _build(key: RegionKey, credentials: Credentials, endpoint: str, timeout_seconds: float) -> Provider:
    settings = HuaweiSettings(
        endpoint=endpoint,
        connect_timeout_seconds=timeout_seconds,
        read_timeout_seconds=timeout_seconds,
        launch_seconds=2,
        first_poll_seconds=0.03,
        poll_seconds=0.3,
    )
    return HuaweiProvider(key, credentials, settings)


CASE = CloudCase(
    provider=ProviderName.HUAWEI,
    region=REGION,
    zones=(ZONE, OTHER_ZONE),
    instance_type=TYPE,
    image_id=IMAGE,
    vpc_id=VPC,
    subnets={ZONE: SUBNET, OTHER_ZONE: OTHER_SUBNET},
    security_group_id=GROUP,
    disk=DiskSpec(type="GPSSD", size_gb=200),
    inventory=an_inventory(),
    simulator=HuaweiCloud,
    build=_build,
    unknown_id="00000000-0000-4000-8000-ffffffffffff",
    errors=ERRORS,
    quota_action="ShowServerLimits",
    quota_texts={
        CapacityType.SPOT: f"spot instances in {REGION}: {{used}} of {{limit}} used",
        CapacityType.ON_DEMAND: f"instances in {REGION}: {{used}} of {{limit}} used",
    },
    denied_code="Pdp.0001",
    create_action="CreatePostPaidServers",
    end_actions=("DeleteServers", "BatchCreateServerTags", "BatchDeleteServerTags"),
    list_action="ListServersDetails",
    capabilities=frozenset(Capability) - {Capability.SPOT_PRICES},
    client_token=client_token,
    keys={
        "accessKeyId": "AKIDCONFORMANCE",
        "accessKeySecret": "conformanceSecret",
        "projectId": project_of(REGION),
    },
)
"""What the suite finds."""
