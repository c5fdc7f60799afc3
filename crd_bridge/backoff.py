"""Pauses after failures."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Doubling pauses with full jitter of the upper half."""

    first_seconds: float = 0.5
    longest_seconds: float = 30.0

    def pause(self, failures: int, *, at_least: float = 0.0) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        ceiling = min(self.longest_seconds, self.first_seconds * 2 ** min(failures - 1, 30))
        return max(at_least, ceiling * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
