"""The simulated Alibaba Cloud: its words, limits, tokens and states."""

import base64
import json
from typing import Any

import pytest

from sandbox.clouds.aliyun_parameters import decode, nested
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.inventory import Account
from tests.sandbox.clouds.aliyun_builders import (
    CAPTURES,
    IMAGE,
    KEY,
    NOON,
    OTHER_VSWITCH,
    OTHER_ZONE,
    REGION,
    SECRET,
    TYPE,
    VCPUS,
    VSWITCH,
    ZONE,
    Caller,
    Clock,
    a_cloud,
    captured,
    captured_requests,
    purchase,
    signed,
)


def a_caller(**settings: Any) -> Caller:
    clock = Clock()
    return Caller(a_cloud(clock, **settings), clock)


# Parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    sorted(
        path.stem
        for path in CAPTURES.glob("*.json")
        if path.stem not in ("endpoint_with_scheme", "describe_rpc_v1_signature")
    ),
)
def test_decode_knows_every_parameter_of_the_captures(case: str) -> None:
    for request in captured_requests(case):
        decoded = decode(request.headers["x-acs-action"], request.query)
        given = set(nested(request.query))
        assert set(decoded.model_dump(by_alias=True, exclude_unset=True)) == given


def test_decode_reads_lists_objects_booleans_and_text_outside_ascii() -> None:
    (request,) = captured_requests("create_success")
    body = decode("RunInstances", request.query).model_dump(by_alias=True)
    assert body["SecurityGroupIds"] == ("sg-bp1fake1", "sg-bp1fake2")
    assert body["Tag"] == ({"Key": "lease", "Value": "0001"}, {"Key": "owner", "Value": "测试"})
    assert body["SystemDisk"] == {"Category": "cloud_essd", "Size": 100, "PerformanceLevel": "PL0"}
    assert body["DryRun"] is False
    assert body["InstanceName"] == "spot-[1,4]"


@pytest.mark.parametrize(
    ("action", "query", "code", "named"),
    [
        pytest.param("RunInstance", "RegionId=r", "InvalidAction.NotFound", "api", id="unknown action"),
        pytest.param("DescribeInstances", "RegionID=r", "MissingParameter", "RegionId", id="missing"),
        pytest.param(
            "DescribeInstances", "RegionId=r&Taggs=1", "InvalidParameter", "Taggs", id="unknown name"
        ),
        pytest.param(
            "DescribeInstances",
            "RegionId=r&Tag.1.Key=a&Tag.1.Kay=1",
            "InvalidParameter",
            "Tag.1.Kay",
            id="unknown part",
        ),
        pytest.param(
            "DescribeInstances", "RegionId=r&RegionId=r", "InvalidParameter", "RegionId", id="twice"
        ),
        pytest.param(
            "DescribeInstances",
            "RegionId=r&Tag.2.Key=1",
            "InvalidParameter",
            "Tag",
            id="list with a gap",
        ),
        pytest.param(
            "DescribeInstances",
            "RegionId=r&Tag.0.Key=1",
            "InvalidParameter",
            "Tag",
            id="list from zero",
        ),
        pytest.param(
            "DescribeInstances",
            "RegionId=r&Tag=a&Tag.1.Key=b",
            "InvalidParameter",
            "Tag",
            id="value and parts",
        ),
        pytest.param(
            "DescribeInstances", "RegionId=r&MaxResults=9", "InvalidParameter", "MaxResults", id="too few"
        ),
        pytest.param(
            "DescribeInstances", "RegionId=r&MaxResults=101", "InvalidParameter", "MaxResults", id="too many"
        ),
        pytest.param(
            "DescribeInstances",
            "RegionId=r&InstanceIds=i-1",
            "InvalidInstanceIds.Malformed",
            "",
            id="no JSON",
        ),
        pytest.param(
            "DeleteInstances",
            "RegionId=r&InstanceId.1=i&Force=yep",
            "InvalidParameter",
            "Force",
            id="no word",
        ),
        pytest.param(
            "TagResources",
            "RegionId=r&ResourceType=instance&ResourceId.1=i&Tag.1.Key=acs:x",
            "InvalidParameter",
            "Tag.1.Key",
            id="reserved key",
        ),
    ],
)
def test_decode_refuses_by_name(action: str, query: str, code: str, named: str) -> None:
    with pytest.raises(VendorError) as caught:
        decode(action, query)
    assert caught.value.code == code
    assert named in caught.value.message


