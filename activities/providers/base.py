"""The port to a cloud: what every adapter answers, and nothing about pools or strategies."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from domain.contracts.instances import Instance, LaunchRequest, LaunchResult, OfferQuery
from domain.contracts.lanes import Lane
from domain.contracts.leftovers import Leftover
from domain.contracts.offers import InstanceType, Offer, RegionKey

Turn = Callable[[Lane], None]
"""Waits until a call of this lane may leave. An adapter takes a turn for each request that it sends."""


def at_once(lane: Lane) -> None:
    """A turn for those who pace nothing."""


class Capability(StrEnum):
    """What some clouds have and others lack; the rest of the port is the same everywhere."""

    DEAD_MAN_SWITCH = "dead-man-switch"
    """The cloud ends a machine by itself at a set time: ``LaunchRequest.dead_man_at``, renewals."""
    LEFTOVERS = "leftovers"
    """Addresses and disks that survive a machine can be found and released."""
    SPOT_PRICES = "spot-prices"
    """An API tells what spot capacity costs; without one such offers have no price."""
    ON_DEMAND_PRICES = "on-demand-prices"
    """An API tells what on-demand capacity costs; without one such offers have no price."""
    STOCK = "stock"
    """An API tells how much there is; without one the stock of offers is unknown."""


class Provider(Protocol):
    """One account in one region of one cloud. Synchronous: the SDKs block, so callers bring a thread.

    Every method sends a bounded number of calls, retries nothing by itself and raises
    ``ProviderError`` for faults. Safe to use from several threads.
    """

    @property
    def key(self) -> RegionKey:
        """The provider, account and region that this object speaks for."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this cloud can do beyond the common part; the same for the whole life of the object."""
        ...

    def launch(self, request: LaunchRequest, user_data: str) -> LaunchResult:
        """Buy one machine: one create call (for asynchronous clouds, followed to its ids).

        Args:
            request: What to buy; its token is the cloud's client token and a tag of the machine.
            user_data: The rendered boot script, plain text (the adapter encodes it).

        Returns:
            ``Created``, or the market's ``Refusal``, or ``Rejected`` when it can never succeed.

        Raises:
            ProviderError: ``UNKNOWN_OUTCOME`` when the machine may exist (time-out after sending, a
                success without ids, an unreadable answer), ``THROTTLED``, ``UNAVAILABLE`` (certainly
                not carried out), ``UNKNOWN``.
        """
        ...

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End machines for good, at most 100 ids. A machine that is gone already counts as ended.

        Raises:
            ProviderError: any fault; the call may be repeated with the same ids.
        """
        ...

    def describe(self, instance_ids: Sequence[str]) -> list[Instance]:
        """Machines by id, in no particular order; ids that the cloud does not know are absent.

        Batches of the vendor's size are the adapter's business.
        """
        ...

    def list_tagged(self, tags: Mapping[str, str]) -> list[Instance]:
        """All machines of the region that carry all these tags, all pages, in no particular order."""
        ...

    def offers(self, query: OfferQuery, types: Sequence[InstanceType]) -> list[Offer]:
        """Price and stock now, one offer per zone and type, in no particular order.

        A type that is not sold in a zone gives no offer there; sold out gives ``Stock.NONE``; a missing
        price gives ``price=None``.
        """
        ...

    def retain(self, instance_ids: Sequence[str], installation: str) -> None:
        """Replace the installation tag by ``spotgpu-retained=<installation>``; nothing else changes.

        But for the dead-man switch, which goes first: a machine that is given up must not end by itself.
        """
        ...

    def dead_man_times(self, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """When the cloud will end machines by itself: id to time, UTC.

        Machines without a switch, or that are gone, are absent; so is every one where there is no such
        switch. Batches of the vendor's size are the adapter's business.
        """
        ...

    def renew_dead_man(self, instance_ids: Sequence[str], at: datetime) -> None:
        """Set the switch of machines to this time, whether they had one or not, at most 100 ids.

        A machine that is gone is done. Clouds that keep minutes round down, so that a machine never lives
        longer than was said.

        Raises:
            ProviderError: any fault; the call may be repeated with the same machines. ``INVALID_REQUEST``
                where there is no such switch.
        """
        ...

    def leftovers(self, tags: Mapping[str, str]) -> list[Leftover]:
        """Addresses and disks that belong to no machine, in no particular order; none where unsupported.

        Those that carry all these tags are ``ours``; the others of the account are told to be shown.
        """
        ...

    def release(self, leftovers: Sequence[Leftover]) -> None:
        """Give addresses and disks up for good. What is gone or in use again is left alone.

        Raises:
            ProviderError: any fault; the call may be repeated. ``INVALID_REQUEST``, with nothing released,
                when one of them is not ``ours``.
        """
        ...

    def close(self) -> None:
        """Release connections and threads."""
        ...


class Credentials(Protocol):
    """How an adapter gets its keys: asked at each use, so that a rotated Secret works without restart."""

    def read(self) -> Mapping[str, str]:
        """The Secret's data, decoded. Keys: ``accessKeyId``, ``accessKeySecret``, optional ``token``.

        With ``kind: workload-identity`` it holds no keys but what a role needs: see ``identities``. Huawei
        also takes ``projectId``, or ``projectId.<region>`` where one Secret serves several regions.

        Raises:
            ProviderError: ``UNAUTHENTICATED`` when the Secret or a key of it is missing; the text names it.
        """
        ...


class ProviderSource(Protocol):
    """Where adapters come from."""

    def provider(self, key: RegionKey) -> Provider:
        """The adapter of a region.

        Raises:
            ProviderError: ``INVALID_REQUEST`` when the region is not served here or its SDK is missing.
        """
        ...
