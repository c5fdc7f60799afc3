"""How many calls came close together."""

from bisect import bisect_left
from collections.abc import Iterable


def busiest(moments: Iterable[float], window_seconds: float = 1.0) -> int:
    """The most moments, in seconds of one clock, within any span of this length, its end left out."""
    ordered = sorted(moments)
    return max(
        (bisect_left(ordered, moment + window_seconds) - index for index, moment in enumerate(ordered)),
        default=0,
    )
