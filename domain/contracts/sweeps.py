"""What a finished sweep says of itself."""

from domain.contracts.facts import OwnedMachine
from domain.contracts.model import Contract


class SweepReport(Contract):
    """Result of one orphan sweep of a region."""

    seen: int
    """Machines of the installation in the region."""
    orphans: tuple[OwnedMachine, ...] = ()
    """Machines that nobody owned, twice in a row; at most 500."""
    reclaimed: tuple[str, ...] = ()
    """Ids of the orphans that were ended."""
    retained: int = 0
    """Machines that deleted pools gave up."""
    released: tuple[str, ...] = ()
    """Ids of addresses and disks of ours that no machine used and that were given up."""
    note: str = ""
    """What was not judged, and why; empty when everything was."""
