"""How a command ended: the facts that a pool's own effects bring back."""

from domain.contracts.errors import ErrorCode
from domain.contracts.facts import Demand, DrainResult, NodesSeen, RegionObservation, RegionState
from domain.contracts.instances import Instance, LaunchOutcome
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import Offer, RegionKey


class LaunchAnswered(Contract):
    """A create call gave a certain answer."""

    token: str
    result: LaunchOutcome


class LaunchUnanswered(Contract):
    """A create call gave no certain answer, or was called back: the machine may exist."""

    token: str
    error: str


class LaunchLooked(Contract):
    """A look for a launch by its tag."""

    token: str
    as_of: AwareDatetime
    instances: tuple[Instance, ...]


class LookFailed(Contract):
    """A look for a launch by its tag failed."""

    token: str
    error: str


class Described(Contract):
    """Machines by id; an asked id without an instance is absent."""

    region: RegionKey
    asked: tuple[str, ...]
    as_of: AwareDatetime
    instances: tuple[Instance, ...]


class DescribeFailed(Contract):
    """A look at machines by id failed."""

    region: RegionKey
    asked: tuple[str, ...]
    error: str


class RegionReadFailed(Contract):
    """The region could not be read."""

    region: RegionKey
    error: str
    code: ErrorCode | None = None
    """Class of the fault; None for one that is not of the closed set, for example a time-out."""


class NodesReadFailed(Contract):
    """The cluster could not be read."""

    error: str


class OffersRead(Contract):
    """Price and stock of a region."""

    region: RegionKey
    offers: tuple[Offer, ...]


class OffersFailed(Contract):
    """A region's offers could not be read."""

    region: RegionKey
    error: str


class Told(Contract):
    """The cloud accepted the order to end machines."""

    region: RegionKey
    instance_ids: tuple[str, ...]


class TellFailed(Contract):
    """The cloud did not accept the order to end machines."""

    region: RegionKey
    instance_ids: tuple[str, ...]
    error: str


class Retained(Contract):
    """Machines were given up."""

    region: RegionKey
    instance_ids: tuple[str, ...]


class Drained(Contract):
    """A Node is empty, or its deadline passed."""

    token: str
    result: DrainResult


class DrainFailed(Contract):
    """Draining could not be carried out at all."""

    token: str
    error: str


class NodesSettled(Contract):
    """Nodes were opened; ``error`` is empty when it worked."""

    tokens: tuple[str, ...]
    error: str = ""


class NodesDeleted(Contract):
    """Nodes of gone machines were removed; ``error`` is empty when it worked."""

    provider_ids: tuple[str, ...]
    error: str = ""


class FinalizerRemoved(Contract):
    """The resource was let go; ``error`` is empty when it worked."""

    error: str = ""


Fact = (
    RegionObservation
    | RegionState
    | NodesSeen
    | Demand
    | LaunchAnswered
    | LaunchUnanswered
    | LaunchLooked
    | LookFailed
    | Described
    | DescribeFailed
    | RegionReadFailed
    | NodesReadFailed
    | OffersRead
    | OffersFailed
    | Told
    | TellFailed
    | Retained
    | Drained
    | DrainFailed
    | NodesSettled
    | NodesDeleted
    | FinalizerRemoved
)
"""Everything that a pool's judgement takes in, beside edits and interventions."""
