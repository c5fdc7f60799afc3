"""Demand as Kubernetes counts it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from activities.cluster.base import Object
from crd_bridge.demand import assess_demand, gpus_of, trim_pod
from crd_bridge.objects import parse_profile
from crd_bridge.quantities import count_of
from domain.contracts.facts import ProfileDemand
from domain.contracts.names import LABEL_POOL, TAINT_SPOT
from domain.contracts.resolved import ProfilePart
from tests.crd_bridge.builders import a_container, a_pod, a_profile

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def part(name: str = "profile", **spec: object) -> ProfilePart:
    read = parse_profile(a_profile(name, **spec))
    return ProfilePart(origin=read.header.origin, spec=read.spec)


def demand_of(*pods: Object, profiles: tuple[ProfilePart, ...] = ()) -> tuple[ProfileDemand, ...]:
    trimmed = assess_demand(profiles or (part(),), [trim_pod(pod) for pod in pods], as_of=NOON)
    assert trimmed == assess_demand(profiles or (part(),), pods, as_of=NOON), "trimming loses nothing"
    return trimmed.profiles


def test_demand_sums_up_live_and_pending_pods() -> None:
    pods = [a_pod("a", gpus="8", phase="Running"), a_pod("b", gpus="2"), a_pod("c", gpus=None)]
    assert demand_of(*pods) == (ProfileDemand(profile="profile", pods=3, gpus=10, max_gpus_per_pod=8),)


def test_demand_of_the_public_workload_is_its_gang_on_nodes_of_its_pool() -> None:
    profile, pod = yaml.safe_load_all((EXAMPLES / "training-pod.yaml").read_text())
    pool = yaml.safe_load((EXAMPLES / "demo-pool.yaml").read_text())
    for each in (profile, pod):
        each["metadata"] |= {"namespace": "train", "uid": "0f1e"}
    read = parse_profile(profile)
    bound = ProfilePart(origin=read.header.origin, spec=read.spec)
    (asked,) = demand_of(pod, profiles=(bound,))
    assert (asked.pods, asked.gpus) == (1, 1)
    assert read.spec.gpu_requirement.min_count > pool["spec"]["minInstances"], "the level rises"
    assert read.spec.pool_ref == pool["metadata"]["name"]
    assert pod["spec"]["nodeSelector"] == {LABEL_POOL: pool["metadata"]["name"]}
    assert [item["key"] for item in pod["spec"]["tolerations"]] == [TAINT_SPOT]


def test_demand_has_an_entry_for_a_profile_without_pods() -> None:
    assert demand_of() == (ProfileDemand(profile="profile", pods=0, gpus=0),)


DELETED = {"deletionTimestamp": "2026-11-01T00:00:00Z"}


def owned_by(kind: str) -> Object:
    return {"ownerReferences": [{"kind": kind, "name": "o", "controller": True}]}


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        pytest.param(a_pod("p", phase="Succeeded"), False, id="succeeded"),
        pytest.param(a_pod("p", phase="Failed"), False, id="failed"),
        pytest.param(a_pod("p", phase="Unknown"), True, id="on a node that does not answer"),
        pytest.param(a_pod("p", phase="Running", meta=DELETED), False, id="being deleted"),
        pytest.param(
            a_pod("p", phase="Running", meta=DELETED | owned_by("ReplicaSet")), False,
            id="being deleted, its successor is there already",
        ),
        pytest.param(
            a_pod("p", phase="Running", meta=DELETED | owned_by("StatefulSet")), True,
            id="being deleted, its successor comes only then",
        ),
        pytest.param(a_pod("p", meta=owned_by("DaemonSet")), False, id="of a DaemonSet"),
        pytest.param(a_pod("p", meta=owned_by("Node")), False, id="static"),
        pytest.param(a_pod("p", meta=owned_by("Job")), True, id="of a Job"),
        pytest.param(a_pod("p", profile="other"), False, id="of another profile"),
        pytest.param(a_pod("p", profile=None), False, id="of no profile"),
    ],
)  # fmt: skip
def test_demand_counts_only_pods_that_want_a_place(pod: Object, counts: bool) -> None:
    assert demand_of(pod)[0].pods == int(counts)


def test_demand_goes_by_the_profiles_own_selector() -> None:
    batch = part("batch", podSelector={"app": "batch", "tier": "gpu"})
    matching = a_pod("a", profile=None, meta={"labels": {"app": "batch", "tier": "gpu", "x": "y"}})
    half = a_pod("b", profile=None, meta={"labels": {"app": "batch"}})
    named = a_pod("c", profile="batch")
    assert [one.pods for one in demand_of(matching, half, named, profiles=(batch,))] == [1]


def test_demand_counts_a_pod_once_for_the_profile_that_its_label_names() -> None:
    profiles = (part("any", podSelector={"app": "train"}), part("profile"))
    pod = a_pod("a", meta={"labels": {"app": "train", "spotgpu.zuoyang.io/profile": "profile"}})
    assert [one.pods for one in demand_of(pod, pod, profiles=profiles)] == [0, 1]


@pytest.mark.parametrize(
    ("containers", "init", "gpus"),
    [
        pytest.param([a_container("2"), a_container("1")], [], 3, id="containers add up"),
        pytest.param([a_container("1", part="requests")], [], 1, id="request"),
        pytest.param([a_container("1")], [a_container("4")], 4, id="a larger init container decides"),
        pytest.param([a_container("4")], [a_container("1")], 4, id="a smaller one does not"),
        pytest.param([a_container("1")], [a_container("3"), a_container("2")], 3, id="one after the other"),
        pytest.param(
            [a_container("2")], [a_container("1", restart="Always")], 3, id="a sidecar runs beside them"
        ),
        pytest.param(
            [a_container("1")], [a_container("1", restart="Always"), a_container("4")], 5,
            id="a sidecar runs beside later init containers",
        ),
        pytest.param(
            [a_container("1")], [a_container("4"), a_container("1", restart="Always")], 4,
            id="but not beside earlier ones",
        ),
        pytest.param([a_container(None)], [], 0, id="none"),
    ],
)  # fmt: skip
def test_gpus_of_counts_as_the_scheduler_does(
    containers: list[Object], init: list[Object], gpus: int
) -> None:
    assert gpus_of({"spec": {"containers": containers, "initContainers": init}}) == gpus


@pytest.mark.parametrize(
    ("quantity", "count"),
    [
        ("8", 8), (8, 8), ("8000m", 8), ("1500m", 2), ("1k", 1000), ("1e1", 10), ("2E0", 2), ("1Ki", 1024),
        ("0", 0), ("+3", 3), ("", 0), ("eight", 0), (None, 0), ("0.5", 1),
    ],
)  # fmt: skip
def test_count_of_reads_quantities(quantity: object, count: int) -> None:
    assert count_of(quantity) == count
