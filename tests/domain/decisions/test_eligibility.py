"""Which instance types a pool may buy."""

from typing import Any

from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.offers import Interconnect, ProviderName
from domain.decisions.eligibility import accepts_gpu, eligible_types, memory_floor_gb
from tests.domain.decisions.builders import a_pool, a_type


def a_node_class(*overrides: dict[str, Any]) -> NodeClassSpec:
    return NodeClassSpec.model_validate(
        {
            "provider": "tencent",
            "credentialsSecretRef": {"name": "tencent-credentials"},
            "systemDisk": {"type": "CLOUD_PREMIUM"},
            "join": {"secretRef": {"name": "cluster-join"}, "userDataTemplate": "#!/bin/sh\n"},
            "instanceTypes": list(overrides),
        }
    )


def names(
    spec: dict[str, Any], provider: str = "tencent", node_class: NodeClassSpec | None = None
) -> list[str]:
    return [t.name for t in eligible_types(a_pool(**spec), ProviderName(provider), node_class)]


def test_eligible_types_are_the_catalogue_s_for_the_wanted_memory() -> None:
    assert names({"gpuTypes": ["A100-40G"]}) == ["GT4.20XLARGE474", "GT4.41XLARGE948", "GT4.4XLARGE96"]


def test_eligible_types_of_a_bare_model_have_any_memory() -> None:
    found = eligible_types(a_pool(gpuTypes=["A100"]), ProviderName.ALIYUN, None)
    assert {t.gpu_memory_gb for t in found} == {40, 80}


def test_eligible_types_are_narrowed_by_the_pool() -> None:
    providers = [{"name": "tencent", "instanceTypes": ["GT4.4XLARGE96", "GN7.2XLARGE32"]}]
    assert names({"providers": providers}) == ["GT4.4XLARGE96"]


def test_eligible_types_are_none_for_a_provider_that_the_pool_does_not_name() -> None:
    assert names({"providers": [{"name": "aliyun"}]}) == []


def test_eligible_types_are_none_for_an_unknown_gpu() -> None:
    assert names({"gpuTypes": ["A1000-40G"]}) == []


def test_node_class_adds_a_type_that_the_catalogue_lacks() -> None:
    node_class = a_node_class({"name": "NEW.1", "gpuModel": "A100", "gpuCount": 2, "gpuMemoryGB": 80})
    found = eligible_types(a_pool(gpuTypes=["A100-80G"]), ProviderName.TENCENT, node_class)
    assert [(t.name, t.gpu_count, t.interconnect) for t in found] == [("NEW.1", 2, Interconnect.PCIE)]


def test_node_class_replaces_a_type_that_the_catalogue_knows_wrongly() -> None:
    node_class = a_node_class({"name": "GT4.4XLARGE96", "gpuModel": "H20", "gpuCount": 1, "gpuMemoryGB": 96})
    assert "GT4.4XLARGE96" not in names({"gpuTypes": ["A100-40G"]}, node_class=node_class)
    assert names({"gpuTypes": ["H20-96G"]}, node_class=node_class) == ["GT4.4XLARGE96"]


def test_accepts_gpu_compares_model_and_memory() -> None:
    a100 = a_type(gpu="A100-40G")
    assert accepts_gpu(["A100-40G"], a100)
    assert accepts_gpu(["A100"], a100)
    assert not accepts_gpu(["A100-80G", "A10"], a100)


def test_memory_floor_is_zero_without_profiles() -> None:
    assert memory_floor_gb([]) == 0
