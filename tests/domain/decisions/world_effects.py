"""How the simulated outside carries out a pool's commands: late, wrongly, twice seen, or not at all."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from domain.contracts import commands as c
from domain.contracts import outcomes as o
from domain.contracts.errors import ErrorCode
from domain.contracts.facts import DrainResult, NodesSeen, RegionObservation
from domain.contracts.instances import Created, LaunchRequest, Refusal, Rejected, Unmade
from domain.contracts.offers import RegionKey
from tests.domain.decisions.world_cloud import PLENTY, CloudMachine, at

if TYPE_CHECKING:
    from tests.domain.decisions.pool_world import PoolWorld

BOOT = (5.0, 40.0)
JOIN = (20.0, 120.0)
GPUS = (10.0, 60.0)

QUOTA_REFUSAL = Refusal(
    code=ErrorCode.QUOTA,
    vendor_code="LimitExceeded.SpotQuota",
    # As an adapter writes it.
    message="spot vCPU in ap-guangzhou-3: 64 of 64 used; tencent RunInstances: LimitExceeded.SpotQuota: no",
)


class WorldEffects:
    """Carries out commands and brings their ends back as facts."""

    def __init__(self, world: "PoolWorld") -> None:
        self._world = world
        self._epoch = 0
        self._called_back: set[str] = set()
        self.in_flight: dict[int, str] = {}
        """Kind of each command whose end has not come back."""
        self.creating: set[str] = set()
        """Tokens whose machine may still be made."""
        self.plan: Callable[[LaunchRequest], str] | None = None
        """Decides how a create ends, in place of chance: a name of ``_launch``'s endings, or empty."""
        self.never_answers: set[str] = set()
        """Regions whose offers are asked for in vain."""
        self.offers_fail_with = ""
        self._count = 0

    def forget_workflow(self) -> None:
        """The workflow is gone: what its effects bring is heard by nobody, what they did stays."""
        self._epoch += 1
        self.in_flight.clear()

    def carry_out(self, command: c.Command) -> None:
        carry = {
            "launch": self._launch,
            "cancel-launch": self._cancel,
            "find-launch": self._find,
            "read-region": self._read_region,
            "read-nodes": self._read_nodes,
            "read-offers": self._read_offers,
            "describe": self._describe,
            "terminate": self._terminate,
            "retain": self._retain,
            "drain": self._drain,
            "settle-nodes": self._settle,
            "delete-nodes": self._delete_nodes,
            "remove-finalizer": self._remove_finalizer,
        }[command.kind]
        carry(command)

    def _starts(self, kind: str) -> Callable[[o.Fact], None]:
        """Note that a command is under way; returns what its end is told to."""
        self._count += 1
        number, epoch = self._count, self._epoch
        self.in_flight[number] = kind

        def ends(fact: o.Fact) -> None:
            if epoch == self._epoch:
                del self.in_flight[number]
                self._world.learn(fact)

        return ends

    # Launches -------------------------------------------------------------------------------------------

    def _launch(self, command: c.Launch) -> None:
        world, request = self._world, command.request
        ends = self._starts("launch")
        self.creating.add(command.token)
        sent = world.between(0.1, 20 if world.chance(world.faults.slow_answer) else 2)
        world.after(sent, lambda: self._create(request, ends))

    def _cancel(self, command: c.CancelLaunch) -> None:
        self._called_back.add(command.token)

    def _create(self, request: LaunchRequest, ends: Callable[[o.Fact], None]) -> None:
        """The moment at which the create call reaches the cloud, if it still leaves."""
        world, token, zone = self._world, request.token, request.offer.zone
        if token in self._called_back:
            self.creating.discard(token)
            ends(o.LaunchUnanswered(token=token, error="called back"))
            return
        assert token not in world.clouds.creates, f"two create calls for {token}"
        world.clouds.creates.append(token)
        ending = (self.plan(request) if self.plan else "") or self._ending(request)
        if ending == "refused":
            code = ErrorCode.INSUFFICIENT_CAPACITY
            self._answer(token, ends, Refusal(code=code, vendor_code="SoldOut"))
        elif ending == "not-offered":
            code = ErrorCode.INSUFFICIENT_CAPACITY
            self._answer(token, ends, Refusal(code=code, vendor_code="NotSold", not_offered=True))
        elif ending == "quota":
            self._answer(token, ends, QUOTA_REFUSAL)
        elif ending == "rejected":
            code = ErrorCode.INVALID_REQUEST
            self._answer(token, ends, Rejected(code=code, vendor_code="ImageNotFound", message="no image"))
        elif ending == "forbidden":
            self._answer(token, ends, Rejected(code=ErrorCode.FORBIDDEN, vendor_code="UnauthorizedOperation"))
        elif ending == "unsent":
            result = Unmade(code=ErrorCode.UNAVAILABLE, message="nobody listens")
            self._answer(token, ends, result)
        elif ending == "unmade":
            self.creating.discard(token)
            world.after(world.between(5, 60), lambda: ends(self._unanswered(token)))
        elif ending == "late":
            told = world.between(5, 20)
            world.after(told, lambda: ends(self._unanswered(token)))
            world.after(told + world.between(0, 40), lambda: self._make(request))
        else:
            machine = self._make(request)
            created = Created(instance_id=machine.id, zone=zone)
            fact = o.LaunchAnswered(token=token, result=created)
            end = self._unanswered(token) if ending == "made" else fact
            world.after(world.between(0.1, 3), lambda: ends(end))

    def _ending(self, request: LaunchRequest) -> str:
        world, faults = self._world, self._world.faults
        if str(request.offer.region_key) in world.clouds.down:
            return "unsent" if world.chance(0.5) else "unmade"
        if world.clouds.stock.get(request.offer.zone, PLENTY) <= 0 or world.chance(faults.refuse):
            return "refused"
        chances = (
            ("rejected", faults.reject),
            ("made", faults.unanswered_made),
            ("unmade", faults.unanswered_unmade),
            ("late", faults.late_made),
        )
        return next((name for name, chance in chances if world.chance(chance)), "")

    @staticmethod
    def _unanswered(token: str) -> o.LaunchUnanswered:
        return o.LaunchUnanswered(token=token, error="UnknownOutcome: no answer")

    def _answer(
        self, token: str, ends: Callable[[o.Fact], None], result: Refusal | Rejected | Unmade
    ) -> None:
        self.creating.discard(token)
        fact = o.LaunchAnswered(token=token, result=result)
        self._world.after(self._world.between(0.1, 2), lambda: ends(fact))

    def _make(self, request: LaunchRequest) -> CloudMachine:
        world, faults = self._world, self._world.faults
        clouds, zone = world.clouds, request.offer.zone
        if zone in clouds.stock:
            clouds.stock[zone] -= 1
        runs = None if world.chance(faults.never_runs) else world.t + world.between(*BOOT)
        joins = None if runs is None or world.chance(faults.never_joins) else runs + world.between(*JOIN)
        gpus = request.offer.instance_type.gpu_count - (1 if world.chance(faults.few_gpus) else 0)
        prefix = "ins" if request.offer.provider.value == "tencent" else "i"
        machine = CloudMachine(
            id=f"{prefix}-{len(clouds.machines) + 1:04d}",
            request=request,
            born=world.t,
            listed_from=world.t + world.between(0, faults.list_lag) if faults.list_lag else world.t,
            runs_at=runs,
            joins_at=joins,
            gpus_at=None if joins is None else joins + world.between(*GPUS),
            gpus=gpus,
        )
        self.creating.discard(request.token)
        clouds.machines[machine.id] = machine
        world.watchers.expect(machine)
        return machine

    def _find(self, command: c.FindLaunch) -> None:
        world, token = self._world, command.token
        ends = self._starts("find-launch")

        def look() -> None:
            if self._fails(command.region, world.faults.read_fails):
                ends(o.LookFailed(token=token, error="Unavailable"))
                return
            found = tuple(
                i for i in world.clouds.listed(command.region, world.t) if i.tags["spotgpu-launch"] == token
            )
            self._later(ends, o.LaunchLooked(token=token, as_of=world.stamp(), instances=found))

        world.after(world.between(0.1, 1), look)

    # Readings -------------------------------------------------------------------------------------------

    def _fails(self, region: RegionKey, share: float) -> bool:
        return str(region) in self._world.clouds.down or self._world.chance(share)

    def _later(self, ends: Callable[[o.Fact], None], fact: o.Fact) -> None:
        self._world.after(self._world.between(0.1, 2), lambda: ends(fact))

    def _read_region(self, command: c.ReadRegion) -> None:
        world, region = self._world, command.region
        ends = self._starts("read-region")

        def read() -> None:
            if self._fails(region, world.faults.read_fails):
                world.after(
                    world.between(1, 40), lambda: ends(o.RegionReadFailed(region=region, error="down"))
                )
                return
            seen = tuple(world.clouds.listed(region, world.t))
            self._later(ends, RegionObservation(region=region, as_of=world.stamp(), instances=seen))

        world.after(world.between(0.05, 0.5), read)

    def _read_nodes(self, _command: c.ReadNodes) -> None:
        world = self._world
        ends = self._starts("read-nodes")
        if world.chance(world.faults.read_fails):
            self._later(ends, o.NodesReadFailed(error="Unavailable"))
            return
        facts = tuple(node.fact() for _, node in sorted(world.nodes.items()))
        self._later(ends, NodesSeen(as_of=world.stamp_of_list(), nodes=facts, complete=True))

    def _read_offers(self, command: c.ReadOffers) -> None:
        world, region = self._world, command.region
        ends = self._starts("read-offers")
        if str(region) in self.never_answers:
            return
        if self.offers_fail_with or self._fails(region, world.faults.read_fails):
            self._later(ends, o.OffersFailed(region=region, error=self.offers_fail_with or "down"))
            return
        self._later(ends, o.OffersRead(region=region, offers=world.clouds.offers(region, world.t)))

    def _describe(self, command: c.Describe) -> None:
        world, region, ids = self._world, command.region, command.instance_ids
        ends = self._starts("describe")

        def look() -> None:
            if self._fails(region, world.faults.describe_fails):
                self._later(ends, o.DescribeFailed(region=region, asked=ids, error="Unavailable"))
                return
            seen = tuple(world.clouds.described(ids, world.t))
            self._later(ends, o.Described(region=region, asked=ids, as_of=world.stamp(), instances=seen))

        world.after(world.between(0.05, 0.5), look)

    # Ending ---------------------------------------------------------------------------------------------

    def _terminate(self, command: c.Terminate) -> None:
        world, region, ids = self._world, command.region, command.instance_ids
        ends = self._starts("terminate")

        def tell() -> None:
            if str(region) in world.clouds.down:
                world.after(15, tell)
                return
            if world.chance(world.faults.tell_fails):
                ends(o.TellFailed(region=region, instance_ids=ids, error="Conflict"))
                return
            for machine in (world.clouds.machines[i] for i in ids if i in world.clouds.machines):
                self._end(machine)
            self._later(ends, o.Told(region=region, instance_ids=ids))

        world.after(world.between(0.1, 1), tell)

    def _end(self, machine: CloudMachine) -> None:
        world = self._world
        if machine.told_at is not None or not machine.is_alive(world.t):
            return
        machine.told_at = world.t
        machine.ends_at = world.t + world.between(0.5, 30)
        world.at(machine.ends_at + 20, lambda: world.watchers.go_dark(machine))

    def _retain(self, command: c.Retain) -> None:
        ends = self._starts("retain")
        for instance_id in command.instance_ids:
            self._world.clouds.machines[instance_id].retained = True
        self._later(ends, o.Retained(region=command.region, instance_ids=command.instance_ids))

    def _drain(self, command: c.Drain) -> None:
        world, token = self._world, command.token
        ends = self._starts("drain")
        left = (command.deadline - at(world.t)).total_seconds()
        if world.chance(world.faults.drain_fails):
            self._later(ends, o.DrainFailed(token=token, error="Unavailable"))
        elif world.chance(world.faults.drain_blocks):
            blocked = DrainResult(
                done=False, blockers=("train/a-0: PodDisruptionBudget train/keep allows 0",)
            )
            world.after(left, lambda: ends(o.Drained(token=token, result=blocked)))
        else:
            fact = o.Drained(token=token, result=DrainResult(done=True))
            world.after(min(world.between(1, 30), left), lambda: ends(fact))

    # The cluster ----------------------------------------------------------------------------------------

    def _settle(self, command: c.SettleNodes) -> None:
        world, tokens = self._world, tuple(node.token for node in command.nodes)
        ends = self._starts("settle-nodes")
        if world.chance(world.faults.settle_fails):
            self._later(ends, o.NodesSettled(tokens=tokens, error="Conflict"))
            return
        for wanted in command.nodes:
            node = world.nodes.get(wanted.provider_id)
            if node is not None and node.name == wanted.name:
                node.tainted = False
                world.watchers.changed(node)
        self._later(ends, o.NodesSettled(tokens=tokens))

    def _delete_nodes(self, command: c.DeleteNodes) -> None:
        world, ids = self._world, tuple(command.nodes)
        ends = self._starts("delete-nodes")
        if world.chance(world.faults.delete_fails):
            self._later(ends, o.NodesDeleted(provider_ids=ids, error="Unavailable"))
            return
        for provider_id in ids:
            world.watchers.remove_node(provider_id)
        self._later(ends, o.NodesDeleted(provider_ids=ids))

    def _remove_finalizer(self, _command: c.RemoveFinalizer) -> None:
        world = self._world
        ends = self._starts("remove-finalizer")
        if world.chance(world.faults.finalizer_fails):
            self._later(ends, o.FinalizerRemoved(error="Conflict"))
            return
        world.checks.lets_go()

        def gone() -> None:
            ends(o.FinalizerRemoved())
            world.finalizer_removed = True

        world.after(0.2, gone)
