"""A pool as the bridge resolves it: the public examples, with what a test changes."""

from pathlib import Path
from typing import Any

import yaml

from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.pool_state import Machine, MachinePhase, PoolCarry, RegionView, Slot
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import ProfileSpec
from domain.contracts.resolved import NodeClassPart, Origin, ProfilePart, ResolvedPool, StrategyPart
from domain.contracts.settings import PoolSettings
from domain.contracts.status import InstanceStatus
from domain.contracts.strategies import StrategySpec
from tests.domain.decisions.builders import NOON, an_offer

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
UID = "0f6d2f4e-5b0a-4b57-9d8e-3d1f0c6a7b21"
NODE_CLASSES = {"tencent": "gpuspotnodeclass.yaml", "aliyun": "gpuspotnodeclass-aliyun.yaml"}


def a_region(provider: str, region: str) -> RegionKey:
    return RegionKey(provider=ProviderName(provider), account=f"{provider}-credentials", region=region)


GUANGZHOU = a_region("tencent", "ap-guangzhou")
SHANGHAI = a_region("tencent", "ap-shanghai")
SHENZHEN = a_region("aliyun", "cn-shenzhen")
BEIJING = a_region("aliyun", "cn-beijing")
REGIONS = (GUANGZHOU, SHANGHAI, SHENZHEN, BEIJING)

_SPEC = yaml.safe_load((EXAMPLES / "gpuspotpool.yaml").read_text())["spec"]
_NODE_CLASSES = {
    name: NodeClassSpec.model_validate(yaml.safe_load((EXAMPLES / file).read_text())["spec"])
    for name, file in NODE_CLASSES.items()
}


def a_spec(**fields: Any) -> PoolSpec:
    """The public example; ``fields`` are spelt as in YAML and replace the example's."""
    return PoolSpec.model_validate({**_SPEC, **fields})


def a_node_class(provider: str, *, generation: int = 1, **fields: Any) -> NodeClassPart:
    spec = _NODE_CLASSES[provider].model_copy(update=fields)
    origin = Origin(name=provider, uid=f"node-class-{provider}", generation=generation)
    return NodeClassPart(origin=origin, spec=spec)


def a_profile(name: str = "ddp", *, min_count: int = 1) -> ProfilePart:
    spec = ProfileSpec.model_validate({"poolRef": "p", "gpuRequirement": {"minCount": min_count}})
    return ProfilePart(origin=Origin(name=name, uid=name, generation=1), spec=spec)


def a_strategy_part(name: str, *, uid: str = "", generation: int = 1, **fields: Any) -> StrategyPart:
    origin = Origin(name=name, uid=uid or name, generation=generation)
    return StrategyPart(origin=origin, spec=StrategySpec.model_validate(fields))


def a_resolved(
    *,
    generation: int = 1,
    node_classes: tuple[str, ...] = ("tencent", "aliyun"),
    profiles: tuple[ProfilePart, ...] = (),
    **fields: Any,
) -> ResolvedPool:
    """The public example with the node classes of these providers."""
    return ResolvedPool(
        uid=UID,
        namespace="default",
        name="training-pool-a100",
        generation=generation,
        spec=a_spec(**fields),
        node_classes={name: a_node_class(name) for name in node_classes},
        profiles=profiles,
    )


def in_one_region(**fields: Any) -> dict[str, Any]:
    """Fields of a pool that buys in Guangzhou alone."""
    return {"providers": [{"name": "tencent", "regions": ["ap-guangzhou"]}], **fields}


def a_setting(**fields: Any) -> PoolSettings:
    """The operator's defaults with both clouds served."""
    served = {"served_regions": REGIONS, "enabled_providers": (ProviderName.TENCENT, ProviderName.ALIYUN)}
    return PoolSettings(**{**served, **fields})


def a_state_of(size: int) -> PoolCarry:
    """A pool at rest with all of its machines in Guangzhou, everything read at noon."""
    machines = {m.token: m for m in (_a_ready_machine(n) for n in range(1, size + 1))}
    return PoolCarry(
        chain="c0ffee00",
        machines=machines,
        slots=tuple(Slot(id=m.slot, token=m.token, created_at=NOON) for m in machines.values()),
        regions={str(region): RegionView(region=region, as_of=NOON) for region in REGIONS},
        nodes_as_of=NOON,
        launch_counter=size,
        slot_counter=size,
        launches_total=size,
    )


def _a_ready_machine(number: int) -> Machine:
    return Machine(
        token=f"{UID}-c0ffee00-{number}",
        slot=f"s{number}",
        offer=an_offer("4.20"),
        phase=MachinePhase.READY,
        ordered_at=NOON,
        answered_at=NOON,
        instance_id=f"ins-{number:04d}",
        provider_id=f"qcloud:///100003/ins-{number:04d}",
        node_name=f"node-{number}",
        running_at=NOON,
        joined_at=NOON,
        ready_at=NOON,
        billed_from=NOON,
        settled=True,
        shown=InstanceStatus.RUNNING,
        shown_at=NOON,
    )
