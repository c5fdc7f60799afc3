"""What a pool remembers: slots, machines, what it knows of clouds and cluster. Survives continue-as-new."""

from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import Field

from domain.contracts.errors import ErrorCode
from domain.contracts.facts import Demand, NodeFact, RegionHealth
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import Offer, RegionKey
from domain.contracts.status import Condition, InstanceStatus, InterruptedInstance


class MachinePhase(StrEnum):
    """Where one launch stands, from the order to the confirmed absence."""

    ORDERED = "Ordered"
    """Written down; its create call may be under way."""
    UNRESOLVED = "Unresolved"
    """The create call gave no certain answer; the machine is looked for by its tag."""
    PENDING = "Pending"
    """The cloud named it but does not run it yet."""
    JOINING = "Joining"
    """Runs, its Node has not joined."""
    JOINED = "Joined"
    """Its Node is there, its GPUs are not."""
    READY = "Ready"
    """Its Node is ready with all GPUs."""
    TERMINATING = "Terminating"
    """The cloud was told to end it, or took it back."""
    GONE = "Gone"
    """Absence confirmed; kept until the public state was shown long enough."""


class LeaveReason(StrEnum):
    """Why a machine leaves its slot."""

    INTERRUPTED = "Interrupted"
    LOST = "Lost"
    LAUNCH_FAILED = "LaunchFailed"
    SCALE_DOWN = "ScaleDown"
    REPLACED = "Replaced"
    TERMINATED_BY_HAND = "TerminatedByHand"
    SURPLUS = "Surplus"
    POOL_DELETED = "PoolDeleted"


class DrainState(StrEnum):
    """Where the draining of a leaving machine stands."""

    NOT_STARTED = "NotStarted"
    RUNNING = "Running"
    DONE = "Done"


class Machine(Contract):
    """One launch and the machine that came of it."""

    token: str
    slot: str
    offer: Offer
    """As it was bought: the price paid is stored with the use."""
    subnet_index: int = 0
    """Which of the zone's subnets was used."""
    phase: MachinePhase = MachinePhase.ORDERED
    ordered_at: AwareDatetime
    answered_at: AwareDatetime | None = None
    """When the create call (or the look for it) gave the id."""
    launch_error: str = ""
    """Why its create call gave no certain answer."""
    instance_id: str = ""
    provider_id: str = ""
    running_at: AwareDatetime | None = None
    joined_at: AwareDatetime | None = None
    ready_at: AwareDatetime | None = None
    node_name: str = ""
    node_as_of: AwareDatetime | None = None
    """Newest word of the cluster on its Node: an older one takes nothing away."""
    node_lost: bool = False
    """It had joined, then its Node went away: no fault of the image if it does not come back."""
    settled: bool = False
    """The Node carries our labels and its GPU taint is as it should be."""
    billed_from: AwareDatetime | None = None
    billed_until: AwareDatetime | None = None
    notice_at: AwareDatetime | None = None
    interrupt_deadline: AwareDatetime | None = None
    interrupt_reason: str = ""
    leave: LeaveReason | None = None
    leave_detail: str = ""
    leave_at: AwareDatetime | None = None
    wait_for_replacement: bool = False
    """Stays until the slot's next machine is ready (create-first replacement)."""
    drain: DrainState = DrainState.NOT_STARTED
    drain_deadline: AwareDatetime | None = None
    blockers: tuple[str, ...] = ()
    terminate_told_at: AwareDatetime | None = None
    """When the cloud accepted the order to end it."""
    seen_at: AwareDatetime | None = None
    """Newest reading in which it was there."""
    looked_at: AwareDatetime | None = None
    """When a reading was last taken in, by the pool's own clock."""
    absent_at: AwareDatetime | None = None
    """First reading in which it was missing."""
    rechecks: int = 0
    next_check_at: AwareDatetime | None = None
    """When it is looked at next; None when nothing asks for a look."""
    retry_at: AwareDatetime | None = None
    """An effect on it failed for good and is not tried again before."""
    node_deleted: bool = False
    gone_at: AwareDatetime | None = None
    shown: InstanceStatus = InstanceStatus.PENDING
    """The public state, which keeps a minimum stay."""
    shown_at: AwareDatetime | None = None
    in_flight: str = ""
    """Name of the effect that is under way for it; empty when none is."""


class Slot(Contract):
    """One wanted place; holds at most one live instance and outlives it."""

    id: str
    token: str = ""
    """The launch that fills it; empty while it waits for one."""
    excluded: tuple[str, ...] = ()
    """Offer keys that were refused for this slot in the current round."""
    created_at: AwareDatetime


