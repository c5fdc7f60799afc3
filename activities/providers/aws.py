"""AWS EC2: one account in one region, over ``boto3``.

APIs: RunInstances, TerminateInstances, DescribeInstances, DescribeSpotInstanceRequests, DescribeImages,
DescribeInstanceTypeOfferings, DescribeSpotPriceHistory, CreateTags, DeleteTags, DescribeVolumes,
DeleteVolume, DescribeAddresses, ReleaseAddress (version 2016-11-15); GetProducts of the Price List Query API
(2017-10-15), GetServiceQuota of the Service Quotas API (2019-06-24). There is no dead-man switch.
Auth: access key and secret from the credentials Secret, optionally with a session token; Signature Version 4.
Source: the service model of botocore 1.44.8 and the EC2 user guide (2023).
"""

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from typing import Final, TypeVar

from pydantic import BaseModel

from activities.providers import aws_answers as answers
from activities.providers import aws_leftovers, aws_prices, aws_quotas, quotas
from activities.providers.aws_errors import (
    BUSY_RETRY_AFTER,
    CONCERNS_ONE_MACHINE,
    market_answer,
    translate_errors,
)
from activities.providers.aws_sdk import Ec2Calls
from activities.providers.base import Capability, Credentials, Turn, at_once
from activities.providers.dead_man import no_switch
from activities.providers.endpoints import endpoint_from
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
from domain.contracts.names import TAG_INSTALLATION, TAG_LAUNCH, TAG_RETAINED
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey, Stock
from domain.contracts.provider_ids import provider_id

NAME: Final = ProviderName.AWS

MAX_IDS_PER_CALL: Final = 100
"""The vendor takes 1,000, but one bad id refuses them all, and a filter takes 200 values."""
MAX_TYPES_PER_CALL: Final = 100
MAX_PAGES: Final = 50
"""25,000 machines of one installation in one region; more is a fault."""
MAX_USER_DATA_BYTES: Final = 16 * 1024
LEAST_PRICE: Final = Decimal("0.001")
"""A bid must be above this, an hour in the region's currency."""
PRICE_STEP: Final = Decimal("0.000001")
"""Spot prices have six decimals."""
LINUX: Final = "Linux/UNIX"
TAG_NAME: Final = "Name"
"""The tag that the vendor's console shows as a machine's name; machines have no other."""
UNSEEN_FOR: Final = timedelta(minutes=5)
"""So long after its launch a machine that was never listed may be unknown to other calls."""

ENDED: Final = "terminated"
"""The word for a machine that is gone for good: its absence is what pools wait for."""

# Source: InstanceState in the EC2 API reference. One that has ended stays listed for about an hour.
STATES: Final[Mapping[str, InstanceState]] = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.INTERRUPTING,
    "stopped": InstanceState.INTERRUPTING,
    "shutting-down": InstanceState.TERMINATED,
    "terminated": InstanceState.TERMINATED,
}

TAKEN_BACK: Final = (
    "marked-for-termination",
    "marked-for-stop",
    "instance-terminated-by-price",
    "instance-terminated-by-service",
    "instance-terminated-no-capacity",
    "instance-stopped-by-price",
    "instance-stopped-no-capacity",
)
"""Status codes of spot requests whose machine goes; the later ones can show while it still runs."""

CAPABILITIES: Final = frozenset({Capability.LEFTOVERS, Capability.SPOT_PRICES, Capability.ON_DEMAND_PRICES})

_Shape = TypeVar("_Shape", bound=BaseModel)
_Page = TypeVar("_Page", bound=answers.Page)


class AwsSettings(Contract):
    """What an operator may set for this cloud."""

    endpoint: str = ""
    """``host:port`` or a URL of another endpoint; empty means the vendor's for the region."""
    connect_timeout_seconds: float = 5
    read_timeout_seconds: float = 20
    page_size: int = 500
    """Machines per page, 5 to 1000."""


def bid_from(max_price_per_hour: Decimal) -> str:
    """The bid as the API takes it, rounded down so that it never exceeds what was allowed."""
    bid = max_price_per_hour.quantize(PRICE_STEP, rounding=ROUND_FLOOR)
    return f"{bid:f}".rstrip("0").rstrip(".")


