"""AWS's quotas of spot machines: vCPUs per group of families and region, told by the Service Quotas API."""

import re
from collections.abc import Mapping
from typing import Final

from activities.providers import aws_answers as answers
from activities.providers.quotas import Quota
from domain.contracts.offers import Offer

ANSWERED: Final = frozenset({"MaxSpotInstanceCountExceeded"})
"""Refusals that do not name their limit. VcpuLimitExceeded and InstanceLimitExceeded do."""

# Letters and digit that the names of a group's types begin with, to the group and its quota's code.
# Source: the vendor's list of EC2 quotas (2024). It has no group for P6 yet.
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    r"(g|gr|vt)\d": ("G and VT", "L-3819A6DF"),
    r"p[234]": ("P4, P3 and P2", "L-7212CCBC"),
    r"p5": ("P5", "L-C4BD4855"),
}


def question(code: str) -> Mapping[str, object]:
    """Parameters of GetServiceQuota for the limit with this code."""
    return {"ServiceCode": "ec2", "QuotaCode": code}


def code_of(offer: Offer) -> str:
    """The code of the quota that a spot offer counts against; empty when none is known."""
    return _group(offer)[1]


def found(answer: answers.GetServiceQuota | None, offer: Offer) -> list[Quota]:
    """The limit, without what is used; None stands for a quota without a known code."""
    group, code = _group(offer)
    name = f"spot vCPU of {group} ({code})" if code else f"spot vCPU of {group}"
    return [Quota(name, offer.region, int(answer.quota.value) if answer else None)]


def _group(offer: Offer) -> tuple[str, str]:
    kind = offer.instance_type.name
    known = (group for pattern, group in GROUPS.items() if re.match(pattern, kind))
    return next(known, (kind.partition(".")[0], ""))
