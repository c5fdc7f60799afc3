import base64
import json
from collections.abc import Mapping
from decimal import Decimal

import pytest
from tencentcloud.cvm.v20170312 import models

from sandbox.clouds import tencent_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.ledger import MachineState
from sandbox.clouds.tencent import TencentCloud
from tests.sandbox.clouds.tencent_signing import (
    NOW,
    PROVIDER,
    PURCHASE,
    REGION,
    TYPE,
    VCPUS,
    WIRE,
    ZONE,
    a_cloud,
    signed,
)

Body = Mapping[str, object]


def call(cloud: TencentCloud, action: str, body: Body, **options: str) -> Body:
    return cloud.carry_out(cloud.open(signed(action, body, **options))).payload


def tag(cloud: TencentCloud, action: str, body: Body) -> Body:
    return call(cloud, action, body, service="tag", version="2018-08-13")


def refused(cloud: TencentCloud, action: str, body: Body) -> str:
    with pytest.raises(VendorError) as raised:
        call(cloud, action, body)
    return raised.value.code


def bought(cloud: TencentCloud, **changes: object) -> list[str]:
    return call(cloud, "RunInstances", {**PURCHASE, **changes})["InstanceIdSet"]


def started(cloud: TencentCloud) -> None:
    cloud.ledger.settings.boot_seconds = 0
    cloud.ledger.advance()


# Wire


def test_answer_has_the_exact_content_type_and_a_request_id():
    answer = a_cloud().answer({"TotalCount": 0}, "id-1")
    assert (answer.status, answer.headers) == (200, {"Content-Type": "application/json"})
    assert json.loads(answer.body) == {"Response": {"TotalCount": 0, "RequestId": "id-1"}}


def test_error_travels_with_http_200():
    answer = a_cloud().refuse(VendorError("X.Y", "text"), "id-1")
    assert (answer.status, answer.headers) == (200, {"Content-Type": "application/json"})
    error = {"Code": "X.Y", "Message": "text"}
    assert json.loads(answer.body) == {"Response": {"Error": error, "RequestId": "id-1"}}


@pytest.mark.parametrize(
    ("action", "body", "code"),
    [
        ("RunInstance", {}, "InvalidAction"),
        ("DescribeInstances", {"Limits": 5}, "UnknownParameter"),
        ("DescribeInstances", {"Filters": [{"Name": "zone", "Value": ["z"]}]}, "UnknownParameter"),
        ("DescribeInstances", {"Limit": "5"}, "InvalidParameter"),
        ("RunInstances", {"Placement": {"Zone": ZONE}}, "MissingParameter"),
        ("RunInstances", {**PURCHASE, "HpcClusterId": "h"}, "InvalidParameterValue.NotSupported"),
        ("RunInstances", {**PURCHASE, "DryRun": "false"}, "InvalidParameter"),
    ],
)
def test_request_is_refused_when_it_is_not_the_vendors(action: str, body: Body, code: str):
    assert refused(a_cloud(), action, body) == code


def test_request_is_refused_when_the_region_is_unknown_or_the_version_wrong():
    cloud = a_cloud()
    request = signed("DescribeInstances", {})
    request.headers["x-tc-region"] = "ap-nowhere"
    with pytest.raises(VendorError, match="UnsupportedRegion"):
        cloud.open(request)
    with pytest.raises(VendorError, match="NoSuchVersion"):
        cloud.open(signed("DescribeInstances", {}, version="2018-08-13"))


MODELS = {
    parameters.RunInstances: models.RunInstancesRequest,
    parameters.DescribeInstances: models.DescribeInstancesRequest,
    parameters.TerminateInstances: models.TerminateInstancesRequest,
    parameters.DescribeZoneInstanceConfigInfos: models.DescribeZoneInstanceConfigInfosRequest,
    parameters.DescribeAccountQuota: models.DescribeAccountQuotaRequest,
    parameters.InquiryPriceRunInstances: models.InquiryPriceRunInstancesRequest,
    parameters.Placement: models.Placement,
    parameters.SystemDisk: models.SystemDisk,
    parameters.VirtualPrivateCloud: models.VirtualPrivateCloud,
    parameters.InternetAccessible: models.InternetAccessible,
    parameters.LoginSettings: models.LoginSettings,
    parameters.TagSpecification: models.TagSpecification,
    parameters.Tag: models.Tag,
    parameters.InstanceMarketOptions: models.InstanceMarketOptionsRequest,
    parameters.SpotOptions: models.SpotMarketOptions,
    parameters.ActionTimer: models.ActionTimer,
    parameters.Filter: models.Filter,
}