class RegionView(Contract):
    """What is known of one region."""

    region: RegionKey
    as_of: AwareDatetime | None = None
    """Newest observation; None until the region was read once in this chain."""
    health: RegionHealth = RegionHealth.OK
    reason: str = ""
    code: ErrorCode | None = None
    """Class of the failure that ``health`` comes from; None when it is well, or nobody said."""
    retry_at: AwareDatetime | None = None
    """No reading is tried before."""
    reading: bool = False
    reading_since: AwareDatetime | None = None
    health_as_of: AwareDatetime | None = None
    """Newest word on ``health``; an older one changes nothing."""
    gone_as_of: AwareDatetime | None = None
    """Newest reading that confirmed an absence: an older one may still show the machine."""
    gone_ids: tuple[str, ...] = ()
    """Machines whose absence was confirmed lately."""


class OfferHold(Contract):
    """An offer (or a whole prefix of offers) in which nothing is bought for now."""

    prefix: str
    """Start of the offer keys that are held: an offer, a zone, or a family."""
    until: AwareDatetime
    strikes: int = 1
    reason: str


class Market(Contract):
    """The offers of the current round."""

    offers: tuple[Offer, ...] = ()
    read_at: AwareDatetime | None = None
    waiting_for: tuple[str, ...] = ()
    """Regions (as text) whose offers are being read."""
    started_at: AwareDatetime | None = None
    unread: tuple[str, ...] = ()
    """Regions whose offers could not be read, each with the reason."""


class ManualLevel(Contract):
    """A water level that a human set."""

    instances: int
    until: AwareDatetime | None = None
    by: str
    reason: str


class ZoneLoss(Contract):
    """A machine that was taken back or lost, by the zone it stood in."""

    provider: str
    region: str
    zone: str
    at: AwareDatetime


class Deletion(Contract):
    """A deletion under way."""

    started_at: AwareDatetime
    stage: str
    stage_since: AwareDatetime
    forced: tuple[str, ...] = ()
    """Stages that a human forced."""
    nodes_left: tuple[str, ...] = ()
    """Nodes that such a human did not wait for."""
    stuck_told: bool = False
    """An Event said that this stage takes too long."""
    finalizer_ordered: bool = False
    finalizer_retry_at: AwareDatetime | None = None
    finalizer_removed: bool = False


class InboxItem(Contract):
    """A signal as it came in: its name and its raw JSON payloads."""

    name: str
    payloads: tuple[str, ...] = ()


RULES: Final = 1
"""Today's rules of the judgement. 1: an absence is confirmed by id; of a machine's two Nodes the ready one
counts; forced Nodes are given up only after a try; a region that answers no purchase rests."""


class PoolCarry(Contract):
    """Everything a pool remembers; one object, handed from run to run."""

    schema_version: int = 1
    rules: int = RULES
    """By which rules this run is judged; a run that began under older ones keeps them to its end."""
    chain: str
    """Last 8 hex digits of the first run's id: part of every token."""
    launch_counter: int = 0
    slot_counter: int = 0
    slots: tuple[Slot, ...] = ()
    machines: dict[str, Machine] = Field(default_factory=dict)
    """By token, in the order in which they were ordered."""
    regions: dict[str, RegionView] = Field(default_factory=dict)
    """By region key as text."""
    nodes_as_of: AwareDatetime | None = None
    nodes_reading: bool = False
    nodes_retry_at: AwareDatetime | None = None
    demand: Demand | None = None
    market: Market = Field(default_factory=Market)
    holds: tuple[OfferHold, ...] = ()
    manual_pauses: tuple[str, ...] = ()
    manual_level: ManualLevel | None = None
    last_scale_up_at: AwareDatetime | None = None
    last_scale_down_at: AwareDatetime | None = None
    next_round_at: AwareDatetime | None = None
    failed_rounds: int = 0
    round_failure: str = ""
    join_failures: tuple[str, ...] = ()
    """Offer keys of machines that did not join in time, since the last one that did."""
    ledger_month: str = ""
    """``YYYY-MM``, UTC."""
    ledger_closed: Decimal = Decimal(0)
    """Cost within ``ledger_month`` of machines that are gone."""
    interrupted: tuple[InterruptedInstance, ...] = ()
    zone_losses: tuple[ZoneLoss, ...] = ()
    """Of the last hour."""
    conditions: tuple[Condition, ...] = ()
    deletion: Deletion | None = None
    strays: tuple[NodeFact, ...] = ()
    """Nodes that claim this pool but match no machine of it (yet); otherwise ignored and counted."""
    strays_as_of: AwareDatetime | None = None
    """Newest word of the cluster on them: an older one changes none that is known."""
    strays_dark_since: AwareDatetime | None = None
    """Since when at least one of them is not ready; None when all are."""
    burying: tuple[str, ...] = ()
    """Provider ids of strays whose Nodes are being removed."""
    burial_retry_at: AwareDatetime | None = None
    interruptions_total: int = 0
    launches_total: int = 0
    adopted_machines: tuple[str, ...] = ()
    known_since: AwareDatetime | None = None
    """When this chain began to look for the machines that the status names."""
    known_found: bool = False
    """No machine of a former chain can still turn up unexpectedly: all were met, or every region was read."""
    inbox: tuple[InboxItem, ...] = ()
