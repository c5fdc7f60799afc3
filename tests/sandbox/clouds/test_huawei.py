"""The simulated Huawei Cloud: purchases and their jobs, servers, offers, and how strict it is."""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from activities.providers.huawei_sdk import _ecs
from domain.contracts.offers import ProviderName
from sandbox.clouds import huawei_parameters as parameters
from sandbox.clouds.cloud import Call, VendorError
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.huawei import HuaweiCloud, project_of
from sandbox.clouds.ledger import MachineState
from tests.sandbox.clouds.huawei_builders import (
    NOON,
    OTHER_SUBNET,
    OTHER_ZONE,
    PROJECT,
    REGION,
    TYPE,
    ZONE,
    Caller,
    Clock,
    a_cloud,
    purchase,
    signed,
)

HUAWEI = ProviderName.HUAWEI
sdk = _ecs()  # the adapter's way: a plain import writes a file below the home folder
ABSENT = "00000000-0000-4000-8000-00000000ffff"


def a_caller(**settings: Any) -> Caller:
    clock = Clock()
    return Caller(a_cloud(clock, **settings), clock)


def terms(**changes: object) -> dict[str, object]:
    return {"chargingMode": 0, "marketType": "spot", **changes}


# Wire ---------------------------------------------------------------------------------------------------


def test_errors_of_the_service_are_nested_and_those_of_the_gateway_flat() -> None:
    cloud = a_cloud()
    nested = cloud.refuse(VendorError("Ecs.0114", "gone", status=404), "id-1")
    flat = cloud.refuse(VendorError("APIGW.0308", "slow", status=429), "id-1")
    assert (nested.status, json.loads(nested.body)) == (
        404,
        {"error": {"message": "gone", "code": "Ecs.0114"}},
    )
    assert (flat.status, json.loads(flat.body)["error_code"]) == (429, "APIGW.0308")
    assert nested.headers["X-Request-Id"] == "id-1"


@pytest.mark.parametrize(
    ("code", "status"), [("APIGW.0308", 429), ("Common.1503", 429), ("Common.0024", 202)]
)
def test_throttling_has_three_forms(code: str, status: int) -> None:
    cloud = a_cloud()
    cloud.throttle_code = code
    error = cloud.throttled(Call("DeleteServers", REGION, "k", {}))
    assert (error.code, error.status) == (code, status)


def test_request_to_no_api_or_to_another_project_is_refused() -> None:
    caller = a_caller()
    assert caller.refusal("GET", "/cloudservers/a/b/c").code == "APIGW.0101"
    stranger = f"/v1/{'0' * 32}"
    assert caller.refusal("GET", "/jobs/j", root=stranger).code == "Common.0018"
    assert caller.refusal("GET", "/jobs/j", x_project_id="another").code == "Common.0018"


def test_region_is_that_of_the_project() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    elsewhere = f"/v1/{project_of('cn-east-3')}"
    assert caller.call("GET", "/cloudservers/detail", root=elsewhere)["servers"] == []
    assert caller.refusal("GET", f"/cloudservers/{bought}", root=elsewhere).code == "Ecs.0114"
    assert caller.call("GET", f"/cloudservers/{bought}")["server"]["id"] == bought


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"servr": {}}, "servr is not known"),
        ({"server": purchase(flavor="x")}, "server.flavor is not known"),
        ({"server": purchase(nics=None)}, "server.nics is missing"),
        ({"server": purchase(count="1")}, "server.count"),
        ({"server": purchase(extendparam=terms(chargingMode="0"))}, "chargingMode"),
        ({"server": purchase(extendparam=terms(spotPrice=3.5))}, "spotPrice"),
        ({"server": purchase(adminPass="x")}, "does not play server.adminPass"),
        (
            {"server": purchase(nics=[{"subnet_id": "s", "port_id": "p"}])},
            "does not play server.nics.port_id",
        ),
        ({"server": purchase(), "dry_run": "false"}, "dry_run"),
    ],
)
def test_body_that_is_not_the_vendors_is_refused_with_the_name(body: Mapping[str, object], word: str) -> None:
    error = a_caller().refusal("POST", "/cloudservers", body)
    assert (error.code, error.status) == ("Ecs.0005", 400)
    assert word in error.message