def test_decode_refuses_more_than_100_ids() -> None:
    with pytest.raises(VendorError) as caught:
        decode("DescribeInstances", "RegionId=r&InstanceIds=" + json.dumps(["i"] * 101))
    assert caught.value.code == "InvalidInstanceIds.Malformed"
    with pytest.raises(VendorError) as caught:
        decode("DeleteInstances", "RegionId=r&" + "&".join(f"InstanceId.{n}=i-{n}" for n in range(1, 102)))
    assert caught.value.code == "InvalidParameter"


# Purchases ----------------------------------------------------------------------------------------------


def test_run_instances_answers_like_the_capture() -> None:
    answer = a_caller().call("RunInstances", purchase())
    expected = captured("create_success")["exchanges"][0]["response"]["body"]
    assert set(answer) == set(expected)
    assert [len(answer["InstanceIdSets"]["InstanceIdSet"])] == [1]


def test_run_instances_keeps_what_was_ordered() -> None:
    caller = a_caller()
    (bought,) = caller.buy(
        SpotStrategy="SpotWithPriceLimit", SpotPriceLimit="99.5", KeyPairName="spotgpu-nodes"
    )
    machine = caller.cloud.ledger.find([bought])[0]
    assert machine.order.user_data == "#!/bin/sh\n"
    assert (machine.order.zone, machine.order.spot, machine.order.client_token) == (ZONE, True, "token-1")
    (seen,) = caller.seen()
    assert (seen["SpotPriceLimit"], seen["SpotDuration"], seen["KeyPairName"]) == (99.5, 1, "spotgpu-nodes")
    assert seen["Tags"] == {"Tag": [{"TagKey": "spotgpu-pool", "TagValue": "uid-1"}]}


def test_run_instances_takes_the_zone_of_the_vswitch() -> None:
    caller = a_caller()
    (bought,) = caller.buy(ZoneId="", VSwitchId=OTHER_VSWITCH)
    assert caller.cloud.ledger.find([bought])[0].order.zone == OTHER_ZONE


def test_run_instances_repeats_a_token_with_the_same_machine_even_when_sold_out() -> None:
    caller = a_caller()
    first = caller.buy()
    caller.cloud.market.run_out(caller.cloud.provider, ZONE)
    assert caller.buy() == first
    assert len(caller.cloud.ledger.all()) == 1


def test_run_instances_refuses_a_token_with_other_parameters() -> None:
    caller = a_caller()
    caller.buy()
    error = caller.refusal("RunInstances", purchase(InstanceName="another"))
    assert (error.code, error.status) == ("IdempotentParameterMismatch", 400)
    assert len(caller.cloud.ledger.all()) == 1


def test_run_instances_tells_tokens_apart_by_case_and_buys_anew_without_one() -> None:
    caller = a_caller()
    bought = {*caller.buy(), *caller.buy(ClientToken="TOKEN-1"), *caller.buy(ClientToken="")}
    assert len(bought | set(caller.buy(ClientToken=""))) == 4


