"""Seeded variants of the three public kinds: each a whole object with one thing changed.

No variant asks for a machine: the pools keep a minimum of zero, so that whoever serves them buys nothing.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crd_bridge.kinds import POOL, PROFILE, STRATEGY, ResourceKind
from crd_bridge.schema import custom_resource_definition
from domain.contracts.names import GROUP, VERSION
from tests.variants.changes import UNKNOWN, Change, Expected, Node, changes_of
from tests.variants.yaml_text import Doubled, to_yaml

Path = tuple[str | int, ...]
Body = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One object to apply."""

    kind: str
    name: str
    text: str
    """YAML as a user would write it."""
    what: str
    """What is changed, for a report: ``spec.minInstances: just below the least``."""
    field: str
    """Name that the message of a refusal must hold."""
    expected: Expected
    """What the API server must do with it; ``either`` where two rules meet."""


POOL_SPEC: Body = {
    "minInstances": 0,
    "maxInstances": 20,
    "gpuTypes": ["A100-40G", "A100-80G", "V100"],
    "maxPricePerHour": 8.0,
    "currency": "CNY",
    "providers": [
        {
            "name": "tencent",
            "regions": ["ap-guangzhou", "ap-shanghai"],
            "zones": ["ap-guangzhou-3"],
            "instanceTypes": ["GT4.4XLARGE96"],
            "nodeClassRef": "tencent",
        },
        {"name": "aliyun", "regions": ["cn-shenzhen"]},
    ],
    "strategyRef": "cost-first-strategy",
    "strategySchedule": [
        {"strategyRef": "night", "cron": "0 22 * * 1-5", "durationMinutes": 480, "timeZone": "Asia/Shanghai"}
    ],
    "interruptStrategy": {
        "gracefulShutdownSeconds": 120,
        "checkpointRequired": True,
        "rebuildOnInterrupt": True,
        "riskPolicy": "Prewarm",
    },
    "scaleStrategy": {
        "scaleUpStep": 2,
        "scaleDownStep": 1,
        "cooldownSeconds": 300,
        "rebuildBatchSize": 2,
        "rebuildBatchIntervalSeconds": 10,
    },
    "timeouts": {"pendingSeconds": 60, "joinSeconds": 900, "gpuReadySeconds": 600},
    "onDemand": {
        "fallback": True,
        "waitForSpotSeconds": 300,
        "maxInstances": 5,
        "maxPricePerHour": 30,
        "returnToSpotAfterSeconds": 3600,
    },
    "budget": {
        "hourly": {"amount": 100, "action": "Alert"},
        "monthly": {"amount": 50000, "action": "StopLaunches"},
    },
    "priceReplacement": {
        "enabled": True,
        "overPriceMinutes": 10,
        "minSavingPercent": 20,
        "maxPerDay": 5,
        "minNodeLifeMinutes": 60,
    },
    "spread": {"maxSharePerZonePercent": 50, "maxSharePerTypePercent": 100},
    "orphanPolicy": "Report",
    "deletionPolicy": "Drain",
    "paused": "None",
}
STRATEGY_SPEC: Body = {
    "mode": "CostFirst",
    "costFirst": {"preferLowPrice": True, "priceTolerancePercent": 20, "fallbackOnInsufficient": True},
    "stableFirst": {"preferLongUptime": True, "avoidHighInterruptRate": True, "minStableMinutes": 60},
    "balance": {"costWeight": 0.6, "stabilityWeight": 0.4},
}
PROFILE_SPEC: Body = {
    "gpuRequirement": {"minCount": 4, "minMemoryGB": 32, "preferredTopology": "NVLink"},
    "priority": "high",
    "interruptTolerance": {
        "maxInterruptPercent": 30,
        "checkpointEnabled": True,
        "checkpointIntervalSeconds": 600,
    },
    "poolRef": "training-pool-a100",
    "podSelector": {"app": "trainer"},
    "throughput": {"A100": 1.0, "V100": 0.4},
    "checkpoint": {"signal": "Exec", "command": ["/bin/save", "--now"], "uri": "s3://checkpoints/a"},
    "prePullImages": ["registry.example.com/train:1"],
}
BASES: tuple[tuple[ResourceKind[Any], Body], ...] = (
    (POOL, POOL_SPEC),
    (STRATEGY, STRATEGY_SPEC),
    (PROFILE, PROFILE_SPEC),
)

_LONG_NAME = "of 64 characters"
"""Stands for a name of that length, another one in each variant."""


@dataclass(frozen=True)
class _Site:
    """One field of a base object."""

    path: Path
    node: Node
    value: Any
    required: bool

    @property
    def field(self) -> str:
        return next(str(part) for part in reversed(self.path) if isinstance(part, str))

    @property
    def label(self) -> str:
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)[1:]


@dataclass(frozen=True)
class _Draft:
    """A variant without its name."""

    kind: ResourceKind[Any]
    body: Body
    what: str
    field: str
    expected: Expected


def variants(seed: int, count: int) -> list[Variant]:
    """Return ``count`` variants of all three kinds in an order that the seed decides.

    The same seed gives the same variants. About 2,000 differ; beyond that the random parts are drawn anew.
    """
    rng = random.Random(seed)  # repeatable, not secret
    drafts: list[_Draft] = []
    while len(drafts) < count:
        one_round = [draft for kind, spec in BASES for draft in _drafts(kind, spec, rng)]
        rng.shuffle(one_round)
        drafts.extend(one_round)
    return [_named(draft, f"variant-{seed}-{number}") for number, draft in enumerate(drafts[:count])]


