"""The simulated EC2 without a network: parameters, purchases, machines, spot requests, offers, answers."""

import base64
from datetime import timedelta
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from domain.contracts.offers import ProviderName
from sandbox.clouds.aws_offers import CNY_PER_USD, usd
from sandbox.clouds.aws_parameters import ACTIONS, decode
from sandbox.clouds.aws_rates import TokenBuckets
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.inventory import Account, Inventory, Subnet
from sandbox.clouds.ledger import MachineState
from tests.sandbox.clouds.aws_builders import (
    GROUP,
    IMAGE,
    KEY,
    KEY_PAIR,
    NOON,
    OTHER_SUBNET,
    OTHER_ZONE,
    REGION,
    SECRET,
    SUBNET,
    TYPE,
    VCPUS,
    VPC,
    ZONE,
    Caller,
    a_caller,
    by_filter,
    captured,
    captured_requests,
    purchase,
    signed,
)

AWS = ProviderName.AWS


def ids(count: int, **more: str) -> dict[str, str]:
    """Ids in the vendor's form that no machine has, as a list parameter."""
    return {f"InstanceId.{n}": f"i-{n:017x}" for n in range(1, count + 1)} | more


# Parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["create_success", "terminate_success", "spot_price_history", "auto_client_token"]
)
def test_decode_knows_every_parameter_of_the_captures(case: str) -> None:
    (request,) = captured_requests(case)
    text = request.body.decode()
    if case == "auto_client_token":
        text += "&InstanceType=g5.xlarge"
    action, wanted = decode(text)
    assert f"Action={action}&" in text
    given = {pair.split(".")[0].split("=")[0] for pair in text.split("&")} - {"Action", "Version"}
    assert set(wanted.model_dump(by_alias=True, exclude_unset=True)) == given


@pytest.mark.parametrize(
    ("action", "change", "code"),
    [
        pytest.param("RunInstances", {"Colour": "red"}, "UnknownParameter", id="unknown name"),
        pytest.param("RunInstances", {"imageId": IMAGE}, "UnknownParameter", id="other spelling"),
        pytest.param("RunInstances", {"ImageId": ""}, "MissingParameter", id="required"),
        pytest.param("RunInstances", {"MinCount": "0"}, "InvalidParameterValue", id="too small"),
        pytest.param("RunInstances", {"MinCount": "one"}, "InvalidParameterValue", id="no number"),
        pytest.param("RunInstances", {"DryRun": "True"}, "InvalidParameterValue", id="no boolean"),
        pytest.param("RunInstances", {"SecurityGroupId.3": GROUP}, "InvalidParameterValue", id="gap"),
        pytest.param(
            "RunInstances", {"SecurityGroupId": GROUP}, "InvalidParameterValue", id="value and list"
        ),
        pytest.param("RunInstances", {"ClientToken": "x" * 65}, "InvalidParameterValue", id="long token"),
        pytest.param("RunInstances", {"ClientToken": "ü"}, "InvalidParameterValue", id="token not ASCII"),
        pytest.param(
            "RunInstances",
            {"InstanceMarketOptions.SpotOptions.SpotInstanceType": "persistent"},
            "InvalidParameterValue",
            id="persistent",
        ),
        pytest.param(
            "RunInstances",
            {"TagSpecification.1.Tag.1.Key": "aws:x"},
            "InvalidParameterValue",
            id="key of the vendor",
        ),
        pytest.param(
            "RunInstances",
            {"TagSpecification.2.ResourceType": "instance", "TagSpecification.2.Tag.1.Key": "x"},
            "InvalidParameterValue",
            id="resource type twice",
        ),
        pytest.param("Dance", {}, "InvalidAction", id="action"),
        pytest.param("TerminateInstances", {}, "MissingParameter", id="no ids"),
        pytest.param("TerminateInstances", ids(1001), "InvalidParameterValue", id="1001 ids"),
        pytest.param("DescribeInstances", {"MaxResults": "4"}, "InvalidParameterValue", id="small page"),
        pytest.param("DescribeInstances", {"MaxResults": "1001"}, "InvalidParameterValue", id="large page"),
        pytest.param("DescribeInstances", {"NextToken": "x"}, "InvalidNextToken", id="foreign token"),
        pytest.param(
            "DescribeInstances", by_filter(colour="red"), "InvalidParameterValue", id="unknown filter"
        ),
        pytest.param(
            "DescribeInstances", {"Filter.1.Name": "instance-id"}, "MissingParameter", id="no value"
        ),
        pytest.param(
            "DescribeInstances",
            by_filter(instance_id=",".join(["i-1"] * 201)),
            "FilterLimitExceeded",
            id="201 filter values",
        ),
        pytest.param(
            "DescribeInstances", {"InstanceId.1": "vm-1"}, "InvalidInstanceID.Malformed", id="no instance id"
        ),
    ],
)
def test_a_request_that_the_vendor_would_not_take_is_refused(
    action: str, change: dict[str, str], code: str
) -> None:
    form = {**(purchase() if action == "RunInstances" else {}), **change}
    error = a_caller().refusal(action, {name: text for name, text in form.items() if text})
    assert (error.code, error.status) == (code, 400)


