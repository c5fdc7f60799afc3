"""Alibaba Cloud ECS: one account in one region, over ``alibabacloud_ecs20140526``.

APIs: RunInstances, DeleteInstances, DescribeInstances, DescribeAvailableResource,
DescribeSpotPriceHistory, TagResources, UntagResources (version 2014-05-26).
Auth: access key and secret from the credentials Secret, optionally with an STS token; ACS3-HMAC-SHA256.
Source: ECS API reference and error tables (2021, single pages 2026) and the SDK's own texts (7.11.8).
"""

import base64
import json
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from activities.providers import aliyun_answers as answers
from activities.providers.aliyun_sdk import AnsweredError, EcsClient, UnansweredError
from activities.providers.base import Credentials
from activities.providers.endpoints import endpoint_from
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import (
    Created,
    Instance,
    InstanceState,
    LaunchRequest,
    LaunchResult,
    OfferQuery,
    Refusal,
    Rejected,
)
from domain.contracts.model import Contract
from domain.contracts.money import PriceQuote
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey, Stock
from domain.contracts.provider_ids import provider_id

NAME: Final = ProviderName.ALIYUN

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

# Codes are matched by their longest listed prefix. An answer's HTTP status says nothing here: throttling
# comes with 400, a wrong key with 404, stock with 403, quota with 400 or 403.
# Source: error tables of RunInstances and DeleteInstance, ECS API reference 2021. Unlisted: UNKNOWN.
ERROR_CODES: Final[Mapping[str, ErrorCode]] = {
    "Throttling": ErrorCode.THROTTLED,
    "InternalError": ErrorCode.UNAVAILABLE,
    "ServiceUnavailable": ErrorCode.UNAVAILABLE,
    "IdempotentParameterMismatch": ErrorCode.UNKNOWN_OUTCOME,
    "InvalidAccessKeyId": ErrorCode.UNAUTHENTICATED,
    "InvalidSecurityToken": ErrorCode.UNAUTHENTICATED,
    "InvalidTimeStamp": ErrorCode.UNAUTHENTICATED,
    "SignatureDoesNotMatch": ErrorCode.UNAUTHENTICATED,
    "IncompleteSignature": ErrorCode.UNAUTHENTICATED,
    "SignatureNonceUsed": ErrorCode.UNAVAILABLE,
    "Forbidden": ErrorCode.FORBIDDEN,
    "Forbbiden": ErrorCode.FORBIDDEN,  # spelt so by the vendor
    "NoPermission": ErrorCode.FORBIDDEN,
    "InvalidUser.PassRoleForbidden": ErrorCode.FORBIDDEN,
    "RealNameAuthenticationError": ErrorCode.FORBIDDEN,
    "InvalidAccountStatus": ErrorCode.FORBIDDEN,
    "InsufficientBalance": ErrorCode.FORBIDDEN,
    "Account.Arrearage": ErrorCode.FORBIDDEN,
    "PaymentMethodNotFound": ErrorCode.FORBIDDEN,
    "InvalidOperation.DeletionProtection": ErrorCode.FORBIDDEN,
    "InstanceLockedForSecurity": ErrorCode.FORBIDDEN,
    "InvalidInstanceId.NotFound": ErrorCode.NOT_FOUND,
    "InvalidInstanceIds.NotFound": ErrorCode.NOT_FOUND,
    "InvalidResourceId.NotFound": ErrorCode.NOT_FOUND,
    "OperationDenied.CreatingConflict": ErrorCode.CONFLICT,
    "IncorrectInstanceStatus": ErrorCode.CONFLICT,
    "Invalid": ErrorCode.INVALID_REQUEST,
    "Missing": ErrorCode.INVALID_REQUEST,
    "UnsupportedParameter": ErrorCode.INVALID_REQUEST,
}

