"""What the API server checks beyond types and bounds: rules across fields, and lists without duplicates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from domain.contracts.node_classes import NodeClassSpec, RegionNetwork
from domain.contracts.pools import OnDemand, PoolSpec, ProviderChoice
from domain.contracts.profiles import ProfileSpec
from domain.contracts.resources import MAX_LABEL_CHARS, ResourceModel
from domain.contracts.status import PoolStatus
from domain.contracts.strategies import Balance


@dataclass(frozen=True)
class Rule:
    """One CEL rule of a schema node. Its message names the field, since the server prefixes only the node."""

    cel: str
    message: str
    field_path: str = ""
    """Field that the refusal points at, relative to the node, for example ``.minInstances``."""


def _label_keys(field: str) -> Rule:
    """Keys of a map have no bound in a structural schema; this one is what Kubernetes asks of a label key."""
    return Rule(
        f"!has(self.{field}) || self.{field}.all(key, size(key) <= 317 && "
        r"key.matches('^([a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",
        f"{field} must have keys that are valid label keys, for example example.com/team",
        f".{field}",
    )


# The server checks a default of {} before it fills in the defaults below it: rules look before they read.
RULES: Final[Mapping[type[ResourceModel], tuple[Rule, ...]]] = {
    PoolSpec: (
        Rule(
            "self.minInstances <= self.maxInstances",
            "minInstances must not be greater than maxInstances",
            ".minInstances",
        ),
    ),
    OnDemand: (
        Rule(
            "!has(self.fallback) || !self.fallback || !has(self.maxInstances) || self.maxInstances > 0",
            "maxInstances must be greater than 0 when fallback is true",
            ".maxInstances",
        ),
    ),
    Balance: (
        Rule(
            "!has(self.costWeight) || !has(self.stabilityWeight) || "
            "self.costWeight + self.stabilityWeight > 0.0",
            "costWeight and stabilityWeight must not both be 0",
            ".costWeight",
        ),
    ),
    ProfileSpec: (
        _label_keys("podSelector"),
        Rule(
            "!has(self.throughput) || self.throughput.all(model, size(model) > 0 && size(model) <= 64 && "
            "model.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$'))",
            "throughput must have GPU models as keys, for example A100",
            ".throughput",
        ),
    ),
    NodeClassSpec: (
        _label_keys("labels"),
        Rule(
            "!has(self.tags) || self.tags.all(key, size(key) > 0 && size(key) <= 127 && "
            "!key.startsWith('spotgpu-'))",
            "tags must have keys of 1 to 127 characters, none of which start with spotgpu-",
            ".tags",
        ),
    ),
}
"""By model; they stand at the node that the model describes."""

OBJECT_RULES: Final[Mapping[type[ResourceModel], tuple[Rule, ...]]] = {
    PoolSpec: (
        Rule(
            f"size(self.metadata.name) <= {MAX_LABEL_CHARS}",
            f"metadata.name must have at most {MAX_LABEL_CHARS} characters: it labels the pool's nodes",
        ),
    ),
    ProfileSpec: (
        Rule(
            f"size(self.metadata.name) <= {MAX_LABEL_CHARS}",
            f"metadata.name must have at most {MAX_LABEL_CHARS} characters: it labels the workload's pods",
        ),
    ),
}
"""By the kind's spec; they stand at the object itself."""

_SET: Final[Mapping[str, JsonValue]] = {"x-kubernetes-list-type": "set"}


def _keyed_by(field: str) -> Mapping[str, JsonValue]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}


LIST_TYPES: Final[Mapping[tuple[type[ResourceModel], str], Mapping[str, JsonValue]]] = {
    (PoolSpec, "gpuTypes"): _SET,
    (PoolSpec, "providers"): _keyed_by("name"),
    (ProviderChoice, "regions"): _SET,
    (ProviderChoice, "zones"): _SET,
    (ProviderChoice, "instanceTypes"): _SET,
    (ProfileSpec, "prePullImages"): _SET,
    (NodeClassSpec, "images"): _keyed_by("region"),
    (NodeClassSpec, "network"): _keyed_by("region"),
    (NodeClassSpec, "taints"): _SET,
    (NodeClassSpec, "instanceTypes"): _keyed_by("name"),
    (RegionNetwork, "securityGroupIds"): _SET,
    (PoolStatus, "conditions"): _keyed_by("type"),
}
"""Lists in which no entry, or no key, may stand twice. The others are lists as a whole (order counts)."""
