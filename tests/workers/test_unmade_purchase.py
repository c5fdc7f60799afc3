"""What attempts of a purchase know of each other, against a real Temporal server."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.instances import InstanceActivities
from domain.contracts.errors import ErrorCode
from domain.contracts.installation import Installation
from domain.contracts.instances import Created, LaunchAnswer, Unmade
from domain.contracts.lanes import Lane
from tests.activities.builders import JOIN, a_fault, a_request
from tests.fakes.provider import REGION, FakeClouds, FakeProvider, FakeSecrets
from tests.workers.one_purchase import OnePurchase
from workflows.options import POOLS_QUEUE
from workflows.runtime import WORKFLOW_RUNNER

pytestmark = pytest.mark.temporal

AWAY = ErrorCode.UNAVAILABLE


async def bought(client: Client, cloud: FakeProvider) -> LaunchAnswer:
    """What a pool is told, with the product's own retries."""
    hands = InstanceActivities(
        FakeClouds(cloud), Installation(id="inst-1"), FakeSecrets(**{"cluster-join": JOIN})
    )
    with ThreadPoolExecutor(2) as threads:
        purchases = Worker(
            client,
            task_queue=Lane.PURCHASES.queue(REGION),
            activities=[hands.create_instance],
            activity_executor=threads,
            max_concurrent_activities=2,
        )
        pools = Worker(
            client, task_queue=POOLS_QUEUE, workflows=[OnePurchase], workflow_runner=WORKFLOW_RUNNER
        )
        async with purchases, pools:
            return await client.execute_workflow(
                OnePurchase.run,
                a_request(),
                id=f"purchase-{uuid.uuid4()}",
                task_queue=POOLS_QUEUE,
                execution_timeout=timedelta(seconds=40),
            )


async def test_purchase_whose_every_attempt_found_nobody_is_certainly_unmade(client: Client) -> None:
    cloud = FakeProvider()
    cloud.faults["launch"] = [a_fault(AWAY) for _ in range(4)]
    answer = await bought(client, cloud)
    assert answer.result == Unmade(code=AWAY, message=str(a_fault(AWAY)))
    assert cloud.calls == ["launch"] * 4, "there was never a machine to look for"


async def test_purchase_with_one_uncertain_attempt_looks_for_its_machine(client: Client) -> None:
    cloud = FakeProvider()
    cloud.faults["launch"] = [a_fault(AWAY)]
    cloud.faults_after_buying = [a_fault(ErrorCode.UNKNOWN_OUTCOME)]
    answer = await bought(client, cloud)
    assert isinstance(answer.result, Created)
    assert answer.result.found
    assert cloud.calls == ["launch", "launch", "list_tagged"]
