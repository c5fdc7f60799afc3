"""Random lives of a simulated pool: seeded schedules of what people, clouds and clusters may do to it."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from domain.contracts.pools import PauseScope, ScaleStrategy
from domain.contracts.resolved import ResolvedPool
from domain.decisions import pool_interventions as people
from domain.decisions.pool_purchases import bootstrap_unhealthy
from tests.domain.decisions.pool_inputs import REGIONS, a_profile, a_resolved, a_setting, a_spec
from tests.domain.decisions.pool_world import HEALTHY, ROUGH, Faults, PoolWorld
from tests.domain.decisions.world_cloud import ZONES, CloudMachine

STEPS = 12
"""Things that happen to a pool before it is left in peace."""
SETTLE_SECONDS = 6 * 3600
"""Within this time a pool in a healthy world is at its level: holds last an hour, steps five minutes."""


class Walk:
    """One life: born, pushed about, left in peace until it is at rest, deleted."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.world = PoolWorld(self._resolved(), a_setting(), seed=seed, faults=self._faults())
        self.world.carries_json = seed % 3 == 0
        # Never ahead of the pool's: words from the future count as of now, in the order in which they come.
        self.world.clocks_behind = self._rng.choice([0.0, 0.0, 0.0, 2.0, 10.0])
        self.world.reports_every = 1 if seed % 10 == 0 else 4
        self.log: list[str] = []

    def live(self) -> None:
        """Raises with the log of what happened when an invariant breaks."""
        try:
            for _ in range(STEPS):
                self._step()
            self.rest()
            self.end()
        except AssertionError as error:
            raise AssertionError("\n".join([*self.log, str(error)])) from error

    def _resolved(self) -> ResolvedPool:
        low = self._rng.randint(0, 4)
        scale = ScaleStrategy(
            scale_up_step=self._rng.choice([1, 2, 10]),
            scale_down_step=self._rng.choice([1, 3]),
            cooldown_seconds=self._rng.choice([0, 60, 300]),
        )
        resolved = a_resolved(
            profiles=self._rng.choice([(), (a_profile(),)]),
            minInstances=low,
            maxInstances=low + self._rng.randint(0, 4) or 1,
        )
        return resolved.model_copy(
            update={"spec": resolved.spec.model_copy(update={"scale_strategy": scale})}
        )

    def _faults(self) -> Faults:
        """A few kinds of fault at a time: all of them together would drown each other."""
        if self._rng.random() < 0.2:
            return HEALTHY
        names = self._rng.sample(sorted(Faults.__dataclass_fields__), k=self._rng.randint(1, 8))
        scale = self._rng.choice([1, 2, 4])
        chosen = {name: getattr(ROUGH, name) for name in names}
        return replace(
            HEALTHY, **{n: c if n == "list_lag" else min(c * scale, 0.6) for n, c in chosen.items()}
        )

    def _step(self) -> None:
        happening = self._rng.choice(HAPPENINGS)
        pause = self._rng.choice([0, 0.5, 3, 20, 60, 200, 600])
        self.log.append(f"{self.world.t:8.1f} {happening.__name__}, then {pause} s")
        happening(self)
        self.world.run(pause)

    # What may happen --------------------------------------------------------------------------------

    def a_machine(self) -> CloudMachine | None:
        up = [m for m in self.world.living if m.is_up(self.world.t)]
        return self._rng.choice(up) if up else None

    def an_id(self) -> str:
        ids = [m.instance_id for m in self.world.machines if m.instance_id]
        return self._rng.choice([*ids, "ins-unknown"])

    def level_changes(self) -> None:
        low = self._rng.randint(0, 5)
        self.world.edit(min_instances=low, max_instances=max(low + self._rng.randint(0, 3), 1))

    def provider_changes(self) -> None:
        names = self._rng.choice([["tencent"], ["aliyun"], ["tencent", "aliyun"]])
        self.world.edit(providers=a_spec(providers=[{"name": name} for name in names]).providers)

    def pause_changes(self) -> None:
        self.world.edit(paused=self._rng.choice(list(PauseScope)))

    def demand_changes(self) -> None:
        self.world.demand(self._rng.randint(0, 8))

    def human_pauses(self) -> None:
        scope = self._rng.choice([PauseScope.LAUNCHES, PauseScope.DISRUPTIONS, PauseScope.ALL])
        self.world.order(self._rng.choice([people.pause, people.resume]), scope)

    def human_scales(self) -> None:
        expires = self._rng.choice([None, 30, 300])
        self.world.order(people.scale_to, self._rng.randint(0, 6), expires, by="ann", reason="walk")

    def human_replaces(self) -> None:
        self.world.order(people.replace_instance, self.an_id())

    def human_terminates(self) -> None:
        self.world.order(people.terminate_instance, self.an_id())

    def human_holds_zone(self) -> None:
        zone = self._rng.choice(["ap-guangzhou-3", "ap-guangzhou-6", "ap-shanghai-5"])
        if self._rng.random() < 0.5:
            self.world.order(people.quarantine_zone, "tencent", zone, 20)
        else:
            self.world.order(people.clear_zone, "tencent", zone)

    def human_resyncs(self) -> None:
        self.world.order(people.resync)

    def cloud_warns(self) -> None:
        machine = self.a_machine()
        if machine is not None and machine.notice_at is None:
            self.world.notice(machine, self._rng.choice([5, 120, 300]))

    def cloud_takes(self) -> None:
        machine = self.a_machine()
        if machine is not None:
            self.world.vanish(machine)

    def cloud_takes_a_zone(self) -> None:
        zone = self._rng.choice([zone for zones in ZONES.values() for zone in zones])
        for machine in self.world.living:
            if machine.request.offer.zone == zone:
                self.world.vanish(machine)

    def region_fails(self) -> None:
        name = str(self._rng.choice(REGIONS))
        self.world.clouds.down.add(name)
        self.world.after(self._rng.choice([10, 100, 400, 2000]), lambda: self.world.clouds.down.discard(name))

    def stock_runs_out(self) -> None:
        zones = [zone for zones in ZONES.values() for zone in zones]
        for zone in self._rng.sample(zones, k=self._rng.randint(1, len(zones))):
            self.world.clouds.stock[zone] = self._rng.randint(0, 1)

    def node_is_deleted(self) -> None:
        if self.world.nodes:
            self.world.watchers.remove_node(self._rng.choice(sorted(self.world.nodes)))

    def bridge_stops(self) -> None:
        watchers = self.world.watchers
        watchers.bridge_down = True

        def back() -> None:
            watchers.bridge_down = False
            watchers.tell_everything()

        self.world.after(self._rng.choice([5, 60, 1200]), back)

    def memory_is_carried_over(self) -> None:
        self.world.carry_over()

    def chain_is_started_anew(self) -> None:
        # A create call that is still under way would be bought behind the new chain's back: that is the
        # orphan sweep's case, not this one.
        if not self.world.effects.creating:
            self.world.restart_chain(f"c{self._rng.randrange(16**7):07x}")

    # Peace ------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Everything is well again: the pool must come to its level, and to rest there."""
        world = self.world
        self.log.append(f"{world.t:8.1f} left in peace")
        world.heal()
        world.edit(paused=PauseScope.NONE, providers=a_spec().providers)
        world.order(people.resume, PauseScope.ALL)
        world.order(people.scale_to, 0, None, by="ann", reason="peace")
        world.order(people.resync)
        if self.world.resolved.profiles:
            world.demand(0)
        level = world.resolved.spec.min_instances
        world.run_until(lambda: self._is_at_rest(level) or self._gave_up(), SETTLE_SECONDS)
        if self._gave_up():
            # Machines of the bad time were still failing: a human says that the image is mended.
            world.order(people.resync)
            world.run_until(lambda: self._is_at_rest(level), SETTLE_SECONDS)
        assert world.condition("Ready")[0] == "True"
        assert len(world.living) == level == len(world.state.slots)
        assert {m.provider_id for m in world.living} == set(world.nodes)
        assert not any(node.tainted for node in world.nodes.values())

    def _gave_up(self) -> bool:
        return bootstrap_unhealthy(self.world.draft()) and not self.world.effects.in_flight

    def _is_at_rest(self, level: int) -> bool:
        world = self.world
        status = world.status
        idle = not world.effects.in_flight and world.now_waits_for == "nothing"
        return (
            idle
            and status.ready_instances == status.current_instances == level
            and len(world.living) == level
        )

    def end(self) -> None:
        world = self.world
        self.log.append(f"{world.t:8.1f} deleted")
        world.delete()
        took = world.run_until(lambda: world.finalizer_removed, 1800)
        assert took < 600


HAPPENINGS: list[Callable[[Walk], Any]] = [
    Walk.level_changes,
    Walk.provider_changes,
    Walk.pause_changes,
    Walk.demand_changes,
    Walk.human_pauses,
    Walk.human_scales,
    Walk.human_replaces,
    Walk.human_terminates,
    Walk.human_holds_zone,
    Walk.human_resyncs,
    Walk.cloud_warns,
    Walk.cloud_takes,
    Walk.cloud_takes_a_zone,
    Walk.region_fails,
    Walk.stock_runs_out,
    Walk.node_is_deleted,
    Walk.bridge_stops,
    Walk.memory_is_carried_over,
    Walk.chain_is_started_anew,
]
