from typing import Literal

import pytest

from activities.providers.instrumented import InstrumentedProvider
from activities.telemetry import metrics
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import OfferQuery, Refusal, Rejected
from domain.contracts.names import TAG_POOL
from tests.activities.builders import a_fault, a_request, an_offer
from tests.fakes.provider import FakeProvider


@pytest.fixture
def cloud() -> FakeProvider:
    return FakeProvider()


def calls(operation: str, outcome: str) -> float:
    labels = {"provider": "tencent", "region": "ap-guangzhou", "operation": operation, "outcome": outcome}
    return metrics.REGISTRY.get_sample_value("spotgpu_provider_calls_total", labels) or 0


def test_instrumented_changes_no_answer(cloud: FakeProvider) -> None:
    provider = InstrumentedProvider(cloud)
    machine = cloud.add()
    cloud.market = [an_offer()]
    assert provider.describe([machine.id]) == [machine]
    assert provider.list_tagged({TAG_POOL: "uid-1"}) == [machine]
    assert provider.offers(OfferQuery(instance_types=("x",)), [an_offer().instance_type]) == [an_offer()]
    provider.retain([machine.id], "inst-1")
    provider.terminate([machine.id])
    provider.close()
    assert cloud.calls == ["describe", "list_tagged", "offers", "retain", "terminate"]
    assert cloud.closed


def test_instrumented_counts_calls_by_how_they_ended(cloud: FakeProvider) -> None:
    provider = InstrumentedProvider(cloud)
    before = calls("launch", "ok"), calls("launch", "Quota"), calls("launch", "Throttled")
    provider.launch(a_request(), "script")
    cloud.answers = [Refusal(code=ErrorCode.QUOTA, vendor_code="LimitExceeded")]
    provider.launch(a_request("t-2"), "script")
    cloud.faults["launch"] = [a_fault(ErrorCode.THROTTLED)]
    with pytest.raises(ProviderError):
        provider.launch(a_request("t-3"), "script")
    after = calls("launch", "ok"), calls("launch", "Quota"), calls("launch", "Throttled")
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


def test_instrumented_counts_vendor_codes_that_the_table_lacks(cloud: FakeProvider) -> None:
    labels = {"provider": "tencent", "operation": "RunInstances", "vendor_code": "Code.X"}
    name = "spotgpu_provider_unknown_errors_total"
    before = metrics.REGISTRY.get_sample_value(name, labels) or 0
    cloud.faults["terminate"] = [a_fault(ErrorCode.UNKNOWN)]
    with pytest.raises(ProviderError):
        InstrumentedProvider(cloud).terminate(["ins-1"])
    assert metrics.REGISTRY.get_sample_value(name, labels) == before + 1


def test_instrumented_counts_a_crash_as_one(cloud: FakeProvider) -> None:
    before = calls("describe", "crashed")
    cloud.faults["describe"] = [KeyError("a bug of the adapter")]
    with pytest.raises(KeyError):
        InstrumentedProvider(cloud).describe(["ins-1"])
    assert calls("describe", "crashed") == before + 1


@pytest.mark.parametrize("code", [ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN])
def test_instrumented_names_the_secret_when_keys_are_refused(
    cloud: FakeProvider, code: Literal[ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN]
) -> None:
    provider = InstrumentedProvider(cloud)
    cloud.faults["list_tagged"] = [a_fault(code)]
    with pytest.raises(ProviderError, match="Secret tencent-credentials"):
        provider.list_tagged({})
    cloud.answers = [Rejected(code=code, vendor_code="AuthFailure")]
    result = provider.launch(a_request(), "script")
    assert isinstance(result, Rejected)
    assert "Secret tencent-credentials" in result.message
