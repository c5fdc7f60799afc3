"""A lane's task queue as the Temporal server has it."""

from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client

SLOWEST: Final = 1 / 8
"""Share of its full rate that a lane always keeps: its calls find out that the cloud is well again."""


async def describe(client: Client, queue: str) -> DescribeTaskQueueResponse:
    """Who polls a queue of activities, and the limit that its rate has.

    Raises:
        RPCError: The server did not answer, or refused.
    """
    return await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            report_config=True,
        )
    )


def limit_of(answer: DescribeTaskQueueResponse) -> float | None:
    """Activities a second that the server lets through by a set limit, None without one."""
    found = answer.config.queue_rate_limit
    return found.rate_limit.requests_per_second if found.HasField("rate_limit") else None