def test_two_values_of_one_name_are_refused() -> None:
    with pytest.raises(VendorError) as caught:
        decode("Action=DescribeInstances&Version=2016-11-15&MaxResults=5&MaxResults=6")
    assert caught.value.code == "InvalidParameterValue"


def test_open_takes_a_form_in_the_body_of_a_post_only() -> None:
    caller = a_caller()
    for request in (
        signed("DescribeInstances", {}, target="/?Action=DescribeInstances"),
        signed("DescribeInstances", {}, target="/ec2"),
    ):
        with pytest.raises(VendorError) as caught:
            caller.cloud.open(request)
        assert caught.value.code == "InvalidRequest"


def test_open_refuses_another_version_and_a_region_that_is_not_there() -> None:
    caller = a_caller()
    for request, code in (
        (signed("DescribeInstances", {}, version="2014-10-01"), "NoSuchVersion"),
        (signed("DescribeInstances", {}, region="us-west-9"), "AuthFailure"),
    ):
        with pytest.raises(VendorError) as caught:
            caller.cloud.open(request)
        assert caught.value.code == code


def test_open_follows_a_rotation_of_the_keys() -> None:
    account = Account(keys={KEY: SECRET})
    caller = a_caller(account=account)
    caller.seen()
    account.keys = {"another": "secret"}
    error = caller.refusal("DescribeInstances", {})
    assert (error.code, error.status) == ("AuthFailure", 401)


def test_open_aims_purchases_at_their_zone_and_type() -> None:
    caller = a_caller()
    call = caller.cloud.open(signed("RunInstances", purchase()))
    assert (call.zone, call.instance_type, call.client_token) == (ZONE, TYPE, "token-1")
    assert caller.cloud.action_of(signed("RunInstances", purchase())) == "RunInstances"


NEED_SOMETHING = {"TerminateInstances", "CreateTags", "DeleteTags", "DeleteVolume", "ReleaseAddress"}


@pytest.mark.parametrize("action", sorted(set(ACTIONS) - NEED_SOMETHING))
def test_a_dry_run_ends_in_its_own_error_and_changes_nothing(action: str) -> None:
    caller = a_caller()
    form = purchase() if action == "RunInstances" else {}
    error = caller.refusal(action, {**form, "DryRun": "true"})
    assert (error.code, error.status) == ("DryRunOperation", 412)
    assert caller.cloud.ledger.all() == ()


