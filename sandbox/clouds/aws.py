"""AWS EC2 on the wire: what the adapter's twin answers to signed query requests, and the list of prices.

Throttling comes with HTTP 503, wrong keys with 401, missing capacity with a status that is switched, all
other refusals with 400. A machine that was ended is refused no further call and stays listed as terminated
for a while; a young id is not known anywhere.
Source: the service model of botocore 1.44.8, the EC2 user guide (2023), the answers that the SDK accepts.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import ClassVar, Final, TypeVar
from urllib.parse import parse_qs

from typing_extensions import override

from domain.contracts.offers import ProviderName
from sandbox.clouds import aws_filters as filters
from sandbox.clouds import aws_listing as listing
from sandbox.clouds import aws_parameters as parameters
from sandbox.clouds import aws_prices as price_list
from sandbox.clouds import aws_purchase as purchase
from sandbox.clouds import aws_quotas as quotas
from sandbox.clouds import aws_signature as signature
from sandbox.clouds import aws_xml as xml
from sandbox.clouds.aws_json import Dialect
from sandbox.clouds.aws_offers import Shelf, billed, in_yuan
from sandbox.clouds.aws_rates import TokenBuckets
from sandbox.clouds.aws_things import Things
from sandbox.clouds.cloud import (
    Call,
    Cloud,
    CloudSettings,
    Result,
    ShortageError,
    ShortageKind,
    VendorError,
    WireAnswer,
    WireRequest,
)
from sandbox.clouds.ledger import Machine, Order, TokenMismatchError, fingerprint
from sandbox.clouds.leftovers import Possession

ROOT_DEVICE: Final = "/dev/sda1"
_FORM: Final = "application/x-www-form-urlencoded"

_Wanted = TypeVar("_Wanted", bound=parameters.Parameters)


class AwsCloud(Cloud):
    """The dialect of EC2."""

    provider: ClassVar[ProviderName] = ProviderName.AWS
    id_prefix: ClassVar[str] = "i-05b07c10d"
    """With a machine's own eight digits as long as the vendor's ids."""

    def __init__(
        self, settings: CloudSettings, *, capacity_status: int = 500, terminated_seconds: float = 3600.0
    ) -> None:
        """Set the two things that differ between reports of the vendor.

        Args:
            settings: Market, inventory, account.
            capacity_status: HTTP status of InsufficientInstanceCapacity; 500 makes SDKs repeat the call.
            terminated_seconds: How long an ended instance stays listed as terminated.
        """
        super().__init__(settings)
        self.rates = TokenBuckets()
        self.shelf = Shelf(settings.market, settings.inventory)
        self.capacity_status = capacity_status
        self.terminated_for = timedelta(seconds=terminated_seconds)
        self.root_devices: dict[str, str] = {}
        """Image to its root device name, where it is not the usual one."""
        self._things = Things(self.leftovers, self._region_of)
        self._actions: dict[str, Callable[[Call], Result]] = {
            "RunInstances": self._run_instances,
            "TerminateInstances": self._terminate_instances,
            "DescribeInstances": self._describe_instances,
            "DescribeSpotInstanceRequests": self._describe_spot_requests,
            "DescribeInstanceTypeOfferings": self._describe_offerings,
            "DescribeSpotPriceHistory": self._describe_prices,
            "DescribeImages": self._describe_images,
            "CreateTags": self._create_tags,
            "DeleteTags": self._delete_tags,
            "DescribeVolumes": self._describe_volumes,
            "DeleteVolume": self._delete_volume,
            "DescribeAddresses": self._describe_addresses,
            "ReleaseAddress": self._release_address,
            quotas.ACTION: self._get_quota,
            price_list.ACTION: self._get_products,
        }

    @override
    def action_of(self, request: WireRequest) -> str:
        """The form's action, or the target of a request to a JSON service."""
        beside = _dialect(request)
        if beside is not None:
            return beside.action_of(request)
        return parse_qs(request.body.decode("utf-8", "replace")).get("Action", [""])[0]

    @override
    def open(self, request: WireRequest) -> Call:
        """Verify, then decode the form. The region is that of the signature's scope."""
        if quotas.DIALECT.concerns(request):
            return self._opened_quota(request)
        if price_list.DIALECT.concerns(request):
            return price_list.opened(request, self.account, now=self.clock())
        scope = signature.verify(request, self.account, now=self.clock())
        if (request.method, request.target) != ("POST", "/"):
            raise VendorError("InvalidRequest", "Parameters are sent in the body of a POST to /.", status=400)
        if request.headers["content-type"].split(";")[0] != _FORM:
            raise VendorError("InvalidRequest", f"The body must be {_FORM}.", status=400)
        if scope.region not in self.inventory.zones:
            text = f"Credential should be scoped to a valid region, not to {scope.region}"
            raise VendorError("AuthFailure", text, status=401)
        action, wanted = parameters.decode(request.body.decode("utf-8", "replace"))
        call = Call(
            action=action,
            region=scope.region,
            access_key_id=scope.access_key_id,
            parameters=wanted.model_dump(mode="json", by_alias=True, exclude_unset=True),
            decoded=wanted,
        )
        return self._aimed(call, wanted) if isinstance(wanted, parameters.RunInstances) else call

    def _opened_quota(self, request: WireRequest) -> Call:
        scope, wanted = quotas.opened(request, self.account, now=self.clock())
        if scope.region not in self.inventory.zones:
            raise VendorError("UnrecognizedClientException", "The security token is invalid.")
        return Call(
            action=quotas.ACTION,
            region=scope.region,
            access_key_id=scope.access_key_id,
            parameters=wanted.model_dump(by_alias=True),
            decoded=wanted,
        )

    def _aimed(self, call: Call, wanted: parameters.RunInstances) -> Call:
        """A purchase with its zone, type and token, so that faults can aim."""
        zone = purchase.zone_of(wanted, call.region, self.inventory)
        return replace(call, zone=zone, instance_type=wanted.instance_type, client_token=wanted.client_token)

    @override
    def carry_out(self, call: Call) -> Result:
        """Do what was asked."""
        return self._actions[call.action](call)

    @override
    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """HTTP 200 and XML; the payload's one name is the root element."""
        return WireAnswer(200, xml.HEADERS, xml.success(payload, request_id))

    @override
    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """The vendor's error body."""
        return WireAnswer(error.status, xml.HEADERS, xml.failure(error.code, error.message, request_id))

    @override
    def answer_to(self, request: WireRequest, request_id: str, payload: Mapping[str, object]) -> WireAnswer:
        """JSON from the services that speak it."""
        return (_dialect(request) or self).answer(payload, request_id)

    @override
    def refuse_to(self, request: WireRequest, request_id: str, error: VendorError) -> WireAnswer:
        """Those services refuse in words of their own."""
        return (_dialect(request) or self).refuse(error, request_id)

    @override
    def throttled(self, call: Call) -> VendorError:
        """HTTP 503."""
        return VendorError("RequestLimitExceeded", "Request limit exceeded.", status=503)

    @override
    def failed(self) -> VendorError:
        """The vendor's internal error."""
        return VendorError("InternalError", "An internal error has occurred", status=500)

    @override
    def state_word(self, machine: Machine) -> str:
        """Shutting-down while a machine ends, terminated from then on."""
        return listing.state_word(machine)

    # Purchases ------------------------------------------------------------------------------------------

    def _run_instances(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.RunInstances)
        terms = {name: value for name, value in call.parameters.items() if name != "ClientToken"}
        mark = fingerprint(json.dumps(terms, sort_keys=True))
        scope = f"{call.access_key_id}/{call.region}"
        repeated = self._bought_before(scope, wanted.client_token, mark)
        if repeated is not None:
            return _bought(repeated, note="repeated token")
        order = self._order(call, wanted)
        _refuse_dry_run(wanted)
        machines = self._buy(order, wanted)
        if wanted.client_token:
            self.ledger.remember(scope, wanted.client_token, mark, machines)
        return _bought(machines)

    def _bought_before(self, scope: str, token: str, mark: str) -> tuple[Machine, ...] | None:
        if not token:
            return None
        try:
            return self.ledger.bought_with(scope, token, mark)
        except TokenMismatchError as exc:
            text = (
                "Arguments on this idempotent request are inconsistent with arguments used in previous "
                "request(s)."
            )
            raise VendorError("IdempotentParameterMismatch", text, status=400) from exc

    def _order(self, call: Call, wanted: parameters.RunInstances) -> Order:
        purchase.check(wanted, call.region, self.inventory)
        subnet = purchase.subnet_of(wanted, call.region, self.inventory)
        spot, tags = purchase.is_spot(wanted), purchase.tags(wanted, "instance")
        price = purchase.bid(wanted)
        spot_tags = purchase.tags(wanted, "spot-instances-request")
        return Order(
            region=call.region,
            zone=call.zone,
            instance_type=wanted.instance_type,
            spot=spot,
            price_per_hour=self.price(self.place(call.zone, wanted.instance_type), spot=spot),
            image_id=wanted.image_id,
            subnet_id=wanted.subnet_id,
            user_data=purchase.plain(wanted.user_data),
            tags=tags,
            name=tags.get("Name", ""),
            client_token=wanted.client_token,
            details={
                "reservation": f"r-{uuid.uuid4().hex[:17]}",
                "key": wanted.key_name,
                "vpc": subnet.vpc_id if subnet else "",
                "groups": [{"groupId": each, "groupName": each} for each in wanted.security_group_id],
                "root_device": self.root_device(wanted.image_id),
                "disks": [each.model_dump(by_alias=True) for each in wanted.block_device_mapping],
                "volume_tags": purchase.tags(wanted, "volume"),
                "bid": None if price is None else f"{price:f}",
                "spot_tags": [{"key": key, "value": value} for key, value in spot_tags.items()],
            },
        )

    def root_device(self, image_id: str) -> str:
        """Where an image's root volume is attached."""
        return self.root_devices.get(image_id, ROOT_DEVICE)

    def _buy(self, order: Order, wanted: parameters.RunInstances) -> tuple[Machine, ...]:
        limit = purchase.bid(wanted)
        count = self._count(order, wanted)
        try:
            return self.buy(order, count, max_price=None if limit is None else in_yuan(limit, order.region))
        except ShortageError as exc:
            raise self._shortage(exc, order, limit) from exc

    def _count(self, order: Order, wanted: parameters.RunInstances) -> int:
        """As many as stock and quota allow up to MaxCount, but not fewer than MinCount."""
        allowed = self.free(self.place(order.zone, order.instance_type))
        limit = self.quota_limit(spot=order.spot)
        if limit is not None:
            left = limit - self.quota_used(order)
            allowed = min(allowed, left // self.quota_units(order.instance_type, spot=order.spot))
        return min(wanted.max_count, max(allowed, wanted.min_count))

    def _shortage(self, fault: ShortageError, order: Order, limit: Decimal | None) -> VendorError:
        """The vendor's words for a refusal of the market."""
        kind, zone = order.instance_type, order.zone
        match fault.kind:
            case ShortageKind.NO_STOCK:
                text = (
                    "There is no Spot capacity available that matches your request."
                    if order.spot
                    else f"We currently do not have sufficient {kind} capacity in {zone}."
                )
                return VendorError("InsufficientInstanceCapacity", text, status=self.capacity_status)
            case ShortageKind.NOT_OFFERED:
                text = f"Your requested instance type ({kind}) is not supported in {zone}."
                return VendorError("Unsupported", text, status=400)
            case ShortageKind.QUOTA:
                if order.spot:
                    text = "Max spot instance count exceeded"
                    return VendorError("MaxSpotInstanceCountExceeded", text, status=400)
                return VendorError("VcpuLimitExceeded", self._vcpu_limit_text(), status=400)
            case ShortageKind.PRICE:
                text = (
                    f"Your Spot request price of {limit} is lower than the minimum required Spot request "
                    f"fulfillment price of {billed(order.price_per_hour, order.region)}."
                )
                return VendorError("SpotMaxPriceTooLow", text, status=400)

    def _vcpu_limit_text(self) -> str:
        return (
            "You have requested more vCPU capacity than your current vCPU limit of "
            f"{self.quota_limit(spot=False) or 0} allows for the instance bucket that the specified instance "
            "type belongs to."
        )

    @override
    def counts_together(self, order: Order, other: Order) -> bool:
        """By group of families."""
        groups = {quotas.group_of(each.instance_type, spot=each.spot) for each in (order, other)}
        return super().counts_together(order, other) and len(groups) == 1

    def _get_quota(self, call: Call) -> Result:
        limits = {"spot": self.quota_limit(spot=True), "on_demand": self.quota_limit(spot=False)}
        assert isinstance(call.decoded, quotas.GetServiceQuota)  # noqa: S101 - of this action only
        return Result(quotas.answered(call.decoded, call.region, **limits))

    # Machines -------------------------------------------------------------------------------------------

    def _terminate_instances(self, call: Call) -> Result:
        """All or none: one id that is not known refuses the call; one that has ended already does not."""
        wanted = _wanted(call, parameters.TerminateInstances)
        machines = self._named(wanted.instance_id, call.region)
        _refuse_dry_run(wanted)
        before = [listing.state_word(machine) for machine in machines]
        self.ledger.terminate(wanted.instance_id)
        changes = [
            {
                "instanceId": machine.id,
                "currentState": _state(listing.state_word(machine)),
                "previousState": _state(word),
            }
            for machine, word in zip(machines, before, strict=True)
        ]
        ids = tuple(machine.id for machine in machines)
        return Result({"TerminateInstancesResponse": {"instancesSet": changes}}, machine_ids=ids)

    def _describe_instances(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeInstances)
        _refuse_dry_run(wanted)
        if wanted.instance_id and wanted.max_results is not None:
            text = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise parameters.combination(text)
        machines = self._named(wanted.instance_id, call.region) if wanted.instance_id else self._listed(call)
        seen = filters.chosen(machines, wanted.filter, filters.OF_INSTANCES, lambda machine: machine.tags)
        shown, token = filters.page(seen, lambda machine: machine.id, wanted)
        content = {"reservationSet": listing.reservations(shown), "nextToken": token}
        ids = tuple(machine.id for machine in shown)
        return Result({"DescribeInstancesResponse": content}, machine_ids=ids)

    def _describe_spot_requests(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeSpotInstanceRequests)
        _refuse_dry_run(wanted)
        if wanted.spot_instance_request_id and wanted.max_results is not None:
            raise parameters.combination("MaxResults cannot be used together with request ids")
        spot = [machine for machine in self._visible(call.region) if machine.order.spot]
        known = {listing.spot_request_id(machine): machine for machine in spot}
        for each in wanted.spot_instance_request_id:
            if each not in known:
                text = f"The spot instance request ID '{each}' does not exist"
                raise VendorError("InvalidSpotInstanceRequestID.NotFound", text, status=400)
        named = [known[each] for each in wanted.spot_instance_request_id] or spot
        seen = filters.chosen(named, wanted.filter, filters.OF_SPOT_REQUESTS)
        shown, token = filters.page(seen, lambda machine: machine.id, wanted)
        content = {
            "spotInstanceRequestSet": [listing.spot_request(machine) for machine in shown],
            "nextToken": token,
        }
        return Result({"DescribeSpotInstanceRequestsResponse": content})

    def _create_tags(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.CreateTags)
        machines = self._named(wanted.resource_id, call.region)
        _refuse_dry_run(wanted)
        for machine in machines:
            machine.tags.update((tag.key, tag.value) for tag in wanted.tag)
        return Result({"CreateTagsResponse": {"return": True}}, machine_ids=wanted.resource_id)

    def _delete_tags(self, call: Call) -> Result:
        """Remove what is there; a tag that is not there is no error."""
        wanted = _wanted(call, parameters.DeleteTags)
        machines = self._named(wanted.resource_id, call.region)
        _refuse_dry_run(wanted)
        for machine in machines:
            removed = {tag.key for tag in wanted.tag if tag.value in (None, machine.tags.get(tag.key))}
            for key in removed if wanted.tag else tuple(machine.tags):
                machine.tags.pop(key, None)
        return Result({"DeleteTagsResponse": {"return": True}}, machine_ids=wanted.resource_id)

    def _visible(self, region: str) -> list[Machine]:
        """Every machine of a region that its caller may know of, ended ones included, by id."""
        now = self.clock()
        machines = [m for m in self.ledger.all() if m.order.region == region and m.visible_at <= now]
        return sorted(machines, key=lambda machine: machine.id)

    def _listed(self, call: Call) -> list[Machine]:
        now = self.clock()
        return [m for m in self._visible(call.region) if listing.is_listed(m, now, self.terminated_for)]

    def _named(self, ids: tuple[str, ...], region: str) -> tuple[Machine, ...]:
        """Machines by id; one that is not listed, or not yet, refuses all."""
        parameters.check_instance_ids(ids)
        now = self.clock()
        found = {
            machine.id: machine
            for machine in self.ledger.find(ids)
            if machine.order.region == region and listing.is_listed(machine, now, self.terminated_for)
        }
        missing = [each for each in dict.fromkeys(ids) if each not in found]
        if missing:
            raise VendorError("InvalidInstanceID.NotFound", _not_found_text(missing), status=400)
        return tuple(found.values())

    # Disks and addresses --------------------------------------------------------------------------------

    def _describe_volumes(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeVolumes)
        _refuse_dry_run(wanted)
        return Result({"DescribeVolumesResponse": self._things.volumes(wanted, call.region)})

    def _delete_volume(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DeleteVolume)
        _refuse_dry_run(wanted)
        self._things.delete_volume(wanted.volume_id)
        return Result({"DeleteVolumeResponse": {"return": True}})

    def _describe_addresses(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeAddresses)
        _refuse_dry_run(wanted)
        return Result({"DescribeAddressesResponse": self._things.addresses(wanted, call.region)})

    def _release_address(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ReleaseAddress)
        _refuse_dry_run(wanted)
        self._things.release_address(wanted.allocation_id)
        return Result({"ReleaseAddressResponse": {"return": True}})

    def _region_of(self, thing: Possession) -> str:
        return next((machine.order.region for machine in self.ledger.find([thing.server_id])), "")

    # Offers ---------------------------------------------------------------------------------------------

    def _describe_offerings(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeInstanceTypeOfferings)
        _refuse_dry_run(wanted)
        content = self.shelf.offerings(wanted, call.region)
        return Result({"DescribeInstanceTypeOfferingsResponse": content})

    def _describe_prices(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeSpotPriceHistory)
        _refuse_dry_run(wanted)
        content = self.shelf.prices(wanted, call.region, self.clock())
        return Result({"DescribeSpotPriceHistoryResponse": content})

    def _get_products(self, call: Call) -> Result:
        wanted = call.decoded
        assert isinstance(wanted, price_list.GetProducts)  # noqa: S101 - as in ``_wanted``
        now = self.clock()
        return Result(price_list.products(wanted, call.region, now, self.market, self.inventory))

    def _describe_images(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeImages)
        _refuse_dry_run(wanted)
        images = sorted(self.inventory.images.get(call.region, frozenset()))
        missing = sorted(set(wanted.image_id) - set(images))
        if missing:
            text = f"The image id '[{', '.join(missing)}]' does not exist"
            raise VendorError("InvalidAMIID.NotFound", text, status=400)
        attributes: filters.Attributes[str] = {"image-id": lambda image: (image,)}
        seen = filters.chosen(wanted.image_id or images, wanted.filter, attributes)
        shown, token = filters.page(sorted(seen), str, wanted)
        content = {"imagesSet": [self._image(image) for image in shown], "nextToken": token}
        return Result({"DescribeImagesResponse": content})

    def _image(self, image_id: str) -> dict[str, object]:
        return {
            "imageId": image_id,
            "imageState": "available",
            "imageOwnerId": listing.OWNER,
            "isPublic": False,
            "architecture": "x86_64",
            "imageType": "machine",
            "name": image_id,
            "rootDeviceType": "ebs",
            "rootDeviceName": self.root_device(image_id),
            "virtualizationType": "hvm",
            "hypervisor": "xen",
        }


def _wanted(call: Call, model: type[_Wanted]) -> _Wanted:
    """The call's parameters as the type that the action's decoding gave them."""
    assert isinstance(call.decoded, model)  # noqa: S101 - one table names both the action and its type
    return call.decoded


def _refuse_dry_run(wanted: parameters.Parameters) -> None:
    if wanted.dry_run:
        text = "Request would have succeeded, but DryRun flag is set."
        raise VendorError("DryRunOperation", text, status=412)


def _not_found_text(ids: list[str]) -> str:
    """The vendor names every missing id, within one pair of quotes."""
    if len(ids) == 1:
        return f"The instance ID '{ids[0]}' does not exist"
    return f"The instance IDs '{', '.join(ids)}' do not exist"


def _bought(machines: tuple[Machine, ...], note: str = "") -> Result:
    (reservation,) = listing.reservations(machines)
    ids = tuple(machine.id for machine in machines)
    return Result({"RunInstancesResponse": reservation}, machine_ids=ids, note=note)


def _state(word: str) -> dict[str, object]:
    return {"code": listing.STATE_CODES[word], "name": word}


def _dialect(request: WireRequest) -> Dialect | None:
    """Of the service beside EC2 that a request is for; None for EC2."""
    return next((each for each in (quotas.DIALECT, price_list.DIALECT) if each.concerns(request)), None)
