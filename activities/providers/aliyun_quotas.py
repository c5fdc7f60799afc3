"""Alibaba's quotas of machines: vCPUs per region, spot and pay-as-you-go apart."""

from collections.abc import Mapping
from typing import Final

from activities.providers import aliyun_answers as answers
from activities.providers.quotas import Quota
from domain.contracts.offers import CapacityType, Offer

ANSWERED: Final = frozenset({"QuotaExceed.ElasticQuota", "QuotaExceed.AfterpayInstance", "QuotaExceeded"})
"""Refusals for a quota of machines. They may also mean one of a single type, which this API does not tell."""


def question(offer: Offer) -> Mapping[str, object]:
    """Parameters of DescribeAccountAttributes for what an offer counts against."""
    return {"RegionId": offer.region, "AttributeName": list(_names(offer))}


def found(answer: answers.DescribeAccountAttributes, offer: Offer) -> list[Quota]:
    """What it says. A value that is for one zone counts for that zone alone."""
    values = {
        each.attribute_name: item.value
        for each in answer.account_attribute_items.account_attribute_item
        for item in each.attribute_values.value_item
        if item.zone_id in ("", offer.zone)
    }
    most, used = (values.get(name) for name in _names(offer))
    name = "spot vCPU" if offer.capacity_type is CapacityType.SPOT else "on-demand vCPU"
    return [] if most is None else [Quota(name, offer.region, most, used)]


def _names(offer: Offer) -> tuple[str, str]:
    kind = "spot" if offer.capacity_type is CapacityType.SPOT else "postpaid"
    return f"max-{kind}-instance-vcpu-count", f"used-{kind}-instance-vcpu-count"