def test_run_instances_delivers_in_part_only_with_min_amount() -> None:
    caller = a_caller()
    caller.cloud.market.set_capacity(caller.cloud.provider, ZONE, TYPE, 2)
    error = caller.refusal("RunInstances", purchase(Amount="3"))
    assert (error.code, error.status) == ("OperationDenied.NoStock", 403)
    assert len(caller.buy(Amount="3", MinAmount="1", ClientToken="token-2")) == 2
    assert caller.refusal("RunInstances", purchase(ClientToken="token-3")).code == "OperationDenied.NoStock"


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        pytest.param({"RegionId": "cn-nowhere"}, "InvalidRegionId.NotFound", 404, id="region"),
        pytest.param({"ZoneId": "cn-hangzhou-z"}, "InvalidZoneId.NotFound", 404, id="zone"),
        pytest.param({"VSwitchId": OTHER_VSWITCH}, "InvalidParameter", 400, id="vswitch of another zone"),
        pytest.param({"VSwitchId": "vsw-none"}, "InvalidVSwitchId.NotFound", 404, id="vswitch"),
        pytest.param({"ImageId": "m-none"}, "InvalidImageId.NotFound", 404, id="image"),
        pytest.param({"ImageId": ""}, "MissingParameter", 400, id="no image"),
        pytest.param({"SecurityGroupIds__1": "sg-no"}, "InvalidSecurityGroupId.NotFound", 404, id="group"),
        pytest.param({"SecurityGroupIds__1": ""}, "InvalidParameter", 400, id="no group"),
        pytest.param({"KeyPairName": "nobody"}, "InvalidKeyPairName.NotFound", 404, id="key pair"),
        pytest.param({"InstanceType": "ecs.x"}, "InvalidInstanceType.ValueNotSupported", 404, id="type"),
        pytest.param({"SystemDisk__Category": "floppy"}, "InvalidSystemDiskCategory", 400, id="disk"),
        pytest.param({"SystemDisk__Category": "cloud_ssd"}, "CategoryNotSupported", 403, id="older disk"),
        pytest.param({"SystemDisk__Size": "10"}, "InvalidParameter", 400, id="small disk"),
        pytest.param({"SpotStrategy": "Cheap"}, "InvalidSpotStrategy", 400, id="strategy"),
        pytest.param({"SpotStrategy": "SpotWithPriceLimit"}, "InvalidSpotPriceLimit", 400, id="no limit"),
        pytest.param({"SpotPriceLimit": "1.2345"}, "InvalidSpotPriceLimit", 400, id="four decimals"),
        pytest.param({"SpotDuration": "2"}, "InvalidSpotDuration", 400, id="duration"),
        pytest.param({"Amount": "101"}, "InvalidParameter", 400, id="amount"),
        pytest.param({"ClientToken": "x" * 65}, "InvalidClientToken", 400, id="long token"),
        pytest.param({"ClientToken": "ü"}, "InvalidClientToken", 400, id="token outside ASCII"),
        pytest.param({"UserData": "no base64!"}, "InvalidUserData.Base64FormatInvalid", 400, id="user data"),
        pytest.param({"AutoReleaseTime": "2026-11-29T12:20:00Z"}, "InvalidParameter", 400, id="release time"),
        pytest.param({"DryRun": "True"}, "DryRunOperation", 400, id="dry run"),
    ],
)
def test_run_instances_refuses(changes: dict[str, str], code: str, status: int) -> None:
    caller = a_caller()
    error = caller.refusal("RunInstances", purchase(**changes))
    assert error.code.startswith(code)
    assert error.status == status
    assert caller.cloud.ledger.all() == ()


def test_run_instances_refuses_user_data_above_32_kilobytes() -> None:
    caller = a_caller()
    fits, too_long = (base64.b64encode(b"x" * size).decode() for size in (32 * 1024, 32 * 1024 + 1))
    caller.buy(UserData=fits)
    error = caller.refusal("RunInstances", purchase(UserData=too_long, ClientToken="token-2"))
    assert error.code == "InvalidUserData.SizeExceeded"


def test_run_instances_refuses_more_than_20_tags() -> None:
    tags = {f"Tag__{n}__Key": f"k{n}" for n in range(2, 22)}
    assert a_caller().refusal("RunInstances", purchase(**tags)).code == "InvalidParameter"


def test_run_instances_refuses_a_bid_below_the_price() -> None:
    caller = a_caller()
    bid = {"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": "0.001"}
    error = caller.refusal("RunInstances", purchase(**bid))
    assert (error.code, error.status) == ("InvalidSpotPriceLimit.LowerThanPublicPrice", 400)


def test_run_instances_refuses_what_a_zone_does_not_sell_and_what_the_quota_forbids() -> None:
    caller = a_caller(quota=VCPUS + 1)
    caller.cloud.market.withdraw(caller.cloud.provider, OTHER_ZONE, TYPE)
    error = caller.refusal("RunInstances", purchase(ZoneId=OTHER_ZONE, VSwitchId=OTHER_VSWITCH))
    assert (error.code, error.status) == ("Zone.NotOnSale", 403)
    caller.buy()
    error = caller.refusal("RunInstances", purchase(ClientToken="token-2"))
    assert (error.code, error.status) == ("QuotaExceed.ElasticQuota", 403)
    caller.buy(ClientToken="token-3", SpotStrategy="NoSpot")