def launch_flaw(request: LaunchRequest, user_data: str) -> str:
    """What makes a request impossible before it is sent: what, where and what to do; empty when fine."""
    size = len(user_data.encode())
    if size > MAX_USER_DATA_BYTES:
        return (
            f"user data has {size} bytes, at most {MAX_USER_DATA_BYTES} can be sent: "
            "shorten userDataTemplate of the node class and fetch the rest at boot"
        )
    bid = request.max_price_per_hour
    if bid is not None and bid.quantize(PRICE_STEP, rounding=ROUND_FLOOR) <= LEAST_PRICE:
        return f"the bid {bid} per hour is not above {LEAST_PRICE}: raise maxPricePerHour"
    return ""


def launch_body(request: LaunchRequest, user_data: str, root_device: str) -> dict[str, object]:
    """Parameters of RunInstances for one machine.

    The same request gives the same parameters, as its token demands: nothing here may depend on the time.

    Args:
        request: What to buy.
        user_data: The boot script, plain: the SDK encodes it.
        root_device: Name of the image's root device; a disk of another name would be a second one.
    """
    offer = request.offer
    disk = {
        "VolumeSize": request.disk.size_gb,
        "VolumeType": request.disk.type,
        "DeleteOnTermination": True,
    }
    body: dict[str, object] = {
        "ImageId": request.image_id,
        "InstanceType": offer.instance_type.name,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": request.token,
        # The subnet fixes the zone; naming both has the cloud refuse a subnet of another one.
        "Placement": {"AvailabilityZone": offer.zone},
        "SubnetId": request.subnet_id,
        "SecurityGroupIds": list(request.security_group_ids),
        "BlockDeviceMappings": [{"DeviceName": root_device, "Ebs": disk}],
        "UserData": user_data,
        "TagSpecifications": tag_specifications(request),
    }
    if request.key_pair_id:
        body["KeyName"] = request.key_pair_id
    return body | spot_terms(request)


def tag_specifications(request: LaunchRequest) -> list[dict[str, object]]:
    """The tags of a launch, for the machine and for its disk."""
    named = {TAG_NAME: request.name} if request.name else {}
    tags = {**named, **request.tags, TAG_LAUNCH: request.token}
    pairs = [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
    return [{"ResourceType": kind, "Tags": pairs} for kind in ("instance", "volume")]


def spot_terms(request: LaunchRequest) -> dict[str, object]:
    """Parameters that make it a spot instance; none for on-demand."""
    if request.offer.capacity_type is not CapacityType.SPOT:
        return {}
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if request.max_price_per_hour is not None:
        options["MaxPrice"] = bid_from(request.max_price_per_hour)
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}


def instance_from(seen: answers.SeenInstance, region: str, spot_status: str = "") -> Instance:
    """One machine of an answer.

    Args:
        seen: The machine.
        region: Its region.
        spot_status: The status of its spot request when that says that the cloud takes it back.
    """
    # A state that is not listed is not usable yet; its word is the reason.
    state = STATES.get(seen.state.name, InstanceState.PENDING)
    usual = seen.state.name in ("pending", "running")
    reason = "" if usual else seen.state_reason.code or seen.state.name
    if usual and spot_status:
        state, reason = InstanceState.INTERRUPTING, spot_status
    zone = seen.placement.availability_zone
    return Instance(
        provider=NAME,
        region=region,
        zone=zone,
        id=seen.instance_id,
        provider_id=provider_id(NAME, region, zone, seen.instance_id),
        instance_type=seen.instance_type,
        capacity_type=CapacityType.SPOT if seen.instance_lifecycle == "spot" else CapacityType.ON_DEMAND,
        state=state,
        reason=reason,
        # The SDK gives times in the zone of the machine that it runs on.
        created_at=seen.launch_time.astimezone(UTC),
        # The API names no moment; that it is about two minutes after the mark is best effort.
        interrupt_deadline=None,
        tags={tag.key: tag.value for tag in seen.tags},
    )