def _named(draft: _Draft, name: str) -> Variant:
    body = copy.copy(draft.body)
    if isinstance(body["metadata"], dict):
        body["metadata"] = copy.copy(body["metadata"])
        given = body["metadata"].get("name", name)
        body["metadata"]["name"] = f"{name}-{'n' * 64}"[:64] if given == _LONG_NAME else given
    shown = body["metadata"]["name"] if isinstance(body["metadata"], dict) else name
    return Variant(draft.kind.kind, shown, to_yaml(body), draft.what, draft.field, draft.expected)


def _drafts(kind: ResourceKind[Any], spec: Body, rng: random.Random) -> Iterator[_Draft]:
    body: Body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind.kind,
        "metadata": {"labels": {"made-by": "variants"}},
        "spec": spec,
    }
    definition: Any = custom_resource_definition(kind)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    yield _Draft(kind, body, "every field set", "", "accepted")
    for site in _sites(("spec",), schema, spec, required=True):
        for change in _changes(site, rng):
            changed = _replaced(body, site.path, change.value)
            what = f"{kind.kind} {site.label}: {change.what}"
            yield _Draft(kind, changed, what, change.named or site.field, change.expected)
        yield from _without(kind, body, site)
    yield from _of_the_whole(kind, body)


def _sites(path: Path, node: Node, value: Any, *, required: bool) -> Iterator[_Site]:
    """Every field that the base sets; of a list its first entry, of a free map its first value."""
    yield _Site(path, node, value, required)
    if "properties" in node:
        for name, child in node["properties"].items():
            if name in value:
                needed = name in node.get("required", [])
                yield from _sites((*path, name), child, value[name], required=needed)
    elif "items" in node:
        yield from _sites((*path, 0), node["items"], value[0], required=True)
    elif "additionalProperties" in node:
        key = next(iter(value))
        yield from _sites((*path, key), node["additionalProperties"], value[key], required=False)


def _changes(site: _Site, rng: random.Random) -> Iterator[Change]:
    yield from changes_of(site.node, site.value, rng)
    # Without a value a field or an entry of a map is as good as left out; one of a list is no text or object.
    yield Change("null", None, "refused" if site.required else "either")


def _without(kind: ResourceKind[Any], body: Body, site: _Site) -> Iterator[_Draft]:
    """Leave the field out, and write its name wrong."""
    *above, name = site.path
    holder = _at(body, tuple(above))
    if not isinstance(name, str) or not isinstance(holder, dict):
        return
    rest = {key: value for key, value in holder.items() if key != name}
    expected: Expected = "refused" if site.required else "either"
    what = f"{kind.kind} {site.label}"
    yield _Draft(kind, _replaced(body, tuple(above), rest), f"{what}: left out", name, expected)
    if above and "additionalProperties" not in site.node and _is_declared(site):
        typo = f"{name[:-2]}{name[-1]}{name[-2]}x"
        renamed = _replaced(body, tuple(above), {**rest, typo: holder[name]})
        yield _Draft(kind, renamed, f"{what}: written {typo}", typo, "refused")


def _is_declared(site: _Site) -> bool:
    """Whether the field's name is the schema's and not a key of a free map."""
    return len(site.path) < 2 or site.path[-2] not in ("podSelector", "throughput")


def _of_the_whole(kind: ResourceKind[Any], body: Body) -> Iterator[_Draft]:
    """Changes outside the spec."""

    def draft(changed: Body, what: str, field: str, expected: Expected = "refused") -> _Draft:
        return _Draft(kind, changed, f"{kind.kind}: {what}", field, expected)

    labels = body["metadata"]["labels"]
    bounded = kind is not STRATEGY
    yield draft({**body, UNKNOWN: {"a": [1]}}, "unknown field beside spec", UNKNOWN)
    yield draft({**body, "sepc": body["spec"]}, "spec a second time, written sepc", "sepc")
    yield draft(Doubled(body, "spec", body["spec"]), "spec twice", "spec")
    yield draft(Doubled(body, "kind", kind.kind), "kind twice", "kind")
    yield draft({**body, "metadata": {"labels": labels, UNKNOWN: 1}}, "unknown field in metadata", UNKNOWN)
    yield draft({**body, "metadata": {"name": "Upper_Case"}}, "name in upper case", "metadata.name")
    yield draft({**body, "metadata": {"name": "训练池"}}, "name in unicode", "metadata.name")
    yield draft({**body, "metadata": {"name": "n" * 254}}, "name of 254 characters", "metadata.name")
    yield draft(
        {**body, "metadata": {"name": _LONG_NAME}},
        "name of 64 characters",
        "metadata.name",
        "refused" if bounded else "accepted",
    )
    yield draft({**body, "metadata": {"labels": {"team": "x" * 64}}}, "label too long", "metadata.labels")
    yield draft({**body, "metadata": {"labels": {"team": 5}}}, "label that is a number", "labels")


def _at(body: Any, path: Path) -> Any:
    for part in path:
        body = body[part]
    return body


def _replaced(body: Any, path: Path, value: Any) -> Any:
    """A copy of ``body`` with another value at ``path``; what lies beside the path is shared."""
    if not path:
        return value
    first, *rest = path
    changed = copy.copy(body)
    changed[first] = _replaced(body[first], tuple(rest), value)
    return changed
