"""Inputs of pool workflows, with durations shrunk."""

import uuid
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import Client, WorkflowHandle

from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.offers import ProviderName
from domain.contracts.pools import PoolSpec
from domain.contracts.resolved import NodeClassPart, Origin, ResolvedPool
from domain.contracts.settings import PoolSettings
from tests.workflows.outside import GUANGZHOU
from workflows import messages as m
from workflows import options

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def a_resolved(*, generation: int = 1, uid: str = "", name: str = "", **fields: Any) -> ResolvedPool:
    """The public example in one region; ``fields`` are spelt as in YAML and replace the example's."""
    spec = yaml.safe_load((EXAMPLES / "gpuspotpool.yaml").read_text())["spec"]
    spec["providers"] = [{"name": "tencent", "regions": ["ap-guangzhou"]}]
    spec["scaleStrategy"]["cooldownSeconds"] = 1
    node_class = yaml.safe_load((EXAMPLES / "gpuspotnodeclass.yaml").read_text())["spec"]
    uid = uid or str(uuid.uuid4())
    return ResolvedPool(
        uid=uid,
        namespace="default",
        name=name or f"pool-{uid[:8]}",
        generation=generation,
        spec=PoolSpec.model_validate({**spec, **fields}),
        node_classes={
            "tencent": NodeClassPart(
                origin=Origin(name="tencent", uid="node-class", generation=1),
                spec=NodeClassSpec.model_validate(node_class),
            )
        },
    )


def settings(**fields: Any) -> PoolSettings:
    """Durations of fractions of a second."""
    shrunk: dict[str, Any] = {
        "served_regions": (GUANGZHOU,),
        "enabled_providers": (ProviderName.TENCENT,),
        "polling_interval_seconds": 1,
        "confirm_absence_seconds": 0.2,
        "newborn_seconds": 0.5,
        "min_stay_seconds": 0.1,
        "stock_cooldown_seconds": 2,
        "round_retry_seconds": 1,
        "resolve_retry_seconds": 0.3,
        "drain_seconds": 2,
        "terminate_recheck_seconds": 0.5,
        "status_interval_seconds": 0.2,
    }
    return PoolSettings(**{**shrunk, **fields})


async def start(
    client: Client, resolved: ResolvedPool, chosen: PoolSettings | None = None
) -> WorkflowHandle[Any, str]:
    return await client.start_workflow(
        m.POOL_WORKFLOW,
        m.PoolInput(resolved=resolved, settings=chosen or settings()),
        id=m.pool_workflow_id(resolved.namespace, resolved.name),
        task_queue=options.POOLS_QUEUE,
        result_type=str,
    )


async def edit(
    handle: WorkflowHandle[Any, str], resolved: ResolvedPool, chosen: PoolSettings | None = None
) -> m.ApplyAnswer:
    return await handle.execute_update(
        m.APPLY_SPEC,
        m.SpecEnvelope(resolved=resolved, settings=chosen or settings()),
        id=resolved.update_id,
        result_type=m.ApplyAnswer,
    )