@pytest.mark.parametrize("ours", MODELS, ids=lambda ours: ours.__name__)
def test_parameter_names_are_those_of_the_sdk(ours: type[parameters.Parameters]):
    known = {name.removeprefix("_") for name in vars(MODELS[ours]())}
    assert {field.alias for field in ours.model_fields.values()} == known


# Purchases


def test_purchase_makes_a_machine_with_everything_asked():
    cloud = a_cloud()
    script = "#!/bin/sh\necho hi\n"
    (machine_id,) = bought(
        cloud,
        UserData=base64.b64encode(script.encode()).decode(),
        TagSpecification=[{"ResourceType": "instance", "Tags": [{"Key": "owner", "Value": "测试"}]}],
        InstanceName="gpu-1",
        LoginSettings={"KeyIds": ["skey-1234abcd"]},
    )
    (machine,) = cloud.ledger.find([machine_id])
    assert machine.order.user_data == script
    assert machine.tags == {"owner": "测试"}
    assert machine.order.price_per_hour == cloud.market.spot_price(cloud.place(ZONE, TYPE), NOW)


def test_purchase_counts_and_partial_delivery():
    cloud = a_cloud()
    cloud.market.set_capacity(PROVIDER, ZONE, TYPE, 3)
    code = "ResourceInsufficient.SpecifiedInstanceType"
    assert refused(cloud, "RunInstances", {**PURCHASE, "InstanceCount": 4}) == code
    assert cloud.ledger.all() == ()
    assert len(bought(cloud, InstanceCount=5, MinCount=2, ClientToken="token-2")) == 3
    assert refused(cloud, "RunInstances", {**PURCHASE, "ClientToken": "token-3"}) == code


def test_token_answers_the_first_machines_and_the_log_notes_other_parameters():
    cloud = a_cloud()
    first = bought(cloud)
    assert bought(cloud) == first
    result = cloud.carry_out(cloud.open(signed("RunInstances", {**PURCHASE, "InstanceName": "other"})))
    assert result.payload["InstanceIdSet"] == first
    assert "other parameters" in result.note
    assert bought(cloud, ClientToken="token-2") != first


def test_dry_run_checks_and_buys_nothing():
    cloud = a_cloud()
    assert call(cloud, "RunInstances", {**PURCHASE, "DryRun": True}) == {}
    assert cloud.ledger.all() == ()


