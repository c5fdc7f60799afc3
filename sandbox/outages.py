"""The five parts that chaos takes away and gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from domain.contracts.offers import ProviderName
from sandbox.clusters import OwnCluster
from sandbox.control_plane.components import API_SERVER
from sandbox.expectation import ExpectationError
from sandbox.operator_processes import BRIDGE, WORKER
from sandbox.stack import Stack

TEMPORAL = "temporal"
CLOUD = "cloud"
TARGETS = (WORKER, BRIDGE, API_SERVER, TEMPORAL, CLOUD)

_READY_SECONDS = 90
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Outages:
    """Takes parts of a stack away and gives them back. The stack must have a control plane of its own."""

    stack: Stack
    cloud: ProviderName
    """The one that goes away when a cloud does."""

    def take_away(self, target: str) -> None:
        """SIGKILL a process, or let a cloud refuse every connection."""
        self._kills()[target]()

    def give_back(self, targets: tuple[str, ...]) -> int:
        """Start what was taken away, servers and operator at once, and return when all of it works.

        An operator's process that ends because its servers are not there yet is started again, as Kubernetes
        would. Returns how often that was so.

        Raises:
            ExpectationError: Something did not come back.
        """
        for target in targets:
            if target not in self.stack.operator.names:
                self._starts()[target]()
        for target in targets:
            if target in self.stack.operator.names:
                self.stack.operator.start(target)
        return self._wait_ready()

    def revive(self) -> int:
        """Start processes of the operator that ended; returns how many."""
        operator = self.stack.operator
        dead = [name for name in operator.names if not operator.is_alive(name)]
        for name in dead:
            operator.start(name)
        return len(dead)

    def _wait_ready(self) -> int:
        deadline = time.monotonic() + _READY_SECONDS
        restarts = 0
        while not all(self.stack.operator.is_ready(name) for name in self.stack.operator.names):
            if time.monotonic() >= deadline:
                raise ExpectationError(
                    f"worker and bridge not ready within {_READY_SECONDS} s after an outage"
                )
            restarts += self.revive()
            time.sleep(_POLL_SECONDS)
        return restarts

    def _kills(self) -> Mapping[str, Callable[[], None]]:
        return {
            WORKER: lambda: self.stack.operator.kill(WORKER),
            BRIDGE: lambda: self.stack.operator.kill(BRIDGE),
            API_SERVER: lambda: self._own_cluster().plane.kill(API_SERVER),
            TEMPORAL: self.stack.temporal.kill,
            CLOUD: lambda: self.stack.switches.switch(self.cloud, "refuse"),
        }

    def _starts(self) -> Mapping[str, Callable[[], None]]:
        return {
            API_SERVER: lambda: self._own_cluster().plane.restart(API_SERVER),
            TEMPORAL: self.stack.temporal.start,
            CLOUD: lambda: self.stack.switches.switch(self.cloud, "accept"),
        }

    def _own_cluster(self) -> OwnCluster:
        cluster = self.stack.cluster
        if not isinstance(cluster, OwnCluster):
            raise ExpectationError(
                "chaos kills the API server, so it needs a control plane of the sandbox's own"
            )
        return cluster
