"""A simulated cloud with a region full of machines, bought through the adapter that the worker builds."""

import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from activities.providers.base import Provider
from activities.providers.registry import ProviderRegistry, build_adapter
from domain.contracts.instances import Created, InstanceState, LaunchRequest
from domain.contracts.settings import PoolSettings
from sandbox.clouds.admin import SettingsRequest
from sandbox.clouds.cloud import Cloud
from sandbox.clouds.control import CloudControl
from sandbox.clouds.server import served
from tests.activities.providers.cloud_case import CloudCase, Keys, now
from tests.bench.rig import BenchError, wait_until

MACHINES = 100
BOOT = "#!/bin/sh\nkubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef\n" + "# a line of set-up\n" * 50
"""User data of about a kilobyte, as the example node classes have it."""
_THREADS = 8
_BOOT_SECONDS = 60.0


@dataclass(frozen=True)
class SimulatedRegion:
    """A region of one cloud that the operator serves."""

    case: CloudCase
    cloud: Cloud
    control: CloudControl
    registry: ProviderRegistry
    server: threading.Thread
    """Where the simulator runs; everything else in this process is the client."""

    @property
    def provider(self) -> Provider:
        """The adapter, with its default settings, observed as the worker has it."""
        return self.registry.provider(self.case.key)

    def request(self, number: int) -> LaunchRequest:
        """A purchase like the pool's own, with a dead-man switch."""
        ends_at = now() + timedelta(seconds=PoolSettings().dead_man_seconds)
        token = f"pool-1-abcd1234-{number}"
        return self.case.request(token, name=f"gpu-{number}", dead_man_at=ends_at.replace(microsecond=0))

    def launch(self, number: int) -> str:
        """Buy one machine; returns its id.

        Raises:
            BenchError: The cloud said no.
        """
        result = self.provider.launch(self.request(number), BOOT)
        if not isinstance(result, Created):
            raise BenchError(f"{self.case.provider} sold no machine: {result}")
        return result.instance_id

    def fill(self) -> list[str]:
        """Buy all machines and wait until they run; returns their ids."""
        with ThreadPoolExecutor(_THREADS) as threads:
            ids = list(threads.map(self.launch, range(MACHINES)))
        wait_until(f"{MACHINES} machines run", lambda: self._all_run(ids), _BOOT_SECONDS)
        return ids

    def _all_run(self, ids: list[str]) -> bool:
        found = self.provider.describe(ids)
        return len(found) == MACHINES and all(each.state is InstanceState.RUNNING for each in found)

    def mark(self) -> int:
        """Number of the newest request."""
        return len(self.control.requests())

    def calls_since(self, mark: int) -> Counter[str]:
        """Requests after a mark, by action."""
        return Counter(record.action for record in self.control.requests(after=mark))


@contextmanager
def simulated(case: CloudCase) -> Generator[SimulatedRegion]:
    """Serve a fresh cloud without limits of rate and stock, in a thread of this process."""
    cloud = case.simulator(case.settings())
    before = set(threading.enumerate())
    with served(cloud) as base_url:
        (server,) = set(threading.enumerate()) - before
        control = CloudControl(base_url)
        rates = dict.fromkeys(cloud.rates.per_second, 0)
        control.change_settings(SettingsRequest(rates_per_second=rates, default_rate_per_second=0))
        control.set_capacity(case.zones[0], None, 10 * MACHINES)
        endpoints = {case.provider: urlsplit(base_url).netloc}
        keys = Keys(dict(case.keys))
        registry = ProviderRegistry([case.key], lambda key: build_adapter(key, keys, endpoints))
        yield SimulatedRegion(case, cloud, control, registry, server)
        registry.close()