def _bid(price: str) -> Body:
    return {"MarketType": "spot", "SpotOptions": {"MaxPrice": price, "SpotInstanceType": "one-time"}}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Placement": {"Zone": "ap-shanghai-5"}}, "InvalidZone.MismatchRegion"),
        ({"InstanceType": "GN7.9XLARGE9"}, "InvalidParameterValue.InstanceTypeNotFound"),
        ({"ImageId": "ami-1"}, "InvalidImageId.Malformed"),
        ({"ImageId": "img-00000000"}, "InvalidImageId.NotFound"),
        ({"SecurityGroupIds": ["sg-00000000"]}, "InvalidSecurityGroupId.NotFound"),
        ({"SecurityGroupIds": ["sg-1234abcd"] * 6}, "LimitExceeded.AssociateUSGLimitExceeded"),
        ({"LoginSettings": {"KeyIds": ["skey-0"]}}, "InvalidKeyPairId.NotFound"),
        ({"ClientToken": "x" * 65}, "InvalidClientToken.TooLong"),
        ({"SystemDisk": {"DiskType": "cloud_essd"}}, "InvalidParameterValue"),
        ({"InstanceCount": 501}, "InvalidParameterValue.Range"),
        ({"UserData": "no base64!"}, "InvalidParameterValue.InvalidUserDataFormat"),
        (
            {"UserData": base64.b64encode(b"x" * 16385).decode()},
            "InvalidParameterValue.LimitExceeded",
        ),
        (
            {"VirtualPrivateCloud": {"VpcId": "vpc-1234abcd", "SubnetId": "subnet-3333abcd"}},
            "InvalidParameterValue.SubnetIdZoneIdNotMatch",
        ),
        (
            {"VirtualPrivateCloud": {"VpcId": "vpc-0", "SubnetId": "subnet-1234abcd"}},
            "InvalidParameterValue.VpcIdSubnetIdNotMatch",
        ),
        (
            {"VirtualPrivateCloud": {"VpcId": "vpc-1234abcd", "SubnetId": "subnet-0"}},
            "InvalidParameterValue.SubnetNotExist",
        ),
        ({"InstanceMarketOptions": _bid("0.01")}, "InvalidParameterValue.InsufficientPrice"),
        ({"InstanceMarketOptions": _bid("much")}, "InvalidParameterValue"),
        ({"InstanceChargeType": "PREPAID"}, "InvalidParameterValue"),
        (
            {"InstanceChargeType": "POSTPAID_BY_HOUR", "InstanceMarketOptions": _bid("9")},
            "InvalidParameterValue",
        ),
        (
            {"TagSpecification": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}] * 2}]},
            "InvalidParameterValue.DuplicateTags",
        ),
        (
            {"ActionTimer": {"TimerAction": "TerminateInstances", "ActionTime": "2026-07-01T12:04:00Z"}},
            "InvalidParameterValue",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_purchase_is_refused(change: Body, code: str):
    cloud = a_cloud()
    assert refused(cloud, "RunInstances", {**PURCHASE, **change}) == code
    assert cloud.ledger.all() == ()


def test_purchase_is_refused_by_market_quota_and_switches():
    cloud = a_cloud()
    cloud.market.withdraw(PROVIDER, ZONE, TYPE)
    assert refused(cloud, "RunInstances", PURCHASE) == "ResourceNotFound.InvalidZoneInstanceType"
    cloud.market.reset()
    cloud.settings.quota = VCPUS - 1
    assert refused(cloud, "RunInstances", PURCHASE) == "LimitExceeded.SpotQuota"
    cloud.settings.quota = None
    cloud.faults.set(Fault(kind=FaultKind.NO_STOCK, zone=ZONE, count=1))
    assert refused(cloud, "RunInstances", PURCHASE) == "ResourceInsufficient.SpecifiedInstanceType"
    assert len(bought(cloud)) == 1


def quota(cloud: TencentCloud, **filters: str) -> Body:
    body = {"Filters": [{"Name": name.replace("_", "-"), "Values": [v]} for name, v in filters.items()]}
    return call(cloud, "DescribeAccountQuota", body)["AccountQuotaOverview"]


def test_quota_of_spot_counts_vcpus_by_zone_and_is_the_one_that_purchases_meet():
    cloud = a_cloud()
    cloud.settings.quota = 2 * VCPUS - 1
    bought(cloud)
    overview = quota(cloud, zone=ZONE, quota_type="SpotPaidQuotaSet")
    (row,) = overview["AccountQuota"]["SpotPaidQuotaSet"]
    told = {"UsedQuota": VCPUS, "RemainingQuota": VCPUS - 1, "TotalQuota": 2 * VCPUS - 1, "Zone": ZONE}
    assert (overview["Region"], row) == (REGION, told)
    assert overview["AccountQuota"]["PostPaidQuotaSet"] is None
    assert refused(cloud, "RunInstances", {**PURCHASE, "ClientToken": "token-2"}) == "LimitExceeded.SpotQuota"
    other = {"Zone": "ap-guangzhou-3"}, {"VpcId": "vpc-1234abcd", "SubnetId": "subnet-3333abcd"}
    assert bought(cloud, ClientToken="token-3", Placement=other[0], VirtualPrivateCloud=other[1])


def test_quota_tells_all_zones_and_both_kinds_when_nothing_is_filtered():
    cloud = a_cloud()
    cloud.settings.on_demand_quota = 1
    bought(cloud, InstanceChargeType="POSTPAID_BY_HOUR")
    sets = quota(cloud)["AccountQuota"]
    assert [row["Zone"] for row in sets["SpotPaidQuotaSet"]] == ["ap-guangzhou-3", ZONE]
    assert [(row["UsedQuota"], row["TotalQuota"]) for row in sets["PostPaidQuotaSet"]] == [(0, 1), (1, 1)]
    assert set(sets) == {name.removeprefix("_") for name in vars(models.AccountQuota())}
    assert set(sets["SpotPaidQuotaSet"][0]) == {n.removeprefix("_") for n in vars(models.SpotPaidQuota())}


@pytest.mark.parametrize(("name", "value"), [("region", REGION), ("quota-type", "SpotQuotaSet")])
def test_quota_refuses_a_filter_that_does_not_exist(name: str, value: str):
    body = {"Filters": [{"Name": name, "Values": [value]}]}
    assert refused(a_cloud(), "DescribeAccountQuota", body) == "InvalidFilter"


# Lists and ends


def test_list_pages_and_counts():
    cloud = a_cloud()
    bought(cloud, InstanceCount=7)
    page = call(cloud, "DescribeInstances", {"Offset": 5, "Limit": 5})
    assert page["TotalCount"] == 7
    assert len(page["InstanceSet"]) == 2
    assert len(call(cloud, "DescribeInstances", {})["InstanceSet"]) == 7


def test_list_filters_are_joined_by_and_their_values_by_or():
    cloud = a_cloud()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "lease", "Value": "0001"}]}]
    (machine_id,) = bought(cloud, TagSpecification=tags)
    bought(cloud, ClientToken="token-2")

    def listed(*filters: tuple[str, list[str]]) -> list[str]:
        body = {"Filters": [{"Name": name, "Values": values} for name, values in filters]}
        return [i["InstanceId"] for i in call(cloud, "DescribeInstances", body)["InstanceSet"]]

    assert listed(("tag:lease", ["0001", "0002"])) == [machine_id]
    assert listed(("tag:lease", ["0002"])) == []
    assert listed(("tag-key", ["lease"]), ("instance-charge-type", ["SPOTPAID"])) == [machine_id]
    assert len(listed(("instance-state", ["PENDING"]))) == 2
    assert listed(("zone", ["ap-guangzhou-3"])) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"InstanceIds": ["ins-00000000"], "Filters": [{"Name": "zone", "Values": ["z"]}]}, "Conflict"),
        ({"InstanceIds": ["ins-00000000"] * 101}, "LimitExceeded"),
        ({"InstanceIds": ["i-1"]}, "InvalidInstanceId.Malformed"),
        ({"Filters": [{"Name": "zone", "Values": ["z"]}] * 11}, "InvalidFilterValue.LimitExceeded"),
        ({"Filters": [{"Name": "zone", "Values": ["z"] * 6}]}, "InvalidFilterValue.LimitExceeded"),
        ({"Limit": 101}, "InvalidParameterValue.Range"),
        ({"Limit": 0}, "InvalidParameterValue.Range"),
        ({"Offset": -1}, "InvalidParameterValue.Range"),
    ],
)
def test_list_is_refused_beyond_the_limits(body: Body, code: str):
    assert code in refused(a_cloud(), "DescribeInstances", body)