REFUSALS: Final[Mapping[str, ErrorCode]] = {
    "OperationDenied.NoStock": ErrorCode.INSUFFICIENT_CAPACITY,
    "ResourceNotAvailable": ErrorCode.INSUFFICIENT_CAPACITY,
    "NodeControllerUnavailable": ErrorCode.INSUFFICIENT_CAPACITY,
    "Zone.NotOnSale": ErrorCode.INSUFFICIENT_CAPACITY,
    "Zone.NotOpen": ErrorCode.INSUFFICIENT_CAPACITY,
    "OperationDenied.ZoneNotAllowed": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.ZoneNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.NotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidInstanceType.ValueNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InstanceType.Offline": ErrorCode.INSUFFICIENT_CAPACITY,
    "CategoryNotSupported": ErrorCode.INSUFFICIENT_CAPACITY,
    "InvalidSpotPriceLimit.LowerThanPublicPrice": ErrorCode.PRICE_TOO_LOW,
    "QuotaExceed": ErrorCode.QUOTA,  # also QuotaExceeded and all their suffixes
    "SecurityGroupInstanceLimitExceed": ErrorCode.QUOTA,
}

NOT_OFFERED: Final = (
    "Zone.NotOnSale",
    "Zone.NotOpen",
    "OperationDenied.ZoneNotAllowed",
    "InvalidInstanceType.",
    "InstanceType.Offline",
    "CategoryNotSupported",
)
"""Prefixes of refusals that say: not sold there at all."""

CONCERNS_ONE_MACHINE: Final = (
    "InvalidInstanceId",
    "InvalidResourceId",
    "IncorrectInstanceStatus",
    "InvalidOperation.DeletionProtection",
    "InstanceLockedForSecurity",
)
"""Prefixes of codes with which one machine spoils a whole batch."""

BUSY_RETRY_AFTER: Final = timedelta(seconds=10)
"""A machine that is being made refuses to be deleted; the vendor's advice is 10 to 30 s."""

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


_Shape = TypeVar("_Shape", bound=BaseModel)


class AliyunSettings(Contract):
    """What an operator may set for this cloud."""

    endpoint: str = ""
    """``host:port`` or a URL of another endpoint; empty means the vendor's for the region."""
    spot_duration_hours: int = 1
    """Hours without a reclaim: 1 (protected, the vendor's default) or 0."""
    connect_timeout_seconds: float = 5
    read_timeout_seconds: float = 20


def classify(vendor_code: str, *, creating: bool) -> ErrorCode:
    """The closed class of a vendor's code, by its longest listed prefix.

    Args:
        vendor_code: The cloud's word; empty when an error answer had none.
        creating: Whether a machine was being bought, so that an internal error may have made it.
    """
    table = {**ERROR_CODES, **REFUSALS}
    prefixes = [prefix for prefix in table if vendor_code.startswith(prefix)]
    code = table[max(prefixes, key=len)] if prefixes else ErrorCode.UNKNOWN
    may_have_run = code is ErrorCode.UNAVAILABLE or not vendor_code
    return ErrorCode.UNKNOWN_OUTCOME if creating and may_have_run else code


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


@contextmanager
def translate_errors(operation: str, *, creating: bool = False) -> Generator[None]:
    """Re-raise the failures of one call as ``ProviderError``.

    Args:
        operation: The API's name.
        creating: A machine is being bought, so that a lost answer leaves the outcome unknown.
    """
    lost = ErrorCode.UNKNOWN_OUTCOME if creating else ErrorCode.UNAVAILABLE
    try:
        yield
    except AnsweredError as fault:
        code = classify(fault.vendor_code, creating=creating)
        busy = BUSY_RETRY_AFTER if code is ErrorCode.CONFLICT else None
        raise ProviderError(
            code,
            fault.message,
            provider=NAME,
            operation=operation,
            vendor_code=fault.vendor_code,
            retry_after=fault.retry_after or busy,
        ) from fault
    except UnansweredError as fault:
        code = ErrorCode.UNAVAILABLE if fault.never_left else lost
        raise ProviderError(code, str(fault), provider=NAME, operation=operation) from fault
    except ValidationError as fault:
        fields = ", ".join(".".join(str(part) for part in error["loc"]) for error in fault.errors()[:3])
        text = f"unreadable answer: {fields}"
        # Cut off, since pydantic quotes what it read.
        raise ProviderError(lost, text, provider=NAME, operation=operation) from None


