"""Provider ids: how a Node names its machine. Adapters and boot scripts must agree on every character."""

from typing import Final, assert_never

from domain.contracts.offers import ProviderName

# Source: node dumps of TKE, whose provider ids carry the numeric zone (for example 100003 for
# ap-guangzhou-3): the number of the region times 10,000 plus the number of the zone.
_TENCENT_REGIONS: Final = {
    "ap-guangzhou": 10,
    "ap-shenzhen-fsi": 11,
    "na-siliconvalley": 15,
    "ap-chengdu": 16,
    "eu-frankfurt": 17,
    "ap-seoul": 18,
    "ap-chongqing": 19,
    "ap-shanghai": 20,
    "ap-mumbai": 21,
    "na-ashburn": 22,
    "ap-bangkok": 23,
    "ap-tokyo": 25,
    "ap-hongkong": 30,
    "ap-nanjing": 33,
    "ap-jakarta": 72,
    "ap-beijing": 80,
    "ap-singapore": 90,
}


def provider_id(provider: ProviderName, region: str, zone: str, instance_id: str) -> str:
    """What the kubelet of a machine gets as ``--provider-id``.

    Args:
        provider: The cloud.
        region: Region in the provider's spelling.
        zone: Zone in the provider's spelling.
        instance_id: The vendor's id, or a shell variable that will hold it.
    """
    match provider:
        case ProviderName.TENCENT:
            return f"qcloud:///{_tencent_zone(region, zone)}/{instance_id}"
        case ProviderName.ALIYUN:
            return f"{region}.{instance_id}"
        case ProviderName.HUAWEI:
            return f"huaweicloud://{instance_id}"
        case ProviderName.AWS:
            return f"aws:///{zone}/{instance_id}"
        case _:
            assert_never(provider)


def _tencent_zone(region: str, zone: str) -> str:
    """The numeric zone, or the name itself where the number is not known: some tools write that too."""
    number = zone.removeprefix(f"{region}-")
    if region in _TENCENT_REGIONS and number.isdecimal():
        return f"{_TENCENT_REGIONS[region]}{int(number):04d}"
    return zone
