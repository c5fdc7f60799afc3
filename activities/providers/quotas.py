"""The numbers of a quota beside the refusal for it: one best-effort reading, told in one form for all."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from domain.contracts.errors import MAX_MESSAGE_CHARS, ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal

_log = logging.getLogger(__name__)

READ_WITHIN_SECONDS: Final = 10.0
"""After so much of a purchase nothing more is asked: one call more could outlast the activity's 90 s."""


@dataclass(frozen=True)
class Quota:
    """One limit of an account.

    Attributes:
        name: What is counted, with its unit: ``spot vCPU``.
        where: The zone or region that it is for.
        limit: How much there may be; None when it is not known.
        used: How much there is; None where the vendor does not say.
    """

    name: str
    where: str
    limit: int | None
    used: int | None = None

    @override
    def __str__(self) -> str:
        """For example ``spot vCPU in ap-guangzhou-3: 64 of 64 used``."""
        if self.limit is None:
            return f"{self.name} in {self.where}: limit not known"
        used = f"limit {self.limit}" if self.used is None else f"{self.used} of {self.limit} used"
        return f"{self.name} in {self.where}: {used}"


Read = Callable[[], Sequence[Quota]]


def deadline() -> float:
    """Until when a purchase that begins now may ask for a quota, on the clock of ``time.monotonic``."""
    return time.monotonic() + READ_WITHIN_SECONDS


def with_limit(answer: LaunchResult, answered: frozenset[str], read: Read, *, until: float) -> LaunchResult:
    """A purchase's answer; a refusal for a quota begins with that quota's numbers.

    They stand first, so that no limit of length cuts them off. When they cannot be read, the text says so and
    why, and the answer is the same.

    Args:
        answer: Of the purchase.
        answered: The vendor's words for quotas that ``read`` has an answer for; all others are left alone.
        read: One call.
        until: When it is too late for it, on the clock of ``time.monotonic``.
    """
    if not isinstance(answer, Refusal) or answer.code is not ErrorCode.QUOTA:
        return answer
    if answer.vendor_code not in answered:
        return answer
    numbers = (
        _numbers(read) if time.monotonic() < until else _unread("no time left", "the purchase took long")
    )
    return answer.model_copy(update={"message": f"{numbers}; {answer.message}"[:MAX_MESSAGE_CHARS]})


def _numbers(read: Read) -> str:
    try:
        quotas = read()
    except ProviderError as fault:
        return _unread(f"{fault.code} {fault.vendor_code}".strip(), str(fault))
    except Exception as fault:  # noqa: BLE001 - whatever is wrong with a reading, the purchase's answer stands
        return _unread(type(fault).__name__, str(fault), trace=True)
    return ", ".join(map(str, quotas)) or _unread("not in the answer", "no such quota in the answer")


def _unread(why: str, reason: str, *, trace: bool = False) -> str:
    _log.warning("Quota not read", extra={"reason": reason}, exc_info=trace)
    return f"limit not read: {why}"
