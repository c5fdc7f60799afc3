"""AWS's answers to the conformance suite."""

from activities.providers.aws import AwsProvider, AwsSettings
from activities.providers.aws_errors import ERRORS
from activities.providers.base import Capability, Credentials, Provider
from domain.contracts.instances import DiskSpec
from domain.contracts.offers import CapacityType, ProviderName, RegionKey
from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.aws_offers import CNY_PER_USD
from tests.activities.providers.cloud_case import CloudCase
from tests.sandbox.clouds.aws_builders import (
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
    settings = AwsSettings(
        endpoint=endpoint,
        connect_timeout_seconds=timeout_seconds,
        read_timeout_seconds=timeout_seconds,
        page_size=50,
    )
    return AwsProvider(key, credentials, settings)


CASE = CloudCase(
    provider=ProviderName.AWS,
    region=REGION,
    zones=(ZONE, OTHER_ZONE),
    instance_type=TYPE,
    image_id=IMAGE,
    vpc_id=VPC,
    subnets={ZONE: SUBNET, OTHER_ZONE: OTHER_SUBNET},
    security_group_id=GROUP,
    disk=DiskSpec(type="gp3", size_gb=200),
    inventory=an_inventory(),
    simulator=AwsCloud,
    build=_build,
    unknown_id=f"{AwsCloud.id_prefix}ffffffff",
    errors=ERRORS,
    end_actions=("TerminateInstances", "CreateTags", "DeleteTags"),
    quota_action="GetServiceQuota",
    quota_texts={
        CapacityType.SPOT: f"spot vCPU of G and VT (L-3819A6DF) in {REGION}: limit {{limit}}",
        CapacityType.ON_DEMAND: "your current vCPU limit of {limit} allows",
    },
    denied_code="AccessDeniedException",
    says_the_limit=frozenset({CapacityType.ON_DEMAND}),
    capabilities=frozenset({Capability.LEFTOVERS, Capability.SPOT_PRICES, Capability.ON_DEMAND_PRICES}),
    currency="USD",
    cny_per_unit=CNY_PER_USD,
    name_tag="Name",
)
"""What the suite finds."""
