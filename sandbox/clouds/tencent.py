"""Tencent Cloud CVM on the wire: the actions that a pool needs, as strict as the vendor, on a seeded market.

Errors travel with HTTP 200; every answer has the Content-Type ``application/json`` exactly, as the SDK needs.
The vendor documents no code for a client token that comes back with other parameters; here the token wins:
the first machines are answered, and the request log notes it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from domain.contracts.catalogue import CATALOGUE, instance_type
from domain.contracts.offers import InstanceType, ProviderName
from sandbox.clouds import tencent_parameters as parameters
from sandbox.clouds import tencent_purchase as purchase
from sandbox.clouds import tencent_signature as signature
from sandbox.clouds.cloud import (
    PLENTY,
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
from sandbox.clouds.ledger import (
    EndReason,
    Machine,
    MachineState,
    Order,
    TokenMismatchError,
    fingerprint,
)
from sandbox.clouds.tencent_timers import TimerBook

_MAX_IDS: Final = 100
_MAX_FILTERS: Final = 10
_MAX_FILTER_VALUES: Final = 5
_MAX_STOCK_FILTER_VALUES: Final = 100
_MAX_PAGE: Final = 100
_MAX_MACHINES_PER_CALL: Final = 500
_MAX_TAGGED_RESOURCES: Final = 10
_APP_ID: Final = 1250000000
_PLAYED_QUOTA_TYPES: Final = ("PostPaidQuotaSet", "SpotPaidQuotaSet")
_QUOTA_TYPES: Final = (
    *_PLAYED_QUOTA_TYPES,
    "PrePaidQuotaSet",
    "ImageQuotaSet",
    "DisasterRecoverGroupQuotaSet",
)
_INSTANCE_ID: Final = re.compile(r"ins-[0-9a-z]{8}")
_RESOURCE: Final = re.compile(r"qcs::cvm:(?P<region>[a-z0-9-]+):uin/\d*:instance/(?P<id>ins-[0-9a-z]{8})")
_STATES: Final[Mapping[MachineState, str]] = {
    MachineState.PENDING: "PENDING",
    MachineState.RUNNING: "RUNNING",
    MachineState.FAILED: "LAUNCH_FAILED",
    MachineState.ENDING: "TERMINATING",
    MachineState.GONE: "",
}
_SHORTAGES: Final[Mapping[ShortageKind, tuple[str, str]]] = {
    ShortageKind.NO_STOCK: (
        "ResourceInsufficient.SpecifiedInstanceType",
        "The specified instance type is out of stock.",
    ),
    ShortageKind.NOT_OFFERED: (
        "ResourceNotFound.InvalidZoneInstanceType",
        "The specified instance type does not exist in this zone.",
    ),
    ShortageKind.QUOTA: ("LimitExceeded.SpotQuota", "The quota of spot instances is exceeded."),
    ShortageKind.PRICE: (
        "InvalidParameterValue.InsufficientPrice",
        "The bid is below the current price.",
    ),
}
# At least so many free machines for each word of the vendor.
_STOCK_WORDS: Final = ((20, "EnoughStock"), (5, "NormalStock"), (1, "UnderStock"), (0, "WithoutStock"))

_Attribute = Callable[[Machine], str]
_FILTERS: Final[Mapping[str, _Attribute]] = {
    "instance-id": lambda machine: machine.id,
    "instance-name": lambda machine: machine.order.name,
    "instance-charge-type": lambda machine: parameters.SPOT if machine.order.spot else parameters.ON_DEMAND,
    "zone": lambda machine: machine.order.zone,
    "image-id": lambda machine: machine.order.image_id,
    "subnet-id": lambda machine: machine.order.subnet_id,
    "private-ip-address": lambda machine: machine.private_ip,
}


class TencentCloud(Cloud):
    """The dialect of CVM and, for tags of running machines, of the tag service."""

    provider: ClassVar[ProviderName] = ProviderName.TENCENT
    id_prefix: ClassVar[str] = "ins-"
    refusal_status: ClassVar[int] = 200
    rates_per_second: ClassVar[Mapping[str, int]] = {
        "RunInstances": 10,
        "TerminateInstances": 10,
        "DescribeInstances": 40,
    }
    default_rate_per_second: ClassVar[int] = 20

    def __init__(self, settings: CloudSettings) -> None:
        super().__init__(settings)
        self._timer_book = TimerBook()

    @override
    def action_of(self, request: WireRequest) -> str:
        """The action header."""
        return request.headers.get("x-tc-action", "")

    @override
    def open(self, request: WireRequest) -> Call:
        """Verify, then decode by the action's table of parameters."""
        action = self.action_of(request)
        if action not in parameters.ACTIONS:
            raise VendorError("InvalidAction", f"The action `{action}` does not exist.")
        service, version, model = parameters.ACTIONS[action]
        if request.headers.get("x-tc-version") != version:
            raise VendorError("NoSuchVersion", f"{action} is not part of the requested version.")
        _check_shape(request)
        access_key_id = signature.verify(request, self.account, service=service, now=self.clock())
        region = request.headers.get("x-tc-region", "")
        if service == "cvm" and region not in self.inventory.zones:
            raise VendorError("UnsupportedRegion", f"The region `{region}` is not supported.")
        decoded = parameters.decode(request, model)
        ignored = parameters.unplayed(decoded)
        if ignored:
            raise VendorError("InvalidParameterValue.NotSupported", f"The sandbox does not play {ignored}.")
        return _call(action, region, access_key_id, decoded)

    @override
    def carry_out(self, call: Call) -> Result:
        """Dispatch on the type of the decoded parameters."""
        match call.decoded:
            case parameters.RunInstances() as wanted:
                return self._run(call, wanted)
            case parameters.DescribeInstances() as wanted:
                return self._describe(call, wanted)
            case parameters.TerminateInstances() as wanted:
                return self._terminate(call, wanted)
            case (
                parameters.ImportInstancesActionTimer()
                | parameters.DeleteInstancesActionTimer()
                | parameters.DescribeInstancesActionTimer() as wanted
            ):
                return self._timers(call, wanted)
            case parameters.DescribeZoneInstanceConfigInfos() as wanted:
                return self._stock(call, wanted)
            case parameters.DescribeAccountQuota() as wanted:
                return self._quota(call, wanted)
            case parameters.InquiryPriceRunInstances() as wanted:
                return self._price(wanted)
            case parameters.TagResources() as wanted:
                return self._tag(wanted)
            case parameters.UnTagResources() as wanted:
                return self._untag(wanted)
            case _:
                raise VendorError("InvalidAction", f"The action `{call.action}` does not exist.")

    @override
    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """The answer's envelope."""
        return _json(200, {"Response": {**payload, "RequestId": request_id}})

    @override
    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """An error in the same envelope, with HTTP 200 unless the server itself failed."""
        body = {"Error": {"Code": error.code, "Message": error.message}, "RequestId": request_id}
        return _json(error.status, {"Response": body})

    @override
    def throttled(self, call: Call) -> VendorError:
        """The vendor's text."""
        limit = self.rates.per_second.get(call.action, self.rates.default)
        return VendorError(
            "RequestLimitExceeded",
            f"Your current request times equals to `{limit + 1}` in a second, which exceeds the frequency "
            f"limit `{limit}` for a second. Please reduce the frequency of calls.",
        )

    @override
    def failed(self) -> VendorError:
        """HTTP 500."""
        return VendorError("InternalError", "An internal error occurred.", status=500)

    @override
    def state_word(self, machine: Machine) -> str:
        """A reclaimed machine ends as SHUTDOWN, one that its user ended as TERMINATING."""
        if machine.vendor_state:
            return machine.vendor_state
        if machine.state is MachineState.ENDING and machine.end_reason is EndReason.RECLAIMED:
            return "SHUTDOWN"
        return _STATES[machine.state]

    # RunInstances

    def _run(self, call: Call, wanted: parameters.RunInstances) -> Result:
        scope = f"{call.access_key_id}/{call.region}"
        mark = fingerprint(wanted.model_dump_json(exclude={"client_token"}))
        note = ""
        if wanted.client_token:
            purchase.check_token(wanted.client_token)
            try:
                before = self.ledger.bought_with(scope, wanted.client_token, mark)
            except TokenMismatchError as exc:
                before, note = exc.machines, str(exc)
            if before is not None:
                return _ids(before, note or "answered again for the same token")
        order = self._order(call, wanted)
        if wanted.dry_run:
            return Result({})
        machines = self._buy(order, wanted)
        if wanted.client_token:
            self.ledger.remember(scope, wanted.client_token, mark, machines)
        return _ids(machines, note)

    def _buy(self, order: Order, wanted: parameters.RunInstances) -> tuple[Machine, ...]:
        try:
            count = self._count(order, wanted)
            return self.buy(order, count, max_price=purchase.bid(wanted))
        except ShortageError as exc:
            code, message = _SHORTAGES[exc.kind]
            raise VendorError(code, message) from exc

    def _count(self, order: Order, wanted: parameters.RunInstances) -> int:
        """How many to buy: fewer than asked only when a minimum was given."""
        if not 1 <= wanted.instance_count <= _MAX_MACHINES_PER_CALL:
            raise VendorError("InvalidParameterValue.Range", "InstanceCount must be 1 to 500.")
        if wanted.min_count is None:
            return wanted.instance_count
        if not 1 <= wanted.min_count <= wanted.instance_count:
            raise VendorError("InvalidParameterValue.Range", "MinCount must be 1 to InstanceCount.")
        free = self.free(self.place(order.zone, order.instance_type))
        return min(wanted.instance_count, max(wanted.min_count, free))

    def _order(self, call: Call, wanted: parameters.RunInstances) -> Order:
        purchase.check(wanted, call.region, self.inventory)
        spot = purchase.is_spot(wanted.instance_charge_type, wanted.instance_market_options)
        return Order(
            region=call.region,
            zone=wanted.placement.zone,
            instance_type=wanted.instance_type,
            spot=spot,
            price_per_hour=self.price(self.place(wanted.placement.zone, wanted.instance_type), spot=spot),
            image_id=wanted.image_id,
            subnet_id=wanted.virtual_private_cloud.subnet_id,
            user_data=purchase.user_data(wanted.user_data),
            tags=purchase.tags(wanted.tag_specification),
            name=wanted.instance_name,
            client_token=wanted.client_token,
            release_at=purchase.release_at(wanted.action_timer, self.clock()),
            details={
                "security_groups": list(wanted.security_group_ids),
                "keys": list(wanted.login_settings.key_ids) if wanted.login_settings else [],
                "vpc": wanted.virtual_private_cloud.vpc_id,
                "disk": {"DiskType": wanted.system_disk.disk_type, "DiskSize": wanted.system_disk.disk_size},
            },
        )

    # DescribeInstances and TerminateInstances

    def _describe(self, call: Call, wanted: parameters.DescribeInstances) -> Result:
        if wanted.instance_ids and wanted.filters:
            raise VendorError("InvalidParameterConflict", "InstanceIds and Filters exclude each other.")
        if wanted.offset < 0 or not 1 <= wanted.limit <= _MAX_PAGE:
            raise VendorError("InvalidParameterValue.Range", "Limit must be 1 to 100, Offset at least 0.")
        _check_ids(wanted.instance_ids)
        _check_filters(wanted.filters, _MAX_FILTER_VALUES)
        chosen = [
            machine
            for machine in self.ledger.listed()
            if machine.order.region == call.region
            and (not wanted.instance_ids or machine.id in wanted.instance_ids)
            and all(self._passes(machine, condition) for condition in wanted.filters)
        ]
        page = chosen[wanted.offset : wanted.offset + wanted.limit]
        return Result({"TotalCount": len(chosen), "InstanceSet": [self._shown(m) for m in page]})

    def _passes(self, machine: Machine, condition: parameters.Filter) -> bool:
        if condition.name.startswith("tag:"):
            return machine.tags.get(condition.name[4:]) in condition.values
        if condition.name == "tag-key":
            return not machine.tags.keys().isdisjoint(condition.values)
        if condition.name == "instance-state":
            return self.state_word(machine) in condition.values
        attribute = _FILTERS.get(condition.name)
        if attribute is None:
            raise VendorError("InvalidFilter", f"The filter `{condition.name}` is not valid.")
        return attribute(machine) in condition.values

    def _shown(self, machine: Machine) -> dict[str, object]:
        order, row = machine.order, self.row(machine.order.instance_type)
        failed = machine.state is MachineState.FAILED
        return {
            "Placement": {"Zone": order.zone, "ProjectId": 0, "HostId": None},
            "InstanceId": machine.id,
            "InstanceType": order.instance_type,
            "CPU": row.vcpu_count,
            "Memory": row.ram_gib,
            "RestrictState": "NORMAL",
            "InstanceName": order.name,
            "InstanceChargeType": parameters.SPOT if order.spot else parameters.ON_DEMAND,
            "SystemDisk": order.details["disk"],
            "DataDisks": None,
            "PrivateIpAddresses": [machine.private_ip],
            "PublicIpAddresses": None,
            "VirtualPrivateCloud": {
                "VpcId": order.details["vpc"],
                "SubnetId": order.subnet_id,
                "AsVpcGateway": False,
            },
            "ImageId": order.image_id,
            "RenewFlag": None,
            "CreatedTime": machine.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "ExpiredTime": None,
            "OsName": "Ubuntu",
            "SecurityGroupIds": order.details["security_groups"],
            "LoginSettings": {"KeyIds": order.details["keys"]},
            "InstanceState": self.state_word(machine),
            "Tags": [{"Key": key, "Value": value} for key, value in machine.tags.items()],
            "StopChargingMode": "NOT_APPLICABLE",
            "LatestOperation": "RunInstances",
            "LatestOperationState": "FAILED" if failed else "SUCCESS",
            "LatestOperationErrorMsg": "The instance could not be started." if failed else None,
            "IsolatedSource": "NOTISOLATED",
            "GPUInfo": {"GPUCount": row.gpu_count, "GPUId": ["NA"], "GPUType": row.gpu_model},
            "DisableApiTermination": False,
        }

    def _timers(self, call: Call, wanted: parameters.Parameters) -> Result:
        match wanted:
            case parameters.ImportInstancesActionTimer():
                machines = self._living(call, wanted.instance_ids)
                return Result(self._timer_book.set(machines, wanted.action_timer, self.clock()))
            case parameters.DeleteInstancesActionTimer():
                self._timer_book.clear(self._in(call.region), wanted.action_timer_ids)
                return Result({})
            case parameters.DescribeInstancesActionTimer():
                _check_ids(wanted.instance_ids)
                return Result(self._timer_book.shown(self._in(call.region), wanted))
            case _:
                raise VendorError("InvalidAction", f"The action `{call.action}` does not exist.")

    def _in(self, region: str) -> list[Machine]:
        return [machine for machine in self.ledger.listed() if machine.order.region == region]

    def _living(self, call: Call, machine_ids: Sequence[str]) -> list[Machine]:
        """Machines by id, all or none: one id that is gone, or going, refuses the whole call."""
        if not machine_ids:
            raise VendorError("MissingParameter", "The request is missing the parameter `InstanceIds`.")
        _check_ids(machine_ids)
        listed = {machine.id: machine for machine in self._in(call.region)}
        missing = [key for key in machine_ids if key not in listed]
        if missing:
            raise VendorError("InvalidInstanceId.NotFound", f"not found: {', '.join(missing)}")
        machines = [listed[key] for key in machine_ids]
        if any(machine.state is MachineState.ENDING for machine in machines):
            raise VendorError("UnsupportedOperation.InstanceStateTerminating", "An instance is terminating.")
        return machines

    def _terminate(self, call: Call, wanted: parameters.TerminateInstances) -> Result:
        """All or none."""
        machines = self._living(call, wanted.instance_ids)
        if len({machine.order.spot for machine in machines}) > 1:
            raise VendorError(
                "InvalidParameterValue.InstanceNotSupportedMixPricingModel",
                "The instances of a batch must have the same charge type.",
            )
        self.ledger.terminate(wanted.instance_ids)
        return Result({}, wanted.instance_ids)

    # Prices and stock

    def _stock(self, call: Call, wanted: parameters.DescribeZoneInstanceConfigInfos) -> Result:
        _check_filters(wanted.filters, _MAX_STOCK_FILTER_VALUES)
        known = {"zone", "instance-type", "instance-charge-type"}
        chosen = {condition.name: condition.values for condition in wanted.filters}
        unknown = sorted(chosen.keys() - known)
        if unknown:
            raise VendorError("InvalidFilter", f"The filter `{unknown[0]}` is not valid.")
        zones = [z for z in self.inventory.zones[call.region] if z in chosen.get("zone", (z,))]
        types = [t for t in CATALOGUE[self.provider] if t.name in chosen.get("instance-type", (t.name,))]
        charges = chosen.get("instance-charge-type", (parameters.ON_DEMAND, parameters.SPOT))
        items = [
            self._stock_item(zone, row, charge)
            for zone in zones
            for row in types
            for charge in charges
            if self.market.offered(self.place(zone, row.name))
        ]
        return Result({"InstanceTypeQuotaSet": items})

    def _stock_item(self, zone: str, row: InstanceType, charge: str) -> dict[str, object]:
        place = self.place(zone, row.name)
        free = self.free(place)
        word = next(name for least, name in _STOCK_WORDS if free >= least)
        return {
            "Zone": zone,
            "InstanceType": row.name,
            "InstanceChargeType": charge,
            "InstanceFamily": row.name.split(".")[0],
            "Cpu": row.vcpu_count,
            "Memory": row.ram_gib,
            "Gpu": row.gpu_count,
            "GpuCount": float(row.gpu_count),
            "Status": "SELL" if free else "SOLD_OUT",
            "StatusCategory": word,
            "SoldOutReason": "" if free else "The instance type is sold out.",
            "Price": self._item_price(zone, row.name, spot=charge == parameters.SPOT),
        }

    def _item_price(self, zone: str, type_name: str, *, spot: bool) -> dict[str, object]:
        """List price and what is paid; for spot the paid price is the discounted one."""
        place = self.place(zone, type_name)
        listed = self.price(place, spot=False)
        paid = self.price(place, spot=spot)
        return {
            "UnitPrice": float(listed),
            "ChargeUnit": "HOUR",
            "UnitPriceDiscount": float(paid),
            "Discount": float(round(paid / listed * 100, 1)),
        }

    @override
    def quota_units(self, instance_type: str, *, spot: bool) -> int:
        """Spot machines count by vCPUs; for others the vendor names no unit: here they count by number."""
        return super().quota_units(instance_type, spot=True) if spot else 1

    @override
    def counts_together(self, order: Order, other: Order) -> bool:
        """By zone."""
        return super().counts_together(order, other) and order.zone == other.zone

    def _quota(self, call: Call, wanted: parameters.DescribeAccountQuota) -> Result:
        _check_filters(wanted.filters, _MAX_FILTER_VALUES)
        chosen = {condition.name: condition.values for condition in wanted.filters}
        unknown = sorted(chosen.keys() - {"zone", "quota-type"})
        if unknown:
            raise VendorError("InvalidFilter", f"The filter `{unknown[0]}` is not valid.")
        kinds = chosen.get("quota-type", _QUOTA_TYPES)
        if not set(kinds) <= set(_QUOTA_TYPES):
            raise VendorError("InvalidFilter", f"The filter `quota-type` is not valid: {kinds}.")
        zones = [z for z in self.inventory.zones[call.region] if z in chosen.get("zone", (z,))]
        # Of what the sandbox does not sell there is no list.
        spot = {kind: kind == "SpotPaidQuotaSet" for kind in kinds if kind in _PLAYED_QUOTA_TYPES}
        sets = {
            kind: [self._zone_quota(zone, spot=spot[kind]) for zone in zones] if kind in spot else None
            for kind in _QUOTA_TYPES
        }
        overview = {"Region": call.region, "AccountQuota": sets}
        return Result({"AppId": _APP_ID, "AccountQuotaOverview": overview})

    def _zone_quota(self, zone: str, *, spot: bool) -> dict[str, object]:
        limit = self.quota_limit(spot=spot)
        total = PLENTY if limit is None else limit
        used = sum(
            self.quota_units(machine.order.instance_type, spot=spot)
            for machine in self.ledger.live(zone)
            if machine.order.spot is spot
        )
        return {"UsedQuota": used, "RemainingQuota": max(0, total - used), "TotalQuota": total, "Zone": zone}

    def _price(self, wanted: parameters.InquiryPriceRunInstances) -> Result:
        if not 1 <= wanted.instance_count <= _MAX_PAGE:
            raise VendorError("InvalidParameterValue.Range", "InstanceCount must be 1 to 100 here.")
        row = instance_type(self.provider, wanted.instance_type)
        zone = wanted.placement.zone
        if row is None or not self.market.offered(self.place(zone, wanted.instance_type)):
            raise VendorError("ResourceNotFound.InvalidZoneInstanceType", "Not sold in this zone.")
        spot = purchase.is_spot(wanted.instance_charge_type, wanted.instance_market_options)
        price = {"InstancePrice": self._item_price(zone, row.name, spot=spot)}
        return Result({"Price": price})

    # Tag service

    def _tag(self, wanted: parameters.TagResources) -> Result:
        machines = self._tagged(wanted.resource_list)
        for machine in machines:
            machine.tags.update({tag.tag_key: tag.tag_value for tag in wanted.tags})
        return Result({"FailedResources": []}, tuple(machine.id for machine in machines))

    def _untag(self, wanted: parameters.UnTagResources) -> Result:
        machines = self._tagged(wanted.resource_list)
        for machine in machines:
            for key in wanted.tag_keys:
                machine.tags.pop(key, None)
        return Result({"FailedResources": []}, tuple(machine.id for machine in machines))

    def _tagged(self, resources: Sequence[str]) -> list[Machine]:
        if not 1 <= len(resources) <= _MAX_TAGGED_RESOURCES:
            raise VendorError("LimitExceeded.ResourceNumPerRequest", "ResourceList takes 1 to 10 resources.")
        listed = {machine.id: machine for machine in self.ledger.listed()}
        found: list[Machine] = []
        for resource in resources:
            match = _RESOURCE.fullmatch(resource)
            if match is None:
                raise VendorError(
                    "InvalidParameterValue.ResourceDescriptionError", f"`{resource}` is malformed."
                )
            machine = listed.get(match["id"])
            if machine is None or machine.order.region != match["region"]:
                raise VendorError(
                    "InvalidParameterValue.ResourceIdInvalid", f"`{match['id']}` does not exist there."
                )
            found.append(machine)
        return found


