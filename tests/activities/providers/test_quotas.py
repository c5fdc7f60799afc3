"""The numbers of a quota in a refusal: what is said, when nothing is asked, and what a failure changes."""

import logging
import time
from collections.abc import Sequence
from importlib import import_module

import pytest

from activities.providers import aliyun_answers, aliyun_quotas, aws_quotas, huawei_answers, huawei_quotas
from activities.providers.codes import class_by_prefix
from activities.providers.quotas import Quota, deadline, with_limit
from domain.contracts.errors import MAX_MESSAGE_CHARS, ErrorCode, ProviderError
from domain.contracts.instances import Created, LaunchResult, Refusal
from domain.contracts.offers import CapacityType, Offer
from tests.activities.providers.aliyun_case import CASE as ALIYUN
from tests.activities.providers.aws_case import CASE as AWS
from tests.activities.providers.huawei_case import CASE as HUAWEI

WORD = "LimitExceeded.SpotQuota"
ANSWERED = frozenset({WORD})
REFUSED = Refusal(code=ErrorCode.QUOTA, vendor_code=WORD, message="tencent RunInstances: the vendor's words")


def nothing() -> Sequence[Quota]:
    pytest.fail("asked in vain")


@pytest.mark.parametrize(
    ("quota", "text"),
    [
        (Quota("spot vCPU", "ap-guangzhou-3", 64, 64), "spot vCPU in ap-guangzhou-3: 64 of 64 used"),
        (Quota("spot vCPU", "us-east-1", 0), "spot vCPU in us-east-1: limit 0"),
        (Quota("spot vCPU", "us-east-1", None), "spot vCPU in us-east-1: limit not known"),
    ],
)
def test_quota_is_said_in_one_form(quota: Quota, text: str) -> None:
    assert str(quota) == text


@pytest.mark.parametrize(
    "answer",
    [
        Created(instance_id="ins-1", zone="z"),
        Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code="SoldOut"),
        Refusal(code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code=WORD, message="sold out"),
        Refusal(code=ErrorCode.QUOTA, vendor_code="QuotaExceed.PrivateIpAddress"),
    ],
    ids=lambda answer: answer.kind,
)
def test_nothing_is_asked_about_other_answers(answer: LaunchResult) -> None:
    assert with_limit(answer, ANSWERED, nothing, until=deadline()) is answer


def test_numbers_stand_first_and_the_vendors_text_is_cut() -> None:
    long = REFUSED.model_copy(update={"message": "words " * 100})
    quota = Quota("spot vCPU", "ap-guangzhou-3", 64, 64)
    answer = with_limit(long, ANSWERED, lambda: [quota, quota], until=deadline())
    assert isinstance(answer, Refusal)
    assert answer.message.startswith(f"{quota}, {quota}; words words")
    assert len(answer.message) == MAX_MESSAGE_CHARS
    assert answer == long.model_copy(update={"message": answer.message})


def test_nothing_is_asked_when_the_purchase_took_long() -> None:
    answer = with_limit(REFUSED, ANSWERED, nothing, until=time.monotonic() - 1)
    assert answer == REFUSED.model_copy(
        update={"message": "limit not read: no time left; tencent RunInstances: the vendor's words"}
    )


FORBIDDEN = ProviderError(
    ErrorCode.FORBIDDEN,
    "no right to it",
    provider="tencent",
    operation="DescribeAccountQuota",
    vendor_code="UnauthorizedOperation",
)
UNHEARD = ProviderError(ErrorCode.UNAVAILABLE, "no answer", provider="tencent", operation="X")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (FORBIDDEN, "Forbidden UnauthorizedOperation"),
        (UNHEARD, "Unavailable"),
        (ValueError("a parameter"), "ValueError"),
        (None, "not in the answer"),
    ],
    ids=["refused", "unanswered", "a mistake of ours", "nothing told"],
)
def test_reading_that_fails_changes_nothing_but_the_text_and_is_logged(
    fault: Exception | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> Sequence[Quota]:
        if fault is not None:
            raise fault
        return []

    answer = with_limit(REFUSED, ANSWERED, read, until=deadline())
    assert answer == REFUSED.model_copy(update={"message": f"limit not read: {why}; {REFUSED.message}"})
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.WARNING, "Quota not read")
    assert record.__dict__["reason"]
    # A mistake of ours is found by its trace.
    assert bool(record.exc_info) is isinstance(fault, ValueError)


