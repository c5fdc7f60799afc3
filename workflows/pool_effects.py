"""How a pool's commands are carried out: one activity each, whose end comes back as a fact."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities import signatures
from domain.contracts import commands as c
from domain.contracts import outcomes as o
from domain.contracts.errors import ErrorCode
from domain.contracts.resolved import ResolvedPool
from domain.contracts.settings import PoolSettings
from workflows import options

_MAX_ERROR_CHARS = 300
_MAX_NAMED = 3
ResultT = TypeVar("ResultT")


class Effects:
    """Carries commands out for one pool; remembers launches that can still be called back."""

    def __init__(self, resolved: ResolvedPool, settings: PoolSettings) -> None:
        self._resolved = resolved
        self._settings = settings
        self._launches: dict[str, workflow.ActivityHandle[signatures.LaunchAnswer]] = {}
        self._endings: list[workflow.ActivityHandle[Any]] = []
        """Drains and terminations under way, in their order: it is the same at each replay."""

    def take_over(self, resolved: ResolvedPool, settings: PoolSettings) -> None:
        """Take over an edit; what is under way goes on."""
        self._resolved, self._settings = resolved, settings

    @property
    def _heartbeat(self) -> timedelta:
        """How soon a worker that was killed in a call is noticed."""
        return timedelta(seconds=self._settings.create_heartbeat_seconds)

    @property
    def pool(self) -> signatures.ObjectRef:
        """The pool's resource by identity."""
        return signatures.ObjectRef(
            namespace=self._resolved.namespace, name=self._resolved.name, uid=self._resolved.uid
        )

    def call_back(self, token: str) -> None:
        """Ask for the cancellation of a launch; its task still brings the outcome."""
        handle = self._launches.get(token)
        if handle is not None:
            handle.cancel()

    @property
    def is_ending(self) -> bool:
        """Whether drains or terminations are under way."""
        return bool(self._endings)

    def give_up_endings(self) -> None:
        """Wait no more for drains and terminations: a person let the pool go without them."""
        for handle in self._endings:
            handle.cancel()

    async def _until_ended(self, handle: workflow.ActivityHandle[ResultT]) -> ResultT:
        self._endings.append(handle)
        try:
            return await handle
        finally:
            self._endings.remove(handle)

    async def carry_out(self, command: c.Command) -> o.Fact | None:
        """Carry one command out and return what came of it.

        A fault that the activity's own retries could not overcome is a fact too, so that the judgement
        decides what is next; nothing is raised for it.
        """
        match command:
            case c.CancelLaunch():
                self.call_back(command.token)
                return None
            case c.Launch() | c.FindLaunch():
                return await self._buy(command)
            case c.ReadRegion() | c.ReadNodes() | c.ReadOffers() | c.Describe():
                return await self._read(command)
            case c.Terminate() | c.Retain():
                return await self._end(command)
            case c.Drain():
                return await self._drain(command)
            case c.SettleNodes():
                return await self._settle(command)
            case c.DeleteNodes():
                return await self._delete_nodes(command)
            case c.RemoveFinalizer():
                return await self._remove_finalizer()

    async def _buy(self, command: c.Launch | c.FindLaunch) -> o.Fact:
        match command:
            case c.Launch():
                return await self._launch(command)
            case c.FindLaunch():
                return await self._find(command)

    async def _read(self, command: c.ReadRegion | c.ReadNodes | c.ReadOffers | c.Describe) -> o.Fact:
        match command:
            case c.ReadRegion():
                return await self._read_region(command)
            case c.ReadNodes():
                return await self._read_nodes()
            case c.ReadOffers():
                return await self._read_offers(command)
            case c.Describe():
                return await self._describe(command)

    async def _launch(self, command: c.Launch) -> o.Fact:
        region = command.request.offer.region_key
        handle = workflow.start_activity(
            signatures.create_instance,
            command.request,
            summary=f"{command.request.tags.get('spotgpu-slot', '')} {command.request.offer.key}",
            **options.create_instance(
                region,
                heartbeat=self._heartbeat,
                fairness_key=self._resolved.uid,
            ),
        )
        self._launches[command.token] = handle
        try:
            answer = await handle
        except ActivityError as error:
            return o.LaunchUnanswered(token=command.token, error=text_of(error))
        finally:
            del self._launches[command.token]
        return o.LaunchAnswered(token=command.token, result=answer.result)

    async def _find(self, command: c.FindLaunch) -> o.Fact:
        request = signatures.TokenRequest(
            region=command.region, pool_uid=self._resolved.uid, token=command.token
        )
        return await _fact_of(
            workflow.execute_activity(
                signatures.find_by_token,
                request,
                summary=command.token,
                **options.find_by_token(command.region),
            ),
            lambda r: o.LaunchLooked(token=command.token, as_of=r.as_of, instances=r.instances),
            lambda error: o.LookFailed(token=command.token, error=error),
        )

    async def _read_region(self, command: c.ReadRegion) -> o.Fact:
        request = signatures.PoolRegionRequest(region=command.region, pool_uid=self._resolved.uid)
        try:
            return await workflow.execute_activity(
                signatures.list_pool,
                request,
                summary=str(command.region),
                **options.list_pool(command.region),
            )
        except ActivityError as error:
            return o.RegionReadFailed(region=command.region, error=text_of(error), code=code_of(error))

    async def _read_nodes(self) -> o.Fact:
        request = signatures.PoolNodesRequest(pool_uid=self._resolved.uid)
        return await _fact_of(
            workflow.execute_activity(signatures.list_pool_nodes, request, **options.LIST_POOL_NODES),
            lambda nodes: nodes,
            lambda error: o.NodesReadFailed(error=error),
        )

    async def _read_offers(self, command: c.ReadOffers) -> o.Fact:
        request = signatures.OffersRequest(region=command.region, query=command.query)
        return await _fact_of(
            workflow.execute_activity(
                signatures.list_offers,
                request,
                summary=str(command.region),
                **options.list_offers(command.region),
            ),
            lambda answer: o.OffersRead(region=command.region, offers=answer.offers),
            lambda error: o.OffersFailed(region=command.region, error=error),
        )

    async def _describe(self, command: c.Describe) -> o.Fact:
        request = signatures.InstancesRequest(region=command.region, instance_ids=command.instance_ids)
        return await _fact_of(
            workflow.execute_activity(
                signatures.describe,
                request,
                summary=named(command.instance_ids),
                **options.describe(command.region),
            ),
            lambda reading: o.Described(
                region=command.region,
                asked=command.instance_ids,
                as_of=reading.as_of,
                instances=reading.instances,
            ),
            lambda error: o.DescribeFailed(region=command.region, asked=command.instance_ids, error=error),
        )

    async def _end(self, command: c.Terminate | c.Retain) -> o.Fact:
        region, ids = command.region, command.instance_ids
        request = signatures.InstancesRequest(region=region, instance_ids=ids)
        retain = isinstance(command, c.Retain)
        activity = signatures.retain_instances if retain else signatures.terminate_instances
        end_options = options.retain_instances if retain else options.terminate_instances
        chosen = end_options(region, heartbeat=self._heartbeat)
        done = o.Retained if retain else o.Told
        return await _fact_of(
            self._until_ended(workflow.start_activity(activity, request, summary=named(ids), **chosen)),
            lambda _: done(region=region, instance_ids=ids),
            lambda error: o.TellFailed(region=region, instance_ids=ids, error=error),
        )

    async def _drain(self, command: c.Drain) -> o.Fact:
        request = signatures.DrainRequest(
            provider_id=command.provider_id,
            node_name=command.node_name,
            deadline=command.deadline,
            grace_seconds=command.grace_seconds,
        )
        within = command.deadline - workflow.now()
        return await _fact_of(
            self._until_ended(
                workflow.start_activity(
                    signatures.drain_node,
                    request,
                    summary=command.node_name,
                    **options.drain_node(command.region, within),
                )
            ),
            lambda result: o.Drained(token=command.token, result=result),
            lambda error: o.DrainFailed(token=command.token, error=error),
        )

    async def _settle(self, command: c.SettleNodes) -> o.Fact:
        tokens = tuple(node.token for node in command.nodes)
        nodes = tuple(
            signatures.NodeSettlement(
                provider_id=node.provider_id, name=node.name, labels=node.labels, gpus_ready=True
            )
            for node in command.nodes
        )
        return await _fact_of(
            workflow.execute_activity(
                signatures.settle_nodes,
                signatures.SettleNodesRequest(nodes=nodes),
                summary=named([node.name for node in nodes]),
                **options.SETTLE_NODES,
            ),
            lambda _: o.NodesSettled(tokens=tokens),
            lambda error: o.NodesSettled(tokens=tokens, error=error),
        )

    async def _delete_nodes(self, command: c.DeleteNodes) -> o.Fact:
        ids = tuple(command.nodes)
        return await _fact_of(
            workflow.execute_activity(
                signatures.delete_nodes,
                signatures.DeleteNodesRequest(nodes=command.nodes),
                summary=named(ids),
                **options.DELETE_NODES,
            ),
            lambda _: o.NodesDeleted(provider_ids=ids),
            lambda error: o.NodesDeleted(provider_ids=ids, error=error),
        )

    async def _remove_finalizer(self) -> o.Fact:
        return await _fact_of(
            workflow.execute_activity(signatures.remove_finalizer, self.pool, **options.REMOVE_FINALIZER),
            lambda _: o.FinalizerRemoved(),
            lambda error: o.FinalizerRemoved(error=error),
        )


async def _fact_of(
    call: Awaitable[ResultT], done: Callable[[ResultT], o.Fact], failed: Callable[[str], o.Fact]
) -> o.Fact:
    try:
        return done(await call)
    except ActivityError as error:
        return failed(text_of(error))


def named(names: Sequence[str]) -> str:
    """The first names and how many more, as the summary of a step."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def code_of(error: ActivityError) -> ErrorCode | None:
    """The class of an activity's failure, if it is one of ours."""
    kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
    return ErrorCode(kind) if kind in set(ErrorCode) else None


def text_of(error: ActivityError) -> str:
    """The last cause of an activity's failure in one bounded line, which begins with its class."""
    if is_cancelled_exception(error):
        return "called back"
    return str(error.cause or error)[:_MAX_ERROR_CHARS]
