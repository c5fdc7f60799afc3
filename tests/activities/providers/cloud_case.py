"""The questions that a cloud answers to join the conformance suite.

To add a cloud, put a file ``<cloud>_case.py`` beside this one with one constant ``CASE``; the suite finds it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import cast

from activities.providers.base import Capability, Credentials, Provider
from activities.providers.codes import Table
from domain.contracts.catalogue import instance_type
from domain.contracts.instances import DiskSpec, LaunchRequest
from domain.contracts.lanes import Lane
from domain.contracts.names import TAG_INSTALLATION, TAG_POOL
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName, RegionKey, Stock
from sandbox.clouds.cloud import Cloud, CloudSettings
from sandbox.clouds.inventory import Account, Inventory
from sandbox.clouds.ledger import LedgerSettings
from sandbox.market import Market
from tests.steps import to_do

TOKEN = "pool-1-abcd1234-1"
"""Client token of the one machine that most tests buy."""

Build = Callable[[RegionKey, Credentials, str, float], Provider]
"""Region, keys, ``host:port`` of the simulator and the read time-out in seconds to an adapter."""


@dataclass(frozen=True)
class CloudCase:
    """One adapter and its simulator.

    Attributes:
        zones: At least two zones of ``region``; machines are bought in the first.
        instance_type: A type with one GPU that both zones sell.
        subnets: Zone to a subnet in it.
        unknown_id: An id in the vendor's form that no machine has.
        errors: The table of its error codes.
        create_action: The vendor's name of the create call.
        end_actions: Of the calls that end machines or give them up.
        list_action: Of the call that lists and describes.
        capabilities: What the adapter must say that it can do, and what the suite then tries.
        dead_man_step: How coarse the vendor keeps the time of a dead-man switch.
        currency: Of the vendor's prices.
        cny_per_unit: How many yuan of the market one unit of that currency is.
        quota_action: The vendor's name of the call that tells the account's quota.
        quota_texts: What a refusal says of the quota; ``{used}`` and ``{limit}`` are the numbers.
        says_the_limit: Capacity types whose refusals have the limit in the vendor's own words.
        denied_code: The vendor's word for a call that the keys have no right to.
        name_tag: The tag that carries a machine's name, where machines have no other name.
        client_token: Launch token to what the vendor gets as client token.
    """

    provider: ProviderName
    region: str
    zones: tuple[str, ...]
    instance_type: str
    image_id: str
    vpc_id: str
    subnets: Mapping[str, str]
    security_group_id: str
    disk: DiskSpec
    inventory: Inventory
    simulator: Callable[[CloudSettings], Cloud]
    build: Build
    unknown_id: str
    quota_action: str
    quota_texts: Mapping[CapacityType, str]
    denied_code: str
    errors: Table
    create_action: str = "RunInstances"
    end_actions: tuple[str, ...] = ("TerminateInstances", "TagResources", "UnTagResources")
    list_action: str = "DescribeInstances"
    capabilities: frozenset[Capability] = frozenset(Capability)
    dead_man_step: timedelta = timedelta(seconds=1)
    currency: str = "CNY"
    cny_per_unit: Decimal = Decimal(1)
    says_the_limit: frozenset[CapacityType] = frozenset()
    name_tag: str = ""
    client_token: Callable[[str], str] = str
    keys: Mapping[str, str] = field(
        default_factory=lambda: {"accessKeyId": "AKIDCONFORMANCE", "accessKeySecret": "conformanceSecret"}
    )

    @property
    def kind(self) -> InstanceType:
        """The catalogue's row of the type."""
        row = instance_type(self.provider, self.instance_type)
        case = f"tests/activities/providers/{self.provider}_case.py"
        assert row is not None, to_do(
            2, f"the catalogue has no {self.instance_type} of {self.provider}, the instance_type of {case}"
        )
        return row

    @property
    def states_spot_prices(self) -> bool:
        """Whether an API tells what spot capacity costs."""
        return Capability.SPOT_PRICES in self.capabilities

    @property
    def states_on_demand_prices(self) -> bool:
        """Whether an API tells what on-demand capacity costs."""
        return Capability.ON_DEMAND_PRICES in self.capabilities

    @property
    def states_stock(self) -> bool:
        """Whether an API tells how much there is."""
        return Capability.STOCK in self.capabilities

    @property
    def key(self) -> RegionKey:
        """The region as an adapter speaks for it."""
        return RegionKey(provider=self.provider, account=f"{self.provider}-credentials", region=self.region)

    def lane(self, action: str) -> Lane:
        """The class of calls that the vendor's action belongs to."""
        if action == self.create_action:
            return Lane.PURCHASES
        return Lane.ENDS if action in self.end_actions else Lane.READINGS

    def settings(self, **ledger: float) -> CloudSettings:
        """A fresh account in a seeded market; ``ledger`` overrides latencies."""
        return CloudSettings(
            market=Market.seeded(7),
            inventory=self.inventory,
            account=Account({self.keys["accessKeyId"]: self.keys["accessKeySecret"]}),
            ledger=LedgerSettings(**{"boot_seconds": 0.05, "end_seconds": 0.05, **ledger}),
        )

    def offer(self, zone: str = "", capacity: CapacityType = CapacityType.SPOT) -> Offer:
        """What the pool decided to buy; price and stock do not matter to the adapter."""
        return Offer(
            provider=self.provider,
            account=self.key.account,
            region=self.region,
            zone=zone or self.zones[0],
            instance_type=self.kind,
            capacity_type=capacity,
            price=None,
            stock=Stock.UNKNOWN,
        )

    def request(self, token: str = TOKEN, **changes: object) -> LaunchRequest:
        """A create request that succeeds."""
        request = LaunchRequest(
            token=token,
            offer=self.offer(),
            image_id=self.image_id,
            vpc_id=self.vpc_id,
            subnet_id=self.subnets[self.zones[0]],
            security_group_ids=(self.security_group_id,),
            disk=self.disk,
            user_data_template="",
            join_secret="cluster-join",
            tags={TAG_INSTALLATION: "inst-1", TAG_POOL: "pool-1", "team": "训练"},
            max_price_per_hour=Decimal(20),
            name="gpu-1",
        )
        return request.model_copy(update=changes)


@dataclass
class Keys:
    """Credentials that a test may change while the adapter lives."""

    values: dict[str, str]

    def read(self) -> Mapping[str, str]:
        """What the Secret says now."""
        return self.values


def found_cases() -> list[CloudCase]:
    """``CASE`` of each ``*_case.py`` beside this file, in the order of names."""
    files = sorted(Path(__file__).parent.glob("*_case.py"))
    names = [file.stem for file in files if file.stem != "cloud_case"]
    return [cast("CloudCase", import_module(f"tests.activities.providers.{name}").CASE) for name in names]


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)
