"""Asking pools whether machines are theirs: only an explicit no makes a machine nobody's."""

from collections.abc import Mapping, Sequence

from temporalio import activity

from activities.cluster.base import POOLS, Cluster, Object
from activities.directory import PoolDirectory
from activities.failures import as_application_error
from activities.signatures import AskOwnersAnswer, AskOwnersRequest, SweepRecord
from activities.telemetry import metrics
from domain.contracts.facts import OwnedMachine, OwnershipAnswer, OwnershipQuestion
from domain.contracts.pools import OrphanPolicy


class OwnerActivities:
    """Bound to the cluster and to the directory of pools by ``workers.wiring``."""

    def __init__(self, cluster: Cluster, pools: PoolDirectory) -> None:
        self._cluster = cluster
        self._pools = pools

    @activity.defn(name="ops.ask_owners")
    async def ask_owners(self, request: AskOwnersRequest) -> AskOwnersAnswer:
        """Ask the pools of machines whether they own them.

        Returns:
            The pools' own words. A machine whose pool has neither workflow nor resource, or that names no
            pool, is answered with no; a machine whose pool did not answer has no entry.
        """
        answers: list[OwnershipAnswer] = []
        resources: Mapping[str, Object] | None = None
        for uid, machines in sorted(_by_pool(request.machines).items()):
            # Asked in this order: a pool that starts in between is found by its resource.
            workflow_id = await self._pools.find(uid) if uid else None
            if workflow_id is not None:
                answers += await self._ask(workflow_id, machines)
                continue
            if resources is None:
                resources = await self._resources()
            if uid not in resources:
                answers += [_nobodys(machine) for machine in machines]
        if resources is None:
            resources = await self._resources()
        asked = {machine.pool_uid for machine in request.machines}
        policies = {uid: policy for uid in sorted(asked) if (policy := _policy(resources.get(uid)))}
        return AskOwnersAnswer(answers=tuple(answers), policies=policies)

    async def _ask(self, workflow_id: str, machines: Sequence[OwnedMachine]) -> list[OwnershipAnswer]:
        answers = await self._pools.ask_ownership(workflow_id, OwnershipQuestion(machines=tuple(machines)))
        if answers is None:
            activity.logger.warning("A pool gave no answer", extra={"workflow_id": workflow_id})
            return []
        asked = {machine.instance_id for machine in machines}
        return [answer for answer in answers if answer.instance_id in asked]

    async def _resources(self) -> dict[str, Object]:
        """Every GPUSpotPool of the cluster by uid."""
        found: dict[str, Object] = {}
        token = ""
        with as_application_error():
            while True:
                page = await self._cluster.list_page(POOLS, continue_token=token)
                found |= {item["metadata"]["uid"]: item for item in page.items}
                token = page.continue_token
                if not token:
                    return found

    @activity.defn(name="ops.record_sweep")
    async def record_sweep(self, request: SweepRecord) -> None:
        """Make a sweep's result visible as metrics."""
        region = request.region
        labels = (region.provider.value, region.account, region.region)
        metrics.ORPHANS.labels(*labels).set(request.orphans)
        metrics.ORPHAN_COST.labels(*labels).set(float(request.cost_per_hour))
        metrics.ORPHANS_RECLAIMED.labels(*labels).inc(request.reclaimed)


def _by_pool(machines: Sequence[OwnedMachine]) -> dict[str, list[OwnedMachine]]:
    groups: dict[str, list[OwnedMachine]] = {}
    for machine in machines:
        groups.setdefault(machine.pool_uid, []).append(machine)
    return groups


def _nobodys(machine: OwnedMachine) -> OwnershipAnswer:
    reason = "its pool has neither workflow nor resource" if machine.pool_uid else "it names no pool"
    return OwnershipAnswer(instance_id=machine.instance_id, owned=False, reason=reason)


def _policy(resource: Object | None) -> OrphanPolicy | None:
    text = resource["spec"].get("orphanPolicy") if resource else None
    return OrphanPolicy(text) if text in set(OrphanPolicy) else None
