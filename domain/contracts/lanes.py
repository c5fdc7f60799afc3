"""Lanes of a region: each class of calls has a queue and a rate of its own."""

from enum import StrEnum

from domain.contracts.offers import RegionKey


class Lane(StrEnum):
    """A class of cloud calls. Clouds limit each of them by itself, and none may hold up another."""

    PURCHASES = "buy"
    READINGS = "read"
    """Also what a sweep releases: it comes last in this lane."""
    ENDS = "end"
    """Terminations, and the drains before them."""

    def queue(self, region: RegionKey) -> str:
        """Name of the task queue: ``cloud.{provider}.{account}.{region}.{lane}``."""
        return f"cloud.{region.provider}.{region.account}.{region.region}.{self.value}"
