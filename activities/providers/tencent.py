"""Tencent Cloud CVM: one account in one region, over ``tencentcloud-sdk-python-cvm``.

APIs: RunInstances, TerminateInstances, DescribeInstances, DescribeZoneInstanceConfigInfos,
DescribeAccountQuota, and ImportInstancesActionTimer, DeleteInstancesActionTimer,
DescribeInstancesActionTimer (2017-03-12); TagResources, UnTagResources of the tag service (2018-08-13).
Auth: secret id and key from the credentials Secret, optionally with a token; TC3-HMAC-SHA256.
Source: the SDK's own texts and error lists (cvm 3.1.178, 2026) and the CVM API documentation (2024).
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from typing import Final, TypeVar

from pydantic import BaseModel

from activities.providers import quotas, tencent_quotas
from activities.providers import tencent_answers as answers
from activities.providers import tencent_timers as timers
from activities.providers.base import Capability, Credentials, Turn, at_once
from activities.providers.endpoints import endpoint_from
from activities.providers.keyed_client import KeyedClient
from activities.providers.leftover_checks import check_ours
from activities.providers.tencent_errors import NAME, concerns_one_machine, market_answer, translate_errors
from activities.providers.tencent_sdk import AnsweredError, CvmCalls
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
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, RegionKey, Stock
from domain.contracts.provider_ids import provider_id

MAX_IDS_PER_CALL: Final = 100
MAX_TAGGED_PER_CALL: Final = 10
MAX_TYPES_PER_CALL: Final = 100
MAX_PAGES: Final = 50
"""5,000 machines of one installation in one region, what a reading may hold; more is a fault."""
MAX_READS: Final = 3
"""Pages are counted by offset: a list that changes between two pages is read again from the start."""
MAX_USER_DATA_BYTES: Final = 16 * 1024
MAX_HOST_NAME_CHARS: Final = 60
PRICE_STEP: Final = Decimal("0.001")
"""Finest bid that is sent."""
SPOT: Final = "SPOTPAID"
ON_DEMAND: Final = "POSTPAID_BY_HOUR"

# Source: InstanceStatus in the SDK. A machine that is gone is absent from every answer.
STATES: Final[Mapping[str, InstanceState]] = {
    "PENDING": InstanceState.PENDING,
    "STARTING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "REBOOTING": InstanceState.RUNNING,
    "ENTER_RESCUE_MODE": InstanceState.RUNNING,
    "RESCUE_MODE": InstanceState.RUNNING,
    "EXIT_RESCUE_MODE": InstanceState.RUNNING,
    "ENTER_SERVICE_LIVE_MIGRATE": InstanceState.RUNNING,
    "SERVICE_LIVE_MIGRATE": InstanceState.RUNNING,
    "EXIT_SERVICE_LIVE_MIGRATE": InstanceState.RUNNING,
    "STOPPING": InstanceState.INTERRUPTING,
    "STOPPED": InstanceState.INTERRUPTING,
    "SHUTDOWN": InstanceState.TERMINATED,
    "TERMINATING": InstanceState.TERMINATED,
    "LAUNCH_FAILED": InstanceState.TERMINATED,
}
USUAL_STATES: Final = frozenset({"PENDING", "STARTING", "RUNNING"})
"""States that need no reason beside them."""

STOCKS: Final[Mapping[str, Stock]] = {
    "EnoughStock": Stock.AMPLE,
    "NormalStock": Stock.TIGHT,
    "UnderStock": Stock.SCARCE,
    "WithoutStock": Stock.NONE,
}

CAPABILITIES: Final = frozenset(
    {
        Capability.DEAD_MAN_SWITCH,
        Capability.SPOT_PRICES,
        Capability.ON_DEMAND_PRICES,
        Capability.STOCK,
    }
)

_Shape = TypeVar("_Shape", bound=BaseModel)


class TencentSettings(Contract):
    """What an operator may set for this cloud."""

    endpoint: str = ""
    """``host:port`` or a URL of another endpoint; empty means the vendor's."""
    timeout_seconds: float = 20
    """For connecting and for reading; the SDK takes one value, in whole seconds."""
    currency: str = "CNY"
    """Currency of the site that the account belongs to: no answer states it."""


def launch_flaw(request: LaunchRequest, user_data: str) -> str:
    """What makes a request impossible before it is sent: what, where and what to do; empty when fine."""
    size = len(user_data.encode())
    if size > MAX_USER_DATA_BYTES:
        return (
            f"user data has {size} bytes, at most {MAX_USER_DATA_BYTES} can be sent: "
            "shorten userDataTemplate of the node class and fetch the rest at boot"
        )
    bid = request.max_price_per_hour
    if bid is not None and bid < PRICE_STEP:
        return f"the bid {bid} per hour is below the least price of {PRICE_STEP}: raise maxPricePerHour"
    return ""


