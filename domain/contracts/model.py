"""The base of every contract type."""

from pydantic import AwareDatetime, BaseModel, ConfigDict

__all__ = ["AwareDatetime", "Contract"]


class Contract(BaseModel):
    """Frozen, tolerant of unknown fields, so that an older worker reads what a newer one wrote."""

    model_config = ConfigDict(frozen=True, extra="ignore")
