"""What a cloud says about the end of a machine: that it takes it back, or that it soon might."""

from enum import StrEnum

from domain.contracts.model import AwareDatetime, Contract
from domain.contracts.offers import ProviderName


class NoticeKind(StrEnum):
    """How sure the cloud is."""

    RECLAIM = "Reclaim"
    """The machine is taken back."""
    RISK = "Risk"
    """It is likelier than usual to be taken back soon: a hint that may come to nothing."""


class Notice(Contract):
    """One word of a cloud about the end of one machine, as that machine heard it."""

    provider: ProviderName
    kind: NoticeKind
    source: str
    """Where it stood, for example ``/latest/meta-data/spot/instance-action``."""
    action: str = ""
    """What is done to the machine, in the vendor's word, for example ``terminate``; empty without one."""
    deadline: AwareDatetime | None = None
    """When the machine is taken back, UTC; None when the cloud names no time."""
    issued_at: AwareDatetime | None = None
    """When the cloud issued it, UTC, if it says so."""
