"""The answers that the orphan sweep acts on."""

from domain.contracts.facts import OwnedMachine, OwnershipQuestion
from domain.contracts.offers import RegionKey
from domain.contracts.pool_state import LeaveReason, MachinePhase
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_ownership import answer
from tests.domain.decisions.builders import NOON
from tests.domain.decisions.pool_inputs import GUANGZHOU, SHANGHAI, UID, a_resolved, a_setting, a_state_of

TOKEN = f"{UID}-c0ffee00-1"


def a_draft() -> Draft:
    return Draft(a_resolved(), a_setting(), a_state_of(2), NOON)


def a_machine(
    instance_id: str = "ins-0001", launch: str = TOKEN, *, pool: str = UID, region: RegionKey = GUANGZHOU
) -> OwnedMachine:
    return OwnedMachine(
        region=region,
        instance_id=instance_id,
        pool_uid=pool,
        slot="s1",
        launch=launch,
        created_at=NOON,
        instance_type="GT4.4XLARGE96",
    )


def ask(draft: Draft, *machines: OwnedMachine) -> list[tuple[str, bool, str]]:
    return [(a.instance_id, a.owned, a.reason) for a in answer(draft, OwnershipQuestion(machines=machines))]


def test_known_machine_is_owned_by_its_launch_and_by_its_id() -> None:
    assert ask(a_draft(), a_machine(), a_machine("ins-0002", "")) == [
        ("ins-0001", True, f"launch {TOKEN} is Ready"),
        ("ins-0002", True, "fills s2"),
    ]


def test_machine_of_a_launch_in_flight_is_owned_before_it_has_a_name() -> None:
    draft = a_draft()
    draft.set_machine(TOKEN, instance_id="", phase=MachinePhase.ORDERED)
    assert ask(draft, a_machine("ins-newborn")) == [("ins-newborn", True, f"launch {TOKEN} is Ordered")]


def test_leaving_machine_is_owned_since_the_pool_ends_it() -> None:
    draft = a_draft()
    draft.leave(draft.state_of(TOKEN), LeaveReason.SCALE_DOWN, "test")
    assert ask(draft, a_machine(launch="")) == [("ins-0001", True, "fills s1, leaving (ScaleDown)")]


def test_second_machine_of_a_launch_and_an_unknown_launch_are_not_owned() -> None:
    assert [owned for _, owned, _ in ask(a_draft(), a_machine("ins-twin"), a_machine("ins-x", "other"))] == [
        False,
        False,
    ]
    assert ask(a_draft(), a_machine("ins-x", ""))[0][2] == "launch (none) is not known to this pool"


def test_same_id_in_another_region_is_another_machine() -> None:
    assert not ask(a_draft(), a_machine(launch="", region=SHANGHAI))[0][1]


def test_machine_of_another_pool_is_not_owned() -> None:
    found = ask(a_draft(), a_machine(pool="other-uid"))
    assert found == [("ins-0001", False, f"belongs to pool other-uid, this is {UID}")]
