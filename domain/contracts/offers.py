"""What a provider sells: one offer is one thing that can be bought."""

from enum import StrEnum

from typing_extensions import override

from domain.contracts.model import Contract
from domain.contracts.money import PriceQuote


class ProviderName(StrEnum):
    """The clouds that a pool may name."""

    TENCENT = "tencent"
    ALIYUN = "aliyun"
    HUAWEI = "huawei"
    AWS = "aws"


class CapacityType(StrEnum):
    """How an instance is paid and whether the cloud may take it back."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Stock(StrEnum):
    """How much of an offer the cloud says it has."""

    AMPLE = "ample"
    TIGHT = "tight"
    SCARCE = "scarce"
    NONE = "none"
    UNKNOWN = "unknown"


class Interconnect(StrEnum):
    """How the GPUs of one machine are joined."""

    SINGLE = "single"
    """One GPU, nothing to join."""
    PCIE = "pcie"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"


class InstanceType(Contract):
    """One row of the catalogue: what a provider's instance type is made of."""

    provider: ProviderName
    name: str
    """The vendor's name, for example ``GT4.4XLARGE96``."""
    gpu_model: str
    """For example ``A100``."""
    gpu_count: int
    gpu_memory_gb: int
    """Memory of one GPU in GB as the vendor writes it."""
    vcpu_count: int
    ram_gib: int
    interconnect: Interconnect

    @property
    def gpu_type(self) -> str:
        """The name that pools use: ``MODEL-MEMORY``, for example ``A100-40G``."""
        return f"{self.gpu_model}-{self.gpu_memory_gb}G"


class RegionKey(Contract):
    """One provider's region seen with one account: what a sync, a queue and a circuit belong to."""

    provider: ProviderName
    account: str
    """Name of the credentials Secret."""
    region: str

    @override
    def __str__(self) -> str:
        return f"{self.provider}:{self.account}:{self.region}"

    @property
    def search_value(self) -> str:
        """``provider/account/region``: this region as one value of the search attribute ``Region``."""
        return f"{self.provider}/{self.account}/{self.region}"


class Offer(Contract):
    """One thing that can be bought, with what it costs and how much of it there is."""

    provider: ProviderName
    account: str
    region: str
    zone: str
    instance_type: InstanceType
    capacity_type: CapacityType
    price: PriceQuote | None
    """None when the cloud states no price; a missing price is not zero."""
    stock: Stock
    currency: str = ""
    """ISO 4217 code of what the cloud bills and takes bids in; empty when only the price tells."""
    list_price: PriceQuote | None = None
    """The on-demand price of the same machine, where a spot offer without a price is bounded by it."""

    @property
    def key(self) -> str:
        """``provider/region/zone/type/capacity``: unique, and the last tie-breaker of every sort."""
        return f"{self.provider}/{self.region}/{self.zone}/{self.instance_type.name}/{self.capacity_type}"

    @property
    def region_key(self) -> RegionKey:
        """The region and account that this offer is bought in."""
        return RegionKey(provider=self.provider, account=self.account, region=self.region)
