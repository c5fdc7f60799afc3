"""Objects of the API become models, or an error that names the field."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from crd_bridge.kinds import KINDS, ResourceKind
from crd_bridge.schema import (
    Problem,
    ResourceError,
    known_machines,
    parse,
    parse_header,
    parse_node_class,
    parse_pool,
    parse_profile,
    parse_strategy,
)
from domain.contracts.offers import ProviderName
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import Topology
from domain.contracts.strategies import StrategyMode

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

Body = dict[str, Any]


def an_example(name: str) -> Body:
    body = yaml.safe_load((EXAMPLES / name).read_text())
    body["metadata"] |= {"namespace": "train", "uid": "0f1e", "generation": 3, "resourceVersion": "42"}
    return body


def a_pool(**changes: Any) -> Body:
    """The public pool, with fields of its spec changed; None takes one away."""
    body = an_example("gpuspotpool.yaml")
    merged = {**body["spec"], **changes}
    body["spec"] = {key: value for key, value in merged.items() if value is not None}
    return body


def test_parse_pool_reads_the_public_example() -> None:
    pool = parse_pool(an_example("gpuspotpool.yaml"))
    assert pool.header.origin.model_dump() == {
        "name": "training-pool-a100", "namespace": "train", "uid": "0f1e", "generation": 3,
    }  # fmt: skip
    spec = pool.spec
    assert (spec.min_instances, spec.max_instances) == (2, 20)
    assert spec.gpu_types == ("A100-40G", "A100-80G")
    assert spec.max_price_per_hour == Decimal("8.0")
    assert [choice.name for choice in spec.providers] == [ProviderName.TENCENT, ProviderName.ALIYUN]
    assert spec.currency == "CNY"
    assert spec.timeouts.pending_seconds == 60


def test_parse_reads_the_other_public_examples() -> None:
    assert parse_strategy(an_example("gpuspotstrategy.yaml")).spec.mode is StrategyMode.COST_FIRST
    profile = parse_profile(an_example("gpuworkloadprofile.yaml")).spec
    assert profile.gpu_requirement.min_memory_gb == 32
    assert profile.gpu_requirement.preferred_topology is Topology.NVLINK
    node_class = parse_node_class(an_example("gpuspotnodeclass.yaml")).spec
    assert node_class.system_disk.size_gb == 200
    assert node_class.images[1].image_id == "img-5s1jvh6c"
    assert "{{ providerID }}" in node_class.join.user_data_template


def test_demo_pool_is_the_public_pool_with_a_short_cooldown() -> None:
    public = (EXAMPLES / "gpuspotpool.yaml").read_text()
    assert (EXAMPLES / "demo-pool.yaml").read_text() == public.replace(
        "cooldownSeconds: 300", "cooldownSeconds: 5"
    )


def test_node_class_examples_serve_every_region_of_the_public_pool() -> None:
    classes = [
        parse_node_class(an_example(name)).spec
        for name in ("gpuspotnodeclass.yaml", "gpuspotnodeclass-aliyun.yaml")
    ]
    served = {(item.provider, network.region) for item in classes for network in item.network}
    with_image = {(item.provider, image.region) for item in classes for image in item.images}
    wanted = {
        (choice.name, region)
        for choice in parse_pool(an_example("gpuspotpool.yaml")).spec.providers
        for region in choice.regions
    }
    assert wanted <= served
    assert wanted <= with_image


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        pytest.param({"minInstances": None}, "spec.minInstances", id="missing field"),
        pytest.param({"minInstances": "two"}, "spec.minInstances", id="wrong type"),
        pytest.param({"maxPricePerHour": -1}, "spec.maxPricePerHour", id="negative price"),
        pytest.param({"maxPricePerHour": "NaN"}, "spec.maxPricePerHour", id="no number"),
        pytest.param({"providers": []}, "spec.providers", id="no provider"),
        pytest.param({"providers": [{"name": "no-cloud"}]}, "spec.providers[0].name", id="unknown cloud"),
        pytest.param({"gpuTypes": ["A100", ""]}, "spec.gpuTypes[1]", id="empty type"),
        pytest.param(
            {"scaleStrategy": {"scaleUpStep": 0}}, "spec.scaleStrategy.scaleUpStep", id="step of nothing"
        ),
    ],
)
def test_parse_pool_names_the_field_when_it_does_not_fit(changes: Body, path: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_pool(a_pool(**changes))
    assert [problem.path for problem in caught.value.problems] == [path]
    assert str(caught.value).startswith(f"GPUSpotPool train/training-pool-a100: {path}: ")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"minInstances": 21}, "minInstances", id="min above max"),
        pytest.param({"gpuTypes": ["A100-40G", "A100-40G"]}, "gpuTypes", id="type twice"),
        pytest.param({"providers": [{"name": "aws"}, {"name": "aws"}]}, "providers", id="cloud twice"),
    ],
)
def test_parse_pool_names_the_fields_of_a_broken_rule(changes: Body, field: str) -> None:
    with pytest.raises(ResourceError, match=field):
        parse_pool(a_pool(**changes))


def test_parse_strategy_names_weights_that_are_both_zero() -> None:
    body = an_example("gpuspotstrategy.yaml")
    body["spec"]["balance"] = {"costWeight": 0, "stabilityWeight": 0}
    with pytest.raises(ResourceError, match=r"spec\.balance: costWeight"):
        parse_strategy(body)


def test_parse_pool_counts_what_it_does_not_show() -> None:
    with pytest.raises(ResourceError, match="and 4 more") as caught:
        parse_pool(a_pool(gpuTypes=[""] * 9))
    assert len(caught.value.problems) == 9


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("spec", [None, [], "text", 1], ids=["absent", "list", "text", "number"])
def test_parse_names_the_spec_when_it_is_no_object(kind: ResourceKind[Any], spec: Any) -> None:
    body = {"kind": kind.kind, "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": spec}
    with pytest.raises(ResourceError, match=rf"{kind.kind} b/a: spec: ") as caught:
        parse(kind, body)
    assert all(isinstance(problem, Problem) for problem in caught.value.problems)


def test_parse_keeps_values_out_of_the_error() -> None:
    body = an_example("gpuspotnodeclass.yaml")
    body["spec"]["join"]["secretRef"] = "s3cr3t-t0ken"
    with pytest.raises(ResourceError) as caught:
        parse_node_class(body)
    assert "s3cr3t" not in str(caught.value)


def test_parse_header_reads_a_pool_whose_spec_it_cannot() -> None:
    body = a_pool(providers="none")
    body["metadata"] |= {"deletionTimestamp": "2026-11-29T08:00:00Z", "finalizers": ["x/y"]}
    header = parse_header(body)
    assert header.deleting
    assert header.finalizers == ("x/y",)
    assert header.resource_version == "42"


@pytest.mark.parametrize("metadata", [None, [], {"name": "a"}], ids=["absent", "list", "without uid"])
def test_parse_header_names_metadata_when_it_is_unusable(metadata: Any) -> None:
    with pytest.raises(ResourceError, match="metadata"):
        parse_header({"kind": "GPUSpotPool", "metadata": metadata})


def test_parse_pool_takes_nulls_and_unknown_fields_of_a_newer_version() -> None:
    spec = parse_pool(a_pool(futureField={"a": 1})).spec
    assert isinstance(spec, PoolSpec)


@pytest.mark.parametrize(
    ("status", "machines"),
    [
        pytest.param(None, (), id="no status"),
        pytest.param({"instances": [{"id": "ins-1"}, {"id": "i-2"}]}, ("ins-1", "i-2"), id="two"),
        pytest.param({"instances": [{"id": 5}, {}, None, {"id": ""}]}, (), id="unusable"),
        pytest.param({"instances": "none"}, (), id="no list"),
        pytest.param([], (), id="no object"),
    ],
)
def test_known_machines_are_the_ids_of_the_status(status: Any, machines: tuple[str, ...]) -> None:
    assert known_machines({**a_pool(), "status": status}) == machines
