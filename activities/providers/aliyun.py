"""Alibaba Cloud ECS: one account in one region, over ``alibabacloud_ecs20140526``.

APIs: RunInstances, DeleteInstances, DescribeInstances, ModifyInstanceAutoReleaseTime,
DescribeAvailableResource, DescribeSpotPriceHistory, DescribeAccountAttributes, TagResources, UntagResources
(version 2014-05-26).
Machines are bought to end when they are taken back. One that was stopped instead, in economical mode or by
hand, stays listed and costs its disk: it counts as interrupted, and is deleted by its pool or by the sweep.
Auth: access key and secret from the credentials Secret, optionally with an STS token; ACS3-HMAC-SHA256.
Source: ECS API reference and error tables (2021, single pages 2026) and the SDK's own texts (7.11.8).
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from typing import Final, TypeVar

from pydantic import BaseModel

from activities.providers import aliyun_answers as answers
from activities.providers import aliyun_quotas, quotas
from activities.providers.aliyun_errors import (
    CONCERNS_ONE_MACHINE,
    NAME,
    NOT_OFFERED,
    market_answer,
    translate_errors,
)
from activities.providers.aliyun_sdk import EcsClient
from activities.providers.base import Capability, Credentials, Turn, at_once
from activities.providers.dead_man import to_minute
from activities.providers.endpoints import endpoint_from
from activities.providers.keyed_client import KeyedClient
from activities.providers.leftover_checks import check_ours
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
MAX_TAGGED_PER_CALL: Final = 50
"""TagResources and UntagResources take at most 50 resources."""
MAX_PAGES: Final = 50
"""5,000 machines of one installation in one region, what a reading may hold; more is a fault."""
MAX_PRICE_PAGES: Final = 3
"""Three hours of price changes of one type fit one page; more pages would only be older changes."""
MAX_USER_DATA_BYTES: Final = 16 * 1024
"""The API takes 32 KB, but all of it travels in the URL, whose limit at the gateway is not documented."""
MIN_HOST_NAME_CHARS: Final = 2
MAX_HOST_NAME_CHARS: Final = 64
PRICE_LIMIT_STEP: Final = Decimal("0.001")
"""SpotPriceLimit has at most three decimals."""

# Source: DescribeInstances, ECS API reference. Ended machines are absent: there is no word for them.
STATES: Final[Mapping[str, InstanceState]] = {
    "Pending": InstanceState.PENDING,
    "Starting": InstanceState.PENDING,
    "Running": InstanceState.RUNNING,
    "Stopping": InstanceState.INTERRUPTING,
    "Stopped": InstanceState.INTERRUPTING,
}

RECYCLING: Final = "Recycling"
"""Lock of a machine that is taken back within 5 minutes; its status stays Running."""

STOCKS: Final[Mapping[str, Stock]] = {
    "WithStock": Stock.AMPLE,
    "ClosedWithStock": Stock.SCARCE,
    "WithoutStock": Stock.NONE,
    "ClosedWithoutStock": Stock.NONE,
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


class AliyunSettings(Contract):
    """What an operator may set for this cloud."""

    endpoint: str = ""
    """``host:port`` or a URL of another endpoint; empty means the vendor's for the region."""
    spot_duration_hours: int = 1
    """Hours without a reclaim: 1 (protected, the vendor's default) or 0."""
    connect_timeout_seconds: float = 5
    read_timeout_seconds: float = 20


def price_limit_from(max_price_per_hour: Decimal) -> float:
    """The bid as the API takes it, rounded down so that it never exceeds what was allowed."""
    return float(max_price_per_hour.quantize(PRICE_LIMIT_STEP, rounding=ROUND_FLOOR))


def launch_flaw(request: LaunchRequest, user_data: str) -> str:
    """What makes a request impossible before it is sent: what, where and what to do; empty when fine."""
    size = len(user_data.encode())
    if size > MAX_USER_DATA_BYTES:
        return (
            f"user data has {size} bytes, at most {MAX_USER_DATA_BYTES} can be sent: "
            "shorten userDataTemplate of the node class and fetch the rest at boot"
        )
    bid = request.max_price_per_hour
    if bid is not None and bid < PRICE_LIMIT_STEP:
        return f"the bid {bid} per hour is below the least price of {PRICE_LIMIT_STEP}: raise maxPricePerHour"
    return ""