def attributes(caller: Caller, *names: str) -> dict[str, str]:
    asked = {f"AttributeName.{number}": name for number, name in enumerate(names, 1)}
    answer = caller.call("DescribeAccountAttributes", {"RegionId": REGION} | asked)
    items = answer["AccountAttributeItems"]["AccountAttributeItem"]
    return {each["AttributeName"]: each["AttributeValues"]["ValueItem"][0]["Value"] for each in items}


def test_account_attributes_tell_the_limits_that_purchases_meet_and_their_use() -> None:
    caller = a_caller(quota=VCPUS + 1)
    caller.buy()
    caller.buy(ClientToken="token-2", SpotStrategy="NoSpot")
    caller.buy(ClientToken="token-3", SpotStrategy="NoSpot")
    names = ("max-spot-instance-vcpu-count", "used-spot-instance-vcpu-count")
    assert attributes(caller, *names) == dict(zip(names, (str(VCPUS + 1), str(VCPUS)), strict=True))
    assert attributes(caller)["used-postpaid-instance-vcpu-count"] == str(2 * VCPUS)


@pytest.mark.parametrize("name", ["max-spot-instance-count", "max-security-groups"])
def test_account_attribute_that_is_not_there_or_not_played_is_refused(name: str) -> None:
    query = {"RegionId": REGION, "AttributeName.1": name}
    assert a_caller().refusal("DescribeAccountAttributes", query).code == "InvalidParameter"


def test_dead_man_switch_ends_a_machine_at_its_minute() -> None:
    caller = a_caller()
    caller.buy(AutoReleaseTime="2026-11-29T12:30:59Z")
    assert caller.seen()[0]["AutoReleaseTime"] == "2026-11-29T12:30Z"
    caller.clock.pass_seconds(30 * 60)
    caller.cloud.ledger.advance()
    assert caller.seen() == []


# Machines -----------------------------------------------------------------------------------------------


def test_describe_instances_answers_like_the_capture() -> None:
    caller = a_caller()
    caller.buy()
    expected = captured("describe_by_tag")["exchanges"][0]["response"]["body"]
    answer = caller.call("DescribeInstances", {"RegionId": REGION})
    assert set(answer) == set(expected)
    ours, theirs = answer["Instances"]["Instance"][0], expected["Instances"]["Instance"][0]
    # Of what the capture shows, nobody reads these.
    unread = {"EipAddress", "Recyclable"}
    assert set(theirs) - unread <= set(ours)
    for name in set(theirs) - unread:
        assert type(ours[name]) is type(theirs[name]), name


def test_machine_goes_from_pending_to_starting_to_running_to_stopping_to_absent() -> None:
    caller = a_caller(boot_seconds=10, end_seconds=5)
    (bought,) = caller.buy()
    words = [caller.seen()[0]["Status"]]
    for seconds in (6, 5):
        caller.clock.pass_seconds(seconds)
        caller.cloud.ledger.advance()
        words.append(caller.seen()[0]["Status"])
    caller.call("DeleteInstances", {"RegionId": REGION, "InstanceId.1": bought, "Force": "True"})
    words.append(caller.seen()[0]["Status"])
    caller.clock.pass_seconds(5)
    caller.cloud.ledger.advance()
    assert words == ["Pending", "Starting", "Running", "Stopping"]
    assert caller.seen() == []


def test_machine_that_failed_to_start_is_not_listed() -> None:
    caller = a_caller()
    caller.cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS))
    caller.buy()
    assert caller.seen() == []


def test_describe_instances_shows_a_recycling_lock_during_the_notice_and_goes_on_running() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    caller.cloud.ledger.reclaim(bought, notice_seconds=300)
    (seen,) = caller.seen(LockReason="Recycling")
    assert seen["Status"] == "Running"
    assert [lock["LockReason"] for lock in seen["OperationLocks"]["LockReason"]] == ["Recycling"]
    caller.clock.pass_seconds(300)
    caller.cloud.ledger.advance()
    caller.cloud.ledger.advance()
    assert caller.seen() == []