@pytest.mark.parametrize("cloud", ["tencent", "aliyun", "huawei", "aws"])
def test_every_word_that_is_answered_is_a_refusal_for_a_quota(cloud: str) -> None:
    words = import_module(f"activities.providers.{cloud}_quotas").ANSWERED
    listed = import_module(f"activities.providers.{cloud}_errors").ERRORS
    assert {class_by_prefix(word, listed) for word in words} == {ErrorCode.QUOTA}


# What the vendors' answers say


def test_huawei_names_the_limit_without_room_first_and_leaves_out_what_has_none() -> None:
    offer = HUAWEI.offer()
    kind = offer.instance_type
    absolute = {
        "maxTotalSpotInstances": 20,
        "totalSpotInstancesUsed": 3,
        "maxTotalSpotCores": 2 * kind.vcpu_count - 1,
        "totalSpotCoresUsed": kind.vcpu_count,
        "maxTotalSpotRAMSize": -1,
        "totalSpotRAMUsed": 0,
        "maxTotalCores": 800,
    }
    limits = huawei_answers.ServerLimits.model_validate({"absolute": absolute})
    assert [str(each) for each in huawei_quotas.found(limits, offer)] == [
        f"spot vCPU in {HUAWEI.region}: {kind.vcpu_count} of {2 * kind.vcpu_count - 1} used",
        f"spot instances in {HUAWEI.region}: 3 of 20 used",
    ]
    on_demand = HUAWEI.offer(capacity=CapacityType.ON_DEMAND)
    assert [str(each) for each in huawei_quotas.found(limits, on_demand)] == [
        f"vCPU in {HUAWEI.region}: 0 of 800 used"
    ]


def aliyun_answer(most: list[dict[str, str]]) -> aliyun_answers.DescribeAccountAttributes:
    items = [{"AttributeName": "max-spot-instance-vcpu-count", "AttributeValues": {"ValueItem": most}}]
    return aliyun_answers.DescribeAccountAttributes.model_validate(
        {"AccountAttributeItems": {"AccountAttributeItem": items}}
    )


def test_aliyun_takes_the_value_of_the_zone_and_never_makes_one_up() -> None:
    here, there = ALIYUN.zones
    values = [{"Value": "800", "ZoneId": here}, {"Value": "9", "ZoneId": there}]
    (quota,) = aliyun_quotas.found(aliyun_answer(values), ALIYUN.offer())
    assert str(quota) == f"spot vCPU in {ALIYUN.region}: limit 800"
    assert aliyun_quotas.found(aliyun_answer([]), ALIYUN.offer()) == []


def of_type(name: str) -> Offer:
    offer = AWS.offer()
    kind = offer.instance_type.model_copy(update={"name": name})
    return offer.model_copy(update={"instance_type": kind})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("g4dn.xlarge", "L-3819A6DF"),
        ("gr6.4xlarge", "L-3819A6DF"),
        ("p3dn.24xlarge", "L-7212CCBC"),
        ("p4de.24xlarge", "L-7212CCBC"),
        ("p5en.48xlarge", "L-C4BD4855"),
        ("p6-b200.48xlarge", ""),
        ("trn1.32xlarge", ""),
    ],
)
def test_aws_quota_is_that_of_the_types_family(name: str, code: str) -> None:
    assert aws_quotas.code_of(of_type(name)) == code


def test_aws_family_without_a_known_quota_is_named() -> None:
    (quota,) = aws_quotas.found(None, of_type("p6-b200.48xlarge"))
    assert str(quota) == f"spot vCPU of p6-b200 in {AWS.region}: limit not known"
