"""The base of every custom resource's fields, and the bounded types that they are made of.

The schema of a custom resource is generated from these types. They are workflow payloads too, so a bound may
be loosened but never tightened: a recorded history must stay readable.
"""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

MAX_INSTANCES: Final = 1000
"""Machines of one pool: their reports fit into one object of the API (1.5 MB) several times over."""
MAX_TEXT_CHARS: Final = 1024
"""Longest text in a status; longer ones are cut when the status is rendered."""
MAX_LABEL_CHARS: Final = 63
"""Longest value of a label."""

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class ResourceModel(BaseModel):
    """Frozen part of a custom resource. The API server refuses unknown fields; they are ignored here.

    Attribute docstrings are the descriptions that ``kubectl explain`` shows.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{_SUBDOMAIN}$")]
"""Name of a Kubernetes object."""
OptionalObjectName = Annotated[str, Field(max_length=253, pattern=rf"^({_SUBDOMAIN})?$")]
"""Name of a Kubernetes object, or empty."""
CloudName = Annotated[str, Field(min_length=1, max_length=128, pattern=rf"^{_WORD}$")]
"""Name or id that a cloud gave: a region, a zone, an instance type, a subnet."""
OptionalCloudName = Annotated[str, Field(max_length=128, pattern=rf"^({_WORD})?$")]
"""Name or id that a cloud gave, or empty."""
GpuTypeName = Annotated[str, Field(min_length=1, max_length=64, pattern=rf"^{_WORD}$")]
"""``MODEL-MEMORY`` or a bare model. Which ones exist is no matter of the schema: an unknown one is a
condition of the pool."""

Price = Annotated[Decimal, Field(gt=0, le=1_000_000_000)]
"""An amount of money per hour or month in the currency that stands beside it."""
Share = Annotated[int, Field(ge=1, le=100)]
"""Percent of a whole, not zero."""
Percent = Annotated[int, Field(ge=0, le=100)]
Weight = Annotated[float, Field(ge=0, le=1)]
Instances = Annotated[int, Field(ge=0, le=MAX_INSTANCES)]
Step = Annotated[int, Field(ge=1, le=MAX_INSTANCES)]
"""A number of instances that is not zero."""
Pause = Annotated[int, Field(ge=0, le=86_400)]
"""Seconds up to a day; zero waits not at all."""
Seconds = Annotated[int, Field(ge=1, le=86_400)]
"""Seconds up to a day."""
Minutes = Annotated[int, Field(ge=0, le=10_080)]
"""Minutes up to a week."""

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[
    str,
    Field(
        max_length=MAX_LABEL_CHARS,
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
    ),
]
TagKey = Annotated[str, Field(min_length=1, max_length=127)]
TagValue = Annotated[str, Field(max_length=255)]

StatusText = Annotated[str, WithJsonSchema({"type": "string", "maxLength": MAX_TEXT_CHARS})]
"""Text in a status: bounded in the schema and when rendered, so that building a status never fails."""
