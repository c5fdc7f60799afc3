"""Alibaba Cloud ECS on the wire: what the adapter's twin answers to signed RPC requests.

Errors carry the HTTP statuses of the vendor's table (throttling 400, wrong key 404, stock 403), lists come
wrapped twice, times of machines have the precision of a minute.
Source: ECS API reference (2021) and the answers that the SDK 7.11.8 accepts.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar, Final, TypeVar

from typing_extensions import override

from domain.contracts.catalogue import CATALOGUE
from domain.contracts.offers import ProviderName
from sandbox.clouds import aliyun_listing as listing
from sandbox.clouds import aliyun_parameters as parameters
from sandbox.clouds import aliyun_purchase as purchase
from sandbox.clouds.aliyun_signature import SignatureCheck
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
from sandbox.clouds.ledger import Machine, MachineState, Order, TokenMismatchError, fingerprint
from sandbox.market import CURRENCY, UnknownTypeError

VERSION: Final = "2014-05-26"
FEW: Final = 3
"""With at most this many machines left, the stock answer says ClosedWithStock."""
PRICES_PER_PAGE: Final = 100
PRICE_HISTORY: Final = timedelta(hours=3)
PRICE_STEP: Final = timedelta(minutes=10)
DISK_PRICE_PER_GB: Final = Decimal("0.0014")
"""CNY an hour; DescribePrice adds the disk to the machine."""
# Code and HTTP status of each refusal of the market.
SHORTAGES: Final[Mapping[ShortageKind, tuple[str, int, str]]] = {
    ShortageKind.NO_STOCK: (
        "OperationDenied.NoStock",
        403,
        "The resource is out of stock in the specified zone.",
    ),
    ShortageKind.NOT_OFFERED: (
        "Zone.NotOnSale",
        403,
        "The resource is not sold in the specified zone.",
    ),
    ShortageKind.QUOTA: (
        "QuotaExceed.ElasticQuota",
        403,
        "The number of vCPUs of spot instances exceeds the quota.",
    ),
    ShortageKind.PRICE: (
        "InvalidSpotPriceLimit.LowerThanPublicPrice",
        400,
        "The specified SpotPriceLimit is lower than the current price.",
    ),
}

_Wanted = TypeVar("_Wanted", bound=parameters.Parameters)


class AliyunCloud(Cloud):
    """The dialect of Alibaba Cloud.

    Attributes:
        retry_after_ms: What the header of a throttled answer asks the caller to wait, in milliseconds as the
            SDK takes it. 0 leaves the header out: the vendor does not always send it.
    """

    provider: ClassVar[ProviderName] = ProviderName.ALIYUN
    id_prefix: ClassVar[str] = "i-sim"
    # The vendor does not publish its rates; these are the simulator's.
    rates_per_second: ClassVar[Mapping[str, int]] = {"RunInstances": 10, "DeleteInstances": 10}
    default_rate_per_second: ClassVar[int] = 20

    def __init__(self, settings: CloudSettings, *, initializing_seconds: float = 0.0) -> None:
        """Machines younger than ``initializing_seconds`` refuse to be deleted, as the vendor's do."""
        super().__init__(settings)
        self.initializing = timedelta(seconds=initializing_seconds)
        self.retry_after_ms = 1000  # the window of the rates
        self._signatures = SignatureCheck(settings.account, settings.clock)
        self._actions: dict[str, Callable[[Call], Result]] = {
            "RunInstances": self._run_instances,
            "DeleteInstances": self._delete_instances,
            "ModifyInstanceAutoReleaseTime": self._modify_auto_release_time,
            "DescribeInstances": self._describe_instances,
            "DescribeAvailableResource": self._describe_available_resource,
            "DescribeSpotPriceHistory": self._describe_spot_price_history,
            "DescribePrice": self._describe_price,
            "DescribeAccountAttributes": self._describe_account_attributes,
            "TagResources": self._tag_resources,
            "UntagResources": self._untag_resources,
        }

    @override
    def action_of(self, request: WireRequest) -> str:
        """The action's header."""
        return request.headers.get("x-acs-action", "")

    @override
    def open(self, request: WireRequest) -> Call:
        """Verify, then decode the query; the body must be empty in this style."""
        key = self._signatures.verify(request)
        if request.method not in ("POST", "GET") or request.path != "/" or request.body:
            text = "Parameters are sent in the query of a POST to / with an empty body."
            raise VendorError("UnsupportedHTTPMethod", text, status=400)
        if request.headers["x-acs-version"] != VERSION:
            raise VendorError("InvalidVersion", "Specified parameter Version is not valid.", status=400)
        action = self.action_of(request)
        wanted = parameters.decode(action, request.query)
        if wanted.region_id not in self.inventory.zones:
            raise parameters.not_found(
                "InvalidRegionId.NotFound", f"The RegionId {wanted.region_id} does not exist."
            )
        return Call(
            action=action,
            region=wanted.region_id,
            access_key_id=key,
            parameters=wanted.model_dump(mode="json", by_alias=True, exclude_unset=True),
            zone=purchase.zone_of(wanted, self.inventory)
            if isinstance(wanted, parameters.RunInstances)
            else "",
            instance_type=wanted.instance_type if isinstance(wanted, parameters.RunInstances) else "",
            client_token=wanted.client_token if isinstance(wanted, parameters.RunInstances) else "",
        )

    @override
    def carry_out(self, call: Call) -> Result:
        """Do what was asked."""
        return self._actions[call.action](call)

    @override
    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """HTTP 200 with the request id among the fields."""
        return _json_answer(200, {"RequestId": request_id.upper(), **payload}, request_id)

    @override
    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """The vendor's error body with the status of its table."""
        body = {
            "RequestId": request_id.upper(),
            "HostId": "ecs.aliyuncs.com",
            "Code": error.code,
            "Message": error.message,
            "Recommend": f"https://api.alibabacloud.com/troubleshoot?q={error.code}",
        }
        return _json_answer(error.status, body, request_id, error.headers)

    @override
    def throttled(self, call: Call) -> VendorError:
        """HTTP 400, and a header that says when to come back."""
        text = f"Request was denied due to user flow control of {call.action}."
        headers = {"x-acs-retry-after": str(self.retry_after_ms)} if self.retry_after_ms else None
        return VendorError("Throttling.User", text, status=400, headers=headers)

    @override
    def failed(self) -> VendorError:
        """The vendor's internal error."""
        text = "The request processing has failed due to some unknown error."
        return VendorError("InternalError", text, status=500)

    @override
    def state_word(self, machine: Machine) -> str:
        """Pending, Starting for the second half of the boot, Running; Stopping while it ends or stops."""
        if machine.vendor_state:
            return machine.vendor_state
        if machine.state is MachineState.PENDING:
            half = timedelta(seconds=self.ledger.settings.boot_seconds) / 2
            return "Pending" if self.clock() - machine.created_at < half else "Starting"
        if machine.state is MachineState.STOPPED and machine.ended_at is not None:
            latency = timedelta(seconds=self.ledger.settings.end_seconds)
            return "Stopping" if self.clock() - machine.ended_at < latency else "Stopped"
        # There is no word for a machine that failed to start or is gone: it is not listed.
        return {MachineState.RUNNING: "Running", MachineState.ENDING: "Stopping"}.get(machine.state, "")

    # Purchases ------------------------------------------------------------------------------------------

    def _run_instances(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.RunInstances)
        terms = {name: value for name, value in call.parameters.items() if name != "ClientToken"}
        mark = fingerprint(json.dumps(terms, sort_keys=True))
        scope = f"{call.access_key_id}/{call.region}"
        repeated = self._bought_before(scope, wanted.client_token, mark)
        if repeated is not None:
            return _bought(repeated, note="repeated token")
        order = self._order(wanted)
        if wanted.dry_run:
            text = "Request validation has been passed with DryRun flag set."
            raise VendorError("DryRunOperation", text, status=400)
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
            text = "The specified clientToken was used with other parameters."
            raise VendorError("IdempotentParameterMismatch", text, status=400) from exc

    def _buy(self, order: Order, wanted: parameters.RunInstances) -> tuple[Machine, ...]:
        """All that are wanted, or with MinAmount as many as there are, but not fewer."""
        count = wanted.amount
        if wanted.min_amount is not None:
            free = self._free(order.zone, order.instance_type)
            count = min(wanted.amount, max(free, wanted.min_amount))
        try:
            return self.buy(order, count, max_price=wanted.spot_price_limit)
        except ShortageError as exc:
            code, status, text = SHORTAGES[exc.kind]
            raise VendorError(code, text, status=status) from exc

    def _order(self, wanted: parameters.RunInstances) -> Order:
        zone = purchase.zone_of(wanted, self.inventory)
        purchase.check(wanted, self.inventory)
        spot = wanted.spot_strategy != "NoSpot"
        self._check_sold(wanted.instance_type)
        return Order(
            region=wanted.region_id,
            zone=zone,
            instance_type=wanted.instance_type,
            spot=spot,
            price_per_hour=self.price(self.place(zone, wanted.instance_type), spot=spot),
            image_id=wanted.image_id,
            subnet_id=wanted.v_switch_id,
            user_data=purchase.plain(wanted.user_data),
            tags={tag.key: tag.value for tag in wanted.tag},
            name=wanted.instance_name,
            client_token=wanted.client_token,
            release_at=purchase.release_at(wanted.auto_release_time, self.clock()),
            # Economical mode. Types with local disks have none of it, but none of them is sold here.
            stops_on_reclaim=spot and wanted.spot_interruption_behavior == "Stop",
            details=purchase.echoed(wanted, self.inventory),
        )

    # Machines -------------------------------------------------------------------------------------------

    def _delete_instances(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DeleteInstances)
        machines = self._named(wanted.instance_id, wanted.region_id, "InvalidInstanceId.NotFound")
        for machine in machines:
            if self.clock() - machine.created_at < self.initializing:
                text = "The specified instance is being initialized."
                raise VendorError("IncorrectInstanceStatus.Initializing", text, status=403)
            rests = machine.state is MachineState.ENDING or self.state_word(machine) == "Stopped"
            if not rests and not wanted.force:
                text = "The current status of the resource does not support this operation."
                raise VendorError("IncorrectInstanceStatus", text, status=403)
        ids = tuple(machine.id for machine in machines)
        if not wanted.dry_run:
            self.ledger.terminate(ids)
        return Result({}, machine_ids=ids)

    def _modify_auto_release_time(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ModifyInstanceAutoReleaseTime)
        ids = (wanted.instance_id,)
        (machine,) = self._named(ids, wanted.region_id, "InvalidInstanceId.NotFound")
        at = purchase.release_at(wanted.auto_release_time, self.clock())
        machine.order = replace(machine.order, release_at=at)
        return Result({}, machine_ids=ids)

    def _describe_instances(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeInstances)
        seen = [machine for machine in self._listed(wanted.region_id) if self._fulfils(machine, wanted)]
        ever = [machine.id for machine in self.ledger.all()]
        start = listing.page_start(wanted.next_token, [machine.id for machine in seen], ever)
        page = seen[start : start + wanted.max_results]
        more = start + wanted.max_results < len(seen)
        payload = {
            "TotalCount": len(seen),
            "PageNumber": 1,
            "PageSize": wanted.max_results,
            "NextToken": listing.page_token(page[-1].id) if more else "",
            "Instances": {"Instance": [listing.view(machine, self.state_word(machine)) for machine in page]},
        }
        return Result(payload, machine_ids=tuple(machine.id for machine in page))

    def _listed(self, region: str) -> list[Machine]:
        """Machines of a region that the list shows; one that failed to start is not there."""
        return [
            machine
            for machine in self.ledger.listed()
            if machine.order.region == region and machine.state is not MachineState.FAILED
        ]

    def _fulfils(self, machine: Machine, wanted: parameters.DescribeInstances) -> bool:
        lock = "Recycling" if listing.is_recycling(machine) else ""
        conditions = (
            wanted.instance_ids is None or machine.id in wanted.instance_ids,
            all(machine.tags.get(tag.key) == tag.value for tag in wanted.tag),
            wanted.zone_id in ("", machine.order.zone),
            wanted.instance_type in ("", machine.order.instance_type),
            wanted.status in ("", self.state_word(machine)),
            wanted.lock_reason in ("", lock),
        )
        return all(conditions)

    def _tag_resources(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.TagResources)
        machines = self._named(wanted.resource_id, wanted.region_id, "InvalidResourceId.NotFound")
        for machine in machines:
            machine.tags.update((tag.key, tag.value) for tag in wanted.tag)
        return Result({}, machine_ids=wanted.resource_id)

    def _untag_resources(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.UntagResources)
        machines = self._named(wanted.resource_id, wanted.region_id, "InvalidResourceId.NotFound")
        for machine in machines:
            for key in tuple(machine.tags) if wanted.all else wanted.tag_key:
                machine.tags.pop(key, None)
        return Result({}, machine_ids=wanted.resource_id)

    def _named(self, ids: tuple[str, ...], region: str, code: str) -> tuple[Machine, ...]:
        """Machines by id, also those that lists do not show yet; one that is not there refuses all."""
        found = {
            machine.id: machine
            for machine in self.ledger.find(ids)
            if machine.order.region == region
            and machine.state not in (MachineState.GONE, MachineState.FAILED)
        }
        for each in ids:
            if each not in found:
                raise parameters.not_found(code, f"The specified resource {each} does not exist.")
        return tuple(found.values())

    # Offers ---------------------------------------------------------------------------------------------

    def _describe_available_resource(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeAvailableResource)
        names = [row.name for row in CATALOGUE[self.provider] if wanted.instance_type in ("", row.name)]
        zones = [
            {
                "RegionId": wanted.region_id,
                "ZoneId": zone,
                **self._best(zone, sold),
                "AvailableResources": {
                    "AvailableResource": [
                        {
                            "Type": "InstanceType",
                            "SupportedResources": {
                                "SupportedResource": [
                                    {"Value": name, **self._stock(zone, name)} for name in sold
                                ]
                            },
                        }
                    ]
                },
            }
            for zone in self._zones(wanted.region_id, wanted.zone_id)
            if (sold := [name for name in names if self.market.offered(self.place(zone, name))])
        ]
        return Result({"AvailableZones": {"AvailableZone": zones}})

    def _stock(self, zone: str, instance_type: str) -> dict[str, str]:
        free = self._free(zone, instance_type)
        if free == 0:
            return {"Status": "SoldOut", "StatusCategory": "WithoutStock"}
        return {"Status": "Available", "StatusCategory": "ClosedWithStock" if free <= FEW else "WithStock"}

    def _best(self, zone: str, names: list[str]) -> dict[str, str]:
        """A zone's own words: those of the type that it has most of."""
        return self._stock(zone, max(names, key=lambda name: self._free(zone, name)))

    def _free(self, zone: str, instance_type: str) -> int:
        try:
            return self.free(self.place(zone, instance_type))
        except UnknownTypeError:
            return 0

    def _describe_spot_price_history(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeSpotPriceHistory)
        self._check_sold(wanted.instance_type)
        changes = [
            self._price_change(zone, wanted.instance_type, at)
            for at in _price_moments(self.clock())
            for zone in self._zones(wanted.region_id, wanted.zone_id)
            if self.market.offered(self.place(zone, wanted.instance_type))
        ]
        end = wanted.offset + PRICES_PER_PAGE
        payload = {
            "NextOffset": end if end < len(changes) else 0,
            "Currency": CURRENCY,
            "SpotPrices": {"SpotPriceType": changes[wanted.offset : end]},
        }
        return Result(payload)

    def _price_change(self, zone: str, instance_type: str, at: datetime) -> dict[str, object]:
        place = self.place(zone, instance_type)
        return {
            "ZoneId": zone,
            "InstanceType": instance_type,
            "IoOptimized": "optimized",
            "NetworkType": "vpc",
            "SpotPrice": float(self.market.spot_price(place, at)),
            "OriginPrice": float(self.market.on_demand_price(place)),
            "Timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _describe_price(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribePrice)
        self._check_sold(wanted.instance_type)
        place = self.place(wanted.zone_id, wanted.instance_type)
        full = self.price(place, spot=False)
        machine = self.price(place, spot=wanted.spot_strategy != "NoSpot")
        disk = DISK_PRICE_PER_GB * wanted.system_disk.size
        parts = (("instanceType", full, machine), ("systemDisk", disk, disk))
        amounts = [_amounts(original, trade, wanted.amount) for _, original, trade in parts]
        total = _amounts(full + disk, machine + disk, wanted.amount)
        details = [{"Resource": name, **amount} for (name, _, _), amount in zip(parts, amounts, strict=True)]
        price = {**total, "Currency": CURRENCY, "DetailInfos": {"DetailInfo": details}}
        return Result({"PriceInfo": {"Price": price, "Rules": {"Rule": []}}})

    def _describe_account_attributes(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.DescribeAccountAttributes)
        values: dict[str, int] = {}
        for spot, kind in ((True, "spot"), (False, "postpaid")):
            limit = self.quota_limit(spot=spot)
            values[f"max-{kind}-instance-vcpu-count"] = PLENTY if limit is None else limit
            values[f"used-{kind}-instance-vcpu-count"] = sum(
                self.quota_units(machine.order.instance_type, spot=spot)
                for machine in self.ledger.live()
                if (machine.order.region, machine.order.spot) == (wanted.region_id, spot)
            )
        items = [
            {"AttributeName": name, "AttributeValues": {"ValueItem": [{"Value": str(values[name])}]}}
            for name in wanted.attribute_name or sorted(values)
        ]
        return Result({"AccountAttributeItems": {"AccountAttributeItem": items}})

    def _zones(self, region: str, zone: str) -> tuple[str, ...]:
        """Zones of a region, narrowed to one when given."""
        return tuple(each for each in self.inventory.zones[region] if zone in ("", each))

    def _check_sold(self, instance_type: str) -> None:
        if all(row.name != instance_type for row in CATALOGUE[self.provider]):
            text = "The specified InstanceType does not exist."
            raise parameters.not_found("InvalidInstanceType.ValueNotSupported", text)


def _wanted(call: Call, model: type[_Wanted]) -> _Wanted:
    """The call's parameters as their type again; they were checked when the request was opened."""
    return model.model_validate(call.parameters)


def _bought(machines: tuple[Machine, ...], note: str = "") -> Result:
    ids = tuple(machine.id for machine in machines)
    price = sum((machine.order.price_per_hour for machine in machines), Decimal(0))
    payload = {"OrderId": "", "TradePrice": float(price), "InstanceIdSets": {"InstanceIdSet": list(ids)}}
    return Result(payload, machine_ids=ids, note=note)


def _price_moments(now: datetime) -> list[datetime]:
    """The start of the price of this moment, and the full hours before it, newest first."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    current = midnight + (now - midnight) // PRICE_STEP * PRICE_STEP
    hours = PRICE_HISTORY // timedelta(hours=1)
    return [current - timedelta(hours=back) for back in range(hours + 1)]


def _amounts(original: Decimal, trade: Decimal, count: int) -> dict[str, float]:
    """Prices of so many pieces, as the API splits them."""
    return {
        "OriginalPrice": float(original * count),
        "DiscountPrice": float((original - trade) * count),
        "TradePrice": float(trade * count),
    }


def _json_answer(
    status: int, body: Mapping[str, object], request_id: str, headers: Mapping[str, str] | None = None
) -> WireAnswer:
    sent = {
        "Content-Type": "application/json;charset=utf-8",
        "x-acs-request-id": request_id.upper(),
        **(headers or {}),
    }
    return WireAnswer(status, sent, json.dumps(body).encode())
