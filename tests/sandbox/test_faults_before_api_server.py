"""The HTTP proxy before the real API server, over TLS with the server's own certificate."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandbox.control_plane.launcher import ControlPlane
from sandbox.faults import Act, HttpFaults, Rule
from sandbox.node_api import ApiAccess, NodeApi, NodeApiError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
async def faults(shared_control_plane: ControlPlane) -> AsyncIterator[HttpFaults]:
    certificate = shared_control_plane.ca_file
    faults = HttpFaults(
        "kubernetes",
        shared_control_plane.server,
        upstream_ca=certificate,
        tls=(certificate, certificate.with_suffix(".key")),
    )
    await faults.start()
    yield faults
    await faults.close()


@pytest.fixture
async def api(faults: HttpFaults, shared_control_plane: ControlPlane) -> AsyncIterator[NodeApi]:
    api = NodeApi(ApiAccess(faults.url, shared_control_plane.ca_file, shared_control_plane.admin_token))
    yield api
    await api.close()


@pytest.mark.parametrize("status", [429, 500, 410])
async def test_faults_refuses_a_request_that_the_real_server_then_serves(
    faults: HttpFaults, api: NodeApi, status: int
) -> None:
    faults.add(Rule("busy", Act.ANSWER, path="/pods", status=status, headers={"Retry-After": "1"}))
    with pytest.raises(NodeApiError) as refused:
        await api.pods()
    assert refused.value.status == status
    _, version = await api.pods()
    assert version


async def test_faults_expires_a_watch_of_the_real_server(faults: HttpFaults, api: NodeApi) -> None:
    _, version = await api.pods()
    faults.add(Rule("old", Act.EXPIRE_WATCH, path="watch=true"))
    with pytest.raises(NodeApiError) as expired:
        await anext(api.watch_bound_pods(version))
    assert expired.value.status == 410