@pytest.mark.parametrize(
    "query", ["limits=5", "limit=x", "limit=5&limit=6", "limit=1001", "offset=-1", "ip=1"]
)
def test_query_that_is_not_the_vendors_is_refused(query: str) -> None:
    assert a_caller().refusal("GET", f"/cloudservers/detail?{query}").code == "Ecs.0005"


def test_body_of_another_content_type_is_refused() -> None:
    request = signed("POST", f"/v1/{PROJECT}/cloudservers", {}, headers={"content-type": "text/plain"})
    with pytest.raises(VendorError, match="Content-Type"):
        a_cloud(Clock()).open(request)


def names_of(model: type) -> set[str]:
    return set(model.attribute_map.values())  # pyright: ignore[reportAttributeAccessIssue] - SDK without stubs


MODELS = {
    parameters.CreatePostPaidServers: sdk.CreatePostPaidServersRequestBody,
    parameters.PostPaidServer: sdk.PostPaidServer,
    parameters.PostPaidExtendParam: sdk.PostPaidServerExtendParam,
    parameters.CreateServers: sdk.CreateServersRequestBody,
    parameters.AnyServer: sdk.PrePaidServer,
    parameters.AnyExtendParam: sdk.PrePaidServerExtendParam,
    parameters.Nic: sdk.PostPaidServerNic,
    parameters.PublicIp: sdk.PostPaidServerPublicip,
    parameters.Eip: sdk.PostPaidServerEip,
    parameters.Bandwidth: sdk.PostPaidServerEipBandwidth,
    parameters.RootVolume: sdk.PostPaidServerRootVolume,
    parameters.DataVolume: sdk.PostPaidServerDataVolume,
    parameters.SecurityGroup: sdk.PostPaidServerSecurityGroup,
    parameters.Tag: sdk.PostPaidServerTag,
    parameters.DeleteServers: sdk.DeleteServersRequestBody,
    parameters.ServerId: sdk.ServerId,
    parameters.ListServersDetails: sdk.ListServersDetailsRequest,
    parameters.ListServersByTag: sdk.ListServersByTagRequestBody,
    parameters.TagValues: sdk.ServerTags,
    parameters.BatchTags: sdk.BatchCreateServerTagsRequestBody,
    parameters.UpdateServerAutoTerminateTime: sdk.UpdateServerAutoTerminateTimeRequestBody,
    parameters.ListFlavorSellPolicies: sdk.ListFlavorSellPoliciesRequest,
    parameters.ListFlavors: sdk.ListFlavorsRequest,
}


@pytest.mark.parametrize("ours", MODELS, ids=lambda ours: ours.__name__)
def test_parameter_names_are_those_of_the_sdk(ours: type[parameters.Parameters]) -> None:
    assert {field.alias or name for name, field in ours.model_fields.items()} == names_of(MODELS[ours])


# Purchases and jobs -------------------------------------------------------------------------------------


def test_purchase_makes_a_server_with_everything_asked() -> None:
    caller = a_caller()
    script = "#!/bin/sh\necho ä\n"
    (bought,) = caller.buy(
        user_data=base64.b64encode(script.encode()).decode(),
        server_tags=[{"key": "team", "value": "训练"}],
        extendparam=terms(spotPrice="20"),
        key_name="spotgpu-nodes",
    )
    (machine,) = caller.cloud.ledger.find([bought])
    assert (machine.order.user_data, machine.tags) == (script, {"team": "训练"})
    place = caller.cloud.place(ZONE, TYPE)
    assert machine.order.price_per_hour == caller.cloud.market.spot_price(place, NOON)
    (seen,) = caller.seen()
    assert (seen["status"], seen["metadata"]["charging_mode"], seen["tags"]) == ("ACTIVE", "2", ["team=训练"])
    assert (seen["flavor"]["id"], seen["OS-EXT-AZ:availability_zone"]) == (TYPE, ZONE)


