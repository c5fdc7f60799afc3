"""The request log of a simulated cloud: append-only evidence of what was asked and how it ended."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended, seen from the cloud."""

    OPEN = "open"
    """Not finished: being carried out, or held by a hook."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """Answered with an error code."""
    DROPPED = "dropped"
    """The connection was closed before anything was carried out."""
    UNANSWERED = "unanswered"
    """Carried out, but the caller never got the answer."""


@dataclass
class RequestRecord:
    """One request. ``parameters`` is shortened: no user data, no long values."""

    number: int
    at: datetime
    action: str
    region: str = ""
    access_key_id: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    client_token: str = ""
    machine_ids: tuple[str, ...] = ()
    """Machines that the request made or named."""
    carried_out: bool = False
    outcome: Outcome = Outcome.OPEN
    code: str = ""
    """The vendor's error code, empty on success."""
    note: str = ""
    """Something a test may want to assert, for example a token that came with other parameters."""
    points: list[str] = field(default_factory=list[str])
    """Hooks that this request hit, as ``point:hook id``."""
    finished_at: datetime | None = None


class RequestLog:
    """Records in the order of arrival, numbered from 1. Safe to read from several threads."""

    def __init__(self) -> None:
        self._records: list[RequestRecord] = []
        self._lock = threading.Lock()

    def open(self, action: str, at: datetime) -> RequestRecord:
        """Append a record; the server fills it in as the request proceeds."""
        with self._lock:
            record = RequestRecord(number=len(self._records) + 1, at=at, action=action)
            self._records.append(record)
            return record

    def records(self, action: str = "", *, after: int = 0) -> tuple[RequestRecord, ...]:
        """Records of an action (or all) with a number above ``after``."""
        with self._lock:
            return tuple(r for r in self._records[after:] if action in ("", r.action))

    def counts(self) -> dict[str, int]:
        """Requests per action, whatever their outcome."""
        with self._lock:
            return dict(Counter(record.action for record in self._records))
