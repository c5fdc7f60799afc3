"""Waiting for the world to become as it should, with a deadline and a reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sandbox.observer import NotThereError

_T = TypeVar("_T")

_POLL_SECONDS = 0.3


class ExpectationError(Exception):
    """Something did not come true; the message says what was expected and what was seen."""


def expect(what: str, look: Callable[[], _T | None], *, within_seconds: float) -> _T:
    """Look again and again until there is something to see.

    Args:
        what: For the message when time is up, such as ``"2 machines Running"``.
        look: Returns None while it is not so; servers that are away count as not yet.
        within_seconds: Deadline from now.

    Raises:
        ExpectationError: Not in time.
    """
    deadline = time.monotonic() + within_seconds
    away = ""
    while True:
        try:
            found = look()
        except NotThereError as error:
            found, away = None, f" ({error})"
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            raise ExpectationError(f"not within {within_seconds:.0f} s: {what}{away}")
        time.sleep(_POLL_SECONDS)
