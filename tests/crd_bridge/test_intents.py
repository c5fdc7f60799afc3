"""What a pool resolves to, and what is to be done about it."""

from typing import Any

import pytest

from activities.cluster.base import Object
from crd_bridge.intents import (
    Action,
    Intent,
    decide,
    pools_naming_node_class,
    pools_naming_strategy,
    resolve,
)
from crd_bridge.objects import ResourceError, parse_header
from crd_bridge.parts import Parts
from crd_bridge.watch import key_of
from domain.contracts.names import FINALIZER
from domain.contracts.resolved import ResolvedPool
from tests.crd_bridge.builders import a_node_class, a_pool, a_profile, a_strategy


def parts_of(*objects: Object) -> Parts:
    parts = Parts()
    for body in objects:
        put: Any = {
            "GPUSpotStrategy": parts.put_strategy,
            "GPUWorkloadProfile": parts.put_profile,
            "GPUSpotNodeClass": parts.put_node_class,
        }[body["kind"]]
        put(key_of(body), body)
    return parts


def resolved(pool: Object, *objects: Object) -> ResolvedPool:
    return resolve(pool, parts_of(*objects), operator_namespace="spotgpu-system")


def test_resolve_takes_every_part_with_its_origin() -> None:
    pool = a_pool(strategyRef="cheap", status={"instances": [{"id": "ins-1"}, {"id": "ins-2"}]})
    found = resolved(pool, a_strategy("cheap"), a_profile("b"), a_profile("a"), a_node_class())
    assert (found.uid, found.namespace, found.name, found.generation) == ("uid-of-pool", "train", "pool", 1)
    assert found.strategies["cheap"].origin.uid == "uid-of-cheap"
    assert [profile.origin.name for profile in found.profiles] == ["a", "b"]
    assert found.node_classes["tencent"].spec.credentials_secret_ref.name == "tencent-credentials"
    assert found.known_machines == ("ins-1", "ins-2")
    assert found.unresolved == ()
    assert not found.deleting


def test_resolve_prefers_the_node_class_of_the_pools_namespace() -> None:
    own = a_node_class(namespace="train", meta={"uid": "own"})
    assert resolved(a_pool(), own, a_node_class()).node_classes["tencent"].origin.uid == "own"


def test_resolve_takes_the_node_class_that_the_provider_names() -> None:
    pool = a_pool(providers=[{"name": "tencent", "nodeClassRef": "big"}])
    assert resolved(pool, a_node_class(), a_node_class("big")).node_classes["tencent"].origin.name == "big"


@pytest.mark.parametrize(
    ("pool", "objects", "kind", "words"),
    [
        pytest.param(
            a_pool(strategyRef="gone"), [], "GPUSpotStrategy", "no GPUSpotStrategy gone in namespace train",
            id="strategy that is not there",
        ),
        pytest.param(
            a_pool(strategySchedule=[{"strategyRef": "night", "cron": "0 1 * * *", "durationMinutes": 60}]),
            [], "GPUSpotStrategy", "night", id="strategy of the schedule that is not there",
        ),
        pytest.param(
            a_pool(strategyRef="far"), [a_strategy("far", namespace="other")], "GPUSpotStrategy", "far",
            id="strategy of another namespace",
        ),
        pytest.param(
            a_pool(), [], "GPUSpotNodeClass", "tencent in namespace train or spotgpu-system: create it",
            id="node class that is not there",
        ),
        pytest.param(
            a_pool(), [a_node_class(provider="aws")], "GPUSpotNodeClass", "for provider aws, not for tencent",
            id="node class of another provider",
        ),
        pytest.param(
            a_pool(), [a_profile("odd", gpuRequirement={"minCount": "many"})], "GPUWorkloadProfile",
            "spec.gpuRequirement.minCount", id="profile that cannot be read",
        ),
        pytest.param(
            a_pool(strategyRef="odd"), [a_strategy("odd", mode="Random")], "GPUSpotStrategy", "spec.mode",
            id="strategy that cannot be read",
        ),
    ],
)  # fmt: skip
def test_resolve_names_a_reference_that_leads_nowhere(
    pool: Object, objects: list[Object], kind: str, words: str
) -> None:
    unresolved = [one for one in resolved(pool, *objects).unresolved if one.kind == kind]
    assert len(unresolved) == 1
    assert words in unresolved[0].message


def test_resolve_leaves_out_profiles_of_other_pools_and_namespaces() -> None:
    elsewhere = a_profile("elsewhere", meta={"namespace": "other"})
    assert resolved(a_pool(), a_profile("theirs", pool="other"), elsewhere).profiles == ()