def launch_body(request: LaunchRequest, user_data: str, settings: AliyunSettings) -> dict[str, object]:
    """Parameters of RunInstances for one machine.

    The same request gives the same parameters, as its token demands: nothing here may depend on the time.
    """
    offer = request.offer
    tags = {**request.tags, TAG_LAUNCH: request.token}
    body: dict[str, object] = {
        "RegionId": offer.region,
        "ZoneId": offer.zone,
        "ClientToken": request.token,
        "Amount": 1,
        "InstanceType": offer.instance_type.name,
        "InstanceChargeType": "PostPaid",
        "ImageId": request.image_id,
        "VSwitchId": request.subnet_id,
        "SecurityGroupIds": list(request.security_group_ids),
        "SystemDisk": {"Category": request.disk.type, "Size": str(request.disk.size_gb)},
        "UserData": base64.b64encode(user_data.encode()).decode("ascii"),
        "Tag": [{"Key": key, "Value": tags[key]} for key in sorted(tags)],
    }
    if request.key_pair_id:
        body["KeyPairName"] = request.key_pair_id
    if request.dead_man_at is not None:
        # At least 30 minutes ahead; the vendor keeps the minute and would round down by itself.
        body["AutoReleaseTime"] = to_minute(request.dead_man_at)
    if request.name:
        body["InstanceName"] = request.name
    if MIN_HOST_NAME_CHARS <= len(request.name) <= MAX_HOST_NAME_CHARS:
        body["HostName"] = request.name
    return body | spot_terms(request, settings)


def spot_terms(request: LaunchRequest, settings: AliyunSettings) -> dict[str, object]:
    """Parameters that make it a spot instance; none for on-demand."""
    if request.offer.capacity_type is not CapacityType.SPOT:
        return {}
    terms: dict[str, object] = {
        "SpotDuration": settings.spot_duration_hours,
        "SpotInterruptionBehavior": "Terminate",
    }
    if request.max_price_per_hour is None:
        return terms | {"SpotStrategy": "SpotAsPriceGo"}
    limit = price_limit_from(request.max_price_per_hour)
    return terms | {"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": limit}


def instance_from(seen: answers.SeenInstance, region: str) -> Instance:
    """One machine of an answer. A machine with a recycling lock is INTERRUPTING whatever its status."""
    locks = [lock.lock_reason for lock in seen.operation_locks.lock_reason]
    # A status that is not listed is not usable yet; its word is the reason.
    state = STATES.get(seen.status, InstanceState.PENDING)
    usual = seen.status in ("Pending", "Starting", "Running")
    recycling = RECYCLING in locks
    return Instance(
        provider=NAME,
        region=region,
        zone=seen.zone_id,
        id=seen.instance_id,
        provider_id=provider_id(NAME, region, seen.zone_id, seen.instance_id),
        instance_type=seen.instance_type,
        capacity_type=CapacityType.SPOT if seen.spot_strategy.startswith("Spot") else CapacityType.ON_DEMAND,
        state=InstanceState.INTERRUPTING if recycling else state,
        reason=RECYCLING if recycling else next(iter(locks), "" if usual else seen.status),
        created_at=seen.creation_time,
        # The API names no moment; that it is at most 5 minutes after the lock does not tell when.
        interrupt_deadline=None,
        tags={tag.tag_key: tag.tag_value for tag in seen.tags.tag},
    )


def stock_from(sold: answers.SoldResource) -> Stock:
    """How much there is, by the answer's two words; the finer one is not always there."""
    if sold.status == "SoldOut":
        return Stock.NONE
    return STOCKS.get(sold.status_category, Stock.UNKNOWN)