def _call(action: str, region: str, access_key_id: str, decoded: parameters.Parameters) -> Call:
    wanted = decoded if isinstance(decoded, parameters.RunInstances) else None
    return Call(
        action=action,
        region=region,
        access_key_id=access_key_id,
        parameters=decoded.model_dump(mode="json", by_alias=True, exclude_unset=True),
        zone=wanted.placement.zone if wanted else "",
        instance_type=wanted.instance_type if wanted else "",
        client_token=wanted.client_token if wanted else "",
        decoded=decoded,
    )


def _check_shape(request: WireRequest) -> None:
    if request.method not in ("POST", "GET") or request.path not in ("/", ""):
        raise VendorError("InvalidRequest", "Only GET and POST of / are served.")
    wanted = "application/json" if request.method == "POST" else "application/x-www-form-urlencoded"
    if request.headers.get("content-type") != wanted:
        raise VendorError("InvalidRequest", f"The Content-Type of {request.method} must be {wanted}.")


def _check_ids(machine_ids: Sequence[str]) -> None:
    if len(machine_ids) > _MAX_IDS:
        raise VendorError("InvalidParameterValue.LimitExceeded", "At most 100 InstanceIds.")
    for machine_id in machine_ids:
        if not _INSTANCE_ID.fullmatch(machine_id):
            raise VendorError("InvalidInstanceId.Malformed", f"The instance id `{machine_id}` is malformed.")


def _check_filters(filters: Sequence[parameters.Filter], max_values: int) -> None:
    if len(filters) > _MAX_FILTERS or any(len(f.values) > max_values for f in filters):
        raise VendorError(
            "InvalidFilterValue.LimitExceeded", f"At most 10 Filters of at most {max_values} Values."
        )


def _ids(machines: Sequence[Machine], note: str) -> Result:
    ids = tuple(machine.id for machine in machines)
    return Result({"InstanceIdSet": list(ids)}, ids, note)


def _json(status: int, body: Mapping[str, object]) -> WireAnswer:
    return WireAnswer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())
