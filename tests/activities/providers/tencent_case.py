"""Tencent's answers to the conformance suite."""

from activities.providers.base import Capability, Credentials, Provider
from activities.providers.tencent import TencentProvider, TencentSettings
from activities.providers.tencent_errors import ERRORS
from domain.contracts.instances import DiskSpec
from domain.contracts.offers import CapacityType, ProviderName, RegionKey
from sandbox.clouds.inventory import Inventory, Subnet
from sandbox.clouds.tencent import TencentCloud
from tests.activities.providers.cloud_case import CloudCase

REGION = "ap-guangzhou"
ZONES = ("ap-guangzhou-3", "ap-guangzhou-6")
SUBNETS = {"ap-guangzhou-3": "subnet-3aa2bb3c", "ap-guangzhou-6": "subnet-6aa2bb3c"}
VPC = "vpc-1aa2bb3c"
INVENTORY = Inventory(
    zones={REGION: ZONES, "ap-shanghai": ("ap-shanghai-5",)},
    images={REGION: frozenset({"img-9qabwvbn"})},
    security_groups={REGION: frozenset({"sg-1aa2bb3c"})},
    subnets={subnet: Subnet(subnet, VPC, REGION, zone) for zone, subnet in SUBNETS.items()},
    key_pairs=frozenset({"skey-1aa2bb3c"}),
)


def _build(key: RegionKey, credentials: Credentials, endpoint: str, timeout_seconds: float) -> Provider:
    settings = TencentSettings(endpoint=endpoint, timeout_seconds=timeout_seconds)
    return TencentProvider(key, credentials, settings)


CASE = CloudCase(
    provider=ProviderName.TENCENT,
    region=REGION,
    zones=ZONES,
    instance_type="GT4.4XLARGE96",
    image_id="img-9qabwvbn",
    vpc_id=VPC,
    subnets=SUBNETS,
    security_group_id="sg-1aa2bb3c",
    disk=DiskSpec(type="CLOUD_PREMIUM", size_gb=200),
    inventory=INVENTORY,
    simulator=TencentCloud,
    build=_build,
    unknown_id="ins-00000000",
    errors=ERRORS,
    quota_action="DescribeAccountQuota",
    quota_texts={
        CapacityType.SPOT: "spot vCPU in ap-guangzhou-3: {used} of {limit} used",
        CapacityType.ON_DEMAND: "on-demand quota in ap-guangzhou-3: {used} of {limit} used",
    },
    denied_code="UnauthorizedOperation",
    capabilities=frozenset(Capability) - {Capability.LEFTOVERS},
)