def test_list_refuses_a_filter_that_does_not_exist():
    cloud = a_cloud()
    bought(cloud)
    body = {"Filters": [{"Name": "lifecycle", "Values": ["spot"]}]}
    assert refused(cloud, "DescribeInstances", body) == "InvalidFilter"


def test_machine_is_shown_in_the_shape_of_the_capture():
    cloud = a_cloud()
    bought(cloud)
    capture = json.loads((WIRE / "describe_success.json").read_text(encoding="utf-8"))
    recorded = capture["exchanges"][0]["response"]["body"]["Response"]["InstanceSet"][0]
    (shown,) = call(cloud, "DescribeInstances", {})["InstanceSet"]
    # What the recording has and a pool has no use for.
    unplayed = {"Uuid", "LatestOperationRequestId"}
    assert recorded.keys() - shown.keys() == unplayed
    assert shown.keys() - recorded.keys() == {"LatestOperationErrorMsg"}
    assert shown["CreatedTime"] == "2026-07-01T12:00:00Z"


def test_ending_refuses_the_whole_batch_for_one_bad_id():
    cloud = a_cloud()
    first, second = bought(cloud, InstanceCount=2)
    body = {"InstanceIds": [first, "ins-00000000"]}
    assert refused(cloud, "TerminateInstances", body) == "InvalidInstanceId.NotFound"
    assert len(cloud.ledger.live()) == 2
    assert call(cloud, "TerminateInstances", {"InstanceIds": [first]}) == {}
    code = "UnsupportedOperation.InstanceStateTerminating"
    assert refused(cloud, "TerminateInstances", {"InstanceIds": [first, second]}) == code
    assert len(cloud.ledger.live()) == 1
    assert refused(cloud, "TerminateInstances", {"InstanceIds": []}) == "MissingParameter"


