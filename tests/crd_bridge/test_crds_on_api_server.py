"""What the real API server makes of our definitions: examples taken, mistakes named, defaults filled in."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crd_bridge.kinds import KINDS
from crd_bridge.schema import parse_node_class, parse_pool, parse_profile, parse_strategy
from domain.contracts.names import GROUP
from domain.contracts.status import PoolStatus
from sandbox.control_plane.launcher import ControlPlane, ControlPlaneError
from tests.crd_bridge.raw_api import RawApi, collection
from tests.e2e.golden import compare

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
OBJECTS = (
    "gpuspotpool.yaml",
    "demo-pool.yaml",
    "gpuspotstrategy.yaml",
    "gpuworkloadprofile.yaml",
    "gpuspotnodeclass.yaml",
    "gpuspotnodeclass-aliyun.yaml",
    "gpuspotnodeclass-huawei.yaml",
    "gpuspotnodeclass-aws.yaml",
)
PARSERS = {
    "GPUSpotPool": parse_pool,
    "GPUSpotStrategy": parse_strategy,
    "GPUWorkloadProfile": parse_profile,
    "GPUSpotNodeClass": parse_node_class,
}
POOL_TEXT = (EXAMPLES / "gpuspotpool.yaml").read_text()


def test_definitions_are_established_without_complaint(plane_with_crds: ControlPlane) -> None:
    for kind in KINDS:
        crd = json.loads(plane_with_crds.kubectl("get", "crd", f"{kind.plural}.{GROUP}", "-o", "json"))
        conditions = {item["type"]: item["status"] for item in crd["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("name", OBJECTS)
def test_example_is_applied_verbatim(plane_with_crds: ControlPlane, namespace: str, name: str) -> None:
    path = str(EXAMPLES / name)
    plane_with_crds.kubectl("apply", "-n", namespace, "-f", path)
    stored: dict[str, Any] = json.loads(
        plane_with_crds.kubectl("get", "-n", namespace, "-f", path, "-o", "json")
    )
    written = yaml.safe_load((EXAMPLES / name).read_text())
    assert PARSERS[stored["kind"]](stored).spec == _spec_of(written)
    assert "unchanged" in plane_with_crds.kubectl("apply", "-n", namespace, "-f", path)


def test_workload_example_is_applied_verbatim(plane_with_crds: ControlPlane, namespace: str) -> None:
    path = str(EXAMPLES / "training-pod.yaml")
    plane_with_crds.kubectl("apply", "-n", namespace, "-f", path)
    assert "created" not in plane_with_crds.kubectl("apply", "-n", namespace, "-f", path)
    shown = plane_with_crds.kubectl("get", "-n", namespace, "-f", path, "-o", "name").split()
    assert shown == [f"gpuworkloadprofile.{GROUP}/training", "pod/training-0"]


def _spec_of(written: dict[str, Any]) -> Any:
    metadata = {**written["metadata"], "uid": "0"}
    return PARSERS[written["kind"]]({**written, "metadata": metadata}).spec


def test_pool_gets_the_defaults_of_its_parts(api: RawApi, namespace: str) -> None:
    spec = api.create(namespace, "gpuspotpools", POOL_TEXT).body["spec"]
    assert spec["currency"] == "CNY"
    assert spec["paused"] == "None"
    assert spec["interruptStrategy"]["riskPolicy"] == "Prewarm"
    assert spec["scaleStrategy"]["rebuildBatchSize"] == 2
    assert spec["timeouts"] == {"pendingSeconds": 60, "joinSeconds": 900, "gpuReadySeconds": 600}
    assert spec["onDemand"]["fallback"] is False
    assert not {"budget", "strategyRef", "strategySchedule", "orphanPolicy"} & spec.keys()


def _changed(old: str, new: str) -> str:
    assert old in POOL_TEXT
    return POOL_TEXT.replace(old, new, 1)


MISTAKES = [
    pytest.param(_changed("minInstances:", "minInstnaces:"), "minInstnaces", id="typo"),
    pytest.param(_changed("scaleUpStep", "scaleupStep"), "scaleStrategy.scaleupStep", id="typo deep inside"),
    pytest.param(_changed("minInstances: 2", "minInstances: two"), "minInstances", id="wrong type"),
    pytest.param(_changed("minInstances: 2", "minInstances: 21"), "minInstances", id="min above max"),
    pytest.param(
        POOL_TEXT[: POOL_TEXT.index("  providers:")]
        + "  providers: []\n"
        + POOL_TEXT[POOL_TEXT.index("  interruptStrategy:") :],
        "providers",
        id="no provider",
    ),
    pytest.param(
        _changed("maxPricePerHour: 8.0", "maxPricePerHour: -1"), "maxPricePerHour", id="negative price"
    ),
    pytest.param(
        _changed("maxPricePerHour: 8.0", "maxPricePerHour: 0"), "maxPricePerHour", id="price of nothing"
    ),
    pytest.param(_changed("- A100-80G", "- A100-40G"), "gpuTypes[1]", id="type twice"),
    pytest.param(_changed("- name: aliyun", "- name: tencent"), "providers[1]", id="cloud twice"),
    pytest.param(_changed("- name: aliyun", "- name: no-cloud"), "providers[1].name", id="unknown cloud"),
    pytest.param(_changed("  maxInstances: 20\n", ""), "maxInstances", id="field missing"),
    pytest.param(
        _changed("  maxInstances: 20\n", "  maxInstances: 20\n" * 2), "maxInstances", id="key twice"
    ),
    pytest.param(_changed("A100-40G", "A100 40G"), "gpuTypes[0]", id="type with a space"),
    pytest.param(_changed("name: training-pool-a100", f"name: {'p' * 64}"), "metadata.name", id="long name"),
]


@pytest.mark.parametrize(("text", "field"), MISTAKES)
def test_mistake_is_refused_by_name(api: RawApi, namespace: str, text: str, field: str) -> None:
    answer = api.create(namespace, "gpuspotpools", text)
    assert answer.status in (400, 422), answer.body
    assert field in answer.message


@pytest.mark.parametrize(
    ("text", "field"),
    [mistake for mistake in MISTAKES if mistake.id in ("typo", "type twice", "min above max")],
)
def test_mistake_is_named_by_kubectl_too(
    plane_with_crds: ControlPlane, namespace: str, text: str, field: str
) -> None:
    with pytest.raises(ControlPlaneError) as caught:
        plane_with_crds.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    assert field in str(caught.value)


def test_weights_that_are_both_zero_are_refused_by_name(api: RawApi, namespace: str) -> None:
    text = (EXAMPLES / "gpuspotstrategy.yaml").read_text()
    text = text.replace("costWeight: 0.6", "costWeight: 0").replace(
        "stabilityWeight: 0.4", "stabilityWeight: 0"
    )
    answer = api.create(namespace, "gpuspotstrategies", text)
    assert answer.status == 422
    assert "costWeight and stabilityWeight must not both be 0" in answer.message


def test_weight_of_zero_is_taken_when_the_other_has_its_default(api: RawApi, namespace: str) -> None:
    text = (EXAMPLES / "gpuspotstrategy.yaml").read_text().replace("    costWeight: 0.6\n", "")
    answer = api.create(
        namespace, "gpuspotstrategies", text.replace("stabilityWeight: 0.4", "stabilityWeight: 0")
    )
    assert answer.body["spec"]["balance"] == {"costWeight": 0.6, "stabilityWeight": 0}


def test_tags_that_are_the_operators_are_refused_by_name(api: RawApi, namespace: str) -> None:
    text = (EXAMPLES / "gpuspotnodeclass.yaml").read_text().replace("team: training", "spotgpu-pool: mine")
    answer = api.create(namespace, "gpuspotnodeclasses", text)
    assert answer.status == 422
    assert "tags must have keys" in answer.message


def test_gpu_type_that_nobody_knows_is_taken(api: RawApi, namespace: str) -> None:
    answer = api.create(namespace, "gpuspotpools", _changed("A100-40G", "Z9000-7G"))
    assert answer.ok, answer.body
    assert parse_pool(answer.body).spec.gpu_types[0] == "Z9000-7G"


def test_status_of_the_public_example_is_taken_and_shown(
    plane_with_crds: ControlPlane, api: RawApi, namespace: str
) -> None:
    api.create(namespace, "gpuspotpools", POOL_TEXT)
    example = yaml.safe_load((EXAMPLES / "gpuspotpool-status.yaml").read_text())["status"]
    status: Any = PoolStatus.model_validate(
        {**example, "readyInstances": 7, "hourlyCost": 36.3, "strategy": "cost-first-strategy"}
    ).rendered()
    status["conditions"][0]["reason"] = "LevelHeld"
    path = f"{collection(namespace, 'gpuspotpools')}/training-pool-a100"
    patch = json.dumps([{"op": "add", "path": "/status", "value": status}])
    answer = api.send("PATCH", f"{path}/status?fieldValidation=Strict", patch, "application/json-patch+json")
    assert answer.ok, answer.body
    assert answer.body["status"] == status
    assert answer.body["metadata"]["generation"] == 1
    head, row = plane_with_crds.kubectl("get", "gsp", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "DESIRED", "CURRENT", "READY", "COST/H", "STRATEGY", "STATUS", "AGE"]
    assert row.split()[:-1] == [
        "training-pool-a100", "10", "8", "7", "36.3", "cost-first-strategy", "LevelHeld",
    ]  # fmt: skip


def test_explain_reads_as_the_docs_show_it(plane_with_crds: ControlPlane) -> None:
    shown = plane_with_crds.kubectl("explain", "gsp.spec.interruptStrategy")
    compare("kubectl-explain-interrupt-strategy", lambda: shown)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_explain_describes_every_field_of_a_kind(plane_with_crds: ControlPlane, kind: Any) -> None:
    shown = plane_with_crds.kubectl("explain", f"{kind.short_name}.spec", "--recursive=false")
    assert "<no description>" not in shown
    assert kind.kind in shown


def test_all_kinds_are_listed_by_their_category(plane_with_crds: ControlPlane, namespace: str) -> None:
    for name in OBJECTS[2:]:
        plane_with_crds.kubectl("apply", "-n", namespace, "-f", str(EXAMPLES / name))
    shown = plane_with_crds.kubectl("get", "spotgpu", "-n", namespace, "-o", "name").split()
    assert f"gpuspotnodeclass.{GROUP}/aliyun" in shown
    assert f"gpuspotstrategy.{GROUP}/cost-first-strategy" in shown
