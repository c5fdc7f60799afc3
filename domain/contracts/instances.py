"""Machines: what is asked for, what a cloud answered, and what it says runs."""

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from domain.contracts.errors import ErrorCode
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import CapacityType, InstanceType, Offer, ProviderName


class InstanceState(StrEnum):
    """A machine as its cloud reports it, reduced to what a pool acts on."""

    PENDING = "Pending"
    RUNNING = "Running"
    INTERRUPTING = "Interrupting"
    """Still there but taken back, stopped, or under a reclaim notice: no longer usable."""
    TERMINATED = "Terminated"
    """Going or gone by the cloud's word; absence is what confirms it."""


class Instance(Contract):
    """One machine as seen in one answer of its cloud."""

    provider: ProviderName
    region: str
    zone: str
    id: str
    """The vendor's instance id, for example ``ins-abc123``. Identity is this, never a node name."""
    provider_id: str
    """The id as its Node carries it, for example ``qcloud:///100003/ins-abc123``."""
    instance_type: str
    capacity_type: CapacityType
    state: InstanceState
    reason: str = ""
    """Vendor's word for an unusual state, for example ``Recycling`` or ``LAUNCH_FAILED``."""
    created_at: AwareDatetime
    interrupt_deadline: AwareDatetime | None = None
    """When the cloud will take it back, if this API says so."""
    tags: dict[str, str] = Field(default_factory=dict)


class DiskSpec(Contract):
    """The system disk of a machine."""

    type: str
    size_gb: int


class LaunchRequest(Contract):
    """Everything one create call needs, but no secret: the join token is read where the call is made.

    One request, one token, one create call, one machine.
    """

    token: str
    """``{pool uid}-{chain}-{counter}``, at most 64 ASCII characters; the same on every retry."""
    offer: Offer
    image_id: str
    vpc_id: str
    subnet_id: str
    security_group_ids: tuple[str, ...]
    key_pair_id: str = ""
    disk: DiskSpec
    user_data_template: str
    join_secret: str
    """Name of the Secret in the operator's namespace whose keys fill ``{{ join.* }}``."""
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """``key=value:Effect``, handed to the kubelet."""
    tags: dict[str, str] = Field(default_factory=dict)
    max_price_per_hour: Decimal | None = None
    """Bid in the cloud's own currency; None bids up to the on-demand price."""
    name: str = ""
    """Display name at the cloud and node name, a DNS label."""
    dead_man_at: AwareDatetime | None = None
    """When the cloud ends the machine by itself unless the switch was renewed, where it has such a switch.

    Fixed when the token is minted: a repeat of a token must send the same parameters. None sets none.
    """


class Created(Contract):
    """The cloud made the machine and named it."""

    kind: Literal["created"] = "created"
    instance_id: str
    zone: str
    found: bool = False
    """True when an earlier attempt had made it and this one found it by its tag."""


class Refusal(Contract):
    """The market's no: a value, since it is an ordinary answer."""

    kind: Literal["refused"] = "refused"
    code: Literal[ErrorCode.INSUFFICIENT_CAPACITY, ErrorCode.QUOTA, ErrorCode.PRICE_TOO_LOW]
    vendor_code: str
    message: str = ""
    not_offered: bool = False
    """The type is not sold there at all, so the offer stays closed for a day, not for minutes."""


class Rejected(Contract):
    """The request can never succeed as it is: wrong image, no rights, wrong key, no money."""

    kind: Literal["rejected"] = "rejected"
    code: Literal[ErrorCode.INVALID_REQUEST, ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN]
    vendor_code: str
    message: str = ""


LaunchResult = Annotated[Created | Refusal | Rejected, Field(discriminator="kind")]


class Unmade(Contract):
    """No attempt was carried out by the cloud, which is certain: there is no machine to look for."""

    kind: Literal["unmade"] = "unmade"
    code: Literal[ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED]
    message: str = ""
    """Of the last attempt."""


LaunchOutcome = Annotated[Created | Refusal | Rejected | Unmade, Field(discriminator="kind")]
"""What is certain after all attempts of a launch."""


class LaunchAnswer(Contract):
    """Envelope of a launch result, so that a payload names its type."""

    result: LaunchOutcome


class OfferQuery(Contract):
    """Which offers of one region a pool can use."""

    instance_types: tuple[str, ...]
    """Names of the catalogue; never empty."""
    overrides: tuple[InstanceType, ...] = ()
    """Rows of a node class that the catalogue lacks or knows wrongly; they win over the catalogue."""
    zones: tuple[str, ...] = ()
    """Only these; empty means every zone of the region."""
    capacity_type: CapacityType = CapacityType.SPOT
    max_age: timedelta = timedelta(minutes=5)
    """A stored answer older than this is read again."""