def stopped(caller: Caller, **changes: str) -> str:
    """A machine that its cloud took back in economical mode."""
    (bought,) = caller.buy(SpotInterruptionBehavior="Stop", **changes)
    caller.cloud.ledger.reclaim(bought, notice_seconds=300)
    caller.clock.pass_seconds(300)
    caller.cloud.ledger.advance()
    return bought


def test_reclaim_in_economical_mode_leaves_a_stopped_machine_that_stays_listed() -> None:
    caller = a_caller(end_seconds=5)
    ledger, place = caller.cloud.ledger, caller.cloud.place(ZONE, TYPE)
    (bought,) = caller.buy(SpotInterruptionBehavior="Stop")
    ledger.reclaim(bought, notice_seconds=300)
    (seen,) = caller.seen(LockReason="Recycling")
    assert (seen["Status"], seen["StoppedMode"]) == ("Running", "Not-applicable")
    assert caller.cloud.free(place) == caller.cloud.market.capacity(place, caller.clock()) - 1
    words: list[tuple[str, str]] = []
    for seconds in (300, 5, 30 * 86_400):
        caller.clock.pass_seconds(seconds)
        ledger.advance()
        (seen,) = caller.seen(InstanceIds=json.dumps([bought]))
        words.append((seen["Status"], seen["StoppedMode"]))
    assert words == [("Stopping", "StopCharging"), *[("Stopped", "StopCharging")] * 2]
    assert seen["OperationLocks"] == {"LockReason": []}
    assert caller.seen(LockReason="Recycling") == []
    tagged = caller.seen(Status="Stopped", Tag__1__Key="spotgpu-pool", Tag__1__Value="uid-1")
    assert [m["InstanceId"] for m in tagged] == [bought]
    assert caller.cloud.free(place) == caller.cloud.market.capacity(place, caller.clock())


@pytest.mark.parametrize("force", [{}, {"Force": "True"}], ids=["gently", "by force"])
def test_delete_instances_ends_a_stopped_machine_with_and_without_force(force: dict[str, str]) -> None:
    caller = a_caller(end_seconds=5)
    bought = stopped(caller)
    query = {"RegionId": REGION, "InstanceId.1": bought}
    assert caller.refusal("DeleteInstances", query).code == "IncorrectInstanceStatus", "it still stops"
    caller.clock.pass_seconds(5)
    caller.call("DeleteInstances", query | force)
    caller.clock.pass_seconds(5)
    caller.cloud.ledger.advance()
    assert caller.seen() == []


def test_on_demand_machine_has_no_way_to_stop_on_a_reclaim() -> None:
    caller = a_caller()
    caller.buy(SpotStrategy="NoSpot", SpotInterruptionBehavior="Stop")
    assert not caller.cloud.ledger.all()[0].order.stops_on_reclaim


def test_describe_instances_gives_times_by_the_minute() -> None:
    caller = a_caller()
    caller.clock.pass_seconds(59)
    caller.buy()
    assert caller.seen()[0]["CreationTime"] == NOON.strftime("%Y-%m-%dT%H:%MZ")


def test_describe_instances_pages_without_losing_or_doubling() -> None:
    caller = a_caller()
    bought = caller.buy(Amount="25")
    seen: list[str] = []
    token = ""
    for _ in range(3):
        query = {"RegionId": REGION, "MaxResults": "10"} | ({"NextToken": token} if token else {})
        answer = caller.call("DescribeInstances", query)
        seen += [machine["InstanceId"] for machine in answer["Instances"]["Instance"]]
        token = answer["NextToken"]
    assert (seen, token) == (bought, "")
    assert caller.refusal("DescribeInstances", {"RegionId": REGION, "NextToken": "bm8="}).status == 400


