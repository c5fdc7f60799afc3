"""Nodes as facts."""

import pytest

from activities.cluster.base import Object
from crd_bridge.nodes import SeenNode, SkipReason, gone, read_node, trim_node
from domain.contracts.facts import NodeFact
from tests.crd_bridge.builders import a_node

FACT = NodeFact(
    provider_id="qcloud:///100003/ins-1", name="n", uid="uid-of-n", ready=True, gpus_allocatable=8
)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(a_node("n"), FACT, id="ready"),
        pytest.param(a_node("n", ready=False), FACT.model_copy(update={"ready": False}), id="not ready"),
        pytest.param(a_node("n", gpus="7"), FACT.model_copy(update={"gpus_allocatable": 7}), id="7 of 8"),
        pytest.param(
            a_node("n", gpu_taint=True), FACT.model_copy(update={"gpu_taint": True}), id="gpus not ready"
        ),
    ],
)
def test_read_node_maps_a_node_to_its_pool(node: Object, expected: NodeFact) -> None:
    assert read_node(node, {}) == SeenNode("uid-of-pool", expected)
    assert read_node(trim_node(node), {}) == SeenNode("uid-of-pool", expected), "trimming loses nothing"


def test_read_node_keeps_a_node_whose_label_somebody_removed() -> None:
    read = read_node(a_node("n", pool_uid=""), {"qcloud:///100003/ins-1": "uid-of-pool"})
    assert read == SeenNode("uid-of-pool", FACT)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(a_node("n", provider_id=""), SkipReason.NO_PROVIDER_ID, id="ours without provider id"),
        pytest.param(
            a_node("n", provider_id="", pool_uid=""),
            SkipReason.NO_PROVIDER_ID,
            id="foreign without provider id",
        ),
        pytest.param(a_node("n", pool_uid=""), SkipReason.FOREIGN, id="of another tool"),
        pytest.param({"metadata": {"name": "bare"}}, SkipReason.NO_PROVIDER_ID, id="nothing but a name"),
        pytest.param(
            {"metadata": {"name": "b", "labels": None}, "spec": None, "status": None},
            SkipReason.NO_PROVIDER_ID,
            id="nulls",
        ),
    ],
)
def test_p63_read_node_tells_foreign_and_half_made_nodes_apart(node: Object, reason: SkipReason) -> None:
    assert read_node(node, {}) is reason
    trimmed = trim_node(node)
    assert read_node(trimmed, {}) is reason


def test_gone_keeps_the_identity_and_nothing_else() -> None:
    assert gone(FACT) == NodeFact(provider_id=FACT.provider_id, name="n", uid="uid-of-n", exists=False)
