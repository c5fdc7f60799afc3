"""Nodes as facts for their pools; foreign and half-made ones are told apart, never an error. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from activities.cluster.base import Object
from crd_bridge.quantities import count_of
from crd_bridge.sections import entries, section
from domain.contracts.facts import NodeFact
from domain.contracts.names import GPU_RESOURCE, LABEL_POOL_UID, TAINT_GPU_NOT_READY


class SkipReason(StrEnum):
    """Why a Node is no pool's business."""

    NO_PROVIDER_ID = "no-provider-id"
    """Half made, or added by something that sets none."""
    FOREIGN = "foreign"
    """It carries no pool, and none has ever claimed its provider id."""


@dataclass(frozen=True)
class SeenNode:
    """A Node of ours."""

    pool_uid: str
    fact: NodeFact


def read_node(body: Object, owners: Mapping[str, str]) -> SeenNode | SkipReason:
    """Map a Node to its pool.

    Args:
        body: The Node.
        owners: Provider id to pool uid, of Nodes seen earlier: a label that somebody removes must not make
            a Node vanish from its pool.
    """
    provider_id = str(section(body, "spec").get("providerID") or "")
    if not provider_id:
        return SkipReason.NO_PROVIDER_ID
    labels = section(section(body, "metadata"), "labels")
    pool_uid = str(labels.get(LABEL_POOL_UID) or owners.get(provider_id) or "")
    if not pool_uid:
        return SkipReason.FOREIGN
    return SeenNode(pool_uid, _fact(body, provider_id))


def gone(fact: NodeFact) -> NodeFact:
    """The same Node after its removal."""
    return NodeFact(provider_id=fact.provider_id, name=fact.name, uid=fact.uid, exists=False)


def trim_node(body: Object) -> Object:
    """Keep of a Node only what ``read_node`` looks at; images and addresses are most of its weight."""
    metadata, spec, status = section(body, "metadata"), section(body, "spec"), section(body, "status")
    kept = ("name", "uid", "resourceVersion", "labels")
    return {
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"providerID": spec.get("providerID"), "taints": spec.get("taints")},
        "status": {
            "allocatable": {GPU_RESOURCE: section(status, "allocatable").get(GPU_RESOURCE, "0")},
            "conditions": [one for one in entries(status, "conditions") if one.get("type") == "Ready"],
        },
    }


def _fact(body: Object, provider_id: str) -> NodeFact:
    spec, status = section(body, "spec"), section(body, "status")
    return NodeFact(
        provider_id=provider_id,
        name=str(body["metadata"]["name"]),
        uid=str(body["metadata"].get("uid") or ""),
        ready=any(
            one.get("type") == "Ready" and one.get("status") == "True"
            for one in entries(status, "conditions")
        ),
        gpus_allocatable=count_of(section(status, "allocatable").get(GPU_RESOURCE, "0")),
        gpu_taint=any(taint.get("key") == TAINT_GPU_NOT_READY for taint in entries(spec, "taints")),
    )
