"""Short beginnings of a simulated pool's life, shared by tests."""

from collections.abc import Callable
from typing import Any

from domain.contracts.instances import LaunchRequest
from domain.contracts.pool_state import Machine
from tests.domain.decisions.pool_inputs import a_resolved, in_one_region
from tests.domain.decisions.pool_world import PoolWorld


def a_world(plan: Callable[[LaunchRequest], str] | None = None, **fields: Any) -> PoolWorld:
    world = PoolWorld(a_resolved(**in_one_region(minInstances=1, **fields)))
    world.effects.plan = plan
    return world


def up(world: PoolWorld, count: int = 1) -> PoolWorld:
    world.run_until(lambda: world.ready == count and world.now_waits_for == "nothing")
    return world


def the_machine(world: PoolWorld, instance_id: str = "") -> Machine:
    found = [m for m in world.machines if not instance_id or m.instance_id == instance_id]
    return found[0]