def launch_body(request: LaunchRequest, user_data: str) -> dict[str, object]:
    """Parameters of RunInstances for one machine.

    The same request gives the same parameters, as its token demands: nothing here may depend on the time.
    """
    spot = request.offer.capacity_type is CapacityType.SPOT
    tags = {**request.tags, TAG_LAUNCH: request.token}
    body: dict[str, object] = {
        "InstanceChargeType": SPOT if spot else ON_DEMAND,
        "Placement": {"Zone": request.offer.zone},
        "InstanceType": request.offer.instance_type.name,
        "ImageId": request.image_id,
        "SystemDisk": {"DiskType": request.disk.type, "DiskSize": request.disk.size_gb},
        "VirtualPrivateCloud": {"VpcId": request.vpc_id, "SubnetId": request.subnet_id},
        "InstanceCount": 1,
        "SecurityGroupIds": list(request.security_group_ids),
        "ClientToken": request.token,
        "TagSpecification": [
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)],
            }
        ],
        "UserData": base64.b64encode(user_data.encode()).decode("ascii"),
    }
    if request.key_pair_id:
        body["LoginSettings"] = {"KeyIds": [request.key_pair_id]}
    if request.dead_man_at is not None:
        body["ActionTimer"] = timers.timer(request.dead_man_at)
    if request.name:
        body["InstanceName"] = request.name
    if request.name and len(request.name) <= MAX_HOST_NAME_CHARS:
        body["HostName"] = request.name
    if spot and request.max_price_per_hour is not None:
        # Without a bid the vendor's own price of the moment is taken, which is what "no limit" means.
        bid = request.max_price_per_hour.quantize(PRICE_STEP, rounding=ROUND_FLOOR)
        options = {"MaxPrice": f"{bid:f}", "SpotInstanceType": "one-time"}
        body["InstanceMarketOptions"] = {"SpotOptions": options, "MarketType": "spot"}
    return body


def instance_from(seen: answers.SeenInstance, region: str) -> Instance:
    """One machine of an answer. This API shows no notice of a reclaim: only the machine itself hears it."""
    # A state that is not listed is not usable yet; its word is the reason.
    state = STATES.get(seen.instance_state, InstanceState.PENDING)
    reason = "" if seen.instance_state in USUAL_STATES else seen.instance_state
    if seen.restrict_state != "NORMAL" and state is not InstanceState.TERMINATED:
        state, reason = InstanceState.INTERRUPTING, seen.restrict_state
    zone = seen.placement.zone
    return Instance(
        provider=NAME,
        region=region,
        zone=zone,
        id=seen.instance_id,
        provider_id=provider_id(NAME, region, zone, seen.instance_id),
        instance_type=seen.instance_type,
        capacity_type=CapacityType.SPOT if seen.instance_charge_type == SPOT else CapacityType.ON_DEMAND,
        state=state,
        reason=reason,
        created_at=seen.created_time,
        interrupt_deadline=None,
        tags={tag.key: tag.value for tag in seen.tags},
    )


def stock_from(sold: answers.SoldType) -> Stock:
    """How much there is, by the answer's two words; the finer one is not always there."""
    if sold.status != "SELL":
        return Stock.NONE
    return STOCKS.get(sold.status_category, Stock.UNKNOWN)


def quote_from(price: answers.ItemPrice | None, currency: str, *, now: datetime) -> PriceQuote | None:
    """What one hour costs now: the discounted price where there is one. None without a price by the hour."""
    if price is None or price.charge_unit != "HOUR":
        return None
    amount = price.unit_price if price.unit_price_discount is None else price.unit_price_discount
    if amount is None or amount <= 0:
        return None
    return PriceQuote(per_hour=amount, currency=currency, as_of=now, source="DescribeZoneInstanceConfigInfos")


