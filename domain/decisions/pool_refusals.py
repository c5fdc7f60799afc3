"""What the answers to launches lead to: strikes forgotten, offers held, the next step of the ladder."""

from datetime import timedelta

from domain.contracts.announcements import EventReason
from domain.contracts.errors import KEYS_REFUSED, ErrorCode
from domain.contracts.instances import Refusal, Rejected, Unmade
from domain.contracts.offers import Offer, RegionKey
from domain.contracts.pool_state import Machine, OfferHold
from domain.decisions.holds import active_hold, is_silent, with_refusal, with_silence, without_silence
from domain.decisions.launch_requests import subnets_of
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_purchases import SAME_ZONE

_REJECTED_HOLD = timedelta(minutes=5)
"""A request that cannot succeed is tried again after this long: somebody may have mended the cloud's side."""
_TRIES_PER_ZONE = 2
"""A zone without stock is asked once more before the next zone, and at least once in each of its subnets."""


def absorb_success(draft: Draft, machine: Machine, instance_id: str) -> None:
    """A machine was made: the round is no longer failing.

    The offer's strikes stay until the machine has come up in full: a cloud may make what never runs.
    """
    slot = draft.slot(machine.slot)
    if slot is not None and slot.token == machine.token and slot.excluded:
        draft.set_slot(slot.id, excluded=())
    holds = without_silence(draft.state.holds, machine.offer)
    draft.update(failed_rounds=0, round_failure="", next_round_at=None, holds=holds)
    draft.announce(
        EventReason.INSTANCE_CREATED,
        f"{machine.offer.provider} made {instance_id} in {machine.offer.zone}"
        f" ({machine.offer.instance_type.name})",
        machine.token,
    )


def absorb_refusal(draft: Draft, machine: Machine, refusal: Refusal) -> None:
    """The market said no: free the slot for the next step of the ladder, and hold what was refused."""
    _forget(draft, machine)
    slot, key = draft.slot(machine.slot), machine.offer.key
    again = _has_another_try(draft, machine, refusal)
    if slot is not None and not slot.token:
        draft.set_slot(slot.id, excluded=(*slot.excluded, f"{key}{SAME_ZONE}" if again else key))
        if again:
            return
    draft.update(holds=with_refusal(draft.state.holds, refusal, machine.offer, draft.settings, now=draft.now))
    draft.announce(
        EventReason.LAUNCH_REFUSED,
        f"{key}: {refusal.code} ({refusal.vendor_code}){_until(draft, machine.offer)}",
        machine.token,
    )


def _has_another_try(draft: Draft, machine: Machine, refusal: Refusal) -> bool:
    """Whether the same zone is asked once more: only when it had no stock at this moment."""
    if refusal.code is not ErrorCode.INSUFFICIENT_CAPACITY or refusal.not_offered:
        return False
    node_class = draft.resolved.node_classes.get(machine.offer.provider)
    subnets = subnets_of(node_class.spec, machine.offer.region) if node_class else {}
    tries = max(len(subnets.get(machine.offer.zone, ())), _TRIES_PER_ZONE)
    return machine.subnet_index + 1 < tries


def absorb_rejection(draft: Draft, machine: Machine, rejected: Rejected) -> None:
    """The request cannot succeed as it is: hold the region (or the account's cloud) and say why."""
    _forget(draft, machine)
    offer = machine.offer
    wide = rejected.code in KEYS_REFUSED
    prefix = f"{offer.provider}" if wide else f"{offer.provider}/{offer.region}"
    part = draft.resolved.node_classes.get(offer.provider)
    made_by = f"launch by GPUSpotNodeClass {part.origin.name}" if part else "launch"
    secret = f"Secret {draft.settings.operator_namespace}/{offer.account}"
    subject = f"{offer.provider}: {secret}" if wide else f"{offer.provider} {offer.region}: {made_by}"
    reason = f"{subject} was rejected: {rejected.vendor_code} {rejected.message}".strip()
    hold = OfferHold(prefix=prefix, until=draft.now + _REJECTED_HOLD, reason=f"{rejected.code}: {reason}")
    draft.update(holds=(*(h for h in draft.state.holds if h.prefix != prefix), hold))
    draft.announce(EventReason.LAUNCH_REJECTED, reason, machine.token, warning=True)


def absorb_unmade(draft: Draft, machine: Machine, unmade: Unmade) -> None:
    """The cloud carried out no attempt: the slot is free at once, and the next one is for another region."""
    _forget(draft, machine)
    # Several under way at once are one silence, not a strike each.
    if machine.leave is None and not is_silent(draft.state.holds, machine.offer, draft.now):
        hold_silent_region(draft, machine, unmade.message)


def forget_refused_keys(draft: Draft, region: RegionKey) -> None:
    """The account's keys work again: launches are not held on their account any more."""
    codes = tuple(f"{code}:" for code in sorted(KEYS_REFUSED))
    kept = (h for h in draft.state.holds if h.prefix != region.provider or not h.reason.startswith(codes))
    draft.update(holds=tuple(kept))


def hold_failed_offer(draft: Draft, machine: Machine) -> None:
    """A machine did not come up: the offer rests like one without stock."""
    refusal = Refusal(
        code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code=machine.leave_detail or "LaunchFailed"
    )
    draft.update(holds=with_refusal(draft.state.holds, refusal, machine.offer, draft.settings, now=draft.now))


def hold_silent_region(draft: Draft, machine: Machine, error: str) -> None:
    """Every attempt of a purchase failed and none made a machine: the next is tried in another region."""
    offer = machine.offer
    draft.update(holds=with_silence(draft.state.holds, offer, error, draft.settings, now=draft.now))
    draft.announce(
        EventReason.LAUNCH_REFUSED,
        f"{offer.provider} {offer.region} made no machine and gave no answer{_until(draft, offer)}: {error}",
        machine.token,
    )


def _until(draft: Draft, offer: Offer) -> str:
    """Until when the offer is held, as the end of a clause; empty when it is free."""
    held = active_hold(offer, draft.state.holds, draft.now)
    return f", held until {held.until:%H:%M:%S}Z" if held else ""


def _forget(draft: Draft, machine: Machine) -> None:
    """No machine came of this launch: nothing to end, nothing to bill."""
    slot = draft.slot(machine.slot)
    if slot is not None and slot.token == machine.token:
        draft.set_slot(slot.id, token="")
    draft.drop_machine(machine.token)
