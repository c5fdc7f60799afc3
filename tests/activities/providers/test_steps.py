"""The steps of docs/adding-a-provider.md in their order, up to where the conformance suite takes over.

With ``-x``, this file before the suite, the first failure is the next thing to do.
"""

import pytest

from domain.contracts.provider_ids import provider_id
from node_agent.notices import NOTICE_SOURCES
from sandbox.clouds.cloud import VendorError, WireRequest
from tests.activities.providers.cloud_case import CloudCase, found_cases
from tests.steps import to_do


@pytest.fixture(params=found_cases(), ids=lambda case: case.provider.value)
def case(request: pytest.FixtureRequest) -> CloudCase:
    """Each cloud in turn."""
    return request.param


def test_step_2_catalogue_has_the_type_of_the_case(case: CloudCase) -> None:
    assert case.kind.gpu_count == 1


def test_step_2_nodes_name_their_machine(case: CloudCase) -> None:
    assert case.unknown_id in provider_id(case.provider, case.region, case.zones[0], case.unknown_id)


def test_step_3_twin_refuses_what_nobody_signed_in_the_vendors_words(case: CloudCase) -> None:
    twin, request = case.simulator(case.settings()), WireRequest("GET", "/", {}, b"")
    twin.action_of(request)
    with pytest.raises(VendorError) as refusal:
        twin.open(request)
    assert refusal.value.code.encode() in twin.refuse(refusal.value, "request-1").body


def test_step_3_machines_can_read_their_notices(case: CloudCase) -> None:
    assert NOTICE_SOURCES.get(case.provider), to_do(
        3, f"node_agent/notices.py does not say where machines of {case.provider} read their notices"
    )
