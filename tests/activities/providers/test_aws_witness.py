"""Two witnesses for the simulated EC2: moto, for what it supports, and the service model of the SDK.

moto knows no client tokens, no refusals and no reclaims; what it knows, the adapter reads from both alike.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import boto3
import botocore.session
import pytest
from moto import mock_aws

from activities.providers.aws import AwsProvider, build
from domain.contracts.instances import Created, Instance, LaunchRequest, OfferQuery, Rejected
from domain.contracts.names import TAG_INSTALLATION, TAG_POOL, TAG_RETAINED
from domain.contracts.offers import CapacityType
from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.aws_parameters import ACTIONS
from sandbox.clouds.aws_xml import NAMESPACE
from sandbox.clouds.server import served
from tests.activities.providers.aws_case import CASE
from tests.activities.providers.cloud_case import Keys
from tests.sandbox.clouds.aws_builders import (
    IMAGE,
    TYPE,
    ZONE,
    a_caller,
    by_filter,
    purchase,
    settings,
    signed,
)

BOOT = "#!/bin/sh\n"


@contextmanager
def simulated() -> Iterator[tuple[AwsProvider, LaunchRequest]]:
    cloud = AwsCloud(settings())
    cloud.account.keys = {CASE.keys["accessKeyId"]: CASE.keys["accessKeySecret"]}
    with served(cloud) as address:
        provider = build(CASE.key, Keys(dict(CASE.keys)), endpoint=address)
        yield provider, CASE.request()
        provider.close()


@contextmanager
def mocked() -> Iterator[tuple[AwsProvider, LaunchRequest]]:
    with mock_aws():
        client = boto3.client("ec2", CASE.region, aws_access_key_id="k", aws_secret_access_key="s")
        zone = [{"Name": "availability-zone", "Values": [ZONE]}]
        provider = build(CASE.key, Keys(dict(CASE.keys)))
        yield (
            provider,
            CASE.request(
                image_id=client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"],
                subnet_id=client.describe_subnets(Filters=zone)["Subnets"][0]["SubnetId"],
                security_group_ids=(client.describe_security_groups()["SecurityGroups"][0]["GroupId"],),
            ),
        )
        provider.close()


def eventually(check: Callable[[], bool]) -> None:
    """Poll until true."""
    end = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end, "not within the deadline"
        time.sleep(0.02)


def told(instance: Instance, names: Mapping[str, str]) -> dict[str, Any]:
    """What an adapter says of a machine, with its id replaced and without its time."""
    fields = instance.model_dump(mode="json", exclude={"created_at"})
    return {**fields, "id": names[instance.id], "provider_id": instance.provider_id.removesuffix(instance.id)}


def story(provider: AwsProvider, request: LaunchRequest) -> list[object]:
    """What the adapter reads in the life of a spot and an on-demand machine."""
    other = CASE.request(
        "pool-1-abcd1234-2",
        **request.model_dump(include={"image_id", "subnet_id", "security_group_ids"}),
        offer=CASE.offer(capacity=CapacityType.ON_DEMAND),
        max_price_per_hour=None,
    )
    results = [provider.launch(each, BOOT) for each in (request, other)]
    names = {r.instance_id: f"machine-{n}" for n, r in enumerate(results) if isinstance(r, Created)}
    ids = sorted(names, key=lambda each: names[each])

    def seen() -> list[dict[str, Any]]:
        found = provider.describe([*ids, CASE.unknown_id])
        return sorted((told(instance, names) for instance in found), key=lambda each: each["id"])

    read: list[object] = [[(names[r.instance_id], r.zone) for r in results if isinstance(r, Created)]]
    # Machines start at once at both: at moto with the second reading, here with the next tick.
    eventually(lambda: all(each["state"] == "Running" for each in seen()))
    read += [seen(), sorted(names[i.id] for i in provider.list_tagged({TAG_POOL: "pool-1"}))]
    read += [provider.list_tagged({TAG_POOL: "pool-2"}), provider.describe([CASE.unknown_id])]
    provider.retain(ids, "inst-1")
    read += [seen(), provider.list_tagged({TAG_INSTALLATION: "inst-1"})]
    read.append(len(provider.list_tagged({TAG_RETAINED: "inst-1"})))
    provider.terminate([ids[0], CASE.unknown_id])
    provider.terminate([ids[0]])
    # Both list an ended machine for about an hour; the adapter shows it no more.
    eventually(lambda: [each["id"] for each in seen()] == ["machine-1"])
    return [*read, seen()]


def test_the_life_of_a_machine_reads_the_same_from_both() -> None:
    with simulated() as (provider, request):
        ours = story(provider, request)
    with mocked() as (provider, request):
        theirs = story(provider, request)
    assert ours == theirs
    spot, on_demand = ours[1]
    assert (spot["capacity_type"], on_demand["capacity_type"]) == ("spot", "on-demand")
    assert [each["state"] for each in ours[-1]] == ["Running"]


def test_offers_have_the_same_shape_from_both() -> None:
    query = OfferQuery(instance_types=(TYPE,), zones=(ZONE,))
    read = []
    for world in (simulated, mocked):
        with world() as (provider, _):
            (offer,) = provider.offers(query, [CASE.kind])
            assert offer.price is not None
            fields = offer.model_dump(mode="json", exclude={"price": {"per_hour", "as_of"}})
            read.append(fields)
            unknown = CASE.kind.model_copy(update={"name": "g5.pico"})
            assert provider.offers(OfferQuery(instance_types=("g5.pico",)), [unknown]) == []
    assert read[0] == read[1]


@pytest.mark.parametrize("world", [simulated, mocked], ids=["simulated", "mocked"])
def test_both_reject_an_image_that_does_not_exist(world: Any) -> None:
    with world() as (provider, request):
        changed = request.model_copy(update={"image_id": "ami-00000000000000000"})
        result = provider.launch(changed, BOOT)
        assert isinstance(result, Rejected)
        assert result.vendor_code == "InvalidAMIID.NotFound"


# The service model


def unknown_elements(element: Element, shape: Any, path: str = "") -> list[str]:
    """Elements of an answer that the SDK's model does not know at their place."""
    if shape.type_name == "list":
        items = [unknown_elements(child, shape.member, f"{path}[]") for child in element]
        return [each for found in items for each in found]
    if shape.type_name != "structure":
        return [path] if len(element) else []
    members = {member.serialization.get("name", name): member for name, member in shape.members.items()}
    found: list[str] = []
    for child in element:
        name = child.tag.removeprefix(f"{{{NAMESPACE}}}")
        where = f"{path}.{name}"
        found += unknown_elements(child, members[name], where) if name in members else [where]
    return found


