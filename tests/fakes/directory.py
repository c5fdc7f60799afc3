"""An in-memory ``PoolDirectory``: pools by uid, what they were told, what they say they own."""

from collections.abc import Mapping

from temporalio.service import RPCError, RPCStatusCode

from domain.contracts.facts import OwnershipAnswer, OwnershipQuestion, RegionObservation, RegionState
from domain.contracts.model import Contract
from domain.contracts.offers import RegionKey


class FakePools:
    """Workflow ids are ``pool:default:<uid>``."""

    def __init__(self, *uids: str, in_region: tuple[str, ...] | None = None) -> None:
        self.running = set(uids)
        self.naming = set(uids if in_region is None else in_region)
        self.told: list[tuple[str, str, Contract]] = []
        self.owned: dict[str, set[str]] = {}
        self.silent: set[str] = set()
        self.finds = 0
        self.unreachable = 0
        """How many of the next signals fail as if Temporal were down."""

    async def in_region(self, region: RegionKey) -> Mapping[str, str]:
        return {uid: f"pool:default:{uid}" for uid in sorted(self.running & self.naming)}

    async def find(self, pool_uid: str) -> str | None:
        self.finds += 1
        return f"pool:default:{pool_uid}" if pool_uid in self.running else None

    async def tell(self, workflow_id: str, signal: str, payload: Contract) -> bool:
        if self.unreachable:
            self.unreachable -= 1
            raise RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
        uid = workflow_id.rpartition(":")[2]
        if uid not in self.running:
            return False
        self.told.append((uid, signal, payload))
        return True

    async def ask_ownership(
        self, workflow_id: str, question: OwnershipQuestion
    ) -> tuple[OwnershipAnswer, ...] | None:
        uid = workflow_id.rpartition(":")[2]
        if uid in self.silent:
            return None
        owned = self.owned.get(uid, set())
        return tuple(
            OwnershipAnswer(instance_id=m.instance_id, owned=m.instance_id in owned, reason="asked")
            for m in question.machines
        )

    def observations(self, uid: str) -> list[list[str]]:
        """Instance ids of every observation that this pool got, in order."""
        return [
            [i.id for i in payload.instances]
            for told, _, payload in self.told
            if told == uid and isinstance(payload, RegionObservation)
        ]

    def healths(self, uid: str) -> list[str]:
        """Every health that this pool was told, in order."""
        return [p.health.value for told, _, p in self.told if told == uid and isinstance(p, RegionState)]
