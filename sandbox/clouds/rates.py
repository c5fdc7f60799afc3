"""Request rates of a simulated cloud: so many calls per second, account, region and action."""

from collections import deque
from collections.abc import Mapping


class RateLimits:
    """Sliding windows of one second. Limits may be changed while the server runs; 0 switches one off."""

    def __init__(self, per_second: Mapping[str, int], default: int) -> None:
        """``per_second`` maps an action to its limit; ``default`` is for all others."""
        self.per_second = dict(per_second)
        self.default = default
        self._calls: dict[tuple[str, ...], deque[float]] = {}

    def admit(self, action: str, scope: tuple[str, ...], seconds: float) -> bool:
        """Count one call at ``seconds`` (any steady clock); False when it is one too many.

        A refused call does not count against the window, as at the vendors.
        """
        limit = self.per_second.get(action, self.default)
        calls = self._calls.setdefault((action, *scope), deque())
        while calls and calls[0] <= seconds - 1.0:
            calls.popleft()
        if limit and len(calls) >= limit:
            return False
        calls.append(seconds)
        return True
