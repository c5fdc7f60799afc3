"""Huawei Cloud ECS: one account in one region, over ``huaweicloudsdkecs``.

APIs: CreatePostPaidServers, ShowJob, DeleteServers, ListServersDetails, ListFlavorSellPolicies,
BatchCreateServerTags, BatchDeleteServerTags, UpdateServerAutoTerminateTime, ShowServerLimits (v1); of the
billing service ListOnDemandResourceRatings (v2); of EVS and EIP see ``huawei_leftovers``.
Auth: access key and secret from the credentials Secret, optionally with a security token; SDK-HMAC-SHA256.
The Secret's ``projectId.<region>`` or ``projectId`` names the project; without them it is looked up.
Source: the SDK's own texts (3.1.219, 2026) and the ECS error tables (2026).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from pydantic import BaseModel

from activities.providers import huawei_answers as answers
from activities.providers import huawei_leftovers, huawei_quotas, huawei_tags, quotas
from activities.providers.base import Capability, Credentials, Turn, at_once
from activities.providers.dead_man import to_second
from activities.providers.endpoints import endpoint_from
from activities.providers.huawei_errors import (
    NAME,
    NOT_OFFERED,
    is_bid_too_high,
    job_answer,
    market_answer,
    translate_errors,
)
from activities.providers.huawei_purchase import SPOT_MODE, client_token, launch_body, launch_flaw
from activities.providers.huawei_sdk import Answer, EcsCalls, UnansweredError
from activities.providers.keyed_client import KeyedClient
from activities.providers.leftover_checks import check_ours, release_each
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import (
    Created,
    Instance,
    InstanceState,
    LaunchRequest,
    LaunchResult,
    OfferQuery,
    Rejected,
)
from domain.contracts.leftovers import Leftover
from domain.contracts.model import Contract
from domain.contracts.money import PriceQuote
from domain.contracts.names import TAG_INSTALLATION, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, RegionKey, Stock
from domain.contracts.provider_ids import provider_id

MAX_IDS_PER_CALL: Final = 100
"""The vendor's advice for the ids of one URL; deletions could take 1,000."""
MAX_PAGE: Final = 1000
MAX_PAGES: Final = 5
"""5,000 machines of one installation in one region, what a reading may hold; more is a fault."""
SPOT_CHARGING: Final = "2"
ON_DEMAND_MODE: Final = "postPaid"
# Source: server states, ECS API reference.
STATES: Final[Mapping[str, InstanceState]] = {
    "BUILD": InstanceState.PENDING,
    **dict.fromkeys(("ACTIVE", "REBOOT", "HARD_REBOOT", "REBUILD", "RESIZE"), InstanceState.RUNNING),
    **dict.fromkeys(("VERIFY_RESIZE", "REVERT_RESIZE", "MIGRATING"), InstanceState.RUNNING),
    **dict.fromkeys(("SHUTOFF", "PAUSED", "SUSPENDED"), InstanceState.INTERRUPTING),
    **dict.fromkeys(("SHELVED", "SHELVED_OFFLOADED"), InstanceState.INTERRUPTING),
    "ERROR": InstanceState.TERMINATED,
    "DELETED": InstanceState.TERMINATED,
    "SOFT_DELETED": InstanceState.TERMINATED,
}
USUAL_STATES: Final = frozenset({"BUILD", "ACTIVE"})
"""States that need no reason beside them."""
GOING: Final = frozenset({"deleting", "powering-off"})
"""Tasks of a server that still says ACTIVE."""
NOTHING_TO_END: Final = frozenset({"deleting", "DELETED", "SOFT_DELETED"})
FROZEN: Final = "freeze"

CAPABILITIES: Final = frozenset(
    {
        Capability.DEAD_MAN_SWITCH,
        Capability.LEFTOVERS,
        Capability.ON_DEMAND_PRICES,
        Capability.STOCK,
    }
)

_Shape = TypeVar("_Shape", bound=BaseModel)


class HuaweiSettings(Contract):
    """What an operator may set for this cloud."""

    endpoint: str = ""
    """``host:port`` or a URL of another endpoint; empty means the vendor's for the region."""
    billing_endpoint: str = "https://bss.myhuaweicloud.com"
    """Prices; accounts of the international site need ``https://bss-intl.myhuaweicloud.com``."""
    connect_timeout_seconds: float = 5
    read_timeout_seconds: float = 15
    launch_seconds: float = 45
    """A purchase is followed so long; its machine is known before, and read like any other after. With three
    calls that run into their time-outs (the purchase, its job, an ending) it stays below 90 s."""
    first_poll_seconds: float = 1
    poll_seconds: float = 5


