"""Workflows that make one call in a lane with the product's own options."""

from temporalio import workflow

from activities import signatures
from activities.signatures import InstancesRequest
from workflows import options


@workflow.defn
class OneReading:
    @workflow.run
    async def run(self, request: InstancesRequest) -> None:
        await workflow.execute_activity(signatures.describe, request, **options.describe(request.region))


@workflow.defn
class OneEnd:
    @workflow.run
    async def run(self, request: InstancesRequest) -> None:
        await workflow.execute_activity(
            signatures.terminate_instances, request, **options.terminate_instances(request.region)
        )