def test_job_goes_through_its_states_with_its_server() -> None:
    caller = a_caller(boot_seconds=8)
    made = caller.create()
    statuses: list[str] = []
    for _ in range(5):
        statuses.append(caller.job(made["job_id"])["status"])
        caller.clock.pass_seconds(2)
    assert statuses == ["INIT", "RUNNING", "RUNNING", "RUNNING", "SUCCESS"]
    job = caller.job(made["job_id"])
    assert (job["job_type"], job["error_code"]) == ("createServer", None)
    assert job["entities"]["sub_jobs"][0]["entities"]["server_id"] == made["serverIds"][0]


@pytest.mark.parametrize(
    ("kind", "code", "word"),
    [(FaultKind.NO_STOCK, "Ecs.0219", "No valid host"), (FaultKind.QUOTA, "Ecs.0001", "quota")],
)
def test_market_says_no_in_the_job_after_the_purchase_was_accepted(
    kind: FaultKind, code: str, word: str
) -> None:
    caller = a_caller(boot_seconds=4)
    caller.cloud.faults.set(Fault(kind=kind))
    made = caller.create(count=2)
    assert len(made["serverIds"]) == 2
    assert caller.job(made["job_id"])["status"] == "INIT"
    caller.clock.pass_seconds(2)
    job = caller.job(made["job_id"])
    assert (job["status"], job["error_code"]) == ("FAIL", code)
    parts = job["entities"]["sub_jobs"]
    assert [part["error_code"] for part in parts] == [code, code]
    assert word in parts[0]["entities"]["errorcode_message"]
    assert caller.cloud.ledger.all() == ()
    assert caller.refusal("GET", f"/cloudservers/{made['serverIds'][0]}").code == "Ecs.0114"


def test_job_fails_and_leaves_a_broken_server_when_the_start_fails() -> None:
    caller = a_caller()
    caller.cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS))
    made = caller.create()
    job = caller.job(made["job_id"])
    assert (job["status"], job["error_code"]) == ("FAIL", "Ecs.0219")
    assert "No valid host" not in job["fail_reason"]
    (seen,) = caller.seen()
    assert (seen["status"], seen["fault"]["code"]) == ("ERROR", 500)


def test_job_of_another_region_or_none_is_not_found() -> None:
    caller = a_caller()
    made = caller.create()
    assert caller.refusal("GET", "/jobs/none").status == 404
    elsewhere = f"/v1/{project_of('cn-east-3')}"
    assert caller.refusal("GET", f"/jobs/{made['job_id']}", root=elsewhere).status == 404


def test_token_answers_with_the_first_job_and_the_log_notes_other_parameters() -> None:
    caller = a_caller()
    first = caller.create("t-1")
    assert caller.create("t-1") == first
    target = f"/v1/{PROJECT}/cloudservers"
    body = {"server": purchase(name="another")}
    call = caller.cloud.open(signed("POST", target, body, headers={"x-client-token": "t-1"}))
    result = caller.cloud.carry_out(call)
    assert result.payload == first
    assert result.note == "token repeated with other parameters"
    assert len(caller.cloud.ledger.all()) == 1
    assert caller.create("t-2") != first


def test_token_of_a_refused_purchase_stays_with_its_failed_job() -> None:
    caller = a_caller()
    number = caller.cloud.faults.set(Fault(kind=FaultKind.NO_STOCK))
    first = caller.create("t-1")
    caller.cloud.faults.clear(number)
    assert caller.create("t-1") == first
    assert caller.cloud.ledger.all() == ()


def test_token_of_a_purchase_that_was_not_accepted_is_free_again() -> None:
    caller = a_caller()
    error = caller.refusal("POST", "/cloudservers", {"server": purchase(count=0)}, x_client_token="t-1")
    assert error.code == "Ecs.0005"
    assert caller.create("t-1")["serverIds"]


def test_dry_run_that_passes_answers_202_and_buys_nothing() -> None:
    caller = a_caller()
    error = caller.refusal("POST", "/cloudservers", {"server": purchase(), "dry_run": True})
    answer = caller.cloud.refuse(error, "id-1")
    assert (answer.status, answer.body, caller.cloud.ledger.all()) == (202, b"", ())
    wrong = caller.refusal("POST", "/cloudservers", {"server": purchase(count=0), "dry_run": True})
    assert wrong.status == 400


