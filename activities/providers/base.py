"""The port to a cloud: what every adapter answers, and nothing about pools or strategies."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from domain.contracts.instances import Instance, LaunchRequest, LaunchResult, OfferQuery
from domain.contracts.offers import InstanceType, Offer, RegionKey


class Provider(Protocol):
    """One account in one region of one cloud. Synchronous: the SDKs block, so callers bring a thread.

    Every method sends a bounded number of calls, retries nothing by itself and raises
    ``ProviderError`` for faults. Safe to use from several threads.
    """

    @property
    def key(self) -> RegionKey:
        """The provider, account and region that this object speaks for."""
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
        """Replace the installation tag by ``spotgpu-retained=<installation>``; nothing else changes."""
        ...

    def close(self) -> None:
        """Release connections and threads."""
        ...


class Credentials(Protocol):
    """How an adapter gets its keys: asked at each use, so that a rotated Secret works without restart."""

    def read(self) -> Mapping[str, str]:
        """The Secret's data, decoded. Keys: ``accessKeyId``, ``accessKeySecret``, optional ``token``.

        Huawei also takes ``projectId``, or ``projectId.<region>`` where one Secret serves several regions.

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