def instance_from(seen: answers.SeenServer, region: str) -> Instance | None:
    """One server of an answer; None for one that is not there, whose record is empty but for its id.

    This API shows no notice of a reclaim: only the machine itself hears it.
    """
    if not seen.status:
        return None
    if seen.created is None or seen.flavor is None:
        raise UnansweredError(f"server {seen.id} without created or flavor", never_left=False)
    # A state that is not listed (UNKNOWN is the vendor's own) says nothing; its word is the reason.
    state = STATES.get(seen.status, InstanceState.PENDING)
    reason = "" if seen.status in USUAL_STATES else seen.status
    frozen = FROZEN if seen.metadata.get("EcmResStatus") == FROZEN else ""
    leaving = seen.task_state if seen.task_state in GOING else frozen
    if leaving and state is not InstanceState.TERMINATED:
        state, reason = InstanceState.INTERRUPTING, leaving
    spot = seen.metadata.get("charging_mode") == SPOT_CHARGING
    return Instance(
        provider=NAME,
        region=region,
        zone=seen.zone,
        id=seen.id,
        provider_id=provider_id(NAME, region, seen.zone, seen.id),
        instance_type=seen.flavor.id,
        capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
        state=state,
        reason=reason,
        created_at=seen.created,
        interrupt_deadline=None,
        tags=huawei_tags.given(seen.tags),
    )


def stocks_from(policies: Iterable[answers.SellPolicy], instance_type: str, mode: str) -> dict[str, Stock]:
    """Zone to stock of one type; zones that do not sell it are absent.

    The vendor knows two words: ``available``, which is normal sale, and ``sellout``.
    """
    stocks: dict[str, Stock] = {}
    for policy in policies:
        if policy.flavor_id == instance_type and policy.sell_mode == mode:
            stock = Stock.AMPLE if policy.sell_status == "available" else Stock.NONE
            before = stocks.get(policy.availability_zone_id, stock)
            stocks[policy.availability_zone_id] = stock if before is Stock.NONE else before
    return stocks


def quote_from(rating: answers.Rating, *, now: datetime) -> PriceQuote | None:
    """What one hour costs without interruption, after the account's discounts; None without an amount."""
    amount = rating.official_website_amount if rating.amount is None else rating.amount
    if amount is None or amount <= 0 or rating.measure_id not in (None, 1):
        return None
    currency = rating.currency or "CNY"
    return PriceQuote(per_hour=amount, currency=currency, as_of=now, source="ListOnDemandResourceRatings")


