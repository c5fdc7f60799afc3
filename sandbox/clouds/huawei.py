"""Huawei Cloud ECS on the wire: REST calls in the words of v1, jobs behind purchases, and prices beside them.

The project in the path says which region is meant. Errors of ECS are nested, those of the gateway flat.
A purchase is accepted first; that there is no stock or no quota is said by its job. Which answer a client
token gets that comes back with other parameters is not documented; here the first one's, with a note in the
log.
Source: the SDK's request classes (3.1.219) and the vendor's ECS error tables (2026).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import ClassVar, Final, TypeVar, cast

from typing_extensions import override

from domain.contracts.catalogue import CATALOGUE
from domain.contracts.offers import InstanceType, ProviderName
from sandbox.clouds import huawei_jobs as jobs
from sandbox.clouds import huawei_listing as listing
from sandbox.clouds import huawei_parameters as parameters
from sandbox.clouds import huawei_purchase as purchase
from sandbox.clouds import huawei_routes as routes
from sandbox.clouds import huawei_signature as signature
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
from sandbox.clouds.huawei_parameters import wrong
from sandbox.clouds.huawei_things import Things
from sandbox.clouds.ledger import EndReason, Machine, MachineState, Order, fingerprint
from sandbox.clouds.leftovers import Possession
from sandbox.market import CURRENCY

MAX_DELETED: Final = 1000
MAX_PAGE: Final = 1000
DRY_RUN_PASSED: Final = "DryRunPassed"
"""No code of the vendor: a passed dry run is HTTP 202 without a body."""
HOUR: Final = 4
_NO_BODY: Final[Mapping[str, object]] = {"(no body)": True}
# What the market says in a job, and what it says at once.
_FAILURES: Final[Mapping[ShortageKind, jobs.Problem]] = {
    ShortageKind.NO_STOCK: jobs.Problem(
        "Ecs.0219", "No valid host was found. There are not enough hosts available."
    ),
    ShortageKind.QUOTA: jobs.Problem("Ecs.0001", "The quota of spot instances is exceeded."),
}
_Create = parameters.CreatePostPaidServers | parameters.CreateServers
_Wanted = TypeVar("_Wanted", bound=parameters.Parameters)


@dataclass(frozen=True)
class _Opened:
    """A request taken apart: its parameters and the ids in its path."""

    wanted: parameters.Parameters
    server_id: str = ""
    job_id: str = ""
    thing_id: str = ""
    """A disk or an address."""


class HuaweiCloud(Cloud):
    """The dialect of ECS, of the project list, and of prices.

    Attributes:
        throttle_code: What a refused rate says: ``APIGW.0308``, ``Common.1503`` (both HTTP 429), or
            ``Common.0024``, which is an error inside a success (HTTP 202).
        prices_allowed: Whether the account may ask for prices.
    """

    provider: ClassVar[ProviderName] = ProviderName.HUAWEI
    id_prefix: ClassVar[str] = "7e1a6c0b-52f3-4d8e-9a41-c3d5"
    """28 of a UUID's 36 characters."""
    absent_prefix: ClassVar[str] = "00000000-0000-4000-8000-"
    """Of servers that a job named but never made."""
    # The vendor publishes no rates for ECS; these are the simulator's.
    rates_per_second: ClassVar[Mapping[str, int]] = {"CreatePostPaidServers": 10, "DeleteServers": 10}
    default_rate_per_second: ClassVar[int] = 20

    def __init__(self, settings: CloudSettings, *, projects: Mapping[str, str] | None = None) -> None:
        """``projects`` maps regions to project ids; a region without one gets ``project_of`` it."""
        super().__init__(settings)
        given = projects or {}
        self.projects = {region: given.get(region, project_of(region)) for region in self.inventory.zones}
        self.throttle_code = "APIGW.0308"
        self.prices_allowed = True
        self._jobs = jobs.JobBook()
        self._refused_servers = 0
        self._things = Things(self.leftovers, self._region_of)
        self._actions: dict[str, Callable[[Call], Result]] = {
            "KeystoneListProjects": self._list_projects,
            "ListOnDemandResourceRatings": self._rate,
            "CreatePostPaidServers": self._create,
            "CreateServers": self._create,
            "DeleteServers": self._delete,
            "ListServersDetails": self._list_details,
            "ListFlavors": self._list_flavors,
            "ListFlavorSellPolicies": self._list_policies,
            "ShowServerLimits": self._limits,
            "ListServersByTag": self._list_by_tag,
            "ShowServer": self._show,
            "BatchCreateServerTags": self._tag,
            "BatchDeleteServerTags": self._untag,
            "UpdateServerAutoTerminateTime": self._set_timer,
            "ShowJob": self._show_job,
            **dict.fromkeys(Things.ACTIONS, self._play_things),
        }

    @override
    def action_of(self, request: WireRequest) -> str:
        """By method and path; the two tag actions share theirs."""
        action, _ = routes.route(request)
        return action

    @override
    def open(self, request: WireRequest) -> Call:
        """Verify, find the region of the project, decode."""
        action, path = routes.route(request)
        if not action:
            raise VendorError("APIGW.0101", "The API does not exist or has not been published.", status=404)
        key = signature.verify(request, self.account, now=self.clock())
        region = self._region(request, path.get("project", ""))
        wanted = routes.decoded(request, action)
        ignored = parameters.unplayed(wanted)
        if ignored:
            raise wrong(f"the sandbox does not play {ignored}")
        if isinstance(wanted, parameters.BatchTags) and wanted.action == "delete":
            action = "BatchDeleteServerTags"
        opened = _Opened(wanted, path.get("server", ""), path.get("job", ""), path.get("thing", ""))
        return _call(action, region, key, opened, request.headers.get("x-client-token", ""))

    @override
    def carry_out(self, call: Call) -> Result:
        """Do what was asked."""
        return self._actions[call.action](call)

    @override
    def answer(self, payload: Mapping[str, object], request_id: str) -> WireAnswer:
        """HTTP 200 with the payload alone, or 204 for calls that answer nothing."""
        if payload == _NO_BODY:
            return WireAnswer(204, {"X-Request-Id": request_id}, b"")
        return _json(200, payload, request_id)

    @override
    def refuse(self, error: VendorError, request_id: str) -> WireAnswer:
        """The gateway's errors are flat, those of the service nested."""
        if error.code == DRY_RUN_PASSED:
            return WireAnswer(error.status, {"X-Request-Id": request_id}, b"")
        if error.code.startswith("APIGW"):
            body = {"error_code": error.code, "error_msg": error.message, "request_id": request_id}
            return _json(error.status, body, request_id)
        return _json(error.status, {"error": {"message": error.message, "code": error.code}}, request_id)

    @override
    def throttled(self, call: Call) -> VendorError:
        """One of the vendor's three forms."""
        if self.throttle_code == "Common.0024":
            return VendorError("Common.0024", "Flow limit exceeded.", status=202)
        limit = self.rates.per_second.get(call.action, self.rates.default)
        over = f"policy user over ratelimit,limit:{limit},time:1 second"
        text = f"The throttling threshold has been reached: {over}"
        return VendorError(self.throttle_code, text, status=429)

    @override
    def failed(self) -> VendorError:
        """The vendor's internal error."""
        return VendorError("Ecs.0000", "Failed to call the API.", status=500)

    @override
    def state_word(self, machine: Machine) -> str:
        """The status; one that is gone has none."""
        return "" if machine.state is MachineState.GONE else listing.status_of(machine)

    def _region(self, request: WireRequest, project: str) -> str:
        """The region of the project in the path; empty for calls without one."""
        if not project:
            return ""
        region = next((name for name, known in self.projects.items() if known == project), "")
        if not region or request.headers.get("x-project-id", project) != project:
            raise VendorError("Common.0018", "The project does not match the request.", status=403)
        return region

    # Purchases ------------------------------------------------------------------------------------------

    def _create(self, call: Call) -> Result:
        opened = cast("_Opened", call.decoded)
        wanted = cast("_Create", opened.wanted)
        mark = fingerprint(wanted.model_dump_json())
        scope = self.projects[call.region]
        if call.client_token:
            purchase.check_token(call.client_token)
            before = self._jobs.opened_with(scope, call.client_token)
            if before is not None:
                note = "repeated token" if before[0] == mark else "token repeated with other parameters"
                return Result(jobs.counted(before[1]), self._made(before[1]), note)
        order = self._order(call, wanted)
        if wanted.dry_run:
            raise VendorError(DRY_RUN_PASSED, "", status=202)
        job = self._jobs.enter(self._bought(order, wanted))
        if call.client_token:
            self._jobs.remember(scope, call.client_token, mark, job)
        return Result(jobs.counted(job), self._made(job), job.problem.reason if job.problem else "")

    def _bought(self, order: Order, wanted: _Create) -> jobs.Job:
        """The job of a purchase. It fails when the market refuses; what is not sold is refused at once."""
        server = wanted.server
        try:
            machines = self.buy(order, server.count)
        except ShortageError as exc:
            problem = _FAILURES.get(exc.kind)
            if problem is None:
                raise VendorError(purchase.NOT_OFFERED, str(exc), status=400) from exc
            ids = tuple(self._absent_id() for _ in range(server.count))
            return self._job(jobs.JobKind.CREATE, order.region, ids, problem)
        for machine in machines:
            for kind, ends_with_server in purchase.survivors(server):
                self.leftovers.attach(machine.id, kind, ends_with_server=ends_with_server)
        return self._job(jobs.JobKind.CREATE, order.region, tuple(machine.id for machine in machines))

    def _order(self, call: Call, wanted: _Create) -> Order:
        server = wanted.server
        purchase.check(server, call.region, self.inventory)
        spot = purchase.is_spot(server.extendparam)
        place = self.place(server.availability_zone, server.flavor_ref)
        price = self.price(place, spot=spot)
        purchase.bid(server.extendparam, market=price, on_demand=self.price(place, spot=False))
        return Order(
            region=call.region,
            zone=server.availability_zone,
            instance_type=server.flavor_ref,
            spot=spot,
            price_per_hour=price,
            image_id=server.image_ref,
            subnet_id=server.nics[0].subnet_id,
            user_data=purchase.user_data(server.user_data),
            tags={tag.key: tag.value for tag in server.server_tags},
            name=server.name,
            client_token=call.client_token,
            release_at=purchase.release_at(server.auto_terminate_time, self.clock()),
            details={
                "key_name": server.key_name,
                "vpcid": server.vpcid,
                "security_groups": [group.id for group in server.security_groups],
                "spotPrice": server.extendparam.spot_price,
                "root_volume": {"volumetype": server.root_volume.volumetype, "size": server.root_volume.size},
            },
        )

    def _job(
        self, kind: jobs.JobKind, region: str, ids: tuple[str, ...], problem: jobs.Problem | None = None
    ) -> jobs.Job:
        """A job that takes as long as a start; a refused one says so after half of it."""
        now = self.clock()
        boot = timedelta(seconds=self.ledger.settings.boot_seconds)
        return jobs.Job(
            id=jobs.new_id(),
            kind=kind,
            region=region,
            begun_at=now,
            starts_at=now + boot / 4,
            server_ids=ids,
            problem=problem,
            fails_at=now + boot / 2 if problem else None,
        )

    def _absent_id(self) -> str:
        self._refused_servers += 1
        return f"{self.absent_prefix}{self._refused_servers:012x}"

    def _made(self, job: jobs.Job) -> tuple[str, ...]:
        return () if job.problem else job.server_ids

    def _show_job(self, call: Call) -> Result:
        job = self._jobs.find(call.region, cast("_Opened", call.decoded).job_id)
        if job is None:
            raise VendorError("Ecs.0614", "The job could not be found.", status=404)
        return Result(jobs.view(job, self._machine, self.clock()))

    # Servers --------------------------------------------------------------------------------------------

    def _delete(self, call: Call) -> Result:
        """All or none: one that is gone, or that is being taken back, refuses the whole call."""
        wanted = _wanted(call, parameters.DeleteServers)
        ids = tuple(server.id for server in wanted.servers)
        if not 1 <= len(ids) <= MAX_DELETED:
            raise wrong(f"servers: 1 to {MAX_DELETED}")
        for machine in [self._named(call.region, each) for each in ids]:
            ending = machine.state is MachineState.ENDING and machine.end_reason is EndReason.RECLAIMED
            if ending or (machine.live and machine.notice_at is not None):
                text = f"Instance {machine.id} is being reclaimed and cannot be deleted."
                raise VendorError("Ecs.0100", text, status=400)
        for flag, kind in ((wanted.delete_publicip, "publicip"), (wanted.delete_volume, "volume")):
            if flag:
                self.leftovers.condemn(ids, kind)
        self.ledger.terminate(ids)
        job = self._jobs.enter(self._job(jobs.JobKind.DELETE, call.region, ids))
        return Result({"job_id": job.id}, ids)

    def _list_details(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ListServersDetails)
        if not 0 <= wanted.limit <= MAX_PAGE or wanted.offset < 0:
            raise wrong(f"limit 0 to {MAX_PAGE}, offset from 0")
        if wanted.server_id:
            # All other conditions are ignored then.
            records = [self._record(call.region, each) for each in wanted.server_id.split(",")]
            return Result({"count": len(records), "servers": records})
        chosen = [machine for machine in self._listed(call.region) if _passes(machine, wanted)]
        page = _page(chosen, wanted, [machine.id for machine in self.ledger.all()])
        return Result(
            {"count": len(chosen), "servers": [self._shown(machine) for machine in page]},
            tuple(machine.id for machine in page),
        )

    def _record(self, region: str, server_id: str) -> dict[str, object]:
        found = next((each for each in self._listed(region) if each.id == server_id), None)
        return listing.unknown(server_id) if found is None else self._shown(found)

    def _show(self, call: Call) -> Result:
        server_id = cast("_Opened", call.decoded).server_id
        found = next((each for each in self._listed(call.region) if each.id == server_id), None)
        if found is None:
            raise _not_found(server_id)
        return Result({"server": self._shown(found)}, (server_id,))

    def _list_by_tag(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ListServersByTag)
        if not (wanted.limit.isdecimal() and wanted.offset.isdecimal() and int(wanted.limit) <= MAX_PAGE):
            raise wrong(f"limit 0 to {MAX_PAGE} and offset are numbers")
        chosen = [
            machine
            for machine in self._listed(call.region)
            if all(
                tag.key in machine.tags and (not tag.values or machine.tags[tag.key] in tag.values)
                for tag in wanted.tags
            )
        ]
        start = int(wanted.offset)
        resources = [
            {
                "resource_id": machine.id,
                "resource_detail": None,
                "resource_name": machine.order.name,
                "tags": [{"key": key, "value": value} for key, value in machine.tags.items()],
            }
            for machine in chosen[start : start + int(wanted.limit)]
        ]
        return Result({"resources": resources, "total_count": len(chosen)})

    def _tag(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.BatchTags)
        machine = self._named(call.region, cast("_Opened", call.decoded).server_id)
        merged = {**machine.tags, **{tag.key: tag.value for tag in wanted.tags}}
        purchase.check_tags([parameters.Tag(key=key, value=value) for key, value in merged.items()])
        machine.tags.update(merged)
        return Result(_NO_BODY, (machine.id,))

    def _untag(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.BatchTags)
        machine = self._named(call.region, cast("_Opened", call.decoded).server_id)
        for tag in wanted.tags:
            machine.tags.pop(tag.key, None)
        return Result(_NO_BODY, (machine.id,))

    def _set_timer(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.UpdateServerAutoTerminateTime)
        machine = self._named(call.region, cast("_Opened", call.decoded).server_id)
        at = purchase.release_at(wanted.auto_terminate_time, self.clock())
        machine.order = replace(machine.order, release_at=at)
        return Result(_NO_BODY, (machine.id,))

    def _play_things(self, call: Call) -> Result:
        """Disks and addresses."""
        opened = cast("_Opened", call.decoded)
        if not isinstance(opened.wanted, parameters.ListThings):
            self._things.release(call.action, opened.thing_id)
            return Result(_NO_BODY)
        return Result(self._things.page(call.action, opened.wanted, call.region))

    def _region_of(self, thing: Possession) -> str:
        machine = self._machine(thing.server_id)
        return machine.order.region if machine else ""

    def _listed(self, region: str) -> list[Machine]:
        return [machine for machine in self.ledger.listed() if machine.order.region == region]

    def _shown(self, machine: Machine) -> dict[str, object]:
        disks = [each.id for each in self.leftovers.of(machine.id) if each.kind == "volume"]
        row = self.row(machine.order.instance_type)
        return listing.shown(machine, self.projects[machine.order.region], row, disks)

    def _named(self, region: str, server_id: str) -> Machine:
        """A server by id, also one that lists do not show yet."""
        machine = self._machine(server_id)
        if machine is None or machine.order.region != region or machine.state is MachineState.GONE:
            raise _not_found(server_id)
        return machine

    def _machine(self, server_id: str) -> Machine | None:
        return next(iter(self.ledger.find([server_id])), None)

    # Projects, stock, prices ----------------------------------------------------------------------------

    def _list_projects(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ListProjects)
        known = [
            {"id": project, "name": region, "enabled": True, "is_domain": False}
            for region, project in self.projects.items()
            if wanted.name in ("", region)
        ]
        return Result({"projects": known, "links": {"self": "", "next": None, "previous": None}})

    def _list_flavors(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ListFlavors)
        rows = [
            row for row in self._rows(wanted.flavor_id) if self._zones(call, wanted.availability_zone, row)
        ]
        start = _after([row.name for row in rows], wanted.marker)
        shown = [
            listing.flavor(row, [(zone, self._free(zone, row) > 0) for zone in self._zones(call, "", row)])
            for row in rows[start : start + wanted.limit]
        ]
        return Result({"flavors": shown})

    def _list_policies(self, call: Call) -> Result:
        wanted = _wanted(call, parameters.ListFlavorSellPolicies)
        sold = [
            (row, zone, mode, self._free(zone, row) > 0)
            for row in self._rows(wanted.flavor_id)
            for zone in self._zones(call, wanted.availability_zone_id, row)
            for mode in listing.MODES
            if wanted.sell_mode in ("", mode)
        ]
        policies = [
            listing.policy(number, row, zone, mode, some=some)
            for number, (row, zone, mode, some) in enumerate(sold, 1)
            if wanted.sell_status in ("", "available" if some else "sellout")
        ]
        start = _after([str(each["id"]) for each in policies], wanted.marker)
        page = policies[start : start + wanted.limit]
        return Result({"sell_policies": page, "count": len(page)})

    def _limits(self, call: Call) -> Result:
        live = [machine for machine in self.ledger.live() if machine.order.region == call.region]
        rows = [(self.row(machine.order.instance_type), machine.order.spot) for machine in live]
        limits = {
            **listing.limits("", self.quota_limit(spot=False), [row for row, _ in rows]),
            **listing.limits("Spot", self.quota_limit(spot=True), [row for row, spot in rows if spot]),
        }
        return Result({"absolute": limits})

    @override
    def quota_units(self, instance_type: str, *, spot: bool) -> int:
        """Machines are counted."""
        return 1

    @override
    def counts_together(self, order: Order, other: Order) -> bool:
        """Spot machines have a limit of their own; the other one is for all machines."""
        return order.region == other.region and (other.spot or not order.spot)

    def _rate(self, call: Call) -> Result:
        """List prices; the price of spot capacity is not among them."""
        wanted = _wanted(call, parameters.ListOnDemandResourceRatings)
        if not self.prices_allowed:
            raise VendorError("CBC.0151", "Access denied.", status=403)
        if wanted.project_id not in self.projects.values():
            raise VendorError("CBC.0100", "The project_id is invalid.", status=400)
        results = [self._rated(product) for product in wanted.product_infos]
        total = float(sum((Decimal(str(each["amount"])) for each in results), Decimal(0)))
        return Result(
            {
                "amount": total,
                "discount_amount": 0,
                "official_website_amount": total,
                "measure_id": 1,
                "currency": CURRENCY,
                "product_rating_results": results,
            }
        )

    def _rated(self, product: parameters.Product) -> dict[str, object]:
        name, _, system = product.resource_spec.rpartition(".")
        zones = self.inventory.zones.get(product.region, ())
        per_hour = (product.usage_factor.lower(), product.usage_measure_id) == ("duration", HOUR)
        if not zones or not self._rows(name) or system not in ("linux", "win") or not per_hour:
            raise VendorError("CBC.0100", f"Parameter error: {product.resource_spec}.", status=400)
        price = self.market.on_demand_price(self.place(zones[0], name))
        amount = float(price * Decimal(str(product.usage_value)) * product.subscription_num)
        return {"id": product.id, "amount": amount, "official_website_amount": amount, "measure_id": 1}

    def _rows(self, name: str) -> list[InstanceType]:
        return [row for row in CATALOGUE[self.provider] if name in ("", row.name)]

    def _zones(self, call: Call, zone: str, row: InstanceType) -> list[str]:
        """Zones of the region that sell a type, narrowed to one when given."""
        zones = [each for each in self.inventory.zones[call.region] if zone in ("", each)]
        return [each for each in zones if self.market.offered(self.place(each, row.name))]

    def _free(self, zone: str, row: InstanceType) -> int:
        return self.free(self.place(zone, row.name))