def test_newer_api_says_the_same_in_other_words() -> None:
    caller = a_caller()
    body = {"server": purchase(extendparam=terms(chargingMode="postPaid"))}
    made = caller.call("POST", "/cloudservers", body, root=f"/v1.1/{PROJECT}")
    assert caller.cloud.ledger.find(made["serverIds"])[0].order.spot
    number = {"server": purchase()}
    assert caller.refusal("POST", "/cloudservers", number, root=f"/v1.1/{PROJECT}").code == "Ecs.0005"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"availability_zone": "cn-north-4z"}, "Ecs.0005"),
        ({"flavorRef": "p9.none"}, "Ecs.0029"),
        ({"imageRef": "no-uuid"}, "Ecs.0005"),
        ({"imageRef": "aaaaaaaa-0000-4000-8000-0000000000ff"}, "Ecs.0005"),
        ({"vpcid": "another"}, "Ecs.0005"),
        ({"nics": []}, "Ecs.0005"),
        ({"nics": [{"subnet_id": OTHER_SUBNET}]}, "Ecs.0005"),
        ({"security_groups": [{"id": "none"}]}, "Ecs.0005"),
        ({"key_name": "none"}, "Ecs.0005"),
        ({"root_volume": {"volumetype": "FLOPPY", "size": 100}}, "Ecs.0005"),
        ({"root_volume": {"volumetype": "SSD", "size": 1025}}, "Ecs.0005"),
        ({"data_volumes": [{"volumetype": "SSD", "size": 9}]}, "Ecs.0005"),
        ({"count": 101}, "Ecs.0005"),
        ({"name": "a b"}, "Ecs.0005"),
        ({"name": "a" * 65}, "Ecs.0005"),
        ({"name": "a" * 60, "count": 2}, "Ecs.0005"),
        ({"user_data": "!"}, "Ecs.0005"),
        ({"user_data": base64.b64encode(b"x" * 32769).decode()}, "Ecs.0005"),
        ({"server_tags": [{"key": "k" * 37, "value": ""}]}, "Ecs.0005"),
        ({"server_tags": [{"key": "k", "value": "v" * 44}]}, "Ecs.0005"),
        ({"server_tags": [{"key": "k=", "value": "v"}]}, "Ecs.0005"),
        ({"server_tags": [{"key": "k", "value": "v"}, {"key": "k", "value": "w"}]}, "Ecs.0005"),
        ({"server_tags": [{"key": f"k{n}", "value": "v"} for n in range(11)]}, "Ecs.0005"),
        ({"extendparam": terms(marketType="auction")}, "Ecs.0005"),
        ({"extendparam": {"chargingMode": 0, "spotPrice": "3"}}, "Ecs.0005"),
        ({"extendparam": terms(spotPrice="cheap")}, "Ecs.0005"),
        ({"extendparam": terms(spotPrice="0.1")}, "Ecs.0005"),
        ({"extendparam": terms(spotPrice="900")}, "Ecs.0005"),
        ({"auto_terminate_time": "2026-11-29T12:00:00Z"}, "Ecs.0005"),
        ({"auto_terminate_time": "tomorrow"}, "Ecs.0005"),
    ],
)
def test_purchase_is_refused_at_once_when_a_parameter_is_wrong(changes: dict[str, object], code: str) -> None:
    caller = a_caller()
    error = caller.refusal("POST", "/cloudservers", {"server": purchase(**changes)})
    assert (error.code, error.status) == (code, 400)
    assert caller.cloud.ledger.all() == ()


def test_purchase_where_the_type_is_not_sold_is_refused_at_once() -> None:
    caller = a_caller()
    caller.cloud.market.withdraw(HUAWEI, ZONE, TYPE)
    assert caller.refusal("POST", "/cloudservers", {"server": purchase()}).code == "Ecs.0029"


def test_request_log_never_holds_the_boot_script() -> None:
    cloud = a_cloud(Clock())
    script = base64.b64encode(b"token=abcdef.0123456789abcdef").decode()
    call = cloud.open(signed("POST", f"/v1/{PROJECT}/cloudservers", {"server": purchase(user_data=script)}))
    assert call.parameters["user_data"] == f"({len(script)} characters)"
    assert script not in str(call.parameters)
    assert (call.zone, call.instance_type) == (ZONE, TYPE)


