"""Shapes of the ECS and price answers that the adapter reads."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

JOB_ENDED: Final = frozenset({"SUCCESS", "FAIL"})


def _none_is_empty(value: object) -> object:
    return () if value is None else value


def _none_is_text(value: object) -> object:
    return "" if value is None else value


def _none_is_mapping(value: object) -> object:
    return {} if value is None else value


def _text_or_none(value: object) -> object:
    return value or None


Text = Annotated[str, BeforeValidator(_none_is_text)]
Moment = Annotated[datetime | None, BeforeValidator(_text_or_none)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)]


class _Answer(BaseModel):
    """Fields in the vendor's spelling; those that we do not read are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Problem(_Answer):
    """An error that comes inside a success."""

    code: Text = ""
    message: Text = ""


class CreatedServers(_Answer):
    """Answer of CreatePostPaidServers. It may be a success and have neither a job nor ids."""

    job_id: Text = ""
    server_ids: Texts = Field(default=(), alias="serverIds")


class SubJobEntities(_Answer):
    """What a part of a job was about."""

    server_id: Text = ""
    errorcode_message: Text = ""


class SubJob(_Answer):
    """One server of a job."""

    status: Text = ""
    error_code: Text = ""
    fail_reason: Text = ""
    entities: SubJobEntities | None = None


class JobEntities(_Answer):
    """The parts of a job."""

    sub_jobs: Annotated[tuple[SubJob, ...], BeforeValidator(_none_is_empty)] = ()


class Job(_Answer):
    """Answer of ShowJob."""

    status: str
    error_code: Text = ""
    fail_reason: Text = ""
    entities: JobEntities | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.status in JOB_ENDED

    @property
    def parts(self) -> tuple[SubJob, ...]:
        """Its servers; none when it failed before it got to them."""
        return self.entities.sub_jobs if self.entities else ()

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Servers that the job names."""
        return tuple(
            part.entities.server_id for part in self.parts if part.entities and part.entities.server_id
        )

    @property
    def problem(self) -> Problem:
        """Why it failed: the first part that says it, else the job itself."""
        for part in self.parts:
            if part.error_code:
                detail = part.entities.errorcode_message if part.entities else ""
                return Problem(code=part.error_code, message=part.fail_reason or detail)
        return Problem(code=self.error_code, message=self.fail_reason)


class SeenFlavor(_Answer):
    """The instance type of a server."""

    id: str


class SeenServer(_Answer):
    """One server. One that was asked for by id and is not there has no status and nothing else."""

    id: str = Field(min_length=1)
    status: Text = ""
    task_state: Text = Field(default="", alias="OS-EXT-STS:task_state")
    zone: Text = Field(default="", alias="OS-EXT-AZ:availability_zone")
    created: datetime | None = None
    auto_terminate_time: Moment = None
    """When the cloud ends it by itself; None without a switch."""
    flavor: SeenFlavor | None = None
    metadata: Annotated[dict[str, Text], BeforeValidator(_none_is_mapping)] = Field(
        default_factory=dict[str, str]
    )
    tags: Texts = ()


class ServersDetails(_Answer):
    """Answer of ListServersDetails. Without the list it is no answer: an empty one would mean no servers."""

    servers: tuple[SeenServer, ...]


class SellPolicy(_Answer):
    """How one type is sold in one zone in one way."""

    flavor_id: str
    availability_zone_id: str
    sell_mode: str
    sell_status: str


class SellPolicies(_Answer):
    """Answer of ListFlavorSellPolicies."""

    sell_policies: tuple[SellPolicy, ...]


class Rating(_Answer):
    """Answer of ListOnDemandResourceRatings."""

    amount: Decimal | None = None
    """After the account's discounts."""
    official_website_amount: Decimal | None = None
    measure_id: int | None = None
    currency: Text = ""
    """Empty on the China site."""


class Limits(_Answer):
    """Limits of a project and what of them is used; memory in MB, -1 is no limit."""

    max_instances: int = Field(default=-1, alias="maxTotalInstances")
    used_instances: int = Field(default=0, alias="totalInstancesUsed")
    max_cores: int = Field(default=-1, alias="maxTotalCores")
    used_cores: int = Field(default=0, alias="totalCoresUsed")
    max_ram: int = Field(default=-1, alias="maxTotalRAMSize")
    used_ram: int = Field(default=0, alias="totalRAMUsed")
    max_spot_instances: int = Field(default=-1, alias="maxTotalSpotInstances")
    used_spot_instances: int = Field(default=0, alias="totalSpotInstancesUsed")
    max_spot_cores: int = Field(default=-1, alias="maxTotalSpotCores")
    used_spot_cores: int = Field(default=0, alias="totalSpotCoresUsed")
    max_spot_ram: int = Field(default=-1, alias="maxTotalSpotRAMSize")
    used_spot_ram: int = Field(default=0, alias="totalSpotRAMUsed")


class ServerLimits(_Answer):
    """Answer of ShowServerLimits."""

    absolute: Limits
