"""Serves the workflows of pools, to be killed: ``python -m tests.workflows.pool_worker ADDRESS``."""

import asyncio
import sys

from temporalio.client import Client

from tests.workflows.conftest import pool_worker
from workflows.runtime import DATA_CONVERTER

STICKY_SECONDS = 2.0
"""After a worker's death its tasks wait for it as long as this."""


async def main(address: str) -> None:
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    worker = pool_worker(client, sticky_seconds=STICKY_SECONDS)
    sys.stdout.write("serves\n")
    sys.stdout.flush()
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