# Servers ------------------------------------------------------------------------------------------------


def test_list_by_ids_ignores_all_else_and_answers_an_empty_record_for_what_is_not_there() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    found = caller.seen(server_id=f"{bought},{ABSENT}", tags="no=match", limit=1)
    assert [each["id"] for each in found] == [bought, ABSENT]
    assert set(found[1]) == {"id", "fault"}


def test_list_filters_by_one_tag_and_pages_by_number_and_by_marker() -> None:
    caller = a_caller()
    bought = caller.buy(count=5)
    caller.cloud.ledger.all()[0].tags["spotgpu-pool"] = "another"
    mine = bought[1:]
    assert [each["id"] for each in caller.seen(tags="spotgpu-pool=uid-1")] == mine
    assert [each["id"] for each in caller.seen(tags="spotgpu-pool=uid-1", limit=3, offset=2)] == mine[3:]
    after = caller.seen(tags="spotgpu-pool=uid-1", limit=2, marker=mine[0])
    assert [each["id"] for each in after] == mine[1:3]
    caller.cloud.ledger.vanish(mine[0])
    assert [each["id"] for each in caller.seen(limit=2, marker=mine[0])] == mine[1:3]
    assert caller.refusal("GET", f"/cloudservers/detail?marker={ABSENT}").code == "Ecs.0005"
    body = {"action": "filter", "tags": [{"key": "spotgpu-pool", "values": ["uid-1"]}], "limit": "2"}
    by_tag = caller.call("POST", "/cloudservers/resource_instances/action", body)
    assert by_tag["total_count"] == 3
    assert [each["resource_id"] for each in by_tag["resources"]] == mine[1:3]


def test_new_server_is_missing_from_lists_for_a_while_when_consistency_is_eventual() -> None:
    caller = a_caller()
    caller.cloud.ledger.settings.invisible_seconds = 5
    (bought,) = caller.buy()
    assert caller.seen() == []
    assert set(caller.seen(server_id=bought)[0]) == {"id", "fault"}
    caller.clock.pass_seconds(5)
    assert caller.seen()[0]["id"] == bought


def test_delete_ends_all_or_none() -> None:
    caller = a_caller(end_seconds=2)
    first, second = caller.buy(count=2)
    body = {"servers": [{"id": first}, {"id": ABSENT}]}
    assert caller.refusal("POST", "/cloudservers/delete", body).code == "Ecs.0114"
    assert all(machine.live for machine in caller.cloud.ledger.all())
    made = caller.call("POST", "/cloudservers/delete", {"servers": [{"id": first}, {"id": second}]})
    assert [each["OS-EXT-STS:task_state"] for each in caller.seen()] == ["deleting", "deleting"]
    assert caller.job(made["job_id"])["status"] == "RUNNING"
    caller.clock.pass_seconds(2)
    assert caller.job(made["job_id"])["status"] == "SUCCESS"
    assert caller.seen() == []
    assert caller.refusal("POST", "/cloudservers/delete", {"servers": []}).code == "Ecs.0005"


