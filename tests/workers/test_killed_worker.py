"""A worker that is really killed, against a real Temporal server."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from domain.contracts.instances import Created, LaunchAnswer
from tests.activities.builders import a_request
from workflows.options import POOLS_QUEUE

pytestmark = pytest.mark.temporal


@contextmanager
def a_worker(address: str, folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.workers.dying_worker", address, str(folder), *flags]
    process = subprocess.Popen(command)  # noqa: S603  # our own module
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(10)


async def test_p03_purchase_of_a_killed_worker_is_found_and_not_repeated(
    client: Client, temporal_address: str, tmp_path: Path
) -> None:
    """The cloud here has no client tokens: only the look for the launch's tag prevents the second machine."""
    handle = await client.start_workflow(
        "OnePurchase",
        a_request(),
        id=f"purchase-{uuid.uuid4()}",
        task_queue=POOLS_QUEUE,
        result_type=LaunchAnswer,
        execution_timeout=timedelta(seconds=50),
    )
    with a_worker(temporal_address, tmp_path, "--die") as doomed:
        assert doomed.wait(30) == -signal.SIGKILL, "killed after the cloud accepted"
    (bought,) = tmp_path.glob("*.json")

    with a_worker(temporal_address, tmp_path):
        answer = await handle.result()

    assert answer.result == Created(instance_id=bought.stem, zone="ap-guangzhou-3", found=True)
    assert list(tmp_path.glob("*.json")) == [bought]