def test_a_dry_run_of_an_ending_or_tagging_changes_nothing() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    things = caller.cloud.leftovers
    volume, address = (things.attach(bought, k, ends_with_server=False).id for k in ("volume", "publicip"))
    for action, form in (
        ("TerminateInstances", {"InstanceId.1": bought}),
        ("CreateTags", {"ResourceId.1": bought, "Tag.1.Key": "a"}),
        ("DeleteTags", {"ResourceId.1": bought}),
        ("DeleteVolume", {"VolumeId": volume}),
        ("ReleaseAddress", {"AllocationId": address}),
    ):
        assert caller.refusal(action, {**form, "DryRun": "true"}).code == "DryRunOperation"
    (machine,) = caller.cloud.ledger.all()
    assert (machine.state, machine.tags) == (MachineState.RUNNING, {"spotgpu-pool": "uid-1"})


# Purchases ----------------------------------------------------------------------------------------------


def test_run_instances_enters_a_machine_as_asked() -> None:
    caller = a_caller()
    (bought,) = caller.buy(KeyName=KEY_PAIR)
    (machine,) = caller.cloud.ledger.all()
    assert machine.id == bought
    assert machine.order.user_data == "#!/bin/sh\n"
    assert (machine.order.zone, machine.order.spot) == (ZONE, True)
    assert (machine.order.subnet_id, machine.order.image_id) == (SUBNET, IMAGE)
    assert machine.tags == {"spotgpu-pool": "uid-1"}
    assert machine.order.details["key"] == KEY_PAIR


def paths(element: Element, prefix: str = "") -> set[str]:
    """Dotted path of every element below this one."""
    below = {f"{prefix}{child.tag}" for child in element}
    return below.union(*(paths(child, f"{prefix}{child.tag}.") for child in element))


def test_run_instances_answers_like_the_capture() -> None:
    caller = a_caller()
    call = caller.cloud.open(signed("RunInstances", purchase()))
    answer = caller.cloud.answer(caller.cloud.carry_out(call).payload, "r-1")
    expected = captured("create_success")["exchanges"][0]["response"]
    assert (answer.status, dict(answer.headers)) == (expected["status"], expected["headers"])
    theirs, ours = fromstring(expected["body"]), fromstring(answer.body)  # noqa: S314 both are our own
    assert ours.tag == theirs.tag
    assert paths(theirs) - paths(ours) == set()


def test_a_repeated_token_buys_nothing() -> None:
    caller = a_caller()
    assert caller.buy() == caller.buy()
    assert len(caller.cloud.ledger.all()) == 1
    assert caller.buy(ClientToken="token-2") != caller.buy()
    assert caller.buy(ClientToken="") != caller.buy(ClientToken="")


def test_a_repeated_token_answers_a_machine_that_has_ended() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    caller.call("TerminateInstances", {"InstanceId.1": bought})
    (again,) = caller.call("RunInstances", purchase())["instancesSet"]
    assert (again["instanceId"], again["instanceState"]["name"]) == (bought, "terminated")


def test_a_repeated_token_with_other_parameters_is_refused() -> None:
    caller = a_caller()
    caller.buy()
    error = caller.refusal("RunInstances", purchase(SubnetId=OTHER_SUBNET))
    assert (error.code, error.status) == ("IdempotentParameterMismatch", 400)
    assert error.message in captured("idempotent_mismatch")["sdk_result"]["error"]["Message"]
    assert len(caller.cloud.ledger.all()) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": "ami-0"}, "InvalidAMIID.NotFound"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupId.1": "sg-0"}, "InvalidGroup.NotFound"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"InstanceType": "g5.pico"}, "InvalidParameterValue"),
        ({"MinCount": "2"}, "InvalidParameterCombination"),
        ({"Placement.AvailabilityZone": OTHER_ZONE}, "InvalidParameterValue"),
        ({"SubnetId": ""}, "InvalidParameterValue"),
        ({"UserData": "?"}, "InvalidParameterValue"),
        ({"UserData": base64.b64encode(b"#" * 16385).decode()}, "InvalidParameterValue"),
        ({"InstanceMarketOptions.SpotOptions.MaxPrice": "0.001"}, "InvalidParameterValue"),
    ],
)
def test_run_instances_refuses_what_does_not_exist_or_fit(change: dict[str, str], code: str) -> None:
    caller = a_caller()
    error = caller.refusal("RunInstances", purchase(**change))
    assert (error.code, error.status) == (code, 400)
    assert caller.cloud.ledger.all() == ()