class AwsProvider:
    """``Provider`` for AWS. The client is built at the first call and when the keys change."""

    def __init__(
        self,
        key: RegionKey,
        credentials: Credentials,
        settings: AwsSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        turn: Turn = at_once,
    ) -> None:
        self._key = key
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._clients = KeyedClient(credentials, partial(_connect, key, settings, turn))
        self._root_devices: dict[str, str] = {}
        self._unseen: dict[str, datetime] = {}
        """Machines that were bought here and that no list has shown yet, with the time of purchase."""

    @property
    def key(self) -> RegionKey:
        """The account and region that this object speaks for."""
        return self._key

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Leftovers and prices; ``LaunchRequest.dead_man_at`` is not sent, there is no such switch."""
        return CAPABILITIES

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """One RunInstances call, before it one DescribeImages call for each new image; see the port.

        A spot refusal for a quota costs one GetServiceQuota call more.
        """
        until = quotas.deadline()
        flaw = launch_flaw(request, user_data)
        if flaw:
            return Rejected(code=ErrorCode.INVALID_REQUEST, vendor_code="", message=flaw)
        try:
            body = launch_body(request, user_data, self._root_device(request.image_id))
            with translate_errors("RunInstances", creating=True):
                answer = answers.RunInstances.model_validate(self._clients.get().call("RunInstances", body))
        except ProviderError as fault:
            refused, told = market_answer(fault), aws_quotas.ANSWERED
            return quotas.with_limit(refused, told, lambda: self._quotas(request.offer), until=until)
        if len(answer.instances) != 1:
            text = f"success with {len(answer.instances)} instances instead of one"
            raise ProviderError(ErrorCode.UNKNOWN_OUTCOME, text, provider=NAME, operation="RunInstances")
        (launched,) = answer.instances
        self._expect(launched.instance_id)
        return Created(instance_id=launched.instance_id, zone=launched.placement.availability_zone)

    def _quotas(self, offer: Offer) -> list[quotas.Quota]:
        code = aws_quotas.code_of(offer)
        if not code:
            return aws_quotas.found(None, offer)
        question = aws_quotas.question(code)
        return aws_quotas.found(self._read("GetServiceQuota", question, answers.GetServiceQuota), offer)

    def _root_device(self, image_id: str) -> str:
        """Name of an image's root device, which never changes."""
        if image_id not in self._root_devices:
            answer = self._read("DescribeImages", {"ImageIds": [image_id]}, answers.DescribeImages)
            device = next((image.root_device_name for image in answer.images), "")
            if not device:
                text = f"image {image_id} cannot be seen or has no root device: correct the node class"
                raise ProviderError(
                    ErrorCode.INVALID_REQUEST, text, provider=NAME, operation="DescribeImages"
                )
            self._root_devices[image_id] = device
        return self._root_devices[image_id]

    def _expect(self, instance_id: str) -> None:
        now = self._now()
        with self._lock:
            self._unseen = {each: at for each, at in self._unseen.items() if at + UNSEEN_FOR > now}
            self._unseen[instance_id] = now

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """One TerminateInstances call; where one machine spoils the batch, a few more to leave it out."""
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            self._for_known(batch, self._end)

    def _end(self, instance_ids: Sequence[str]) -> None:
        self._read("TerminateInstances", {"InstanceIds": list(instance_ids)}, answers.TerminateInstances)

    def _for_known(self, instance_ids: Sequence[str], act: Callable[[Sequence[str]], None]) -> None:
        """Act on machines that the cloud takes all or none of: unknown ones are left out, others halved.

        Raises:
            ProviderError: of one machine after all others were tried; ``CONFLICT`` when one is too young.
        """
        try:
            act(instance_ids)
        except ProviderError as fault:
            if fault.vendor_code not in CONCERNS_ONE_MACHINE:
                raise
            missing = fault.code is ErrorCode.NOT_FOUND
            left = self._listed(instance_ids) if missing else list(instance_ids)
            if left and len(instance_ids) == 1:
                raise (_too_young(instance_ids, fault) if missing else fault) from fault
            _each(_parts(left, len(instance_ids)), lambda part: self._for_known(part, act))
            self._check_unlisted(set(instance_ids) - set(left), fault)

    def _listed(self, instance_ids: Sequence[str]) -> list[str]:
        """Those of these machines that the cloud knows."""
        return [seen.instance_id for seen in self._seen([_condition("instance-id", instance_ids)])]

    def _check_unlisted(self, instance_ids: Iterable[str], fault: ProviderError) -> None:
        """A machine that is not listed has ended, unless it was bought a moment ago.

        An ended machine stays listed for much longer than a new one is missing.
        """
        with self._lock:
            oldest = self._now() - UNSEEN_FOR
            young = [each for each in instance_ids if self._unseen.get(each, oldest) > oldest]
        if young:
            raise _too_young(sorted(young), fault) from fault

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """One DescribeInstances call per 100 ids, and for living spot machines the spot requests."""
        seen: list[answers.SeenInstance] = []
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            # Ids as a filter: named as ids, one that is unknown would refuse the whole call.
            seen += self._seen([_condition("instance-id", batch)])
        return self._instances(seen)

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """One DescribeInstances call per page, and for living spot machines the spot requests."""
        return self._instances(self._seen([_condition(f"tag:{key}", [tags[key]]) for key in sorted(tags)]))

    def _seen(self, filters: Sequence[Mapping[str, object]]) -> list[answers.SeenInstance]:
        pages = self._pages("DescribeInstances", {"Filters": list(filters)}, answers.DescribeInstances)
        found = {
            seen.instance_id: seen
            for page in pages
            for reservation in page.reservations
            for seen in reservation.instances
        }
        with self._lock:
            for instance_id in found:
                self._unseen.pop(instance_id, None)
        return list(found.values())

    def _instances(self, seen: Sequence[answers.SeenInstance]) -> list[Instance]:
        """The machines that are still there: one that has ended is absent, as it is at every other cloud."""
        there = [each for each in seen if each.state.name != ENDED]
        living = [each for each in there if each.state.name in ("pending", "running")]
        spot = any(each.instance_lifecycle == "spot" for each in living)
        statuses = self._taken_back() if spot else {}
        return [instance_from(each, self._key.region, statuses.get(each.instance_id, "")) for each in there]

    def _taken_back(self) -> dict[str, str]:
        """Machine to the status of its spot request, of all machines that the cloud takes or took back."""
        filters = {"Filters": [_condition("status-code", TAKEN_BACK)]}
        shape = answers.DescribeSpotInstanceRequests
        pages = self._pages("DescribeSpotInstanceRequests", filters, shape)
        return {
            request.instance_id: request.status.code
            for page in pages
            for request in page.spot_instance_requests
        }

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """Per 100 types one DescribeInstanceTypeOfferings call, and the prices.

        Of spot these are one DescribeSpotPriceHistory call per 100 types, of on-demand one GetProducts call
        per type that is sold. The cloud tells nobody how much it has.
        """
        asked = [kind for kind in types if kind.provider is NAME and kind.name in query.instance_types]
        return [
            offer
            for start in range(0, len(asked), MAX_TYPES_PER_CALL)
            for offer in self._offers_of(asked[start : start + MAX_TYPES_PER_CALL], query)
        ]

    def _offers_of(self, kinds: Sequence[InstanceType], query: OfferQuery) -> list[Offer]:
        by_name = {kind.name: kind for kind in kinds}
        sold = [pair for pair in self._sold(list(by_name), query.zones) if pair[1] in by_name]
        if not sold:
            return []
        spot = query.capacity_type is CapacityType.SPOT
        quotes = self._spot_quotes(sold) if spot else self._list_quotes(sold)
        return [
            Offer(
                provider=NAME,
                account=self._key.account,
                region=self._key.region,
                zone=zone,
                instance_type=by_name[name],
                capacity_type=query.capacity_type,
                price=quotes.get((zone, name)),
                stock=Stock.UNKNOWN,
                currency=aws_prices.currency_of(self._key.region),
            )
            for zone, name in sold
        ]

    def _sold(self, names: Sequence[str], zones: Sequence[str]) -> list[aws_prices.Place]:
        """Zone and type of what is sold; a type that the cloud does not know is sold nowhere."""
        filters = [_condition("instance-type", names)]
        if zones:
            filters.append(_condition("location", zones))
        parameters = {"LocationType": "availability-zone", "Filters": filters}
        shape = answers.DescribeInstanceTypeOfferings
        pages = self._pages("DescribeInstanceTypeOfferings", parameters, shape)
        return [(one.location, one.instance_type) for page in pages for one in page.instance_type_offerings]

    def _spot_quotes(self, sold: Sequence[aws_prices.Place]) -> aws_prices.Quotes:
        """The spot prices now: a history that starts now holds the prices that are valid."""
        parameters = {
            "InstanceTypes": sorted({name for _, name in sold}),
            "ProductDescriptions": [LINUX],
            "StartTime": self._now(),
        }
        pages = self._pages("DescribeSpotPriceHistory", parameters, answers.DescribeSpotPriceHistory)
        changes = [change for page in pages for change in page.spot_price_history]
        return aws_prices.spot_quotes(changes, self._key.region, now=self._now())

    def _list_quotes(self, sold: Sequence[aws_prices.Place]) -> aws_prices.Quotes:
        def ask(parameters: Mapping[str, object]) -> answers.GetProducts:
            return self._read("GetProducts", parameters, answers.GetProducts)

        return aws_prices.list_quotes(ask, sold, self._key.region, self._now)

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """CreateTags, then DeleteTags, per 100 machines: a stop between them leaves both tags."""
        for batch in _batches(instance_ids, MAX_IDS_PER_CALL):
            self._for_known(batch, lambda ids: self._retag(ids, installation))

    def _retag(self, instance_ids: Sequence[str], installation: str) -> None:
        machines = {"Resources": list(instance_ids)}
        added = {"Tags": [{"Key": TAG_RETAINED, "Value": installation}]}
        for action, tags in (("CreateTags", added), ("DeleteTags", {"Tags": [{"Key": TAG_INSTALLATION}]})):
            with translate_errors(action):
                self._clients.get().call(action, {**machines, **tags})

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """None: there is no such switch."""
        del instance_ids
        return {}

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """Refuse: there is no such switch."""
        del instance_ids, at
        raise no_switch(NAME)

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """One DescribeVolumes call per page, and one DescribeAddresses call."""
        unused = {"Filters": [_condition("status", ["available"])]}
        pages = self._pages("DescribeVolumes", unused, answers.DescribeVolumes)
        volumes = [volume for page in pages for volume in page.volumes]
        seen = self._read("DescribeAddresses", {}, answers.DescribeAddresses).addresses
        return [
            *aws_leftovers.disks(volumes, self._key, tags),
            *aws_leftovers.addresses(seen, self._key, tags),
        ]

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """One DeleteVolume or ReleaseAddress call each; after a failure they are listed once more."""
        check_ours(NAME, leftovers)
        release_each(leftovers, self._give_up, lambda: {each.id for each in self.leftovers({})})

    def _give_up(self, leftover: Leftover) -> None:
        operation, parameters = aws_leftovers.release_call(leftover)
        with translate_errors(operation):
            self._clients.get().call(operation, parameters)

    def close(self) -> None:
        """Release the connections and forget the keys."""
        self._clients.close()

    def _pages(
        self, operation: str, parameters: Mapping[str, object], shape: type[_Page]
    ) -> Generator[_Page]:
        """Every page of a reading, each one call."""
        sent = {**parameters, "MaxResults": self._settings.page_size}
        for _ in range(MAX_PAGES):
            page = self._read(operation, sent, shape)
            yield page
            if not page.next_token:
                return
            sent = {**sent, "NextToken": page.next_token}
        text = f"more than {MAX_PAGES} pages of {self._settings.page_size}"
        raise ProviderError(ErrorCode.UNKNOWN, text, provider=NAME, operation=operation)

    def _read(self, operation: str, parameters: Mapping[str, object], shape: type[_Shape]) -> _Shape:
        with translate_errors(operation):
            return shape.model_validate(self._clients.get().call(operation, parameters))


