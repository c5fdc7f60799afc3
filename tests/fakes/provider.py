"""An in-memory ``Provider``: machines in a dict, the next answers programmable, every call recorded."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from activities.providers.base import Capability, Provider
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.instances import (
    Created,
    Instance,
    InstanceState,
    LaunchRequest,
    LaunchResult,
    OfferQuery,
)
from domain.contracts.leftovers import Leftover
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey
from domain.contracts.provider_ids import provider_id

REGION = RegionKey(provider=ProviderName.TENCENT, account="tencent-credentials", region="ap-guangzhou")
ZONE = "ap-guangzhou-3"


class FakeProvider:
    """One region. ``faults`` are raised, in order, by the next calls of the named method."""

    def __init__(self, key: RegionKey = REGION) -> None:
        self.key = key
        self.machines: dict[str, Instance] = {}
        self.made: list[Instance] = []
        """Every machine that there ever was, as it was made."""
        self.by_token: dict[str, str] = {}
        self.honours_tokens = True
        """Whether a second launch with the same token answers with the first one's machine."""
        self.answers: list[LaunchResult] = []
        self.faults: dict[str, list[Exception]] = {}
        self.faults_after_buying: list[Exception | None] = []
        """Raised by the next launches after the machine was made: the answer that never came. None lets one
        arrive."""
        self.calls: list[str] = []
        self.user_data: list[str] = []
        self.before_launch: Callable[[], None] = lambda: None
        self.market: list[Offer] = []
        self.capabilities = frozenset(Capability)
        self.switches: dict[str, datetime] = {}
        """Machine to the time at which the cloud ends it by itself."""
        self.left: list[Leftover] = []
        self.closed = False
        self._lock = threading.Lock()

    def add(
        self, token: str = "", *, pool: str = "uid-1", installation: str = "inst-1", **changes: object
    ) -> Instance:
        """Put a machine there, as if it had been bought."""
        with self._lock:
            number = len(self.made) + 1
            tags = {TAG_POOL: pool, TAG_LAUNCH: token, TAG_INSTALLATION: installation}
            machine = Instance(
                provider=self.key.provider,
                region=self.key.region,
                zone=ZONE,
                id=f"ins-{number:04d}",
                provider_id=provider_id(self.key.provider, self.key.region, ZONE, f"ins-{number:04d}"),
                instance_type="GT4.4XLARGE96",
                capacity_type=CapacityType.SPOT,
                state=InstanceState.RUNNING,
                created_at=datetime.now(UTC),
                tags={key: value for key, value in tags.items() if value},
            ).model_copy(update=changes)
            self.machines[machine.id] = machine
            self.made.append(machine)
            return machine

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        self._enter("launch")
        self.before_launch()
        self.user_data.append(user_data)
        if self.answers:
            return self.answers.pop(0)
        if request.token not in self.by_token or not self.honours_tokens:
            machine = self.add(request.token, tags=dict(request.tags))
            self.by_token[request.token] = machine.id
        with self._lock:
            fault = self.faults_after_buying.pop(0) if self.faults_after_buying else None
        if fault is not None:
            raise fault
        return Created(instance_id=self.by_token[request.token], zone=ZONE)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        self._enter("terminate")
        for instance_id in instance_ids:
            self.machines.pop(instance_id, None)

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        self._enter("describe")
        return [self.machines[name] for name in instance_ids if name in self.machines]

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        self._enter("list_tagged")
        return [m for m in list(self.machines.values()) if tags.items() <= m.tags.items()]

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        self._enter("offers")
        names = {row.name for row in types}
        return [offer for offer in self.market if offer.instance_type.name in names]

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        self._enter("retain")
        for name in instance_ids:
            machine = self.machines[name]
            tags = {**machine.tags, TAG_RETAINED: installation}
            tags.pop(TAG_INSTALLATION, None)
            self.machines[name] = machine.model_copy(update={"tags": tags})

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        self._enter("dead_man_times")
        return {name: self.switches[name] for name in instance_ids if name in self.switches}

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        self._enter("renew_dead_man")
        self.switches.update((name, at) for name in instance_ids if name in self.machines)

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        self._enter("leftovers")
        return [each.model_copy(update={"ours": tags.items() <= each.tags.items()}) for each in self.left]

    def release(self, leftovers: Sequence[Leftover]) -> None:
        self._enter("release")
        gone = {each.id for each in leftovers}
        self.left = [each for each in self.left if each.id not in gone]

    def close(self) -> None:
        self.closed = True

    def count(self, method: str) -> int:
        return self.calls.count(method)

    def _enter(self, method: str) -> None:
        self.calls.append(method)
        if self.faults.get(method):
            raise self.faults[method].pop(0)


class FakeClouds:
    """A ``ProviderSource`` of fakes; regions that it was not given are not served."""

    def __init__(self, *providers: FakeProvider) -> None:
        self._providers = {str(provider.key): provider for provider in providers}

    def provider(self, key: RegionKey) -> Provider:
        return self._providers[str(key)]


class FakeSecrets:
    """A ``SecretReader`` on a dict."""

    def __init__(self, **secrets: Mapping[str, str]) -> None:
        self.secrets: dict[str, Mapping[str, str]] = dict(secrets)
        self.fault: Exception | None = None

    def read(self, name: str) -> Mapping[str, str]:
        if self.fault:
            raise self.fault
        if name not in self.secrets:
            raise ClusterError(ErrorCode.NOT_FOUND, "not found", operation=f"get secrets/{name}", status=404)
        return self.secrets[name]