class TencentProvider:
    """``Provider`` for Tencent Cloud. The client is built at the first call and when the keys change."""

    def __init__(
        self,
        key: RegionKey,
        credentials: Credentials,
        settings: TencentSettings,
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
        """All but leftovers: addresses and disks belong to other services of this cloud."""
        return CAPABILITIES

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """One RunInstances call; when a quota refuses, one DescribeAccountQuota call; see the port."""
        until = quotas.deadline()
        flaw = launch_flaw(request, user_data)
        if flaw:
            return Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="", message=flaw)
        body = launch_body(request, user_data)
        try:
            with translate_errors("RunInstances", creating=True):
                answer = answers.RunInstances.model_validate(
                    self._clients.get().compute("RunInstances", body)
                )
        except ProviderError as fault:
            refused, told = market_answer(fault), tencent_quotas.ANSWERED
            return quotas.with_limit(refused, told, lambda: self._quotas(request.offer), until=until)
        if len(answer.instance_id_set) != 1:
            text = f"success with {len(answer.instance_id_set)} ids instead of one"
            raise ProviderError(ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="RunInstances")
        return Created(instance_id=answer.instance_id_set[0], zone=request.offer.zone)

    def _quotas(self, offer: Offer) -> list[quotas.Quota]:
        question, shape = tencent_quotas.question(offer), answers.DescribeAccountQuota
        return tencent_quotas.found(self._read("DescribeAccountQuota", question, shape), offer)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One TerminateInstances call; where one machine spoils the batch, a few more to leave it out."""
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            self._end(batch)

    def _end(self, instance_ids: Sequence[str]) -> None:
        """The vendor ends all of a batch or none: what is gone is left out, what is left is halved."""
        try:
            with translate_errors("TerminateInstances"):
                self._clients.get().compute("TerminateInstances", {"InstanceIds": list(instance_ids)})
        except ProviderError as fault:
            if not concerns_one_machine(fault):
                raise
            parts = self._parts_to_end(instance_ids)
            if parts == [list(instance_ids)]:
                raise  # one machine, there and not to be ended now
            _each(parts, self._end)

    def _parts_to_end(self, instance_ids: Sequence[str]) -> list[list[str]]:
        """What of a refused batch is still to be ended: smaller than before, or one machine alone."""
        living = [m for m in self.describe(instance_ids) if m.state is not InstanceState.TERMINATED]
        spot = [m.id for m in living if m.capacity_type is CapacityType.SPOT]
        other = [m.id for m in living if m.capacity_type is not CapacityType.SPOT]
        if len(living) < len(instance_ids) or (spot and other):
            return [part for part in (spot, other) if part]
        middle = len(instance_ids) // 2
        halves = (list(instance_ids[:middle]), list(instance_ids[middle:]))
        return [part for part in halves if part]

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """One DescribeInstances call per 100 ids."""
        found: list[Instance] = []
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            page = self._page({"InstanceIds": list(batch), "Limit": MAX_IDS_PER_CALL})
            found += [instance_from(seen, self._key.region) for seen in page.instance_set]
        return found

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """One DescribeInstances call per 100 machines; up to three times so many while the list changes."""
        filters = [{"Name": f"tag:{key}", "Values": [tags[key]]} for key in sorted(tags)]
        for _ in range(MAX_READS):
            found = self._read_all(filters)
            if found is not None:
                return found
        text = f"the list changed during each of {MAX_READS} readings"
        raise ProviderError(ErrorCode.UNAVAILABLE, text, provider=NAME, operation="DescribeInstances")

    def _read_all(self, filters: Sequence[Mapping[str, object]]) -> list[Instance] | None:
        """All pages; None when the list changed between two of them, so that a machine may be missing."""
        found: dict[str, Instance] = {}
        total: int | None = None
        for number in range(MAX_PAGES):
            offset = number * MAX_IDS_PER_CALL
            page = self._page({"Filters": list(filters), "Offset": offset, "Limit": MAX_IDS_PER_CALL})
            if total is not None and page.total_count != total:
                return None
            total = page.total_count
            found.update(
                (seen.instance_id, instance_from(seen, self._key.region)) for seen in page.instance_set
            )
            if offset + MAX_IDS_PER_CALL >= total:
                return list(found.values()) if len(found) == total else None
        text = f"more than {MAX_PAGES * MAX_IDS_PER_CALL} machines carry these tags"
        raise ProviderError(ErrorCode.UNKNOWN, text, provider=NAME, operation="DescribeInstances")

    def _page(self, parameters: Mapping[str, object]) -> answers.DescribeInstances:
        return self._read("DescribeInstances", parameters, answers.DescribeInstances)

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """One DescribeZoneInstanceConfigInfos call per 100 types: price and stock stand in one answer."""
        asked = [kind for kind in types if kind.provider is NAME and kind.name in query.instance_types]
        return [
            offer
            for start in range(0, len(asked), MAX_TYPES_PER_CALL)
            for offer in self._offers_of(asked[start : start + MAX_TYPES_PER_CALL], query)
        ]

    def _offers_of(self, kinds: Sequence[InstanceType], query: OfferQuery) -> list[Offer]:
        charge = SPOT if query.capacity_type is CapacityType.SPOT else ON_DEMAND
        by_name = {kind.name: kind for kind in kinds}
        filters: list[dict[str, object]] = [
            {"Name": "instance-type", "Values": list(by_name)},
            {"Name": "instance-charge-type", "Values": [charge]},
        ]
        if query.zones:
            filters.append({"Name": "zone", "Values": list(query.zones)})
        action = "DescribeZoneInstanceConfigInfos"
        answer = self._read(action, {"Filters": filters}, answers.DescribeZoneInstanceConfigInfos)
        now = self._now()
        return [
            Offer(
                provider=NAME,
                account=self._key.account,
                region=self._key.region,
                zone=sold.zone,
                instance_type=by_name[sold.instance_type],
                capacity_type=query.capacity_type,
                price=quote_from(sold.price, self._settings.currency, now=now),
                stock=stock_from(sold),
                currency=self._settings.currency,
            )
            for sold in answer.instance_type_quota_set
            if sold.instance_type in by_name and sold.instance_charge_type == charge
        ]

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """Timers away, then TagResources and UnTagResources per 10 machines.

        A stop between the last two leaves both tags.
        """
        for batch in _batches(instance_ids, timers.MAX_IDS_PER_CALL):
            living = self._living(batch)
            if living:
                with translate_errors("DescribeInstancesActionTimer"):
                    timers.clear_timers(self._answer, living)
        for batch in _batches(instance_ids, MAX_TAGGED_PER_CALL):
            self._retag(batch, installation)

    def _retag(self, instance_ids: Sequence[str], installation: str) -> None:
        # The account in the middle may stay empty: it is the caller's.
        resources = [f"qcs::cvm:{self._key.region}:uin/:instance/{each}" for each in instance_ids]
        tags = [{"TagKey": TAG_RETAINED, "TagValue": installation}]
        try:
            self._change_tags("TagResources", {"ResourceList": resources, "Tags": tags})
            self._change_tags("UnTagResources", {"ResourceList": resources, "TagKeys": [TAG_INSTALLATION]})
        except ProviderError as fault:
            if fault.code is not ErrorCode.NOT_FOUND:
                raise
            if len(instance_ids) > 1:
                _each([[each] for each in instance_ids], lambda ids: self._retag(ids, installation))

    def _change_tags(self, action: str, parameters: Mapping[str, object]) -> None:
        with translate_errors(action):
            answer = answers.TagResources.model_validate(self._clients.get().tag(action, parameters))
            for failed in answer.failed_resources:
                raise AnsweredError(failed.code, f"{failed.resource}: {failed.message}")

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """One DescribeInstances and one DescribeInstancesActionTimer call per 100 machines."""
        return {
            each.instance_id: each.action_time.astimezone(UTC)
            for batch in _batches(instance_ids, timers.MAX_IDS_PER_CALL)
            if (living := self._living(batch))
            for each in self._timers(living)
        }

    def _timers(self, instance_ids: Sequence[str]) -> list[answers.SeenTimer]:
        with translate_errors("DescribeInstancesActionTimer"):
            return timers.read_timers(self._answer, instance_ids)

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """Per 100 machines three or four calls; where one machine spoils the batch, each on its own."""
        for batch in _batches(instance_ids, timers.MAX_IDS_PER_CALL):
            self._set_timers(self._living(batch), at)

    def _set_timers(self, instance_ids: Sequence[str], at: datetime) -> None:
        if not instance_ids:
            return
        try:
            with translate_errors("DescribeInstancesActionTimer"):
                timers.set_timers(self._answer, instance_ids, at)
        except ProviderError as fault:
            if len(instance_ids) == 1 or not concerns_one_machine(fault):
                raise
            _each([[each] for each in instance_ids], lambda ids: self._set_timers(self._living(ids), at))

    def _living(self, instance_ids: Sequence[str]) -> list[str]:
        """Those that can have a timer: the timer calls refuse all for one that is gone."""
        return [m.id for m in self.describe(instance_ids) if m.state is not InstanceState.TERMINATED]

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """None: this adapter cannot see them."""
        del tags
        return []

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """Nothing of this adapter's can be in the list."""
        check_ours(NAME, leftovers, supported=False)

    def close(self) -> None:
        """Release the connections and forget the keys."""
        self._clients.close()

    def _answer(self, action: str, parameters: Mapping[str, object], /) -> Mapping[str, object]:
        with translate_errors(action):
            return self._clients.get().compute(action, parameters)

    def _read(self, action: str, parameters: Mapping[str, object], shape: type[_Shape]) -> _Shape:
        with translate_errors(action):
            return shape.model_validate(self._clients.get().compute(action, parameters))


def _connect(key: RegionKey, settings: TencentSettings, turn: Turn, keys: Mapping[str, str]) -> CvmCalls:
    return CvmCalls(
        key.region,
        keys,
        endpoint_from(settings.endpoint),
        turn=turn,
        timeout=timedelta(seconds=settings.timeout_seconds),
    )


def build(
    key: RegionKey, credentials: Credentials, *, endpoint: str = "", turn: Turn = at_once
) -> TencentProvider:
    """The adapter of one account and region. Sends nothing yet.

    Args:
        key: Which region of which account.
        credentials: Where the keys are read, at each use.
        endpoint: ``host:port`` or a URL that replaces the vendor's own address.
        turn: Taken before each request.
    """
    return TencentProvider(key, credentials, TencentSettings(endpoint=endpoint), turn=turn)


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
