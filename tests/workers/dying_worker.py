"""A worker process whose cloud is a folder of files; with ``--die`` it is killed right after the purchase."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from activities.instances import InstanceActivities
from domain.contracts.installation import Installation
from domain.contracts.instances import Created, Instance, LaunchRequest, LaunchResult
from domain.contracts.lanes import Lane
from tests.fakes.provider import REGION, ZONE, FakeClouds, FakeProvider, FakeSecrets
from tests.workers.one_purchase import OnePurchase
from workflows.options import POOLS_QUEUE
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER


class FolderCloud(FakeProvider):
    """Machines are files, so that they outlive the worker. It knows no client tokens: a second call buys."""

    def __init__(self, folder: Path, *, deadly: bool) -> None:
        super().__init__()
        self._folder = folder
        self._deadly = deadly

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        machine = self.add(request.token, tags=dict(request.tags), id=f"ins-{os.getpid()}")
        (self._folder / f"{machine.id}.json").write_text(machine.model_dump_json())
        if self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return Created(instance_id=machine.id, zone=ZONE)

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        machines = [Instance.model_validate_json(path.read_text()) for path in self._folder.glob("*.json")]
        return [machine for machine in machines if tags.items() <= machine.tags.items()]


async def main(address: str, folder: Path, *, deadly: bool) -> None:
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    cloud = FolderCloud(folder, deadly=deadly)
    secrets = FakeSecrets(**{"cluster-join": {"server": "s", "token": "t", "caCertHash": "h"}})
    hands = InstanceActivities(FakeClouds(cloud), Installation(id="inst-1"), secrets)
    workflows = Worker(
        client,
        task_queue=POOLS_QUEUE,
        workflows=[OnePurchase],
        workflow_runner=WORKFLOW_RUNNER,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    with ThreadPoolExecutor(2) as threads:
        purchases = Worker(
            client,
            task_queue=Lane.PURCHASES.queue(REGION),
            activities=[hands.create_instance],
            activity_executor=threads,
            max_concurrent_activities=2,
        )
        await asyncio.gather(workflows.run(), purchases.run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), deadly="--die" in sys.argv))