def test_describe_instances_pages_on_when_the_last_machine_of_a_page_is_gone() -> None:
    caller = a_caller()
    bought = caller.buy(Amount="15")
    token = caller.call("DescribeInstances", {"RegionId": REGION, "MaxResults": "10"})["NextToken"]
    caller.cloud.ledger.vanish(bought[9])
    rest = caller.seen(MaxResults="10", NextToken=token)
    assert [machine["InstanceId"] for machine in rest] == bought[10:]


def test_describe_instances_narrows_by_ids_tags_region_and_state() -> None:
    caller = a_caller()
    (first,) = caller.buy()
    (second,) = caller.buy(ClientToken="token-2", Tag__1__Value="uid-2", Tag__2__Key="a", Tag__2__Value="b")
    assert [m["InstanceId"] for m in caller.seen(InstanceIds=json.dumps([second, "i-none"]))] == [second]
    assert [m["InstanceId"] for m in caller.seen(Tag__1__Key="a", Tag__1__Value="b")] == [second]
    both = {"Tag__1__Key": "a", "Tag__1__Value": "b", "Tag__2__Key": "spotgpu-pool", "Tag__2__Value": "uid-1"}
    assert caller.seen(**both) == []
    assert [m["InstanceId"] for m in caller.seen(Status="Running")] == [first, second]
    assert caller.seen(RegionId="cn-beijing") == []


def test_delete_instances_ends_all_or_none() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    query = {"RegionId": REGION, "InstanceId.1": bought, "InstanceId.2": "i-none", "Force": "True"}
    error = caller.refusal("DeleteInstances", query)
    assert (error.code, error.status) == ("InvalidInstanceId.NotFound", 404)
    assert len(caller.seen()) == 1
    del query["InstanceId.2"]
    caller.call("DeleteInstances", query)
    assert caller.seen() == []


def test_delete_instances_refuses_a_running_machine_without_force() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    error = caller.refusal("DeleteInstances", {"RegionId": REGION, "InstanceId.1": bought})
    assert (error.code, error.status) == ("IncorrectInstanceStatus", 403)


def test_delete_instances_refuses_a_machine_that_is_being_made() -> None:
    caller = a_caller(initializing_seconds=5)
    (bought,) = caller.buy()
    query = {"RegionId": REGION, "InstanceId.1": bought, "Force": "True"}
    assert caller.refusal("DeleteInstances", query).code == "IncorrectInstanceStatus.Initializing"
    caller.clock.pass_seconds(5)
    caller.call("DeleteInstances", query)
    assert caller.seen() == []


def test_tags_are_added_and_removed() -> None:
    caller = a_caller()
    (bought,) = caller.buy()
    where = {"RegionId": REGION, "ResourceType": "instance", "ResourceId.1": bought}
    caller.call("TagResources", where | {"Tag.1.Key": "a", "Tag.1.Value": "b"})
    caller.call("UntagResources", where | {"TagKey.1": "spotgpu-pool"})
    assert caller.cloud.ledger.find([bought])[0].tags == {"a": "b"}
    caller.call("UntagResources", where | {"All": "True"})
    assert caller.cloud.ledger.find([bought])[0].tags == {}
    where["ResourceId.1"] = "i-none"
    assert caller.refusal("UntagResources", where).code == "InvalidResourceId.NotFound"


# Offers -------------------------------------------------------------------------------------------------


def stock_words(caller: Caller) -> dict[str, tuple[str, str]]:
    query = {
        "RegionId": REGION,
        "DestinationResource": "InstanceType",
        "InstanceType": TYPE,
        "SpotStrategy": "SpotAsPriceGo",
    }
    zones = caller.call("DescribeAvailableResource", query)["AvailableZones"]["AvailableZone"]
    resources = {
        zone["ZoneId"]: zone["AvailableResources"]["AvailableResource"][0]["SupportedResources"]
        for zone in zones
    }
    return {
        zone: (resource["SupportedResource"][0]["Status"], resource["SupportedResource"][0]["StatusCategory"])
        for zone, resource in resources.items()
    }


