"""Addresses and disks that survive a server of Huawei: they belong to services of their own (EIP, EVS).

APIs: ListVolumes, DeleteVolume of EVS (v2); ListPublicips (v3) and DeletePublicip (v1) of EIP.
Source: the vendor's API references of EVS and EIP (2025); tags come as a mapping from one and as
``key=value`` texts from the other.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from activities.providers.huawei_answers import Text, Texts
from activities.providers.huawei_sdk import Answer
from domain.contracts.leftovers import Leftover, LeftoverKind
from domain.contracts.offers import RegionKey

EVS: Final = "evs"
EIP: Final = "eip"
UNUSED_DISK: Final = "available"
UNUSED_ADDRESS: Final = "DOWN"
MAX_PAGE: Final = 1000
MAX_PAGES: Final = 5


def _none_is_mapping(value: object) -> object:
    return {} if value is None else value


def _utc(value: object) -> object:
    """Disks have times without a zone, which are UTC."""
    if not isinstance(value, str) or not value:
        return None
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[datetime | None, BeforeValidator(_utc)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Disk(_Answer):
    """One disk."""

    id: str = Field(min_length=1)
    name: Text = ""
    status: str
    size: int | None = None
    created_at: Moment = None
    tags: Annotated[dict[str, Text], BeforeValidator(_none_is_mapping)] = Field(
        default_factory=dict[str, str]
    )


class Disks(_Answer):
    """Answer of ListVolumes. Without the list it is no answer."""

    volumes: tuple[Disk, ...]


class Address(_Answer):
    """One address."""

    id: str = Field(min_length=1)
    public_ip_address: Text = ""
    status: str
    created_at: Moment = None
    tags: Texts = ()


class Addresses(_Answer):
    """Answer of ListPublicips. Without the list it is no answer."""

    publicips: tuple[Address, ...]


class Send(Protocol):
    """Sends one request to a service of the region and raises ``ProviderError`` for faults."""

    def __call__(
        self, service: str, method: str, path: str, query: Mapping[str, str | int] | None = None, /
    ) -> Answer:
        """The answer; ``{project_id}`` in the path is filled in."""
        ...


def find(send: Send, region: RegionKey, tags: Mapping[str, str]) -> list[Leftover]:
    """Everything that is attached to nothing; at most 5,000 of a kind are looked through."""
    disks = [each for each in _disks(send) if each.status == UNUSED_DISK]
    addresses = [each for each in _addresses(send) if each.status == UNUSED_ADDRESS]
    return [
        *(
            Leftover(
                region=region,
                kind=LeftoverKind.DISK,
                id=each.id,
                ours=tags.items() <= each.tags.items(),
                tags=each.tags,
                name=each.name,
                size_gb=each.size,
                created_at=each.created_at,
            )
            for each in disks
        ),
        *(_address(each, region, tags) for each in addresses),
    ]


def _address(seen: Address, region: RegionKey, tags: Mapping[str, str]) -> Leftover:
    own = {key: value for key, _, value in (text.partition("=") for text in seen.tags)}
    return Leftover(
        region=region,
        kind=LeftoverKind.ADDRESS,
        id=seen.id,
        ours=tags.items() <= own.items(),
        tags=own,
        name=seen.public_ip_address,
        created_at=seen.created_at,
    )


def release(send: Send, leftover: Leftover) -> None:
    """Give one of them up."""
    if leftover.kind is LeftoverKind.DISK:
        send(EVS, "DELETE", f"/v2/{{project_id}}/cloudvolumes/{leftover.id}")
    else:
        send(EIP, "DELETE", f"/v1/{{project_id}}/publicips/{leftover.id}")


def _disks(send: Send) -> list[Disk]:
    found: list[Disk] = []
    query: dict[str, str | int] = {"status": UNUSED_DISK, "limit": MAX_PAGE}
    for _ in range(MAX_PAGES):
        answer = send(EVS, "GET", "/v2/{project_id}/cloudvolumes/detail", query)
        page = Disks.model_validate(answer.body).volumes
        found += page
        if len(page) < MAX_PAGE:
            break
        query = {**query, "marker": page[-1].id}
    return found


def _addresses(send: Send) -> list[Address]:
    found: list[Address] = []
    query: dict[str, str | int] = {"status": UNUSED_ADDRESS, "limit": MAX_PAGE}
    for _ in range(MAX_PAGES):
        answer = send(EIP, "GET", "/v3/{project_id}/eip/publicips", query)
        page = Addresses.model_validate(answer.body).publicips
        found += page
        if len(page) < MAX_PAGE:
            break
        query = {**query, "marker": page[-1].id}
    return found