class AliyunProvider:
    """``Provider`` for Alibaba Cloud. The client is built at the first call and when the keys change."""

    def __init__(
        self,
        key: RegionKey,
        credentials: Credentials,
        settings: AliyunSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._key = key
        self._credentials = credentials
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._built: tuple[Mapping[str, str], EcsClient] | None = None

    @property
    def key(self) -> RegionKey:
        """The account and region that this object speaks for."""
        return self._key

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """One RunInstances call; see the port."""
        flaw = launch_flaw(request, user_data)
        if flaw:
            return Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="", message=flaw)
        body = launch_body(request, user_data, self._settings)
        try:
            with translate_errors("RunInstances", creating=True):
                answer = answers.RunInstances.model_validate(self._client().call("RunInstances", body))
        except ProviderError as fault:
            return _market_answer(fault)
        ids = answer.instance_id_sets.instance_id_set
        if len(ids) != 1:
            text = f"success with {len(ids)} ids instead of one"
            raise ProviderError(ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="RunInstances")
        return Created(instance_id=ids[0], zone=request.offer.zone)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One DeleteInstances call, or one more per machine when one of them spoils the batch."""
        _for_all(instance_ids, MAX_IDS_PER_CALL, self._delete)

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
        parameters = {"RegionId": self._key.region, "MaxResults": MAX_IDS_PER_CALL, **which}
        answer = self._read("DescribeInstances", parameters, answers.DescribeInstances)
        return [
            instance_from(seen, self._key.region) for seen in answer.instances.instance
        ], answer.next_token

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
        """TagResources, then UntagResources, per 50 machines: a stop between them leaves both tags."""
        _for_all(instance_ids, MAX_TAGGED_PER_CALL, lambda ids: self._retag(ids, installation))

    def _retag(self, instance_ids: Sequence[str], installation: str) -> None:
        where: dict[str, object] = {
            "RegionId": self._key.region,
            "ResourceType": "instance",
            "ResourceId": list(instance_ids),
        }
        self._call("TagResources", where | {"Tag": [{"Key": TAG_RETAINED, "Value": installation}]})
        self._call("UntagResources", where | {"TagKey": [TAG_INSTALLATION]})

    def close(self) -> None:
        """Forget the client and its keys. The SDK keeps its connections per process, not per client."""
        with self._lock:
            self._built = None

    def _read(self, action: str, parameters: Mapping[str, object], shape: type[_Shape]) -> _Shape:
        with translate_errors(action):
            return shape.model_validate(self._client().call(action, parameters))

    def _call(self, action: str, parameters: Mapping[str, object]) -> None:
        with translate_errors(action):
            self._client().call(action, parameters)

    def _client(self) -> EcsClient:
        """The client for the keys of this moment; keys are read at each use."""
        keys = dict(self._credentials.read())
        with self._lock:
            if self._built is None or self._built[0] != keys:
                self._built = (keys, self._connect(keys))
            return self._built[1]

    def _connect(self, keys: Mapping[str, str]) -> EcsClient:
        return EcsClient(
            self._key.region,
            keys,
            endpoint_from(self._settings.endpoint),
            connect_timeout=timedelta(seconds=self._settings.connect_timeout_seconds),
            read_timeout=timedelta(seconds=self._settings.read_timeout_seconds),
        )


def build(key: RegionKey, credentials: Credentials, *, endpoint: str = "") -> AliyunProvider:
    """The adapter of one account and region. Imports the SDK and connects only when it is first used.

    Args:
        key: Which region of which account.
        credentials: Where the keys are read, at each use.
        endpoint: ``host:port`` or a URL that replaces the vendor's own address.
    """
    return AliyunProvider(key, credentials, AliyunSettings(endpoint=endpoint))


def _market_answer(fault: ProviderError) -> LaunchResult:
    """The value that a fault of a create call stands for.

    Raises:
        ProviderError: the same fault, when it is no answer of the market.
    """
    match fault.code:
        case ErrorCode.INSUFFICIENT_CAPACITY | ErrorCode.QUOTA | ErrorCode.PRICE_TOO_LOW as code:
            return Refusal(
                code=code,
                vendor_code=fault.vendor_code,
                message=str(fault),
                not_offered=fault.vendor_code.startswith(NOT_OFFERED),
            )
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN as code:
            return Rejected(code=code, vendor_code=fault.vendor_code, message=str(fault))
        case _:
            raise fault


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
