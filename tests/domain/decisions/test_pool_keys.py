"""Keys that a cloud refuses: which Secret the pool names, and what happens once they are mended."""

from datetime import timedelta
from typing import Literal

import pytest

from domain.contracts.errors import ErrorCode
from domain.contracts.facts import RegionHealth, RegionObservation, RegionState
from domain.contracts.instances import Rejected
from domain.contracts.outcomes import Fact, LaunchAnswered, RegionReadFailed
from domain.contracts.pool_state import MachinePhase
from domain.contracts.status import Condition
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_facts import absorb
from domain.decisions.pool_report import report
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import a_resolved, a_setting, a_state_of
from tests.domain.decisions.pool_world import WORKFLOW
from tests.domain.decisions.world_cloud import GUANGZHOU, REGIONS

Refused = Literal[ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN]
OTHER = next(region for region in REGIONS if region.provider != GUANGZHOU.provider)
SAID = "Secret tencent-credentials: tencent DescribeInstances: AuthFailure: no such key"


def told(health: RegionHealth, code: ErrorCode | None = None, after: float = 0) -> RegionState:
    as_of = NOON + timedelta(seconds=after)
    return RegionState(region=GUANGZHOU, as_of=as_of, health=health, reason=SAID if code else "", code=code)


def a_draft(*facts: Fact) -> Draft:
    draft = Draft(a_resolved(), a_setting(), a_state_of(2), NOON + timedelta(minutes=1))
    for fact in facts:
        absorb(draft, fact)
    return draft


def condition(draft: Draft) -> Condition:
    conditions = report(draft, WORKFLOW).conditions
    return next(each for each in conditions if each.type == "ProviderUnavailable")


READ_FAILED = RegionReadFailed(
    region=GUANGZHOU, error=f"Unauthenticated: {SAID}", code=ErrorCode.UNAUTHENTICATED
)


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(told(RegionHealth.STALE, ErrorCode.UNAUTHENTICATED), id="sync fails"),
        pytest.param(told(RegionHealth.CIRCUIT_OPEN, ErrorCode.FORBIDDEN), id="circuit open"),
        pytest.param(READ_FAILED, id="own reading fails"),
    ],
)
def test_pool_names_the_secret_when_a_region_refuses_the_keys(fact: Fact) -> None:
    found = condition(a_draft(fact))
    assert (found.status, found.reason) == ("True", "CredentialsRejected")
    assert "Secret spotgpu-system/tencent-credentials: " in found.message


def test_event_of_an_open_circuit_names_the_secret_with_its_namespace() -> None:
    draft = a_draft(told(RegionHealth.CIRCUIT_OPEN, ErrorCode.FORBIDDEN))
    assert "Secret spotgpu-system/tencent-credentials: " in draft.events[-1].message


def test_pool_calls_a_region_unreachable_when_nobody_says_why() -> None:
    for code in (ErrorCode.UNAVAILABLE, None):
        assert condition(a_draft(told(RegionHealth.CIRCUIT_OPEN, code))).reason == "Unreachable"


def test_pool_names_first_what_waits_for_a_person() -> None:
    away = RegionState(region=OTHER, as_of=NOON, health=RegionHealth.CIRCUIT_OPEN, reason="no answer")
    found = condition(a_draft(away, told(RegionHealth.STALE, ErrorCode.UNAUTHENTICATED)))
    assert found.reason == "CredentialsRejected"
    assert found.message.index("Secret") < found.message.index("no answer")


def a_rejected_draft(code: Refused) -> Draft:
    """A purchase was refused on account of the keys."""
    draft = a_draft()
    machine = draft.machines[0]
    draft.set_machine(machine.token, phase=MachinePhase.ORDERED, instance_id="", in_flight="launch")
    result = Rejected(code=code, vendor_code="AuthFailure", message="no such key")
    absorb(draft, LaunchAnswered(token=machine.token, result=result))
    assert condition(draft).reason == "CredentialsRejected"
    assert "Secret spotgpu-system/tencent-credentials was rejected" in condition(draft).message
    return draft


@pytest.mark.parametrize(
    "well",
    [
        pytest.param(told(RegionHealth.OK, after=2), id="sync is well"),
        pytest.param(RegionObservation(region=GUANGZHOU, as_of=NOON + timedelta(seconds=2)), id="was read"),
    ],
)
@pytest.mark.parametrize("code", [ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN])
def test_pool_buys_again_as_soon_as_mended_keys_are_taken(code: Refused, well: Fact) -> None:
    draft = a_rejected_draft(code)
    absorb(draft, told(RegionHealth.STALE, code, after=1))
    absorb(draft, well)
    assert draft.state.holds == ()
    assert condition(draft).status == "False"


def test_pool_holds_on_when_a_region_was_only_away() -> None:
    """An account may list and not buy: that it can be listed again says nothing of its purchases."""
    draft = a_rejected_draft(ErrorCode.FORBIDDEN)
    absorb(draft, told(RegionHealth.STALE, ErrorCode.UNAVAILABLE, after=1))
    absorb(draft, told(RegionHealth.OK, after=2))
    assert condition(draft).reason == "CredentialsRejected"