def test_resolve_raises_with_the_field_when_the_pool_cannot_be_read() -> None:
    with pytest.raises(ResourceError, match=r"spec\.minInstances"):
        resolved(a_pool(minInstances="two"))


def test_resolve_gives_the_same_digest_whatever_order_things_came_in() -> None:
    objects = [a_strategy("s"), a_profile("a"), a_profile("b"), a_node_class()]
    pool = a_pool(strategyRef="s")
    assert resolved(pool, *objects).digest == resolved(pool, *reversed(objects)).digest


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([a_strategy("s", meta={"generation": 2})], id="strategy edited"),
        pytest.param([a_strategy("s", meta={"uid": "new"})], id="strategy made anew"),
        pytest.param([a_strategy("s"), a_profile("a")], id="profile bound"),
        pytest.param([], id="strategy removed"),
    ],
)
def test_resolve_gives_another_digest_when_a_part_changes(other: list[Object]) -> None:
    pool = a_pool(strategyRef="s")
    assert resolved(pool, a_strategy("s")).digest != resolved(pool, *other).digest


def test_resolve_gives_the_same_digest_when_only_the_status_changes() -> None:
    assert resolved(a_pool()).digest == resolved(a_pool(status={"instances": [{"id": "ins-1"}]})).digest


WITH = {"finalizers": [FINALIZER]}
GOING = {"deletionTimestamp": "2026-11-01T00:00:00Z"}
OTHER = {"finalizers": ["foregroundDeletion"]}


@pytest.mark.parametrize(
    ("meta", "sent", "expected"),
    [
        pytest.param({}, "", Intent(Action.START, add_finalizer=True), id="new"),
        pytest.param(WITH, "", Intent(Action.START), id="known to others but not sent yet"),
        pytest.param(WITH, "older", Intent(Action.UPDATE), id="changed"),
        pytest.param(WITH, "now", Intent(Action.NOTHING), id="sent already"),
        pytest.param({}, "now", Intent(Action.UPDATE, add_finalizer=True), id="finalizer taken off by hand"),
        pytest.param(OTHER, "", Intent(Action.START, add_finalizer=True), id="finalizer of somebody else"),
        pytest.param(WITH | GOING, "older", Intent(Action.DELETE), id="deletion asked for"),
        pytest.param(WITH | GOING, "", Intent(Action.DELETE), id="deletion asked for before this bridge led"),
        pytest.param(WITH | GOING, "now", Intent(Action.NOTHING), id="deletion sent already"),
        pytest.param(
            OTHER | GOING, "older", Intent(Action.DELETE, may_start=False), id="forced off while deleting"
        ),
    ],
)
def test_decide_judges_a_pool(meta: Object, sent: str, expected: Intent) -> None:
    assert decide(parse_header(a_pool(meta=meta)), "now", sent) == expected


def test_profile_change_concerns_the_pool_it_leaves_and_the_one_it_joins() -> None:
    parts = Parts()
    key = ("train", "p")
    assert parts.put_profile(key, a_profile("p", "old")) == {("train", "old")}
    assert parts.put_profile(key, a_profile("p", "new")) == {("train", "old"), ("train", "new")}
    assert parts.put_profile(key, None) == {("train", "new")}
    assert list(parts.profiles_of(("train", "new"))) == []


def test_profile_that_cannot_be_read_still_concerns_its_pool() -> None:
    broken = a_profile("p", "pool", gpuRequirement={"minCount": "many"})
    assert Parts().put_profile(("train", "p"), broken) == {("train", "pool")}


def test_strategy_change_concerns_the_pools_that_name_it() -> None:
    window = {"strategyRef": "s", "cron": "0 1 * * *", "durationMinutes": 60}
    pools = [
        a_pool("by-ref", strategyRef="s"),
        a_pool("by-schedule", strategySchedule=[window]),
        a_pool("other", strategyRef="t"),
        a_pool("far", strategyRef="s", meta={"namespace": "far"}),
    ]
    assert pools_naming_strategy(pools, ("train", "s")) == [("train", "by-ref"), ("train", "by-schedule")]


def test_node_class_change_concerns_its_namespace_or_everybody_when_the_operators() -> None:
    pools = [
        a_pool("default"),
        a_pool("named", providers=[{"name": "aws", "nodeClassRef": "tencent"}]),
        a_pool("far", meta={"namespace": "far"}),
        a_pool("other", providers=[{"name": "aws"}]),
    ]
    own = pools_naming_node_class(pools, ("train", "tencent"), operator_namespace="ops")
    assert own == [("train", "default"), ("train", "named")]
    shared = pools_naming_node_class(pools, ("ops", "tencent"), operator_namespace="ops")
    assert shared == [("far", "far"), ("train", "default"), ("train", "named")]