def stocks_from(answer: answers.DescribeAvailableResource, instance_type: str) -> dict[str, Stock]:
    """Zone to stock of one type; zones that do not sell it are absent."""
    return {
        zone.zone_id: stock_from(sold)
        for zone in answer.available_zones.available_zone
        for kind in zone.available_resources.available_resource
        for sold in kind.supported_resources.supported_resource
        if sold.value == instance_type
    }


def newest_by_zone(changes: Iterable[answers.PriceChange]) -> dict[str, answers.PriceChange]:
    """The last price change of each zone; the answer's order is not documented."""
    return {change.zone_id: change for change in sorted(changes, key=lambda change: change.timestamp)}


def quote_from(amount: Decimal | None, currency: str, *, now: datetime) -> PriceQuote | None:
    """A price of this moment; a missing one, a zero or one without a currency is none."""
    if amount is None or amount <= 0 or not currency:
        return None
    return PriceQuote(per_hour=amount, currency=currency, as_of=now, source="DescribeSpotPriceHistory")


class AliyunProvider:
    """``Provider`` for Alibaba Cloud. The client is built at the first call and when the keys change."""

    def __init__(
        self,
        key: RegionKey,
        credentials: Credentials,
        settings: AliyunSettings,
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
        """All but leftovers: disks end with their machine here, and no address is bought."""
        return CAPABILITIES

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """One RunInstances call; when a quota refuses, one DescribeAccountAttributes call; see the port."""
        until = quotas.deadline()
        flaw = launch_flaw(request, user_data)
        if flaw:
            return Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="", message=flaw)
        body = launch_body(request, user_data, self._settings)
        try:
            with translate_errors("RunInstances", creating=True):
                answer = answers.RunInstances.model_validate(self._clients.get().call("RunInstances", body))
        except ProviderError as fault:
            refused, told = market_answer(fault), aliyun_quotas.ANSWERED
            return quotas.with_limit(refused, told, lambda: self._quotas(request.offer), until=until)
        ids = answer.instance_id_sets.instance_id_set
        if len(ids) != 1:
            text = f"success with {len(ids)} ids instead of one"
            raise ProviderError(ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="RunInstances")
        return Created(instance_id=ids[0], zone=request.offer.zone)

    def _quotas(self, offer: Offer) -> list[quotas.Quota]:
        question, shape = aliyun_quotas.question(offer), answers.DescribeAccountAttributes
        return aliyun_quotas.found(self._read("DescribeAccountAttributes", question, shape), offer)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One DeleteInstances call; where one machine spoils the batch, a few more to leave it out."""
        _for_all(instance_ids, MAX_IDS_PER_CALL, self._end)

    def _end(self, instance_ids: Sequence[str]) -> None:
        """The vendor ends all of a batch or none: what is gone is left out of a second call."""
        try:
            self._delete(instance_ids)
        except ProviderError as fault:
            if fault.code is not ErrorCode.NOT_FOUND or len(instance_ids) == 1:
                raise
            living = [machine.id for machine in self.describe(instance_ids)]
            if len(living) == len(instance_ids):
                raise
            if living:
                self._delete(living)

    def _delete(self, instance_ids: Sequence[str]) -> None:
        # Force is what ends a running machine; power is cut at once (ForceStop is the default).
        parameters = {"RegionId": self._key.region, "InstanceId": list(instance_ids), "Force": True}
        self._call("DeleteInstances", parameters)

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """One DescribeInstances call per 100 ids."""
        found: list[Instance] = []
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            seen, _ = self._describe_instances({"InstanceIds": json.dumps(batch)})
            found += seen
        return found

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """One DescribeInstances call per 100 machines, at most ``MAX_PAGES``."""
        which: dict[str, object] = {"Tag": [{"Key": key, "Value": tags[key]} for key in sorted(tags)]}
        found: dict[str, Instance] = {}
        for _ in range(MAX_PAGES):
            seen, next_token = self._describe_instances(which)
            found.update((machine.id, machine) for machine in seen)
            if not next_token:
                return list(found.values())
            which["NextToken"] = next_token
        text = f"more than {MAX_PAGES * MAX_IDS_PER_CALL} machines carry {dict(tags)}"
        raise ProviderError(ErrorCode.UNKNOWN, text, provider=NAME, operation="DescribeInstances")

    def _describe_instances(self, which: Mapping[str, object]) -> tuple[list[Instance], str]:
        """One page of machines, and the token of the next page or an empty text."""
        answer = self._seen(which)
        return [
            instance_from(seen, self._key.region) for seen in answer.instances.instance
        ], answer.next_token

    def _seen(self, which: Mapping[str, object]) -> answers.DescribeInstances:
        parameters = {"RegionId": self._key.region, "MaxResults": MAX_IDS_PER_CALL, **which}
        return self._read("DescribeInstances", parameters, answers.DescribeInstances)

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """Per type one DescribeAvailableResource and one to three DescribeSpotPriceHistory calls."""
        asked = [kind for kind in types if kind.provider is NAME and kind.name in query.instance_types]
        return [offer for kind in asked for offer in self._offers_of(kind, query)]

    def _offers_of(self, kind: InstanceType, query: OfferQuery) -> list[Offer]:
        """Offers of one type; none when the region does not know it."""
        try:
            stocks = self._stocks(kind.name, query.capacity_type)
            prices = self._prices(kind.name, query.capacity_type) if stocks else {}
        except ProviderError as fault:
            if fault.vendor_code.startswith(NOT_OFFERED):
                return []
            raise
        return [
            Offer(
                provider=NAME,
                account=self._key.account,
                region=self._key.region,
                zone=zone,
                instance_type=kind,
                capacity_type=query.capacity_type,
                price=prices.get(zone),
                stock=stock,
            )
            for zone, stock in stocks.items()
            if not query.zones or zone in query.zones
        ]

    def _stocks(self, instance_type: str, capacity_type: CapacityType) -> dict[str, Stock]:
        """Zone to stock of one type."""
        parameters: dict[str, object] = {
            "RegionId": self._key.region,
            "DestinationResource": "InstanceType",
            "InstanceType": instance_type,
            "InstanceChargeType": "PostPaid",
            "IoOptimized": "optimized",
            "NetworkCategory": "vpc",
            "SpotStrategy": "NoSpot",
        }
        if capacity_type is CapacityType.SPOT:
            hours = self._settings.spot_duration_hours
            parameters |= {"SpotStrategy": "SpotWithPriceLimit", "SpotDuration": hours}
        answer = self._read("DescribeAvailableResource", parameters, answers.DescribeAvailableResource)
        return stocks_from(answer, instance_type)

    def _prices(self, instance_type: str, capacity_type: CapacityType) -> dict[str, PriceQuote | None]:
        """Zone to the price now. The same answer holds the price without interruption (OriginPrice)."""
        parameters: dict[str, object] = {
            "RegionId": self._key.region,
            "InstanceType": instance_type,
            "IoOptimized": "optimized",
            "NetworkType": "vpc",
            "OSType": "linux",
            "SpotDuration": self._settings.spot_duration_hours,
        }
        changes: list[answers.PriceChange] = []
        currency = ""
        for _ in range(MAX_PRICE_PAGES):
            answer = self._read("DescribeSpotPriceHistory", parameters, answers.DescribeSpotPriceHistory)
            changes += answer.spot_prices.spot_price_type
            currency = answer.currency or currency
            if not answer.next_offset:
                break
            parameters["Offset"] = answer.next_offset
        now = self._now()
        spot = capacity_type is CapacityType.SPOT
        return {
            zone: quote_from(change.spot_price if spot else change.origin_price, currency, now=now)
            for zone, change in newest_by_zone(changes).items()
        }

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """The switches away, then TagResources and UntagResources per 50 machines.

        A stop between the last two leaves both tags.
        """
        with_switch = list(self.dead_man_times(instance_ids))
        _for_all(with_switch, 1, lambda ids: self._set_release(ids[0], None))
        _for_all(instance_ids, MAX_TAGGED_PER_CALL, lambda ids: self._retag(ids, installation))

    def _retag(self, instance_ids: Sequence[str], installation: str) -> None:
        where: dict[str, object] = {
            "RegionId": self._key.region,
            "ResourceType": "instance",
            "ResourceId": list(instance_ids),
        }
        self._call("TagResources", where | {"Tag": [{"Key": TAG_RETAINED, "Value": installation}]})
        self._call("UntagResources", where | {"TagKey": [TAG_INSTALLATION]})

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """One DescribeInstances call per 100 ids."""
        return {
            seen.instance_id: seen.auto_release_time
            for batch in _batches(instance_ids, MAX_IDS_PER_CALL)
            for seen in self._seen({"InstanceIds": json.dumps(batch)}).instances.instance
            if seen.auto_release_time
        }

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """One ModifyInstanceAutoReleaseTime call per machine; the time is at least 30 minutes ahead."""
        _for_all(instance_ids, 1, lambda ids: self._set_release(ids[0], at))

    def _set_release(self, instance_id: str, at: datetime | None) -> None:
        which = {"RegionId": self._key.region, "InstanceId": instance_id}
        # Without a time the switch is taken away.
        self._call(
            "ModifyInstanceAutoReleaseTime", which | ({"AutoReleaseTime": to_minute(at)} if at else {})
        )

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """None: what is bought here ends with its machine. A stopped one is listed, so it is no leftover."""
        del tags
        return []

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """Nothing of this adapter's can be in the list."""
        check_ours(NAME, leftovers, supported=False)

    def close(self) -> None:
        """Release the connections and forget the keys."""
        self._clients.close()

    def _read(self, action: str, parameters: Mapping[str, object], shape: type[_Shape]) -> _Shape:
        with translate_errors(action):
            return shape.model_validate(self._clients.get().call(action, parameters))

    def _call(self, action: str, parameters: Mapping[str, object]) -> None:
        with translate_errors(action):
            self._clients.get().call(action, parameters)


