"""The simulated price list: requests as the SDK signs them, filters, pages, and refusals in its own words."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import botocore.session
import pytest

from domain.contracts.offers import ProviderName
from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.aws_offers import usd
from sandbox.clouds.aws_prices import Condition, GetProducts
from sandbox.clouds.aws_signature import Scope, signature_of
from sandbox.clouds.cloud import VendorError, WireAnswer, WireRequest
from tests.sandbox.clouds.aws_builders import (
    KEY,
    NOON,
    OTHER_ZONE,
    REGION,
    SECRET,
    TYPE,
    ZONE,
    Clock,
    an_inventory,
    settings,
)

JSON = "application/x-amz-json-1.1"
PLAIN = {
    "instanceType": TYPE,
    "regionCode": REGION,
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def asked(
    fields: Mapping[str, str] | None = None,
    *,
    action: str = "GetProducts",
    home: str = REGION,
    service: str = "pricing",
    secret: str = SECRET,
    at: datetime = NOON,
    body: bytes | None = None,
    kind: str = JSON,
    **more: object,
) -> WireRequest:
    """A request as the SDK sends it."""
    filters = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in (fields or {}).items()
    ]
    given = {"ServiceCode": "AmazonEC2", "Filters": filters, **more}
    headers = {
        "host": "127.0.0.1:18084",
        "content-type": kind,
        "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        "x-amz-target": f"AWSPriceListService.{action}",
    }
    names = sorted(headers)
    request = WireRequest("POST", "/", headers, json.dumps(given).encode() if body is None else body)
    scope = Scope(KEY, at.strftime("%Y%m%d"), home, service)
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{scope.text}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature_of(request, scope, names, secret)}"
    )
    return request


def a_cloud(**changes: Any) -> AwsCloud:
    return AwsCloud(settings(Clock(), **changes))


def answered(cloud: AwsCloud, request: WireRequest) -> dict[str, Any]:
    result = cloud.carry_out(cloud.open(request))
    answer = cloud.answer_to(request, "request-1", result.payload)
    assert (answer.status, answer.headers["Content-Type"]) == (200, JSON)
    content: dict[str, Any] = json.loads(answer.body)
    return content


def products(cloud: AwsCloud, fields: Mapping[str, str], **more: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in answered(cloud, asked(fields, **more))["PriceList"]]


def refused(cloud: AwsCloud, request: WireRequest) -> WireAnswer:
    with pytest.raises(VendorError) as caught:
        cloud.carry_out(cloud.open(request))
    return cloud.refuse_to(request, "request-1", caught.value)


def code_of(answer: WireAnswer) -> str:
    assert answer.headers["Content-Type"] == JSON
    code: str = json.loads(answer.body)["__type"]
    return code


def amount_of(product: dict[str, Any]) -> dict[str, Decimal]:
    (term,) = product["terms"]["OnDemand"].values()
    (rate,) = term["priceDimensions"].values()
    assert rate["unit"] == "Hrs"
    assert datetime.fromisoformat(term["effectiveDate"]) <= NOON
    return {currency: Decimal(amount) for currency, amount in rate["pricePerUnit"].items()}


def test_every_filter_together_leaves_one_product_at_the_markets_price() -> None:
    cloud = a_cloud()
    (product,) = products(cloud, PLAIN)
    assert PLAIN.items() <= product["product"]["attributes"].items()
    price = cloud.market.on_demand_price(cloud.place(ZONE, TYPE))
    assert amount_of(product) == {"USD": usd(price)}


@pytest.mark.parametrize("left_out", sorted(PLAIN.keys() - {"preInstalledSw"}))
def test_without_one_filter_there_are_more_products(left_out: str) -> None:
    rest = {name: value for name, value in PLAIN.items() if name != left_out}
    assert len(products(a_cloud(), rest)) > 1


def test_a_type_that_no_zone_of_a_region_sells_is_not_listed() -> None:
    cloud = a_cloud()
    cloud.market.withdraw(ProviderName.AWS, ZONE, TYPE)
    assert len(products(cloud, PLAIN)) == 1
    cloud.market.withdraw(ProviderName.AWS, OTHER_ZONE, TYPE)
    assert products(cloud, PLAIN) == []
    assert len(products(cloud, {**PLAIN, "regionCode": "eu-central-1"})) == 1


def test_each_partition_has_a_list_of_its_own_in_its_currency() -> None:
    zones = {**an_inventory().zones, "cn-north-1": ("cn-north-1a",)}
    cloud = a_cloud(inventory=replace(an_inventory(), zones=zones))
    china = {**PLAIN, "regionCode": "cn-north-1"}
    assert products(cloud, china) == []
    (product,) = products(cloud, china, home="cn-northwest-1")
    assert amount_of(product) == {"CNY": cloud.market.on_demand_price(cloud.place("cn-north-1a", TYPE))}
    assert products(cloud, PLAIN, home="cn-northwest-1") == []
    assert len(products(cloud, PLAIN, home="ap-south-1")) == 1


def test_pages_lose_nothing_and_say_that_more_follows() -> None:
    cloud = a_cloud()
    fields = {"instanceType": TYPE, "ServiceCode": "AmazonEC2"}
    whole = {each["product"]["sku"] for each in products(cloud, fields)}
    seen: list[str] = []
    token = ""
    for _ in range(len(whole)):
        more = {"NextToken": token} if token else {}
        page = answered(cloud, asked(fields, MaxResults=5, **more))
        seen += [json.loads(text)["product"]["sku"] for text in page["PriceList"]]
        token = page.get("NextToken", "")
        if not token:
            break
    assert len(seen) == len(whole) > 5
    assert set(seen) == whole


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(asked({"colour": "red"}), "InvalidParameterException", id="unknown field"),
        pytest.param(asked(ServiceCode="AmazonEC3"), "InvalidParameterException", id="service code"),
        pytest.param(
            asked(Filters=[{"Type": "SOME", "Field": "a", "Value": "b"}]),
            "InvalidParameterException",
            id="kind of filter",
        ),
        pytest.param(
            asked(Filters=[{"Type": "TERM_MATCH", "Field": "a"}]), "InvalidParameterException", id="no value"
        ),
        pytest.param(asked(Colour="red"), "InvalidParameterException", id="unknown name"),
        pytest.param(asked(MaxResults=101), "InvalidParameterException", id="large page"),
        pytest.param(asked(MaxResults="5"), "InvalidParameterException", id="no number"),
        pytest.param(asked(FormatVersion="v2"), "InvalidParameterException", id="format"),
        pytest.param(asked(body=b"{}"), "InvalidParameterException", id="no service code"),
        pytest.param(asked(body=b"Action=GetProducts"), "SerializationException", id="no JSON"),
        pytest.param(asked(kind="application/json"), "SerializationException", id="content type"),
        pytest.param(asked(NextToken="x"), "InvalidNextTokenException", id="foreign token"),
        pytest.param(asked(action="Dance"), "UnknownOperationException", id="operation"),
        pytest.param(asked(secret="wrong"), "UnrecognizedClientException", id="secret"),
        pytest.param(asked(service="ec2"), "UnrecognizedClientException", id="signed for EC2"),
        pytest.param(asked(home="us-west-2"), "UnrecognizedClientException", id="no list there"),
        pytest.param(asked(at=NOON.replace(hour=3)), "InvalidSignatureException", id="expired"),
    ],
)
def test_what_the_list_does_not_take_is_refused_in_its_own_words(request_: WireRequest, code: str) -> None:
    answer = refused(a_cloud(), request_)
    assert (answer.status, code_of(answer)) == (400, code)


def test_what_is_signed_for_ec2_names_no_target() -> None:
    request = asked()
    bare = {name: value for name, value in request.headers.items() if name != "x-amz-target"}
    with pytest.raises(VendorError) as caught:
        a_cloud().open(replace(request, headers=bare))
    assert caught.value.code == "IncompleteSignature"


def test_load_and_failures_have_the_lists_words() -> None:
    cloud, request = a_cloud(), asked(PLAIN)
    call = cloud.open(request)
    told = [cloud.refuse_to(request, "r", error) for error in (cloud.throttled(call), cloud.failed())]
    assert [(each.status, code_of(each)) for each in told] == [
        (400, "ThrottlingException"),
        (500, "InternalErrorException"),
    ]


def test_parameters_and_answers_are_those_of_the_sdks_model() -> None:
    model = botocore.session.get_session().get_service_model("pricing").operation_model("GetProducts")
    names = {field.alias for field in GetProducts.model_fields.values()}
    assert names == set(model.input_shape.members)
    condition = model.input_shape.members["Filters"].member
    assert {field.alias for field in Condition.model_fields.values()} == set(condition.members)
    page = answered(a_cloud(), asked(PLAIN, MaxResults=1))
    assert set(page) <= set(model.output_shape.members)
    errors = {shape.name for shape in model.error_shapes}
    assert {"InvalidParameterException", "InvalidNextTokenException", "ThrottlingException"} <= errors
    assert "InternalErrorException" in errors
