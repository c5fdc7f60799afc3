"""The simulated accounts: keys in each vendor's form, and example node classes by which machines boot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from domain.contracts.catalogue import types_for
from domain.contracts.instances import DiskSpec, LaunchRequest
from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.offers import CapacityType, Offer, ProviderName, Stock
from domain.contracts.provider_ids import provider_id
from domain.decisions.launch_requests import subnets_of
from domain.decisions.user_data import render_user_data
from sandbox import accounts, world
from sandbox.accounts import NODE_CLASSES, USUAL_CLOUDS, clouds_named, new_account
from sandbox.boot_script import JoinLine, read_boot_script
from sandbox.clouds.huawei import project_of
from sandbox.commands import main
from sandbox.inventories import inventory_of, read_node_class
from sandbox.metadata import metadata_of
from sandbox.run_folder import StackFolder, StackRecord
from sandbox.stack import Stack

JOIN = {"server": "127.0.0.1:6443", "token": "abcdef.0123456789abcdef", "caCertHash": "sha256:aa"}


@pytest.mark.parametrize(
    ("provider", "key", "secret"),
    [
        (ProviderName.TENCENT, r"AKID[0-9a-f]{20}", r"[0-9a-f]{32}"),
        (ProviderName.ALIYUN, r"LTAI[0-9a-f]{20}", r"[0-9a-f]{32}"),
        (ProviderName.HUAWEI, r"[0-9A-F]{20}", r"[0-9a-f]{40}"),
        (ProviderName.AWS, r"AKIA[0-9A-F]{16}", r"[0-9a-f]{40}"),
    ],
)
def test_account_has_keys_in_the_vendors_form(provider: ProviderName, key: str, secret: str) -> None:
    account = new_account(provider, 1, 2)
    assert re.fullmatch(key, account.access_key_id)
    assert re.fullmatch(secret, account.access_key_secret)
    assert account.access_key_id != new_account(provider, 1, 2).access_key_id


def test_account_of_a_cloud_that_is_not_entered_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (NODE_CLASSES, accounts._KEYS):
        with monkeypatch.context() as patch:
            patch.delitem(table, ProviderName.AWS)
            with pytest.raises(ValueError, match=r"no account of aws: enter .* in sandbox/accounts.py"):
                new_account(ProviderName.AWS, 1, 2)


def test_every_cloud_of_the_sandbox_has_a_node_class_keys_and_a_twin() -> None:
    assert NODE_CLASSES.keys() == accounts._KEYS.keys() == world._CLOUDS.keys()


def test_account_of_huawei_names_the_project_of_each_region() -> None:
    projects = new_account(ProviderName.HUAWEI, 1, 2).projects
    assert projects == {"projectId.cn-north-4": project_of("cn-north-4")}
    assert new_account(ProviderName.AWS, 1, 2).projects == {}


def test_clouds_are_named_by_a_list() -> None:
    assert clouds_named("aws, tencent") == (ProviderName.AWS, ProviderName.TENCENT)
    assert clouds_named("tencent,aliyun") == USUAL_CLOUDS


@pytest.mark.parametrize("text", ["tencent,no-cloud", "", "aws,aws"])
def test_clouds_are_refused_with_advice_when_the_list_is_wrong(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--clouds", text]) == 2
    assert f"choose from {','.join(NODE_CLASSES)}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "two", ""])
def test_number_of_workers_is_refused_with_advice(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", f"--workers={text}"]) == 2
    assert "give 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("clouds", [("tencent", "aliyun", "huawei", "aws"), ("aws",)])
def test_stack_that_is_attached_to_knows_its_clouds(tmp_path: Path, clouds: tuple[str, ...]) -> None:
    folder = StackFolder(tmp_path)
    folder.save(StackRecord(1, "own", "", {}, through_proxies=False, clouds=clouds))
    stack = Stack.attach(folder, {}, print)
    assert stack is not None
    assert stack.options.clouds == clouds


def test_subnet_that_several_zones_name_serves_its_whole_region() -> None:
    inventory = inventory_of(read_node_class(NODE_CLASSES[ProviderName.HUAWEI]))
    assert inventory.zones == {"cn-north-4": ("cn-north-4a", "cn-north-4b")}
    assert [subnet.zone for subnet in inventory.subnets.values()] == [""]
    others = inventory_of(read_node_class(NODE_CLASSES[ProviderName.AWS])).subnets.values()
    assert [subnet.zone for subnet in others] == ["us-west-2a", "us-west-2b"]


@pytest.mark.parametrize("provider", NODE_CLASSES)
def test_example_script_names_its_machine_as_the_adapter_does(provider: ProviderName) -> None:
    spec = read_node_class(NODE_CLASSES[provider])
    region, zones = next(iter(inventory_of(spec).zones.items()))
    script = render_user_data(_request(spec, region, zones[0]), JOIN)
    plan = read_boot_script(script, metadata_of(provider, "machine-7", None))
    assert plan.provider_id == provider_id(provider, region, zones[0], "machine-7")
    assert plan.labels == {"a": "b"}
    assert [taint.key for taint in plan.taints] == ["spot"]
    assert plan.join == JoinLine(JOIN["server"], JOIN["token"], JOIN["caCertHash"])


def _request(spec: NodeClassSpec, region: str, zone: str) -> LaunchRequest:
    offer = Offer(
        provider=spec.provider,
        account=spec.credentials_secret_ref.name,
        region=region,
        zone=zone,
        instance_type=types_for(spec.provider, "T4-16G")[0],
        capacity_type=CapacityType.SPOT,
        price=None,
        stock=Stock.UNKNOWN,
    )
    return LaunchRequest(
        token="pool-1-abcd1234-1",
        offer=offer,
        image_id=spec.images[0].image_id,
        vpc_id=spec.network[0].vpc_id,
        subnet_id=subnets_of(spec, region)[zone][0],
        security_group_ids=spec.network[0].security_group_ids,
        disk=DiskSpec(type=spec.system_disk.type, size_gb=spec.system_disk.size_gb),
        user_data_template=spec.join.user_data_template,
        join_secret="cluster-join",
        labels={"a": "b"},
        taints=("spot=true:NoSchedule",),
        tags={},
        max_price_per_hour=None,
        name="gpu-1",
    )