def test_describe_available_resource_follows_the_market_and_the_machines() -> None:
    caller = a_caller()
    market, provider = caller.cloud.market, caller.cloud.provider
    assert stock_words(caller)[ZONE] == ("Available", "WithStock")
    market.set_capacity(provider, ZONE, TYPE, 2)
    caller.buy()
    assert stock_words(caller)[ZONE] == ("Available", "ClosedWithStock")
    caller.buy(ClientToken="token-2")
    assert stock_words(caller)[ZONE] == ("SoldOut", "WithoutStock")
    market.withdraw(provider, ZONE, TYPE)
    assert set(stock_words(caller)) == {OTHER_ZONE}


def test_describe_spot_price_history_ends_with_the_price_of_now() -> None:
    caller = a_caller()
    query = {"RegionId": REGION, "InstanceType": TYPE, "NetworkType": "vpc"}
    answer = caller.call("DescribeSpotPriceHistory", query)
    expected = captured("describe_spot_price_history")["exchanges"][0]["response"]["body"]
    changes = answer["SpotPrices"]["SpotPriceType"]
    assert set(answer) == set(expected)
    assert set(changes[0]) == set(expected["SpotPrices"]["SpotPriceType"][0])
    place = caller.cloud.place(ZONE, TYPE)
    newest = max((c for c in changes if c["ZoneId"] == ZONE), key=lambda change: change["Timestamp"])
    assert newest["SpotPrice"] == float(caller.cloud.price(place, spot=True))
    assert newest["OriginPrice"] == float(caller.cloud.price(place, spot=False))


def test_describe_price_adds_the_disk_and_answers_like_the_capture() -> None:
    caller = a_caller()
    query = {"RegionId": REGION, "ZoneId": ZONE, "InstanceType": TYPE, "ResourceType": "instance"}
    query |= {"SpotStrategy": "SpotAsPriceGo", "SystemDisk.Size": "100"}
    answer = caller.call("DescribePrice", query)
    expected = captured("describe_price")["exchanges"][0]["response"]["body"]
    price = answer["PriceInfo"]["Price"]
    assert set(price) == set(expected["PriceInfo"]["Price"])
    machine, disk = price["DetailInfos"]["DetailInfo"]
    assert machine["TradePrice"] == float(caller.cloud.price(caller.cloud.place(ZONE, TYPE), spot=True))
    assert price["TradePrice"] == pytest.approx(machine["TradePrice"] + disk["TradePrice"])


# Answers ------------------------------------------------------------------------------------------------


def test_errors_are_worded_like_the_capture() -> None:
    cloud = a_cloud()
    expected = captured("create_error_nostock")["exchanges"][0]["response"]
    answer = cloud.refuse(VendorError("OperationDenied.NoStock", "no", status=403), "r-1")
    assert answer.status == expected["status"]
    assert set(json.loads(answer.body)) == set(expected["body"])
    assert {*answer.headers} == {*expected["headers"]}


def test_throttling_and_internal_errors_carry_the_statuses_of_the_captures() -> None:
    caller = a_caller()
    call = caller.cloud.open(signed("DescribeInstances", {"RegionId": REGION}))
    throttled, failed = caller.cloud.throttled(call), caller.cloud.failed()
    assert (throttled.code, throttled.status) == ("Throttling.User", 400)
    assert throttled.headers == {"x-acs-retry-after": "1000"}
    assert (failed.code, failed.status) == ("InternalError", 500)


def test_open_refuses_another_version_of_the_api() -> None:
    caller = a_caller()
    request = signed("DescribeInstances", {"RegionId": REGION}, version="2020-01-01")
    with pytest.raises(VendorError) as caught:
        caller.cloud.open(request)
    assert caught.value.code == "InvalidVersion"


def test_open_follows_a_rotation_of_the_keys() -> None:
    account = Account(keys={KEY: SECRET})
    caller = a_caller(account=account)
    caller.seen()
    account.keys = {"another": "secret"}
    assert caller.refusal("DescribeInstances", {"RegionId": REGION}).code == "InvalidAccessKeyId.NotFound"


def test_open_aims_purchases_at_their_zone_and_type() -> None:
    call = a_cloud(Clock()).open(signed("RunInstances", purchase()))
    assert (call.zone, call.instance_type, call.client_token) == (ZONE, TYPE, "token-1")
    assert (call.parameters["ImageId"], call.parameters["VSwitchId"]) == (IMAGE, VSWITCH)
