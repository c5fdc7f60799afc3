"""A workflow that buys one machine with the product's own options."""

from datetime import timedelta

from temporalio import workflow

from activities import signatures
from domain.contracts.instances import LaunchAnswer, LaunchRequest
from workflows import options


@workflow.defn
class OnePurchase:
    @workflow.run
    async def run(self, request: LaunchRequest) -> LaunchAnswer:
        return await workflow.execute_activity(
            signatures.create_instance,
            request,
            **options.create_instance(request.offer.region_key, heartbeat=timedelta(seconds=1)),
        )