def test_states_have_the_vendors_words():
    cloud = a_cloud()
    machines = cloud.ledger.find(bought(cloud, InstanceCount=3))
    words = [[cloud.state_word(m) for m in machines]]
    started(cloud)
    words.append([cloud.state_word(m) for m in machines])
    cloud.ledger.reclaim(machines[0].id, notice_seconds=None)
    call(cloud, "TerminateInstances", {"InstanceIds": [machines[1].id]})
    words.append([cloud.state_word(m) for m in machines])
    assert words == [["PENDING"] * 3, ["RUNNING"] * 3, ["SHUTDOWN", "TERMINATING", "RUNNING"]]


def test_failed_start_is_listed_with_its_word():
    cloud = a_cloud()
    cloud.faults.set(Fault(kind=FaultKind.BOOT_FAILS, count=1))
    (machine,) = cloud.ledger.find(bought(cloud))
    started(cloud)
    (shown,) = call(cloud, "DescribeInstances", {})["InstanceSet"]
    assert machine.state is MachineState.FAILED
    assert (shown["InstanceState"], shown["LatestOperationState"]) == ("LAUNCH_FAILED", "FAILED")


# Prices, stock, tags


def test_stock_answer_has_price_and_words():
    cloud = a_cloud()
    cloud.market.set_price(PROVIDER, ZONE, TYPE, Decimal("1.234"))
    body = {
        "Filters": [
            {"Name": "zone", "Values": [ZONE]},
            {"Name": "instance-type", "Values": [TYPE]},
            {"Name": "instance-charge-type", "Values": ["SPOTPAID"]},
        ]
    }
    words: list[tuple[str, str]] = []
    for capacity in (20, 5, 1, 0):
        cloud.market.set_capacity(PROVIDER, ZONE, TYPE, capacity)
        (item,) = call(cloud, "DescribeZoneInstanceConfigInfos", body)["InstanceTypeQuotaSet"]
        words.append((item["Status"], item["StatusCategory"]))
    assert words == [
        ("SELL", "EnoughStock"),
        ("SELL", "NormalStock"),
        ("SELL", "UnderStock"),
        ("SOLD_OUT", "WithoutStock"),
    ]
    assert (item["Price"]["UnitPriceDiscount"], item["Price"]["ChargeUnit"]) == (1.234, "HOUR")
    assert item["Price"]["UnitPrice"] > 4


def test_price_inquiry_agrees_with_the_market():
    cloud = a_cloud()
    body = {
        "Placement": {"Zone": ZONE},
        "ImageId": "img-487zeit5",
        "InstanceType": TYPE,
        "InstanceChargeType": "SPOTPAID",
    }
    price = call(cloud, "InquiryPriceRunInstances", body)["Price"]["InstancePrice"]
    assert price["UnitPriceDiscount"] == float(cloud.market.spot_price(cloud.place(ZONE, TYPE), NOW))


def test_tags_of_machines_change_by_the_tag_service():
    cloud = a_cloud()
    (machine,) = cloud.ledger.find(bought(cloud))
    resources = [f"qcs::cvm:{REGION}:uin/:instance/{machine.id}"]
    tag(cloud, "TagResources", {"ResourceList": resources, "Tags": [{"TagKey": "a", "TagValue": "b"}]})
    assert machine.tags == {"a": "b"}
    tag(cloud, "UnTagResources", {"ResourceList": resources, "TagKeys": ["a", "c"]})
    assert machine.tags == {}
    with pytest.raises(VendorError, match="ResourceNumPerRequest"):
        tag(cloud, "UnTagResources", {"ResourceList": resources * 11, "TagKeys": ["a"]})
    with pytest.raises(VendorError, match="ResourceDescriptionError"):
        tag(cloud, "UnTagResources", {"ResourceList": [machine.id], "TagKeys": ["a"]})
