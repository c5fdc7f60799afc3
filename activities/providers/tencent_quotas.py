"""Tencent's quotas of machines: per zone, spot in vCPUs; for others the vendor names no unit."""

from collections.abc import Mapping
from typing import Final

from activities.providers import tencent_answers as answers
from activities.providers.quotas import Quota
from domain.contracts.offers import CapacityType, Offer

SPOT_SET: Final = "SpotPaidQuotaSet"
ON_DEMAND_SET: Final = "PostPaidQuotaSet"

ANSWERED: Final = frozenset(
    {
        "LimitExceeded.SpotQuota",
        "LimitExceeded.UserSpotQuota",
        "LimitExceeded.InstanceQuota",
        "LimitExceeded.CvmInstanceQuota",
        "InstancesQuotaLimitExceeded",
    }
)
"""Refusals whose quota DescribeAccountQuota tells."""


def question(offer: Offer) -> Mapping[str, object]:
    """Parameters of DescribeAccountQuota for what an offer counts against."""
    kind = SPOT_SET if offer.capacity_type is CapacityType.SPOT else ON_DEMAND_SET
    filters = {"zone": offer.zone, "quota-type": kind}
    return {"Filters": [{"Name": name, "Values": [value]} for name, value in filters.items()]}


def found(answer: answers.DescribeAccountQuota, offer: Offer) -> list[Quota]:
    """What it says of the offer's zone."""
    sets, spot = answer.account_quota_overview.account_quota, offer.capacity_type is CapacityType.SPOT
    rows = sets.spot_paid_quota_set if spot else sets.post_paid_quota_set
    name = "spot vCPU" if spot else "on-demand quota"
    return [Quota(name, row.zone, row.total_quota, row.used_quota) for row in rows if row.zone == offer.zone]
