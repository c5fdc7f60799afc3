"""What the world process is told when it starts, and where it listens: one private file in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from domain.contracts.offers import ProviderName
from sandbox.boot_script import JoinLine
from sandbox.control_plane.kubeconfigs import write_private
from sandbox.node_api import ApiAccess


class CloudConfig(BaseModel):
    """One simulated cloud."""

    model_config = ConfigDict(frozen=True)

    provider: ProviderName
    node_class: Path
    """Node class file that says what the account owns."""
    access_key_id: str
    access_key_secret: str
    projects: Mapping[str, str] = Field(default_factory=dict[str, str])
    """More fields of the credentials Secret: a project's id by ``projectId.<region>`` (Huawei)."""
    port: int
    """Of the simulator itself, with its switches: the sandbox's own way."""
    proxy_port: int
    """Of the proxy before it: the operator's way."""


class TcpProxyConfig(BaseModel):
    """One proxy of raw connections."""

    model_config = ConfigDict(frozen=True)

    name: str
    port: int
    upstream_host: str
    upstream_port: int


class Latencies(BaseModel):
    """How slow clouds and machines are, in seconds."""

    model_config = ConfigDict(frozen=True)

    boot: float = 1.0
    """From the purchase to power."""
    end: float = 1.0
    """From the termination to absence from every list."""
    join: float = 0.5
    """From power to the Node."""
    gpu: float = 0.5
    """From the Node to its GPUs."""


class WorldConfig(BaseModel):
    """Everything about the outside world."""

    model_config = ConfigDict(frozen=True)

    seed: int
    clouds: tuple[CloudConfig, ...]
    tcp_proxies: tuple[TcpProxyConfig, ...] = ()
    control_port: int
    metadata_port: int
    api: ApiAccess
    join: JoinLine
    latencies: Latencies = Latencies()

    def cloud(self, provider: ProviderName) -> CloudConfig:
        """One cloud by name."""
        return next(cloud for cloud in self.clouds if cloud.provider is provider)

    def tcp_proxy(self, name: str) -> TcpProxyConfig | None:
        """One proxy by name, None when the stack runs without it."""
        return next((proxy for proxy in self.tcp_proxies if proxy.name == name), None)

    def save(self, path: Path) -> None:
        """Write for ``load``; the file holds keys, so only its owner may read it."""
        write_private(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> WorldConfig:
        """Read what ``save`` wrote."""
        return cls.model_validate_json(path.read_text())