def _connect(key: RegionKey, settings: AliyunSettings, turn: Turn, keys: Mapping[str, str]) -> EcsClient:
    return EcsClient(
        key.region,
        keys,
        endpoint_from(settings.endpoint),
        turn=turn,
        connect_timeout=timedelta(seconds=settings.connect_timeout_seconds),
        read_timeout=timedelta(seconds=settings.read_timeout_seconds),
    )


def build(
    key: RegionKey, credentials: Credentials, *, endpoint: str = "", turn: Turn = at_once
) -> AliyunProvider:
    """The adapter of one account and region. Imports the SDK and connects only when it is first used.

    Args:
        key: Which region of which account.
        credentials: Where the keys are read, at each use.
        endpoint: ``host:port`` or a URL that replaces the vendor's own address.
        turn: Taken before each request.
    """
    return AliyunProvider(key, credentials, AliyunSettings(endpoint=endpoint), turn=turn)


def _for_all(instance_ids: Sequence[str], size: int, act: Callable[[Sequence[str]], None]) -> None:
    """Act on batches, and machine by machine where one of a batch is at fault; gone ones are done.

    Raises:
        ProviderError: of a whole batch at once; of single machines after all others were tried.
    """
    refused: ProviderError | None = None
    for batch in _batches(instance_ids, size):
        try:
            act(batch)
        except ProviderError as fault:
            if not fault.vendor_code.startswith(CONCERNS_ONE_MACHINE):
                raise
            alone = [fault] if len(batch) == 1 else [_refusal_of(each, act) for each in batch]
            refused = next((one for one in alone if one and one.code is not ErrorCode.NOT_FOUND), refused)
    if refused is not None:
        raise refused


def _refusal_of(instance_id: str, act: Callable[[Sequence[str]], None]) -> ProviderError | None:
    """Act on one machine alone: None when done, the fault when it is about this machine."""
    try:
        act([instance_id])
    except ProviderError as fault:
        if not fault.vendor_code.startswith(CONCERNS_ONE_MACHINE):
            raise
        return fault
    return None


def _batches(ids: Sequence[str], size: int) -> list[list[str]]:
    unique = list(dict.fromkeys(ids))
    return [unique[start : start + size] for start in range(0, len(unique), size)]