def test_user_data_of_16_kilobytes_is_taken() -> None:
    caller = a_caller()
    caller.buy(UserData=base64.b64encode(b"#" * 16384).decode())
    assert len(caller.cloud.ledger.all()[0].order.user_data) == 16384


def test_a_named_zone_may_agree_with_the_subnet_or_stand_alone() -> None:
    caller = a_caller()
    caller.buy(Placement__AvailabilityZone=ZONE)
    caller.buy(SubnetId="", Placement__AvailabilityZone=OTHER_ZONE, ClientToken="token-2")
    assert [machine.order.zone for machine in caller.cloud.ledger.all()] == [ZONE, OTHER_ZONE]


def test_run_instances_buys_as_many_as_there_are_but_not_fewer_than_the_minimum() -> None:
    caller = a_caller()
    caller.cloud.market.set_capacity(AWS, ZONE, TYPE, 3)
    assert len(caller.buy(MinCount="2", MaxCount="5")) == 3
    error = caller.refusal("RunInstances", purchase(ClientToken="token-2", MaxCount="5"))
    assert error.code == "InsufficientInstanceCapacity"
    caller = a_caller(quota=2 * VCPUS + 1)
    assert len(caller.buy(MaxCount="5")) == 2
    (reservation,) = caller.call("DescribeInstances", {})["reservationSet"]
    assert len(reservation["instancesSet"]) == 2


@pytest.mark.parametrize("status", [400, 500])
def test_missing_capacity_has_the_status_that_is_switched(status: int) -> None:
    caller = a_caller(capacity_status=status)
    caller.cloud.market.run_out(AWS, ZONE, TYPE)
    error = caller.refusal("RunInstances", purchase())
    assert (error.code, error.status) == ("InsufficientInstanceCapacity", status)
    expected = captured("create_error_capacity_500_retries_off")["sdk_result"]["error"]["Message"]
    assert error.message == expected


def on_demand(**changes: str) -> dict[str, str]:
    return purchase(InstanceMarketOptions__MarketType="", **changes)


@pytest.mark.parametrize(
    ("fault", "form", "code"),
    [
        (FaultKind.NOT_OFFERED, purchase(), "Unsupported"),
        (FaultKind.QUOTA, purchase(), "MaxSpotInstanceCountExceeded"),
        (FaultKind.QUOTA, on_demand(), "VcpuLimitExceeded"),
    ],
)
def test_refusals_of_the_market_are_worded_as_the_vendor_does(
    fault: FaultKind, form: dict[str, str], code: str
) -> None:
    caller = a_caller()
    caller.cloud.faults.set(Fault(kind=fault))
    error = caller.refusal("RunInstances", form)
    assert (error.code, error.status) == (code, 400)


def test_a_bid_is_in_dollars_and_must_reach_the_price() -> None:
    caller = a_caller()
    caller.cloud.market.set_price(AWS, ZONE, TYPE, Decimal("4.321"))
    price = usd(Decimal("4.321"))
    assert price * CNY_PER_USD >= Decimal("4.321")
    least = Decimal("0.000001")
    low = purchase(InstanceMarketOptions__SpotOptions__MaxPrice=str(price - least))
    error = caller.refusal("RunInstances", low)
    assert (error.code, error.status) == ("SpotMaxPriceTooLow", 400)
    assert f"fulfillment price of {price}" in error.message
    caller.buy(InstanceMarketOptions__SpotOptions__MaxPrice=str(price))
    assert caller.requests()[0]["spotPrice"] == str(price)
    # The ledger counts in the market's yuan, like every other cloud's.
    assert caller.cloud.ledger.all()[0].order.price_per_hour == Decimal("4.321")


