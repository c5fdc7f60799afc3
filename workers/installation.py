"""The installation's identity: made once, kept in a ConfigMap of the operator's namespace."""

import uuid

from activities.cluster.base import CONFIG_MAPS, Cluster, Object
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.installation import Installation
from domain.contracts.names import INSTALLATION_CONFIG_MAP
from workers.errors import ConfigurationError


async def read_or_make(cluster: Cluster, namespace: str) -> Installation:
    """The identity of this installation; the first process that asks makes it.

    Raises:
        ConfigurationError: The namespace is missing, the rights are, or somebody broke the ConfigMap.
    """
    where = f"ConfigMap {namespace}/{INSTALLATION_CONFIG_MAP}"
    try:
        found = await _read(cluster, namespace) or await _make(cluster, namespace)
    except ClusterError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise ConfigurationError(
                f"namespace {namespace} does not exist; create it, or set SPOTGPU_OPERATOR_NAMESPACE"
            ) from error
        raise ConfigurationError(f"{where} cannot be read or made: {error}") from error
    values: Object = found.get("data") or {}
    epoch = str(values.get("epoch", ""))
    if not values.get("id") or not epoch.isdecimal():
        raise ConfigurationError(f"{where} must hold an id and a whole number as epoch; restore it")
    return Installation(id=str(values["id"]), epoch=int(epoch))


async def _read(cluster: Cluster, namespace: str) -> Object | None:
    try:
        return await cluster.get(CONFIG_MAPS, INSTALLATION_CONFIG_MAP, namespace)
    except ClusterError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return None


async def _make(cluster: Cluster, namespace: str) -> Object:
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": INSTALLATION_CONFIG_MAP, "namespace": namespace},
        "data": {"id": str(uuid.uuid4()), "epoch": "1"},
    }
    try:
        return await cluster.create(CONFIG_MAPS, body, namespace)
    except ClusterError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
    # Another process was faster: its identity is the one.
    return await cluster.get(CONFIG_MAPS, INSTALLATION_CONFIG_MAP, namespace)