def project_of(region: str) -> str:
    """The project id that a region has here: 32 hexadecimal characters, the same everywhere."""
    return hashlib.sha256(f"project of {region}".encode()).hexdigest()[:32]


def _call(action: str, region: str, key: str, opened: _Opened, token: str) -> Call:
    wanted = opened.wanted
    dumped = wanted.model_dump(mode="json", by_alias=True, exclude_unset=True)
    server = (
        wanted.server
        if isinstance(wanted, parameters.CreatePostPaidServers | parameters.CreateServers)
        else None
    )
    if server is not None:
        # The log does not look inside values: the boot script with its join token must not get there.
        inner = dumped.pop("server")
        dumped |= inner | {"user_data": f"({len(server.user_data)} characters)"}
    return Call(
        action=action,
        region=region,
        access_key_id=key,
        parameters=dumped | ({"server_id": opened.server_id} if opened.server_id else {}),
        zone=server.availability_zone if server else "",
        instance_type=server.flavor_ref if server else "",
        client_token=token,
        decoded=opened,
    )


def _wanted(call: Call, model: type[_Wanted]) -> _Wanted:
    """The call's parameters as their type again."""
    opened = cast("_Opened", call.decoded)
    if not isinstance(opened.wanted, model):
        raise TypeError(f"{call.action} was decoded as {type(opened.wanted).__name__}")
    return opened.wanted