def test_a_bid_in_china_is_in_yuan() -> None:
    region, zone = "cn-north-1", "cn-north-1a"
    inventory = Inventory(
        zones={region: (zone,)},
        images={region: frozenset({IMAGE})},
        security_groups={region: frozenset({GROUP})},
        subnets={SUBNET: Subnet(SUBNET, VPC, region, zone)},
    )
    cloud = a_caller(inventory=inventory).cloud
    cloud.market.set_price(AWS, zone, TYPE, Decimal("4.321"))

    def buy(bid: str) -> None:
        form = purchase(InstanceMarketOptions__SpotOptions__MaxPrice=bid)
        cloud.carry_out(cloud.open(signed("RunInstances", form, region=region)))

    with pytest.raises(VendorError, match=r"fulfillment price of 4\.321"):
        buy("4.320")
    buy("4.321")


# Machines -----------------------------------------------------------------------------------------------


def state_of(caller: Caller) -> tuple[str, str]:
    """State and reason of the one machine."""
    (seen,) = caller.seen()
    reason: Any = seen.get("stateReason")
    return seen["instanceState"]["name"], reason["code"] if reason else ""


def test_states_follow_the_life_of_a_machine_which_stays_listed_after_it() -> None:
    caller = a_caller(boot_seconds=10, end_seconds=10, terminated_seconds=3600)
    (bought,) = caller.buy()
    assert state_of(caller) == ("pending", "")
    caller.clock.pass_seconds(10)
    caller.cloud.ledger.advance()
    assert state_of(caller) == ("running", "")
    (change,) = caller.call("TerminateInstances", {"InstanceId.1": bought})["instancesSet"]
    assert (change["previousState"]["name"], change["currentState"]["code"]) == ("running", "32")
    assert state_of(caller) == ("shutting-down", "Client.UserInitiatedShutdown")
    caller.clock.pass_seconds(10)
    caller.cloud.ledger.advance()
    assert state_of(caller) == ("terminated", "Client.UserInitiatedShutdown")
    caller.call("TerminateInstances", {"InstanceId.1": bought})
    caller.clock.pass_seconds(3599)
    assert state_of(caller)[0] == "terminated"
    caller.clock.pass_seconds(1)
    assert caller.seen() == []
    assert caller.refusal("TerminateInstances", {"InstanceId.1": bought}).code == "InvalidInstanceID.NotFound"


def test_a_terminated_machine_has_no_network_any_more() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    assert {"subnetId", "vpcId", "privateIpAddress"} <= set(caller.seen()[0])
    caller.call("TerminateInstances", {"InstanceId.1": bought})
    assert not {"subnetId", "vpcId", "privateIpAddress"} & set(caller.seen()[0])


def test_a_launch_that_fails_is_terminated_with_a_reason_and_disappears_by_itself() -> None:
    caller = a_caller(terminated_seconds=60)
    caller.cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS))
    caller.buy()
    assert state_of(caller) == ("terminated", "Server.InternalError")
    assert caller.requests()[0]["status"]["code"] == "system-error"
    caller.clock.pass_seconds(60)
    assert caller.seen() == []


def test_a_young_machine_is_known_nowhere() -> None:
    caller = a_caller(invisible_seconds=3)
    (bought,) = caller.buy()
    assert caller.seen() == []
    assert caller.requests() == []
    for action, form in (
        ("DescribeInstances", {"InstanceId.1": bought}),
        ("TerminateInstances", {"InstanceId.1": bought}),
        ("CreateTags", {"ResourceId.1": bought, "Tag.1.Key": "a"}),
    ):
        error = caller.refusal(action, form)
        assert (error.code, error.status) == ("InvalidInstanceID.NotFound", 400)
    assert caller.cloud.ledger.all()[0].live
    assert caller.buy() == [bought]
    caller.clock.pass_seconds(3)
    assert [each["instanceId"] for each in caller.seen()] == [bought]


def test_one_unknown_id_refuses_the_whole_call() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    form = {"InstanceId.1": bought, "InstanceId.2": "i-00000000000000001"}
    error = caller.refusal("TerminateInstances", form)
    assert error.message == "The instance ID 'i-00000000000000001' does not exist"
    assert caller.cloud.ledger.all()[0].live
    form["InstanceId.3"] = "i-00000002"
    error = caller.refusal("TerminateInstances", form)
    assert error.message == "The instance IDs 'i-00000000000000001, i-00000002' do not exist"


