"""The accounts of the simulated clouds: which clouds there are, what each account owns, and its keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from domain.contracts.offers import ProviderName
from sandbox.clouds.huawei import project_of
from sandbox.inventories import inventory_of, read_node_class
from sandbox.provision import EXAMPLES
from sandbox.world_config import CloudConfig

NODE_CLASSES: Mapping[ProviderName, Path] = {
    ProviderName.TENCENT: EXAMPLES / "gpuspotnodeclass.yaml",
    ProviderName.ALIYUN: EXAMPLES / "gpuspotnodeclass-aliyun.yaml",
    ProviderName.HUAWEI: EXAMPLES / "gpuspotnodeclass-huawei.yaml",
    ProviderName.AWS: EXAMPLES / "gpuspotnodeclass-aws.yaml",
}
_KEYS: Mapping[ProviderName, Callable[[], tuple[str, str]]] = {
    ProviderName.TENCENT: lambda: (f"AKID{secrets.token_hex(10)}", secrets.token_hex(16)),
    ProviderName.ALIYUN: lambda: (f"LTAI{secrets.token_hex(10)}", secrets.token_hex(16)),
    ProviderName.HUAWEI: lambda: (secrets.token_hex(10).upper(), secrets.token_hex(20)),
    ProviderName.AWS: lambda: (f"AKIA{secrets.token_hex(8).upper()}", secrets.token_hex(20)),
}
"""An access key and its secret, as long and as spelled as the vendor's."""
USUAL_CLOUDS = (ProviderName.TENCENT, ProviderName.ALIYUN)
"""What runs unless more is asked for: the demo and the recorded outputs are about these two."""


def clouds_named(text: str) -> tuple[ProviderName, ...]:
    """Read a comma-separated list of clouds, each once.

    Raises:
        ValueError: Nothing is named, something twice, or a cloud that the sandbox does not have.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(NODE_CLASSES)]
    if unknown or not names or len(set(names)) < len(names):
        wrong = f"no cloud {unknown[0]!r}" if unknown else f"{text!r} must name each cloud once"
        raise ValueError(f"{wrong}: choose from {','.join(NODE_CLASSES)}")
    return tuple(ProviderName(name) for name in names)


def new_account(provider: ProviderName, port: int, proxy_port: int) -> CloudConfig:
    """A cloud with new keys in the vendor's form, which owns what its example node class names.

    Raises:
        ValueError: The sandbox has no account of this cloud yet.
    """
    if provider not in NODE_CLASSES or provider not in _KEYS:
        raise ValueError(
            f"no account of {provider}: enter its node class and its keys in sandbox/accounts.py"
        )
    key, secret = _KEYS[provider]()
    projects: dict[str, str] = {}
    if provider is ProviderName.HUAWEI:
        regions = inventory_of(read_node_class(NODE_CLASSES[provider])).zones
        projects = {f"projectId.{region}": project_of(region) for region in regions}
    return CloudConfig(
        provider=provider,
        node_class=NODE_CLASSES[provider],
        access_key_id=key,
        access_key_secret=secret,
        projects=projects,
        port=port,
        proxy_port=proxy_port,
    )