def _passes(machine: Machine, wanted: parameters.ListServersDetails) -> bool:
    return (
        wanted.tags in ("", *(f"{key}={value}" for key, value in machine.tags.items()))
        and wanted.name in machine.order.name
        and wanted.status in ("", listing.status_of(machine))
        and wanted.flavor in ("", machine.order.instance_type)
    )


def _page(
    chosen: Sequence[Machine], wanted: parameters.ListServersDetails, ever: Sequence[str]
) -> Sequence[Machine]:
    """What follows the marker, also when that server has gone since; else the page of this number."""
    if wanted.marker:
        if wanted.marker not in ever:
            raise wrong(f"marker {wanted.marker}")
        passed = set(ever[: ever.index(wanted.marker) + 1])
        return [machine for machine in chosen if machine.id not in passed][: wanted.limit]
    start = max(0, wanted.offset - 1) * wanted.limit
    return chosen[start : start + wanted.limit]


def _after(names: Sequence[str], marker: str) -> int:
    """The index behind a marker."""
    if marker and marker not in names:
        raise wrong(f"marker {marker}")
    return names.index(marker) + 1 if marker else 0


def _not_found(server_id: str) -> VendorError:
    return VendorError("Ecs.0114", f"Instance[{server_id}] could not be found.", status=404)


def _json(status: int, body: Mapping[str, object], request_id: str) -> WireAnswer:
    headers = {"Content-Type": "application/json;charset=utf-8", "X-Request-Id": request_id}
    return WireAnswer(status, headers, json.dumps(body).encode())