def test_machines_of_another_region_are_not_there() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    request = signed("DescribeInstances", {"InstanceId.1": bought}, region="eu-central-1")
    with pytest.raises(VendorError) as caught:
        caller.cloud.carry_out(caller.cloud.open(request))
    assert caught.value.code == "InvalidInstanceID.NotFound"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (by_filter(tag__spotgpu_pool="x"), 0),
        ({"Filter.1.Name": "tag:spotgpu-pool", "Filter.1.Value.1": "uid-1"}, 1),
        ({"Filter.1.Name": "tag:spotgpu-pool", "Filter.1.Value.1": "uid-*"}, 1),
        ({"Filter.1.Name": "tag:spotgpu-pool", "Filter.1.Value.1": "uid-?"}, 1),
        ({"Filter.1.Name": "tag:spotgpu-pool", "Filter.1.Value.1": "uid-\\?"}, 0),
        ({"Filter.1.Name": "tag:spotgpu-pool", "Filter.1.Value.1": "UID-1"}, 0),
        ({"Filter.1.Name": "tag-key", "Filter.1.Value.1": "spotgpu-pool"}, 1),
        (by_filter(instance_state_name="pending,running"), 1),
        (by_filter(instance_state_name="stopped"), 0),
        (by_filter(instance_lifecycle="spot"), 1),
        (by_filter(client_token="token-1", instance_type=TYPE), 1),
        (by_filter(client_token="token-1", instance_type="g6.xlarge"), 0),
        (by_filter(state_reason_code="Client.UserInitiatedShutdown"), 0),
        (by_filter(availability_zone=ZONE, image_id=IMAGE, subnet_id=SUBNET), 1),
        (by_filter(private_ip_address="10.0.0.1"), 1),
        (by_filter(spot_instance_request_id="sir-*"), 1),
    ],
)
def test_filters_narrow_what_is_described(filters: dict[str, str], found: int) -> None:
    caller = a_caller()
    caller.buy()
    assert len(caller.seen(filters)) == found


def test_describe_instances_shows_pages_that_lose_nothing_when_a_machine_disappears() -> None:
    caller = a_caller(terminated_seconds=0)
    bought = sorted(caller.buy(MinCount="12", MaxCount="12"))
    first = caller.call("DescribeInstances", {"MaxResults": "5"})
    caller.call("TerminateInstances", {"InstanceId.1": bought[4]})
    seen = [each["instanceId"] for each in first["reservationSet"][0]["instancesSet"]]
    token = first["nextToken"]
    while token:
        page = caller.call("DescribeInstances", {"MaxResults": "5", "NextToken": token})
        seen += [each["instanceId"] for each in page["reservationSet"][0]["instancesSet"]]
        token = page.get("nextToken", "")
    assert seen == bought


def test_ids_and_a_page_size_do_not_go_together() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    form = {"InstanceId.1": bought, "MaxResults": "5"}
    assert caller.refusal("DescribeInstances", form).code == "InvalidParameterCombination"


def test_tags_are_added_and_removed() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    where = {"ResourceId.1": bought}
    assert caller.call("CreateTags", where | {"Tag.1.Key": "a", "Tag.1.Value": "b"})["return"] == "true"
    caller.call("DeleteTags", where | {"Tag.1.Key": "spotgpu-pool", "Tag.1.Value": "another"})
    caller.call("DeleteTags", where | {"Tag.1.Key": "not-there"})
    assert caller.cloud.ledger.all()[0].tags == {"spotgpu-pool": "uid-1", "a": "b"}
    caller.call("DeleteTags", where | {"Tag.1.Key": "spotgpu-pool"})
    assert caller.cloud.ledger.all()[0].tags == {"a": "b"}
    caller.call("DeleteTags", where)
    assert caller.cloud.ledger.all()[0].tags == {}