def _connect(key: RegionKey, settings: AwsSettings, turn: Turn, keys: Mapping[str, str]) -> Ec2Calls:
    return Ec2Calls(
        key.region,
        keys,
        endpoint_from(settings.endpoint),
        turn=turn,
        connect_timeout=timedelta(seconds=settings.connect_timeout_seconds),
        read_timeout=timedelta(seconds=settings.read_timeout_seconds),
    )


def build(
    key: RegionKey, credentials: Credentials, *, endpoint: str = "", turn: Turn = at_once
) -> AwsProvider:
    """The adapter of one account and region. Sends nothing yet.

    Args:
        key: Which region of which account.
        credentials: Where the keys are read, at each use.
        endpoint: ``host:port`` or a URL that replaces the vendor's own address.
        turn: Taken before each request.
    """
    return AwsProvider(key, credentials, AwsSettings(endpoint=endpoint), turn=turn)


def _condition(name: str, values: Sequence[str]) -> dict[str, object]:
    """A filter for these values, letter by letter: the cloud reads ``*`` and ``?`` as wildcards."""
    marked = [value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?") for value in values]
    return {"Name": name, "Values": marked}


def _too_young(instance_ids: Sequence[str], fault: ProviderError) -> ProviderError:
    text = f"bought a moment ago and not known everywhere yet: {', '.join(instance_ids)}"
    return ProviderError(
        ErrorCode.CONFLICT,
        text,
        provider=NAME,
        operation=fault.operation,
        vendor_code=fault.vendor_code,
        retry_after=BUSY_RETRY_AFTER,
    )


def _parts(left: Sequence[str], before: int) -> list[Sequence[str]]:
    """What is left of a batch as it is when it got smaller, else in halves."""
    if len(left) < before:
        return [left] if left else []
    middle = len(left) // 2
    return [left[:middle], left[middle:]]


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
