"""The simulated Service Quotas API without a network: what it takes, what it tells, how it refuses."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from sandbox.clouds.aws_quotas import GetServiceQuota, group_of
from sandbox.clouds.aws_signature import Scope, signature_of
from sandbox.clouds.cloud import VendorError, WireRequest
from sandbox.clouds.inventory import Account
from tests.sandbox.clouds.aws_builders import KEY, NOON, REGION, SECRET, VCPUS, Caller, a_caller, purchase

OTHER = "ServiceQuotasV20190624.ListServices"
SPOT_G = {"ServiceCode": "ec2", "QuotaCode": "L-3819A6DF"}
TARGET = "ServiceQuotasV20190624.GetServiceQuota"


def asked(
    body: Mapping[str, object],
    *,
    at: datetime = NOON,
    secret: str = SECRET,
    region: str = REGION,
    service: str = "servicequotas",
    path: str = "/",
    **headers: str,
) -> WireRequest:
    """A request as the SDK sends it."""
    sent = {
        "host": "127.0.0.1:18084",
        "content-type": "application/x-amz-json-1.1",
        "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        "x-amz-target": TARGET,
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    request = WireRequest("POST", path, sent, json.dumps(body).encode())
    names, scope = sorted(sent), Scope(KEY, at.strftime("%Y%m%d"), region, service)
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{scope.text}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature_of(request, scope, names, secret)}"
    )
    return request


def told(caller: Caller, body: Mapping[str, object]) -> dict[str, Any]:
    result = caller.cloud.carry_out(caller.cloud.open(asked(body)))
    answer = caller.cloud.answer_to(asked(body), "request-1", result.payload)
    assert answer.headers["Content-Type"] == "application/x-amz-json-1.1"
    return json.loads(answer.body)["Quota"]


def refusal(caller: Caller, request: WireRequest) -> tuple[str, int]:
    """Code and HTTP status."""
    with pytest.raises(VendorError) as caught:
        caller.cloud.carry_out(caller.cloud.open(request))
    answer = caller.cloud.refuse_to(request, "request-1", caught.value)
    return json.loads(answer.body)["__type"], answer.status


def test_quota_is_the_one_that_purchases_of_its_families_meet() -> None:
    caller = a_caller(quota=2 * VCPUS - 1)
    quota = told(caller, SPOT_G)
    assert (quota["QuotaName"], quota["Value"]) == ("All G and VT Spot Instance Requests", 2 * VCPUS - 1.0)
    caller.buy()
    error = caller.refusal("RunInstances", purchase(ClientToken="token-2"))
    assert (error.code, error.message) == ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    # Another group of families has the same limit and nothing of it in use; on-demand has its own.
    caller.cloud.settings.quota = 8
    assert len(caller.buy(ClientToken="token-3", InstanceType="p3.2xlarge")) == 1
    caller.buy(ClientToken="token-4", InstanceMarketOptions__MarketType="")


def test_refused_on_demand_machine_names_the_limit_of_vcpus() -> None:
    caller = a_caller()
    caller.cloud.settings.on_demand_quota = VCPUS - 1
    error = caller.refusal("RunInstances", purchase(InstanceMarketOptions__MarketType=""))
    assert (error.code, f"vCPU limit of {VCPUS - 1} allows" in error.message) == ("VcpuLimitExceeded", True)
    assert told(caller, {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"})["Value"] == VCPUS - 1
    caller.buy(ClientToken="token-2")


@pytest.mark.parametrize(
    ("kind", "spot", "code"),
    [
        ("g4dn.xlarge", True, "L-3819A6DF"),
        ("gr6.4xlarge", True, "L-3819A6DF"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5en.48xlarge", True, "L-C4BD4855"),
        ("p6-b200.48xlarge", True, ""),
        ("p5.48xlarge", False, "L-417A185B"),
        ("g6e.xlarge", False, "L-DB2E81BA"),
    ],
)
def test_types_count_against_the_quota_of_their_family(kind: str, spot: bool, code: str) -> None:
    assert group_of(kind, spot=spot) == code


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(asked(SPOT_G | {"Colour": "red"}), "IllegalArgumentException", id="unknown name"),
        pytest.param(asked({"ServiceCode": "ec2"}), "IllegalArgumentException", id="missing"),
        pytest.param(asked(SPOT_G | {"QuotaCode": 7}), "IllegalArgumentException", id="no text"),
        pytest.param(asked(SPOT_G | {"QuotaCode": "L-0"}), "NoSuchResourceException", id="no such quota"),
        pytest.param(asked(SPOT_G | {"ServiceCode": "vpc"}), "NoSuchResourceException", id="other service"),
        pytest.param(asked(SPOT_G, path="/quota"), "SerializationException", id="other path"),
        pytest.param(asked(SPOT_G, x_amz_target=OTHER), "UnknownOperationException", id="other action"),
        pytest.param(asked(SPOT_G, content_type="text/json"), "SerializationException", id="other type"),
        pytest.param(asked(SPOT_G, secret="x"), "UnrecognizedClientException", id="wrong secret"),
        pytest.param(asked(SPOT_G, service="ec2"), "UnrecognizedClientException", id="signed for EC2"),
        pytest.param(asked(SPOT_G, region="us-west-9"), "UnrecognizedClientException", id="no such region"),
        pytest.param(asked(SPOT_G, at=NOON.replace(hour=9)), "InvalidSignatureException", id="old"),
    ],
)
def test_request_that_the_vendor_would_not_take_is_refused(request_: WireRequest, code: str) -> None:
    assert refusal(a_caller(account=Account(keys={KEY: SECRET})), request_) == (code, 400)


def test_errors_are_json_in_the_form_that_the_sdk_reads() -> None:
    cloud = a_caller().cloud
    error = cloud.throttled(cloud.open(asked(SPOT_G)))
    answer = cloud.refuse_to(asked(SPOT_G), "request-1", error)
    assert json.loads(answer.body)["__type"] == "TooManyRequestsException"


def test_parameters_are_those_of_the_service_model() -> None:
    import botocore.session

    model = botocore.session.get_session().get_service_model("service-quotas")
    shape = model.operation_model("GetServiceQuota").input_shape
    assert shape is not None
    # ContextId is of quotas of single resources; it is not played.
    assert {field.alias for field in GetServiceQuota.model_fields.values()} == set(shape.members) - {
        "ContextId"
    }