# Spot requests ------------------------------------------------------------------------------------------


def status_of(caller: Caller) -> tuple[str, str]:
    """State and status code of the one spot request."""
    (seen,) = caller.requests()
    return seen["state"], seen["status"]["code"]


def test_a_spot_request_tells_that_its_machine_is_taken_back() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    assert status_of(caller) == ("active", "fulfilled")
    caller.cloud.ledger.reclaim(bought, notice_seconds=120)
    assert status_of(caller) == ("active", "marked-for-termination")
    assert state_of(caller) == ("running", "")
    caller.clock.pass_seconds(120)
    caller.cloud.ledger.advance()
    assert status_of(caller) == ("closed", "instance-terminated-no-capacity")
    assert state_of(caller) == ("terminated", "Server.SpotInstanceTermination")


def test_a_spot_request_closes_when_its_user_ends_the_machine() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    caller.call("TerminateInstances", {"InstanceId.1": bought})
    assert status_of(caller) == ("closed", "instance-terminated-by-user")


def test_spot_requests_are_found_by_status_machine_and_id() -> None:
    caller = a_caller()
    first, second = caller.buy(MinCount="2", MaxCount="2")
    caller.call("RunInstances", on_demand(ClientToken="token-2"))
    assert len(caller.requests()) == 2
    caller.cloud.ledger.reclaim(second, notice_seconds=120)
    (marked,) = caller.requests(by_filter(status_code="marked-for-termination,marked-for-stop"))
    assert marked["instanceId"] == second
    (named,) = caller.requests({"SpotInstanceRequestId.1": marked["spotInstanceRequestId"]})
    assert named == marked
    assert [each["instanceId"] for each in caller.requests(by_filter(instance_id=first))] == [first]
    error = caller.refusal("DescribeSpotInstanceRequests", {"SpotInstanceRequestId.1": "sir-0"})
    assert error.code == "InvalidSpotInstanceRequestID.NotFound"


# Offers -------------------------------------------------------------------------------------------------


def offered(caller: Caller, **form: str) -> list[tuple[str, str]]:
    filters = by_filter(instance_type=TYPE)
    answer = caller.call("DescribeInstanceTypeOfferings", filters | form)
    return [(each["location"], each["instanceType"]) for each in answer["instanceTypeOfferingSet"] or []]


def test_offerings_say_what_is_sold_and_nothing_of_stock() -> None:
    caller = a_caller()
    caller.cloud.market.run_out(AWS, OTHER_ZONE)
    assert offered(caller) == [(REGION, TYPE)]
    assert offered(caller, LocationType="availability-zone") == [(ZONE, TYPE), (OTHER_ZONE, TYPE)]
    caller.cloud.market.withdraw(AWS, OTHER_ZONE, TYPE)
    assert offered(caller, LocationType="availability-zone") == [(ZONE, TYPE)]
    caller.cloud.market.withdraw(AWS, ZONE, TYPE)
    assert offered(caller) == []


def prices(caller: Caller, **form: str) -> list[dict[str, str]]:
    where = {"InstanceType.1": TYPE, "ProductDescription.1": "Linux/UNIX"}
    answer = caller.call("DescribeSpotPriceHistory", where | form)
    found: list[dict[str, str]] = answer["spotPriceHistorySet"] or []
    return found


def test_prices_from_now_on_are_those_that_are_valid_now() -> None:
    caller = a_caller()
    caller.clock.pass_seconds(65)
    now = caller.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {each["availabilityZone"]: each for each in prices(caller, StartTime=now)}
    assert set(found) == {ZONE, OTHER_ZONE}
    price = caller.cloud.price(caller.cloud.place(ZONE, TYPE), spot=True)
    assert found[ZONE]["spotPrice"] == str(usd(price))
    assert found[ZONE]["timestamp"] == "2026-11-29T12:00:00.000Z"
    expected = captured("spot_price_history")["exchanges"][0]["response"]["body"]
    theirs = fromstring(expected)  # noqa: S314 our own file
    item = theirs.find("*/{*}item")
    assert item is not None
    assert set(found[ZONE]) == {child.tag.split("}")[1] for child in item}


