"""Small builders for offers, pools and strategies: what a test names, and defaults for the rest."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from domain.contracts.money import PriceQuote
from domain.contracts.offers import CapacityType, InstanceType, Interconnect, Offer, ProviderName, Stock
from domain.contracts.pools import PoolSpec
from domain.contracts.strategies import StrategySpec

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def a_type(
    name: str = "GT4.4XLARGE96",
    *,
    provider: str = "tencent",
    gpu: str = "A100-40G",
    gpus: int = 1,
    interconnect: str = "single",
) -> InstanceType:
    model, memory = gpu.rsplit("-", 1)
    return InstanceType(
        provider=ProviderName(provider),
        name=name,
        gpu_model=model,
        gpu_count=gpus,
        gpu_memory_gb=int(memory.removesuffix("G")),
        vcpu_count=16,
        ram_gib=96,
        interconnect=Interconnect(interconnect),
    )


def an_offer(
    price: str | None = "8.00",
    *,
    provider: str = "tencent",
    region: str = "ap-guangzhou",
    zone: str = "ap-guangzhou-3",
    type_name: str = "GT4.4XLARGE96",
    gpu: str = "A100-40G",
    gpus: int = 1,
    interconnect: str = "single",
    stock: str = "ample",
    capacity_type: str = "spot",
    currency: str = "CNY",
) -> Offer:
    quote = None
    if price is not None:
        quote = PriceQuote(per_hour=Decimal(price), currency=currency, as_of=NOON, source="test")
    return Offer(
        provider=ProviderName(provider),
        account=f"{provider}-credentials",
        region=region,
        zone=zone,
        instance_type=a_type(type_name, provider=provider, gpu=gpu, gpus=gpus, interconnect=interconnect),
        capacity_type=CapacityType(capacity_type),
        price=quote,
        stock=Stock(stock),
    )


def a_pool(**fields: Any) -> PoolSpec:
    """A pool of A100 in both clouds; ``fields`` are spelt as in YAML."""
    spec: dict[str, Any] = {
        "minInstances": 2,
        "maxInstances": 20,
        "gpuTypes": ["A100-40G", "A100-80G"],
        "providers": [{"name": "tencent"}, {"name": "aliyun"}],
    }
    return PoolSpec.model_validate({**spec, **fields})


def a_strategy(**fields: Any) -> StrategySpec:
    """A strategy; ``fields`` are spelt as in YAML."""
    return StrategySpec.model_validate(fields)