@cache
def service_model() -> Any:
    """What the SDK knows of EC2."""
    return botocore.session.get_session().get_service_model("ec2")


FORMS: Mapping[str, Mapping[str, str]] = {
    "RunInstances": purchase(ClientToken="token-2", KeyName="spotgpu-nodes"),
    "DescribeInstanceTypeOfferings": {"LocationType": "availability-zone"},
    "DescribeSpotPriceHistory": by_filter(instance_type=TYPE),
    "DescribeImages": {"ImageId.1": IMAGE},
}


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_every_element_of_an_answer_is_known_to_the_sdk(action: str) -> None:
    caller = a_caller()
    living, ended = caller.buy(MinCount="2", MaxCount="2")
    things = caller.cloud.leftovers
    left = {
        operation: {name: things.attach(ended, kind, ends_with_server=False, tags={"a": "b"}).id}
        for operation, name, kind in (
            ("DeleteVolume", "VolumeId", "volume"),
            ("ReleaseAddress", "AllocationId", "publicip"),
        )
    }
    caller.call("TerminateInstances", {"InstanceId.1": ended})
    named = {"TerminateInstances": "InstanceId.1", "CreateTags": "ResourceId.1", "DeleteTags": "ResourceId.1"}
    form = (
        dict(FORMS.get(action, {}))
        | left.get(action, {})
        | ({named[action]: living} if action in named else {})
    )
    if action == "CreateTags":
        form |= {"Tag.1.Key": "a", "Tag.1.Value": "b"}
    call = caller.cloud.open(signed(action, form))
    root = fromstring(caller.cloud.answer(caller.cloud.carry_out(call).payload, "r-1").body)  # noqa: S314 ours
    shape = service_model().operation_model(action).output_shape
    request_id, *content = root
    assert request_id.tag == f"{{{NAMESPACE}}}requestId"
    assert content
    if shape is None:
        assert [(each.tag, each.text) for each in content] == [(f"{{{NAMESPACE}}}return", "true")]
        return
    root.remove(request_id)
    assert unknown_elements(root, shape) == []