def test_prices_reach_back_to_the_start_and_can_be_narrowed() -> None:
    caller = a_caller()
    start = (NOON - timedelta(minutes=25)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = prices(caller, StartTime=start, AvailabilityZone=ZONE)
    assert [each["timestamp"][11:16] for each in found] == ["11:30", "11:40", "11:50", "12:00"]
    assert prices(caller, **{"ProductDescription.1": "Windows"}) == []
    error = caller.refusal("DescribeSpotPriceHistory", {"InstanceType.1": "g5.pico"})
    assert error.code == "InvalidParameterValue"


def test_images_name_their_root_device() -> None:
    caller = a_caller()
    caller.cloud.root_devices[IMAGE] = "/dev/xvda"
    (image,) = caller.call("DescribeImages", {"ImageId.1": IMAGE})["imagesSet"]
    assert (image["imageId"], image["rootDeviceName"]) == (IMAGE, "/dev/xvda")
    assert caller.refusal("DescribeImages", {"ImageId.1": "ami-1"}).code == "InvalidAMIID.NotFound"


# Answers and rates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    ["auth", "create_error_capacity_500_retries_off", "create_throttled_503", "terminate_notfound"],
)
def test_errors_are_worded_like_the_captures(case: str) -> None:
    caller = a_caller()
    expected = captured(case)["exchanges"][0]["response"]
    root = fromstring(expected["body"])  # noqa: S314 our own file
    code = root.findtext("Errors/Error/Code") or ""
    message = root.findtext("Errors/Error/Message") or ""
    answer = caller.cloud.refuse(VendorError(code, message, status=expected["status"]), "r-err")
    assert answer.status == expected["status"]
    assert dict(answer.headers) == expected["headers"]
    ours = fromstring(answer.body)  # noqa: S314 as above
    assert (paths(ours), ours.tag) == (paths(root), root.tag)
    assert ours.findtext("Errors/Error/Message") == message


def test_throttling_and_internal_errors_have_the_vendors_statuses() -> None:
    caller = a_caller()
    call = caller.cloud.open(signed("DescribeInstances", {}))
    assert (caller.cloud.throttled(call).code, caller.cloud.throttled(call).status) == (
        "RequestLimitExceeded",
        503,
    )
    assert (caller.cloud.failed().code, caller.cloud.failed().status) == ("InternalError", 500)


def test_answers_escape_what_xml_would_read() -> None:
    caller = a_caller()
    caller.buy(TagSpecification__1__Tag__1__Value="<&>\"'训练")
    (tag,) = caller.seen()[0]["tagSet"]
    assert tag["value"] == "<&>\"'训练"


def test_buckets_let_a_burst_through_and_then_their_refill() -> None:
    buckets = TokenBuckets()
    at_once = [buckets.admit("RunInstances", ("key", REGION), 0.0) for _ in range(7)]
    assert at_once == [True] * 5 + [False] * 2
    assert not buckets.admit("RunInstances", ("key", REGION), 0.4)
    assert buckets.admit("RunInstances", ("key", REGION), 0.5)
    assert not buckets.admit("RunInstances", ("key", REGION), 0.5)
    assert buckets.admit("RunInstances", ("key", "eu-central-1"), 0.5)
    assert buckets.admit("DescribeInstances", ("key", REGION), 0.5)
    # A long pause fills the bucket, but not over its edge.
    later = [buckets.admit("RunInstances", ("key", REGION), 1000.0) for _ in range(6)]
    assert later == [True] * 5 + [False]


def test_buckets_can_be_switched_off_and_narrowed() -> None:
    buckets = TokenBuckets()
    buckets.per_second["RunInstances"] = 0
    assert all(buckets.admit("RunInstances", ("key",), 0.0) for _ in range(50))
    assert sum(buckets.admit("DescribeInstances", ("key",), 0.0) for _ in range(150)) == 100
