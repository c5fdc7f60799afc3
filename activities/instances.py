"""Buying, reading and ending machines: one region per call, safe to run twice."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import CancelledError

from activities.cluster.base import SecretReader
from activities.failures import as_application_error
from activities.heartbeats import beating_thread
from activities.providers.base import Provider, ProviderSource
from activities.signatures import (
    InstancesRequest,
    PoolRegionRequest,
    Reading,
    TokenRequest,
)
from activities.telemetry import metrics
from activities.turns import refuse_if_cancelled
from domain.contracts.errors import ClusterError, ErrorCode, ProviderError
from domain.contracts.facts import RegionObservation
from domain.contracts.installation import Installation
from domain.contracts.instances import (
    Created,
    Instance,
    InstanceState,
    LaunchAnswer,
    LaunchOutcome,
    LaunchRequest,
    Rejected,
    Unmade,
)
from domain.contracts.names import TAG_EPOCH, TAG_INSTALLATION, TAG_LAUNCH, TAG_POOL
from domain.contracts.offers import RegionKey
from domain.decisions.user_data import UserDataError, render_user_data, uses_join_secret


class InstanceActivities:
    """Bound to live adapters by ``workers.wiring``; workflows only name the methods."""

    def __init__(self, providers: ProviderSource, installation: Installation, secrets: SecretReader) -> None:
        self._providers = providers
        self._installation = installation
        self._secrets = secrets

    @activity.defn(name="cloud.create_instance")
    def create_instance(self, request: LaunchRequest) -> LaunchAnswer:
        """Buy one machine; look for its tag before, unless it is certain that no earlier attempt made it.

        A cancellation that arrives before the call leaves buys nothing; one that arrives later is
        answered with what was bought. An unknown outcome is retried, so that the next attempt looks first.
        When the last attempt fails and certainly none was carried out, that is the answer.
        """
        answer: LaunchAnswer | None = None
        _observe_wait(request.offer.region_key, "launch")
        with beating_thread():
            try:
                # Our part and the call are one piece: the thread must not be broken off between the
                # cloud's acceptance and our knowledge of it. Cancellation is looked at, not thrown in.
                with activity.shield_thread_cancel_exception(), as_application_error():
                    answer = LaunchAnswer(result=self._launch(request))
            except CancelledError:
                # Raised at the end of the shield: the caller learns what was bought all the same.
                if answer is None:
                    raise
        return answer

    def _launch(self, request: LaunchRequest) -> LaunchOutcome:
        unmade = _certainly_unmade()
        try:
            provider = self._providers.provider(request.offer.region_key)
            found = None if unmade else _living_first(provider.list_tagged({TAG_LAUNCH: request.token}))
            if found is not None:
                return Created(instance_id=found.id, zone=found.zone, found=True)
            user_data = render_user_data(request, self._join_secret(request))
        except (UserDataError, ProviderError) as error:
            return _refuse(error, request, first=unmade)
        refuse_if_cancelled()
        try:
            return provider.launch(self._tagged(request), user_data)
        except ProviderError as error:
            match error.code:
                case ErrorCode.UNAVAILABLE | ErrorCode.THROTTLED as code if unmade:
                    if _is_last_attempt():
                        return Unmade(code=code, message=str(error))
                    # The next attempt knows of it: the last heartbeat is sent together with the failure.
                    activity.heartbeat(activity.info().attempt)
                    raise
                case _:
                    # The token went with the call: a cloud that had made the machine would have named it.
                    return _refuse(error, request, first=True)

    def _tagged(self, request: LaunchRequest) -> LaunchRequest:
        ours = {TAG_INSTALLATION: self._installation.id, TAG_EPOCH: str(self._installation.epoch)}
        return request.model_copy(update={"tags": {**request.tags, **ours}})

    def _join_secret(self, request: LaunchRequest) -> Mapping[str, str]:
        if not uses_join_secret(request.user_data_template):
            return {}
        try:
            return self._secrets.read(request.join_secret)
        except ClusterError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise UserDataError(
                f"userDataTemplate: Secret {request.join_secret} does not exist in the operator's namespace"
            ) from error

    @activity.defn(name="cloud.find_by_token")
    def find_by_token(self, request: TokenRequest) -> Reading:
        """Machines that carry the launch's tag."""
        return self._read(request.region, "list_tagged", lambda p: p.list_tagged({TAG_LAUNCH: request.token}))

    @activity.defn(name="cloud.describe")
    def describe(self, request: InstancesRequest) -> Reading:
        """Machines by id."""
        return self._read(request.region, "describe", lambda p: p.describe(request.instance_ids))

    @activity.defn(name="cloud.list_pool")
    def list_pool(self, request: PoolRegionRequest) -> RegionObservation:
        """Every machine of one pool in one region."""
        tags = {TAG_INSTALLATION: self._installation.id, TAG_POOL: request.pool_uid}
        reading = self._read(request.region, "list_tagged", lambda p: p.list_tagged(tags))
        return RegionObservation(region=request.region, as_of=reading.as_of, instances=reading.instances)

    @activity.defn(name="cloud.terminate_instances")
    def terminate_instances(self, request: InstancesRequest) -> None:
        """End machines; a machine that is gone counts as ended."""
        _observe_wait(request.region, "terminate")
        with beating_thread(), as_application_error():
            self._providers.provider(request.region).terminate(request.instance_ids)
        activity.logger.info(
            "Termination accepted",
            extra={"region": str(request.region), "instance_ids": list(request.instance_ids)},
        )

    @activity.defn(name="cloud.retain_instances")
    def retain_instances(self, request: InstancesRequest) -> None:
        """Give machines up without ending them."""
        _observe_wait(request.region, "retain")
        with beating_thread(), as_application_error():
            self._providers.provider(request.region).retain(request.instance_ids, self._installation.id)

    def _read(self, region: RegionKey, operation: str, read: Callable[[Provider], list[Instance]]) -> Reading:
        _observe_wait(region, operation)
        # Taken before the call: what was bought meanwhile may be missing from the answer.
        as_of = datetime.now(UTC)
        with as_application_error():
            instances = read(self._providers.provider(region))
        return Reading(as_of=as_of, instances=tuple(sorted(instances, key=lambda i: i.id)))