def test_server_that_is_being_reclaimed_cannot_be_deleted_and_its_list_says_nothing() -> None:
    caller = a_caller(end_seconds=5)
    (bought,) = caller.buy()
    caller.cloud.ledger.reclaim(bought, notice_seconds=300)
    (seen,) = caller.seen()
    assert (seen["status"], seen["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
    body = {"servers": [{"id": bought}]}
    error = caller.refusal("POST", "/cloudservers/delete", body)
    assert (error.code, error.status) == ("Ecs.0100", 400)
    caller.clock.pass_seconds(300)
    caller.cloud.ledger.advance()
    assert caller.cloud.ledger.find([bought])[0].state is MachineState.ENDING
    assert caller.refusal("POST", "/cloudservers/delete", body).code == "Ecs.0100"


def test_tags_are_set_and_removed_one_server_at_a_time() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    path = f"/cloudservers/{bought}/tags/action"
    tag = {"key": "spotgpu-retained", "value": "inst-1"}
    assert caller.call("POST", path, {"action": "create", "tags": [tag]}) == {}
    caller.call("POST", path, {"action": "delete", "tags": [{"key": "spotgpu-pool"}]})
    assert caller.seen()[0]["tags"] == ["spotgpu-retained=inst-1"]
    many = [{"key": f"k{n}", "value": ""} for n in range(10)]
    assert caller.refusal("POST", path, {"action": "create", "tags": many}).code == "Ecs.0005"
    gone = f"/cloudservers/{ABSENT}/tags/action"
    assert caller.refusal("POST", gone, {"action": "create", "tags": [tag]}).code == "Ecs.0114"


def test_answer_without_a_body_is_204() -> None:
    cloud = a_cloud(Clock())
    (bought,) = Caller(cloud).buy()
    body = {"action": "delete", "tags": [{"key": "spotgpu-pool"}]}
    call = cloud.open(signed("POST", f"/v1/{PROJECT}/cloudservers/{bought}/tags/action", body))
    assert call.action == "BatchDeleteServerTags"
    answer = cloud.answer(cloud.carry_out(call).payload, "id-1")
    assert (answer.status, answer.body) == (204, b"")


def test_timer_ends_a_server_and_can_be_moved_and_taken_away() -> None:
    caller = a_caller()
    first, second = caller.buy(count=2, auto_terminate_time="2026-11-29T12:10:00Z")
    for server_id, text in ((first, "2026-11-29T12:20:00Z"), (second, "")):
        path = f"/cloudservers/{server_id}/actions/update-auto-terminate-time"
        assert caller.call("POST", path, {"auto_terminate_time": text}) == {}
    caller.clock.pass_seconds(1199)
    caller.cloud.ledger.advance()
    assert all(machine.live for machine in caller.cloud.ledger.all())
    caller.clock.pass_seconds(1)
    caller.cloud.ledger.advance()
    assert [machine.live for machine in caller.cloud.ledger.all()] == [False, True]
    assert caller.cloud.ledger.find([first])[0].ended_at == NOON + timedelta(minutes=20)


# What survives a server ---------------------------------------------------------------------------------


def with_possessions(*, ends: bool = False) -> dict[str, object]:
    eip = {"iptype": "5_bgp", "bandwidth": {"size": 5, "sharetype": "PER", "chargemode": "traffic"}}
    return {
        "publicip": {"eip": eip, "delete_on_termination": ends},
        "data_volumes": [{"volumetype": "SSD", "size": 100, "delete_on_termination": ends}],
    }


def kinds(cloud: HuaweiCloud) -> list[str]:
    return sorted(each.kind for each in cloud.leftovers.surviving())


def test_p12_address_and_data_disk_survive_a_reclaim_unless_bought_otherwise() -> None:
    caller = a_caller()
    (bought,) = caller.buy(**with_possessions())
    caller.cloud.leftovers.attach(bought, "publicip", ends_with_server=False, tags={"spotgpu-pool": "uid-1"})
    assert len(caller.seen()[0]["os-extended-volumes:volumes_attached"]) == 1
    caller.cloud.ledger.reclaim(bought, notice_seconds=None)
    assert kinds(caller.cloud) == ["publicip", "publicip", "volume"]
    (other,) = caller.buy(**with_possessions(ends=True))
    caller.cloud.ledger.reclaim(other, notice_seconds=None)
    assert kinds(caller.cloud) == ["publicip", "publicip", "volume"]


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ({}, ["publicip", "volume"]),
        ({"delete_publicip": True}, ["volume"]),
        ({"delete_volume": True}, ["publicip"]),
        ({"delete_publicip": True, "delete_volume": True}, []),
    ],
)
def test_p12_delete_takes_along_what_it_is_told_to(flags: dict[str, bool], left: list[str]) -> None:
    caller = a_caller()
    (bought,) = caller.buy(**with_possessions())
    caller.call("POST", "/cloudservers/delete", {"servers": [{"id": bought}], **flags})
    assert kinds(caller.cloud) == left


# Projects, stock, prices --------------------------------------------------------------------------------


def test_projects_are_found_by_the_name_of_the_region() -> None:
    found = a_caller().call("GET", f"?name={REGION}", root="/v3/projects")["projects"]
    assert [(each["id"], each["name"]) for each in found] == [(PROJECT, REGION)]
    assert a_caller().call("GET", "?name=nowhere", root="/v3/projects")["projects"] == []


