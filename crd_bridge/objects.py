"""Reading custom resources as the API gives them, with errors that name the field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

from crd_bridge.kinds import NODE_CLASS, POOL, PROFILE, STRATEGY, ResourceKind, SpecT
from domain.contracts.node_classes import NodeClassSpec
from domain.contracts.pools import PoolSpec
from domain.contracts.profiles import ProfileSpec
from domain.contracts.resolved import Origin
from domain.contracts.resources import ResourceModel
from domain.contracts.strategies import StrategySpec

JsonObject = Mapping[str, JsonValue]
"""An object exactly as its JSON."""

_MAX_PROBLEMS_SHOWN: Final = 5


class ObjectHeader(ResourceModel):
    """What every object carries beside its spec; readable even when the spec is not."""

    name: str
    namespace: str = ""
    uid: str
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = Field(default_factory=dict[str, str])
    annotations: dict[str, str] = Field(default_factory=dict[str, str])
    finalizers: tuple[str, ...] = ()
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None

    @property
    def deleting(self) -> bool:
        """Whether somebody asked for the object's deletion."""
        return self.deletion_timestamp is not None

    @property
    def origin(self) -> Origin:
        """Which version of which object this is."""
        return Origin(name=self.name, namespace=self.namespace, uid=self.uid, generation=self.generation)


@dataclass(frozen=True)
class ResourceObject(Generic[SpecT]):
    """One custom resource, read."""

    header: ObjectHeader
    spec: SpecT


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an object."""

    path: str
    """Field as kubectl writes it, for example ``spec.providers[0].name``."""
    message: str


class ResourceError(ValueError):
    """An object does not fit its schema of today: it was stored before the schema changed.

    Attributes:
        subject: ``Kind namespace/name``.
        problems: What is wrong, never empty. Values are left out: a spec may quote what is no one's business.
    """

    def __init__(self, subject: str, problems: tuple[Problem, ...]) -> None:
        shown = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:_MAX_PROBLEMS_SHOWN])
        rest = len(problems) - _MAX_PROBLEMS_SHOWN
        super().__init__(f"{subject}: {shown}{f'; and {rest} more' if rest > 0 else ''}")
        self.subject = subject
        self.problems = problems


def parse_header(body: JsonObject) -> ObjectHeader:
    """Read the metadata of any object, whatever its spec holds.

    Raises:
        ResourceError: There is no usable metadata.
    """
    try:
        return ObjectHeader.model_validate(body.get("metadata"))
    except ValidationError as error:
        raise ResourceError(_subject(body), _problems(error, "metadata")) from error


def parse(kind: ResourceKind[SpecT], body: JsonObject) -> ResourceObject[SpecT]:
    """Read an object of one kind.

    Raises:
        ResourceError: A field is missing or does not fit; the message names it.
    """
    header = parse_header(body)
    try:
        spec = kind.spec.model_validate(body.get("spec"))
    except ValidationError as error:
        raise ResourceError(
            f"{kind.kind} {header.namespace}/{header.name}", _problems(error, "spec")
        ) from error
    return ResourceObject(header, spec)


def parse_pool(body: JsonObject) -> ResourceObject[PoolSpec]:
    """Read a GPUSpotPool; raises ``ResourceError`` as ``parse`` does."""
    return parse(POOL, body)


def parse_strategy(body: JsonObject) -> ResourceObject[StrategySpec]:
    """Read a GPUSpotStrategy; raises ``ResourceError`` as ``parse`` does."""
    return parse(STRATEGY, body)


def parse_profile(body: JsonObject) -> ResourceObject[ProfileSpec]:
    """Read a GPUWorkloadProfile; raises ``ResourceError`` as ``parse`` does."""
    return parse(PROFILE, body)


def parse_node_class(body: JsonObject) -> ResourceObject[NodeClassSpec]:
    """Read a GPUSpotNodeClass; raises ``ResourceError`` as ``parse`` does."""
    return parse(NODE_CLASS, body)


def known_machines(body: JsonObject) -> tuple[str, ...]:
    """Return the instance ids that a pool's status names, in its order; empty when it names none.

    A status is our own writing and no ground for refusing a pool: what does not fit is passed over.
    """
    status = body.get("status")
    reports = status.get("instances") if isinstance(status, dict) else None
    return tuple(_ids(reports)) if isinstance(reports, list) else ()


def _ids(reports: list[JsonValue]) -> Iterator[str]:
    for report in reports:
        if isinstance(report, dict) and isinstance(machine := report.get("id"), str) and machine:
            yield machine


def _subject(body: JsonObject) -> str:
    metadata = body.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return f"{body.get('kind', 'object')} {known.get('namespace', '')}/{known.get('name', '')}"


def _problems(error: ValidationError, root: str) -> tuple[Problem, ...]:
    """Tell what is wrong, innermost only: a list is not also too short because an entry of it did not fit."""
    items = error.errors(include_input=False, include_url=False, include_context=False)
    inner = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
    return tuple(
        Problem(_path(root, item["loc"]), item["msg"].removeprefix("Value error, "))
        for item in items
        if item["loc"] not in inner
    )


def _path(root: str, location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return root + "".join(parts)
