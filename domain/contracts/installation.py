"""Who we are among the installations that may share a cloud account."""

from domain.contracts.model import Contract


class Installation(Contract):
    """Identity of one installation, kept in a ConfigMap of the operator's namespace."""

    id: str
    """A UUID made once; the value of the installation tag of every machine."""
    epoch: int = 1
    """Rises when the installation is restored or moved: the lower epoch may end no machine."""
