"""What a pool's decision may order: data, carried out elsewhere and answered by an outcome."""

from typing import Annotated, Literal

from pydantic import Field

from domain.contracts.instances import LaunchRequest, OfferQuery
from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import RegionKey


class Launch(Contract):
    """Buy one machine."""

    kind: Literal["launch"] = "launch"
    token: str
    request: LaunchRequest


class CancelLaunch(Contract):
    """Call back a launch whose create call may not have left yet."""

    kind: Literal["cancel-launch"] = "cancel-launch"
    token: str


class FindLaunch(Contract):
    """Look for the machine of a launch whose outcome is unknown."""

    kind: Literal["find-launch"] = "find-launch"
    token: str
    region: RegionKey


class ReadRegion(Contract):
    """List every machine of the pool in a region."""

    kind: Literal["read-region"] = "read-region"
    region: RegionKey


class ReadNodes(Contract):
    """List every Node of the pool."""

    kind: Literal["read-nodes"] = "read-nodes"


class ReadOffers(Contract):
    """Price and stock of a region."""

    kind: Literal["read-offers"] = "read-offers"
    region: RegionKey
    query: OfferQuery


class Describe(Contract):
    """Look at machines by id, at most 100."""

    kind: Literal["describe"] = "describe"
    region: RegionKey
    instance_ids: tuple[str, ...]


class Terminate(Contract):
    """End machines, at most 100."""

    kind: Literal["terminate"] = "terminate"
    region: RegionKey
    instance_ids: tuple[str, ...]


class Retain(Contract):
    """Give machines up without ending them, at most 100."""

    kind: Literal["retain"] = "retain"
    region: RegionKey
    instance_ids: tuple[str, ...]


class Drain(Contract):
    """Empty the Node of a machine."""

    kind: Literal["drain"] = "drain"
    token: str
    region: RegionKey
    provider_id: str
    node_name: str
    deadline: AwareDatetime
    grace_seconds: int


class SettleNode(Contract):
    """What one Node must carry."""

    token: str
    provider_id: str
    name: str
    labels: dict[str, str]


class SettleNodes(Contract):
    """Open Nodes whose GPUs are all there, at most 100."""

    kind: Literal["settle-nodes"] = "settle-nodes"
    nodes: tuple[SettleNode, ...]


class DeleteNodes(Contract):
    """Remove the Nodes of machines that are gone: provider id to name."""

    kind: Literal["delete-nodes"] = "delete-nodes"
    nodes: dict[str, str]


class RemoveFinalizer(Contract):
    """Let the resource go; the last command of a pool."""

    kind: Literal["remove-finalizer"] = "remove-finalizer"


Command = Annotated[
    Launch
    | CancelLaunch
    | FindLaunch
    | ReadRegion
    | ReadNodes
    | ReadOffers
    | Describe
    | Terminate
    | Retain
    | Drain
    | SettleNodes
    | DeleteNodes
    | RemoveFinalizer,
    Field(discriminator="kind"),
]