def _certainly_unmade() -> bool:
    """Whether no earlier attempt was carried out by the cloud: there was none, or the one before said so."""
    info = activity.info()
    return info.attempt == 1 or list(info.heartbeat_details) == [info.attempt - 1]


def _is_last_attempt() -> bool:
    info = activity.info()
    return info.retry_policy is not None and info.attempt == info.retry_policy.maximum_attempts


def _refuse(error: UserDataError | ProviderError, request: LaunchRequest, *, first: bool) -> Rejected:
    """A fault that no repetition mends, as an answer; every other one is raised again.

    Args:
        error: What went wrong.
        request: The launch.
        first: False when an earlier attempt may have bought: its machine must be looked for again.
    """
    code = ErrorCode.INVALID_REQUEST if isinstance(error, UserDataError) else error.code
    vendor_code = "UserData" if isinstance(error, UserDataError) else error.vendor_code
    match code:
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN if first:
            return Rejected(code=code, vendor_code=vendor_code, message=str(error))
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN:
            provider = request.offer.provider
            raise ProviderError(
                ErrorCode.UNKNOWN_OUTCOME, str(error), provider=provider, operation="launch"
            ) from error
        case _:
            raise error


def _living_first(instances: list[Instance]) -> Instance | None:
    """The machine of a launch: a living one before a dead one, then by id."""
    ranked = sorted(instances, key=lambda i: (i.state is InstanceState.TERMINATED, i.id))
    return ranked[0] if ranked else None


def _observe_wait(region: RegionKey, operation: str) -> None:
    info = activity.info()
    waited = (info.started_time - info.current_attempt_scheduled_time).total_seconds()
    metrics.CALL_WAIT_SECONDS.labels(region.provider.value, region.region, operation).observe(max(waited, 0))
