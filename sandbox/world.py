"""The outside world as one process: simulated clouds, their machines, and the proxies before everything.

Run as ``python -m sandbox.world CONFIG``. It ends at SIGTERM or SIGINT.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from domain.contracts.offers import ProviderName
from sandbox.clouds.aliyun import AliyunCloud
from sandbox.clouds.aws import AwsCloud
from sandbox.clouds.cloud import Cloud, CloudSettings
from sandbox.clouds.huawei import HuaweiCloud
from sandbox.clouds.inventory import Account
from sandbox.clouds.ledger import LedgerSettings
from sandbox.clouds.server import CloudServer
from sandbox.clouds.tencent import TencentCloud
from sandbox.faults import HttpFaults
from sandbox.inventories import inventory_of, read_node_class
from sandbox.machines import Machines, MachineSettings
from sandbox.market import Market
from sandbox.metadata import MetadataServer
from sandbox.node_api import NodeApi
from sandbox.tcp_faults import TcpFaults
from sandbox.world_config import CloudConfig, WorldConfig
from sandbox.world_control import WorldControl

_CLOUDS: Mapping[ProviderName, Callable[[CloudSettings], Cloud]] = {
    ProviderName.TENCENT: TencentCloud,
    ProviderName.ALIYUN: AliyunCloud,
    ProviderName.HUAWEI: HuaweiCloud,
    ProviderName.AWS: AwsCloud,
}


class World:
    """Everything that is outside of the operator, Kubernetes and Temporal."""

    def __init__(self, config: WorldConfig) -> None:
        """Build; must be called in the event loop that will run it."""
        self._config = config
        market = Market.seeded(config.seed)
        self._api = NodeApi(config.api)
        latencies = config.latencies
        self._machines = Machines(
            self._api, config.join, MachineSettings(join_seconds=latencies.join, gpu_seconds=latencies.gpu)
        )
        self._clouds = [self._build(cloud, market) for cloud in config.clouds]
        self._servers = [CloudServer(cloud) for cloud in self._clouds]
        self._http = {
            cloud.provider.value: HttpFaults(cloud.provider, f"http://127.0.0.1:{cloud.port}")
            for cloud in config.clouds
        }
        self._tcp = {
            proxy.name: TcpFaults(proxy.name, proxy.upstream_host, proxy.upstream_port)
            for proxy in config.tcp_proxies
        }
        self._metadata = MetadataServer(self._machines.metadata, self._machines.provider_of)
        self._control = WorldControl(self._machines, self._api, self._http, self._tcp)

    async def start(self) -> None:
        """Open every port; the control port last, so that who reaches it reaches all.

        Raises:
            OSError: A port is taken.
        """
        self._machines.start()
        for config, server in zip(self._config.clouds, self._servers, strict=True):
            await server.start(port=config.port)
            await self._http[config.provider.value].start(config.proxy_port)
        for proxy in self._config.tcp_proxies:
            await self._tcp[proxy.name].start(proxy.port)
        await self._metadata.start(self._config.metadata_port)
        await self._control.start(self._config.control_port)

    async def stop(self) -> None:
        """Close everything; what is held or hanging is cut."""
        await self._control.stop()
        for proxy in self._tcp.values():
            await proxy.close()
        for proxy in self._http.values():
            await proxy.close()
        for server in self._servers:
            await server.stop()
        await self._metadata.stop()
        await self._machines.stop()
        await self._api.close()

    def _build(self, config: CloudConfig, market: Market) -> Cloud:
        latencies = self._config.latencies
        settings = CloudSettings(
            market=market,
            inventory=inventory_of(read_node_class(config.node_class)),
            account=Account({config.access_key_id: config.access_key_secret}),
            ledger=LedgerSettings(boot_seconds=latencies.boot, end_seconds=latencies.end),
        )
        cloud = _CLOUDS[config.provider](settings)
        self._machines.attach(config.provider, cloud.ledger)
        return cloud


async def run(config: WorldConfig) -> None:
    """Run until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    world = World(config)
    try:
        await world.start()
        await ended.wait()
    finally:
        await world.stop()


def main(arguments: list[str]) -> int:
    """Entry of the process; returns its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(run(WorldConfig.load(Path(arguments[0]))))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # threads of open requests must not keep a stopped world alive
