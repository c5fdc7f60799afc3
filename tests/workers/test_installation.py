import asyncio
from uuid import UUID

import pytest

from activities.cluster.base import CONFIG_MAPS
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.installation import Installation
from domain.contracts.names import INSTALLATION_CONFIG_MAP
from tests.fakes.cluster import FakeCluster
from workers.errors import ConfigurationError
from workers.installation import read_or_make


async def test_installation_is_made_once_and_read_ever_after() -> None:
    cluster = FakeCluster()
    first = await read_or_make(cluster, "ops")
    assert (UUID(first.id).version, first.epoch) == (4, 1)
    assert await read_or_make(cluster, "ops") == first


async def test_processes_that_start_together_agree() -> None:
    cluster = FakeCluster()
    found = await asyncio.gather(*(read_or_make(cluster, "ops") for _ in range(8)))
    assert len(set(found)) == 1


async def test_installation_with_a_raised_epoch_is_taken_as_it_is() -> None:
    cluster = FakeCluster()
    body = {"metadata": {"name": INSTALLATION_CONFIG_MAP}, "data": {"id": "moved", "epoch": "3"}}
    await cluster.create(CONFIG_MAPS, body, "ops")
    assert await read_or_make(cluster, "ops") == Installation(id="moved", epoch=3)


@pytest.mark.parametrize("data", [{}, {"id": "x"}, {"id": "", "epoch": "1"}, {"id": "x", "epoch": "two"}])
async def test_broken_installation_is_refused_and_named(data: dict[str, str]) -> None:
    cluster = FakeCluster()
    body = {"metadata": {"name": INSTALLATION_CONFIG_MAP}, "data": data}
    await cluster.create(CONFIG_MAPS, body, "ops")
    with pytest.raises(ConfigurationError, match="ConfigMap ops/spotgpu-installation must hold"):
        await read_or_make(cluster, "ops")


async def test_missing_namespace_is_named() -> None:
    cluster = FakeCluster()
    cluster.fail_next("create", ClusterError(ErrorCode.NOT_FOUND, "no namespace", operation="create"))
    with pytest.raises(ConfigurationError, match="namespace ops does not exist"):
        await read_or_make(cluster, "ops")


async def test_missing_rights_are_named() -> None:
    cluster = FakeCluster()
    cluster.fail_next("get", ClusterError(ErrorCode.FORBIDDEN, "cannot get", operation="get configmaps"))
    with pytest.raises(ConfigurationError, match="cannot get"):
        await read_or_make(cluster, "ops")
