"""Releasing what is left of machines: only what carries our tags, and each on its own."""

from collections.abc import Callable, Collection, Sequence

from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.leftovers import Leftover
from domain.contracts.offers import ProviderName


def check_ours(provider: ProviderName, leftovers: Sequence[Leftover], *, supported: bool = True) -> None:
    """Refuse a release that touches what others made, or that this adapter cannot carry out.

    Raises:
        ProviderError: ``INVALID_REQUEST``; nothing was released.
    """
    foreign = [each.id for each in leftovers if not each.ours or each.region.provider is not provider]
    if foreign:
        text = f"not tagged as ours, so only shown: {', '.join(foreign[:5])}"
    elif leftovers and not supported:
        text = "this adapter releases no addresses and disks: release them by hand"
    else:
        return
    raise ProviderError(ErrorCode.INVALID_REQUEST, text, provider=provider, operation="release")


def release_each(
    leftovers: Sequence[Leftover],
    release: Callable[[Leftover], None],
    still_left: Callable[[], Collection[str]],
) -> None:
    """Release one after the other; after failures look again, since each vendor words "gone" in many ways.

    Args:
        leftovers: What to release.
        release: Sends one call.
        still_left: Ids of everything that belongs to no machine now; asked only after a failure.

    Raises:
        ProviderError: the first failure about something that is still left; throttling at once.
    """
    failed: dict[str, ProviderError] = {}
    for each in leftovers:
        try:
            release(each)
        except ProviderError as fault:
            if fault.code in (ErrorCode.THROTTLED, ErrorCode.UNAUTHENTICATED):
                raise
            failed[each.id] = fault
    if failed:
        left = still_left()
        for leftover_id, fault in failed.items():
            if leftover_id in left:
                raise fault
