"""Request rates as EC2 keeps them: per action a bucket of tokens that is refilled every second.

Source: EC2 API reference, request throttling (bucket size and refill rate by category).
"""

from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from sandbox.clouds.rates import RateLimits

BUCKETS: Final[Mapping[str, tuple[int, int]]] = {
    "RunInstances": (5, 2),
    "TerminateInstances": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
}
"""Action to the size of its bucket and its tokens per second."""
OTHERS: Final = (100, 20)
"""Reads. The vendor has a smaller bucket for reads without a filter and without pages."""


class TokenBuckets(RateLimits):
    """Buckets per action, account and region. ``per_second`` is the refill; 0 switches a limit off."""

    def __init__(self) -> None:
        super().__init__({action: refill for action, (_, refill) in BUCKETS.items()}, OTHERS[1])
        self._left: dict[tuple[str, ...], tuple[float, float]] = {}
        """Tokens that were left, and when."""

    @override
    def admit(self, action: str, scope: tuple[str, ...], seconds: float) -> bool:
        """Take one token at ``seconds`` (any steady clock); False when there is none."""
        refill = self.per_second.get(action, self.default)
        if not refill:
            return True
        size = BUCKETS.get(action, OTHERS)[0]
        tokens, at = self._left.get((action, *scope), (size, seconds))
        tokens = min(size, tokens + max(0.0, seconds - at) * refill)
        admitted = tokens >= 1
        self._left[(action, *scope)] = (tokens - admitted, seconds)
        return admitted
