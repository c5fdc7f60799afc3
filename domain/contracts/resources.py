"""The base of every custom resource's fields: camelCase outside, snake_case inside."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ResourceModel(BaseModel):
    """Frozen part of a custom resource. The API server validates; unknown fields are ignored here.

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
