"""A real Temporal dev server for the tests of this room that ask for one."""

from collections.abc import Iterator

import pytest
from temporalio.client import Client

from sandbox.temporal_server import TemporalServer, find_program
from workflows.runtime import DATA_CONVERTER


@pytest.fixture(scope="session")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = TemporalServer(tmp_path_factory.mktemp("temporal"), find_program())
    server.start()
    yield server.address
    server.stop()


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=DATA_CONVERTER)
