"""Alibaba's answers to the conformance suite."""

from datetime import timedelta

from activities.providers.aliyun import AliyunProvider, AliyunSettings
from activities.providers.aliyun_errors import ERRORS
from activities.providers.base import Capability, Credentials, Provider
from domain.contracts.instances import DiskSpec
from domain.contracts.offers import CapacityType, ProviderName, RegionKey
from sandbox.clouds.aliyun import AliyunCloud
from tests.activities.providers.cloud_case import CloudCase
from tests.sandbox.clouds.aliyun_builders import (
    GROUP,
    IMAGE,
    OTHER_VSWITCH,
    OTHER_ZONE,
    REGION,
    TYPE,
    VSWITCH,
    ZONE,
    an_inventory,
)


def _build(key: RegionKey, credentials: Credentials, endpoint: str, timeout_seconds: float) -> Provider:
    settings = AliyunSettings(
        endpoint=endpoint,
        connect_timeout_seconds=timeout_seconds,
        read_timeout_seconds=timeout_seconds,
    )
    return AliyunProvider(key, credentials, settings)


CASE = CloudCase(
    provider=ProviderName.ALIYUN,
    region=REGION,
    zones=(ZONE, OTHER_ZONE),
    instance_type=TYPE,
    image_id=IMAGE,
    vpc_id="vpc-bp1",
    subnets={ZONE: VSWITCH, OTHER_ZONE: OTHER_VSWITCH},
    security_group_id=GROUP,
    disk=DiskSpec(type="cloud_essd", size_gb=200),
    inventory=an_inventory(),
    simulator=AliyunCloud,
    build=_build,
    unknown_id="i-sim00000000",
    errors=ERRORS,
    quota_action="DescribeAccountAttributes",
    quota_texts={
        CapacityType.SPOT: f"spot vCPU in {REGION}: {{used}} of {{limit}} used",
        CapacityType.ON_DEMAND: f"on-demand vCPU in {REGION}: {{used}} of {{limit}} used",
    },
    denied_code="Forbidden.RAM",
    end_actions=("DeleteInstances", "TagResources", "UntagResources"),
    capabilities=frozenset(Capability) - {Capability.LEFTOVERS},
    dead_man_step=timedelta(minutes=1),
)
"""What the suite finds."""
