"""The Service Quotas API beside EC2: JSON in, JSON out, signed for a service of its own.

A quota of instances counts vCPUs per group of families, account and region, spot and on-demand apart. The
answer has the limit alone, not what of it is used.
Source: the service model of botocore 1.44.8; codes and names of the quotas as the vendor's pages list them.
"""

import re
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from sandbox.clouds import aws_signature as signature
from sandbox.clouds.aws_json import SIGNATURE_WORDS, Dialect, check_form
from sandbox.clouds.cloud import PLENTY, VendorError, WireRequest
from sandbox.clouds.inventory import Account

ACTION: Final = "GetServiceQuota"
SERVICE: Final = "servicequotas"
DIALECT: Final = Dialect(
    "ServiceQuotasV20190624.",
    {
        **SIGNATURE_WORDS,
        "RequestLimitExceeded": "TooManyRequestsException",
        "InternalError": "ServiceException",
    },
    frozenset({"ServiceException"}),
)
# Quota code to its name and the families that it is for; letters and digit of a type's name tell the family.
_SPOT: Final = {
    "L-3819A6DF": ("All G and VT Spot Instance Requests", r"(g|gr|vt)\d"),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", r"p[234]"),
    "L-C4BD4855": ("All P5 Spot Instance Requests", r"p5"),
}
_ON_DEMAND: Final = {
    "L-DB2E81BA": ("Running On-Demand G and VT instances", r"(g|gr|vt)\d"),
    "L-417A185B": ("Running On-Demand P instances", r"p\d"),
}


class GetServiceQuota(BaseModel):
    """Tell one quota."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_pascal)

    service_code: str = Field(min_length=1, max_length=63, pattern="^[a-zA-Z][a-zA-Z0-9-]*$")
    quota_code: str = Field(min_length=1, max_length=128, pattern="^[a-zA-Z][a-zA-Z0-9-]*$")


def opened(
    request: WireRequest, account: Account, *, now: datetime
) -> tuple[signature.Scope, GetServiceQuota]:
    """Who asks, and for which quota.

    Raises:
        VendorError: in this service's words, or in those that its dialect translates.
    """
    scope = signature.verify(request, account, now=now, service=SERVICE)
    check_form(request, known=DIALECT.action_of(request) == ACTION)
    try:
        return scope, GetServiceQuota.model_validate_json(request.body, strict=True)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "the body"
        raise VendorError("IllegalArgumentException", f"{name}: {first['msg']}") from exc


def group_of(instance_type: str, *, spot: bool) -> str:
    """The code of the quota that a type counts against; empty for one that has none here."""
    quotas = _SPOT if spot else _ON_DEMAND
    found = (code for code, (_, families) in quotas.items() if re.match(families, instance_type))
    return next(found, "")


def answered(
    wanted: GetServiceQuota, region: str, *, spot: int | None, on_demand: int | None
) -> dict[str, object]:
    """One quota.

    Raises:
        VendorError: there is no such quota.
    """
    limits = {**dict.fromkeys(_SPOT, spot), **dict.fromkeys(_ON_DEMAND, on_demand)}
    code = wanted.quota_code
    if wanted.service_code != "ec2" or code not in limits:
        raise VendorError("NoSuchResourceException", "The quota does not exist.")
    limit = limits[code]
    quota = {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": (_SPOT | _ON_DEMAND)[code][0],
        "Value": float(PLENTY if limit is None else limit),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
    return {"Quota": quota}