class HuaweiProvider:
    """``Provider`` for Huawei Cloud. The client is built at the first call and when the keys change."""

    def __init__(
        self,
        key: RegionKey,
        credentials: Credentials,
        settings: HuaweiSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        turn: Turn = at_once,
    ) -> None:
        self._key = key
        self._settings = settings
        self._now = now
        self._clients = KeyedClient(credentials, partial(_connect, key, settings, turn))

    @property
    def key(self) -> RegionKey:
        """The account and region that this object speaks for."""
        return self._key

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All but spot prices, which no API states."""
        return CAPABILITIES

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """One create call, and its job followed to its end: acceptance is not success.

        Stock and quota are answered by the job. When the job does not end in time, or cannot be read, the
        machine is ``Created`` all the same: its id is known, and what becomes of it is seen by reading it.
        A refusal for a quota costs one ShowServerLimits call more.
        """
        flaw = launch_flaw(request, user_data)
        if flaw:
            return Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="", message=flaw)
        until = time.monotonic() + self._settings.launch_seconds
        answer, told = self._bought(request, user_data, until), huawei_quotas.ANSWERED
        return quotas.with_limit(answer, told, lambda: self._quotas(request.offer), until=until)

    def _bought(self, request: LaunchRequest, user_data: str, until: float) -> LaunchResult:
        try:
            made = self._create(request, user_data)
            job = self._followed(made.job_id, until) if made.job_id else None
            return self._outcome(made, job, request.offer.zone)
        except ProviderError as fault:
            return market_answer(fault)

    def _quotas(self, offer: Offer) -> list[quotas.Quota]:
        return huawei_quotas.found(self._read("ShowServerLimits", answers.ServerLimits), offer)

    def _create(self, request: LaunchRequest, user_data: str) -> answers.CreatedServers:
        """Send the purchase; a bid that is refused for being too high is left out, which is a lower one."""
        token = client_token(request.token)
        try:
            return self._post(token, launch_body(request, user_data))
        except ProviderError as fault:
            if not is_bid_too_high(fault):
                raise
        return self._post(token, launch_body(request, user_data, with_bid=False))

    def _post(self, token: str, body: Mapping[str, object]) -> answers.CreatedServers:
        calls = self._clients.get()
        with translate_errors("CreatePostPaidServers", creating=True):
            answer = calls.call("CreatePostPaidServers", body, x_client_token=token)
            made = answers.CreatedServers.model_validate(answer.body)
        if made.job_id or made.server_ids:
            return made
        text = f"HTTP status {answer.status} without a job and without ids"
        raise ProviderError(ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="CreatePostPaidServers")

    def _followed(self, job_id: str, until: float) -> answers.Job | None:
        """The job at its end; None when it did not end in time or may not be read."""
        wait = self._settings.first_poll_seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(wait, left))
            wait = min(2 * wait, self._settings.poll_seconds)
            try:
                job = self._read("ShowJob", answers.Job, job_id=job_id)
            except ProviderError as fault:
                if fault.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN):
                    return None
                continue  # the machine is bought: one reading less is no reason to forget it
            if job.ended:
                return job
        return None

    def _outcome(self, made: answers.CreatedServers, job: answers.Job | None, zone: str) -> LaunchResult:
        ids = made.server_ids or (job.server_ids if job else ())
        if job is not None and job.status == "FAIL":
            return self._failed(job, ids, zone)
        if len(ids) != 1:
            text = f"success with {len(ids)} ids instead of one (job {made.job_id or 'none'})"
            raise ProviderError(
                ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="CreatePostPaidServers"
            )
        return Created(instance_id=ids[0], zone=zone)

    def _failed(self, job: answers.Job, ids: Sequence[str], zone: str) -> LaunchResult:
        """A failed purchase may leave a broken server: it is deleted, or named so that it will be."""
        try:
            self.terminate(ids)
        except ProviderError:
            return Created(instance_id=ids[0], zone=zone)
        return job_answer(job)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One DeleteServers call; where one machine spoils the batch, a few more to leave it out."""
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            self._end(batch)

    def _end(self, instance_ids: Sequence[str]) -> None:
        """The vendor ends all of a batch or none: what is gone is left out, what is left is halved."""
        # Both are false by default: addresses and data disks would stay and cost money.
        body = {
            "delete_publicip": True,
            "delete_volume": True,
            "servers": [{"id": each} for each in instance_ids],
        }
        try:
            with translate_errors("DeleteServers"):
                self._clients.get().call("DeleteServers", body)
        except ProviderError as fault:
            if fault.code not in (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT):
                raise
            if fault.code is ErrorCode.NOT_FOUND and len(instance_ids) == 1:
                return
            parts = self._parts_to_end(instance_ids)
            if parts == [list(instance_ids)]:
                raise  # one machine, there and not to be ended now: it is being taken back, or locked
            _each(parts, self._end)

    def _parts_to_end(self, instance_ids: Sequence[str]) -> list[list[str]]:
        """What of a refused batch is still to be ended: smaller than before, or one machine alone."""
        living = [
            machine.id for machine in self.describe(instance_ids) if machine.reason not in NOTHING_TO_END
        ]
        if len(living) < len(instance_ids):
            return [living] if living else []
        middle = len(instance_ids) // 2
        halves = (list(instance_ids[:middle]), list(instance_ids[middle:]))
        return [part for part in halves if part]

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """One ListServersDetails call per 100 ids."""
        found: list[Instance] = []
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            _, machines = self._page(server_id=",".join(batch), limit=MAX_IDS_PER_CALL)
            found += machines
        return found

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """One ListServersDetails call per 1,000 machines that carry the most telling of the tags.

        A page begins after the last machine of the one before, so that a list that changes meanwhile loses
        nothing. See ``huawei_tags`` for how tags and a long launch token map.
        """
        found: dict[str, Instance] = {}
        tag, marker = huawei_tags.search_text(tags), {}
        for _ in range(MAX_PAGES):
            seen, machines = self._page(tags=tag, limit=MAX_PAGE, **marker)
            found.update((machine.id, machine) for machine in machines)
            if len(seen) < MAX_PAGE:
                return [machine for machine in found.values() if tags.items() <= machine.tags.items()]
            marker = {"marker": seen[-1].id}
        text = f"more than {MAX_PAGES * MAX_PAGE} machines carry these tags"
        raise ProviderError(ErrorCode.UNKNOWN, text, provider=NAME, operation="ListServersDetails")

    def _page(self, **which: str | int) -> tuple[tuple[answers.SeenServer, ...], list[Instance]]:
        """Records of one page, and the machines among them."""
        with translate_errors("ListServersDetails"):
            answer = self._clients.get().call("ListServersDetails", **which)
            seen = answers.ServersDetails.model_validate(answer.body).servers
            machines = (instance_from(each, self._key.region) for each in seen)
            return seen, [machine for machine in machines if machine is not None]

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """Per type one ListFlavorSellPolicies call and one for its on-demand price.

        No API states the market's price of spot capacity: such offers have none, and the on-demand price as
        their bound.
        """
        asked = [kind for kind in types if kind.provider is NAME and kind.name in query.instance_types]
        return [offer for kind in asked for offer in self._offers_of(kind, query)]

    def _offers_of(self, kind: InstanceType, query: OfferQuery) -> list[Offer]:
        spot = query.capacity_type is CapacityType.SPOT
        stocks = self._stocks(kind.name, SPOT_MODE if spot else ON_DEMAND_MODE)
        listed = self._on_demand_price(kind.name) if stocks else None
        return [
            Offer(
                provider=NAME,
                account=self._key.account,
                region=self._key.region,
                zone=zone,
                instance_type=kind,
                capacity_type=query.capacity_type,
                price=None if spot else listed,
                stock=stock,
                currency=listed.currency if listed else "",
                list_price=listed,
            )
            for zone, stock in stocks.items()
            if not query.zones or zone in query.zones
        ]

    def _stocks(self, instance_type: str, mode: str) -> dict[str, Stock]:
        """Zone to stock of one type; none when the region does not know it."""
        try:
            answer = self._read(
                "ListFlavorSellPolicies",
                answers.SellPolicies,
                flavor_id=instance_type,
                sell_mode=mode,
                limit=MAX_PAGE,
            )
        except ProviderError as fault:
            if fault.vendor_code in NOT_OFFERED:
                return {}
            raise
        return stocks_from(answer.sell_policies, instance_type, mode)

    def _on_demand_price(self, instance_type: str) -> PriceQuote | None:
        """The price of one hour; None for an account that may not ask, or a type that has none."""
        calls = self._clients.get()
        try:
            with translate_errors("ListOnDemandResourceRatings"):
                body = rating_body(calls.project_id, self._key.region, instance_type)
                rating = answers.Rating.model_validate(calls.rate(body).body)
        except ProviderError as fault:
            if fault.code in (ErrorCode.THROTTLED, ErrorCode.UNAVAILABLE):
                raise
            return None
        return quote_from(rating, now=self._now())

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """Switches away, then two calls per machine, one adds and one takes away a tag.

        A stop between the last two leaves both tags. What an earlier attempt did is not done again: of many
        machines none would ever be the last.
        """
        _each(
            [[each] for each in self.dead_man_times(instance_ids)],
            lambda ids: self._set_end(ids[0], ""),
        )
        left = [machine.id for machine in self.describe(instance_ids) if TAG_INSTALLATION in machine.tags]
        _each(_batches(left, 1), lambda ids: self._retag(ids[0], installation))

    def _retag(self, instance_id: str, installation: str) -> None:
        added = {"action": "create", "tags": [{"key": TAG_RETAINED, "value": installation}]}
        taken = {"action": "delete", "tags": [{"key": TAG_INSTALLATION, "value": installation}]}
        try:
            for action, body in (("BatchCreateServerTags", added), ("BatchDeleteServerTags", taken)):
                with translate_errors(action):
                    self._clients.get().call(action, body, server_id=instance_id)
        except ProviderError as fault:
            if fault.code is not ErrorCode.NOT_FOUND:
                raise

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """One ListServersDetails call per 100 ids."""
        return {
            seen.id: seen.auto_terminate_time
            for batch in _batches(instance_ids, MAX_IDS_PER_CALL)
            for seen in self._page(server_id=",".join(batch), limit=MAX_IDS_PER_CALL)[0]
            if seen.auto_terminate_time is not None
        }

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """One UpdateServerAutoTerminateTime call per machine."""
        _each(_batches(instance_ids, 1), lambda ids: self._set_end(ids[0], to_second(at)))

    def _set_end(self, instance_id: str, time_text: str) -> None:
        """Set the switch of one machine, or take it away with an empty text."""
        action = "UpdateServerAutoTerminateTime"
        try:
            with translate_errors(action):
                self._clients.get().call(action, {"auto_terminate_time": time_text}, server_id=instance_id)
        except ProviderError as fault:
            if fault.code is not ErrorCode.NOT_FOUND:
                raise

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """One ListVolumes and one ListPublicips call per 1,000 of them."""
        with translate_errors("ListLeftovers"):
            return huawei_leftovers.find(self._send, self._key, tags)

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """One DeleteVolume or DeletePublicip call each; after a failure they are listed once more."""
        check_ours(NAME, leftovers)
        release_each(
            leftovers,
            lambda each: huawei_leftovers.release(self._send, each),
            lambda: {each.id for each in self.leftovers({})},
        )

    def _send(
        self, service: str, method: str, path: str, query: Mapping[str, str | int] | None = None, /
    ) -> Answer:
        with translate_errors(f"{service} {method}"):
            return self._clients.get().request(service, method, path, query)

    def close(self) -> None:
        """Release the connections and forget the keys."""
        self._clients.close()

    def _read(self, action: str, shape: type[_Shape], **fields: str | int) -> _Shape:
        with translate_errors(action):
            answer: Answer = self._clients.get().call(action, **fields)
            return shape.model_validate(answer.body)