def test_policies_name_zones_and_ways_of_sale() -> None:
    caller = a_caller()
    caller.cloud.market.run_out(HUAWEI, OTHER_ZONE, TYPE)
    found = caller.call("GET", f"/cloudservers/flavor-sell-policies?flavor_id={TYPE}&sell_mode=spot")
    words = {each["availability_zone_id"]: each["sell_status"] for each in found["sell_policies"]}
    assert words == {ZONE: "available", OTHER_ZONE: "sellout"}
    caller.cloud.market.withdraw(HUAWEI, ZONE, TYPE)
    found = caller.call("GET", f"/cloudservers/flavor-sell-policies?flavor_id={TYPE}")
    assert {(each["availability_zone_id"], each["sell_mode"]) for each in found["sell_policies"]} == {
        (OTHER_ZONE, "spot"),
        (OTHER_ZONE, "postPaid"),
    }


def test_policies_are_paged_by_marker() -> None:
    caller = a_caller()
    every = caller.call("GET", "/cloudservers/flavor-sell-policies")["sell_policies"]
    first = caller.call("GET", "/cloudservers/flavor-sell-policies?limit=3")["sell_policies"]
    path = f"/cloudservers/flavor-sell-policies?limit=3&marker={first[-1]['id']}"
    assert first + caller.call("GET", path)["sell_policies"] == every[:6]


def test_flavors_say_per_zone_whether_there_is_any() -> None:
    caller = a_caller()
    caller.cloud.market.run_out(HUAWEI, OTHER_ZONE, TYPE)
    (found,) = caller.call("GET", f"/cloudservers/flavors?flavor_id={TYPE}")["flavors"]
    words = f"{ZONE}(normal),{OTHER_ZONE}(sellout)"
    assert found["os_extra_specs"]["cond:spot:operation:az"] == words


def test_limits_count_spot_servers() -> None:
    caller = a_caller(quota=9)
    caller.buy(count=2)
    caller.buy(extendparam={"chargingMode": 0})
    absolute = caller.call("GET", "/cloudservers/limits")["absolute"]
    assert (absolute["maxTotalSpotInstances"], absolute["totalSpotInstancesUsed"]) == (9, 2)
    assert (absolute["maxTotalInstances"], absolute["totalInstancesUsed"]) == (-1, 3)
    assert set(absolute) <= set(_ecs().ServerLimits.attribute_map.values())


def test_limit_of_all_servers_refuses_on_demand_ones_in_the_job() -> None:
    caller = a_caller()
    caller.cloud.settings.on_demand_quota = 2
    caller.buy()
    on_demand = {"extendparam": {"chargingMode": 0}}
    caller.buy(**on_demand)
    caller.buy(**on_demand)
    assert [machine.order.spot for machine in caller.cloud.ledger.all()] == [True, False]


def a_product(**changes: object) -> dict[str, object]:
    product: dict[str, object] = {
        "id": "1",
        "cloud_service_type": "hws.service.type.ec2",
        "resource_type": "hws.resource.type.vm",
        "resource_spec": f"{TYPE}.linux",
        "region": REGION,
        "usage_factor": "Duration",
        "usage_value": 1,
        "usage_measure_id": 4,
        "subscription_num": 1,
    }
    return {"project_id": PROJECT, "product_infos": [product | changes]}


def test_rating_states_the_price_of_an_hour_without_interruption() -> None:
    caller = a_caller()
    path = "/on-demand-resources"
    answer = caller.call("POST", path, a_product(), root="/v2/bills/ratings")
    price = caller.cloud.market.on_demand_price(caller.cloud.place(ZONE, TYPE))
    assert (Decimal(str(answer["amount"])), answer["currency"]) == (price, "CNY")
    unknown = a_product(resource_spec="p9.none.linux")
    assert caller.refusal("POST", path, unknown, root="/v2/bills/ratings").code == "CBC.0100"
    caller.cloud.prices_allowed = False
    assert caller.refusal("POST", path, a_product(), root="/v2/bills/ratings").status == 403