def _connect(key: RegionKey, settings: HuaweiSettings, turn: Turn, keys: Mapping[str, str]) -> EcsCalls:
    with translate_errors("KeystoneListProjects"):
        return EcsCalls(
            key.region,
            keys,
            endpoint_from(settings.endpoint),
            turn=turn,
            billing_endpoint=settings.billing_endpoint,
            timeouts=(
                timedelta(seconds=settings.connect_timeout_seconds),
                timedelta(seconds=settings.read_timeout_seconds),
            ),
        )


def build(
    key: RegionKey, credentials: Credentials, *, endpoint: str = "", turn: Turn = at_once
) -> HuaweiProvider:
    """The adapter of one account and region. Imports the SDK and connects only when it is first used.

    Args:
        key: Which region of which account.
        credentials: Where the keys are read, at each use.
        endpoint: ``host:port`` or a URL that replaces the vendor's own addresses.
        turn: Taken before each request.
    """
    return HuaweiProvider(key, credentials, HuaweiSettings(endpoint=endpoint), turn=turn)


def rating_body(project_id: str, region: str, instance_type: str) -> dict[str, object]:
    """Body of a question for the price of one hour (measure 4) of a Linux machine, not rounded."""
    product: dict[str, object] = {
        "id": "1",
        "cloud_service_type": "hws.service.type.ec2",
        "resource_type": "hws.resource.type.vm",
        "resource_spec": f"{instance_type}.linux",
        "region": region,
        "usage_factor": "Duration",
        "usage_value": 1,
        "usage_measure_id": 4,
        "subscription_num": 1,
    }
    return {"project_id": project_id, "inquiry_precision": 1, "product_infos": [product]}


def _each(parts: Iterable[Sequence[str]], act: Callable[[Sequence[str]], None]) -> None:
    """Act on every part.

    Raises:
        ProviderError: the first that a part raised, after all others were tried.
    """
    refused: ProviderError | None = None
    for part in parts:
        try:
            act(part)
        except ProviderError as fault:
            refused = refused or fault
    if refused is not None:
        raise refused


def _batches(instance_ids: Sequence[str], size: int) -> list[list[str]]:
    """Ids without repetition, in batches."""
    ids = list(dict.fromkeys(instance_ids))
    return [ids[start : start + size] for start in range(0, len(ids), size)]
