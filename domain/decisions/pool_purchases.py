"""How empty slots are filled: rounds of offers, the mint of tokens, and what refusals lead to."""

from collections import Counter
from datetime import timedelta
from decimal import Decimal

from domain.contracts.announcements import EventReason
from domain.contracts.commands import Launch, ReadOffers
from domain.contracts.errors import ErrorCode
from domain.contracts.facts import RegionHealth
from domain.contracts.instances import OfferQuery, Refusal, Rejected
from domain.contracts.model import Contract
from domain.contracts.offers import InstanceType, Offer, RegionKey
from domain.contracts.pool_state import (
    LeaveReason,
    Machine,
    Market,
    OfferHold,
    Slot,
)
from domain.contracts.pools import BudgetAction, PauseScope
from domain.contracts.strategies import StrategySpec
from domain.decisions.eligibility import eligible_types
from domain.decisions.fallback import next_offer
from domain.decisions.holds import hold_for, with_refusal, without_hold
from domain.decisions.launch_requests import launch_request, subnets_of
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.scoring import Ranking, rank_offers

_REJECTED_HOLD = timedelta(minutes=5)
"""A request that cannot succeed is tried again after this long: somebody may have mended the cloud's side."""
SLOW_REGION_SECONDS = 5
"""A round waits this long for a region that does not answer, if others have."""
_BOOTSTRAP_FAILURES = 3
"""Join failures in a row, over at least two offers, that point at the image or the join secret."""
_WARN_AFTER_ROUNDS = 3
_OTHER_SUBNET = "#subnet"
"""Marks an offer key of ``Slot.excluded`` whose zone is to be tried once more in its next subnet."""


class Candidate(Contract):
    """A region that the pool may buy in, with the types it may buy there."""

    region: RegionKey
    types: tuple[InstanceType, ...]
    zones: tuple[str, ...]


def strategy_of(draft: Draft) -> StrategySpec:
    """The strategy in force; the default is CostFirst."""
    part = draft.resolved.strategies.get(draft.strategy_name())
    return part.spec if part is not None else StrategySpec()


def candidates(draft: Draft) -> tuple[Candidate, ...]:
    """Served regions that the spec names and whose node class can boot a machine there, sorted."""
    found: dict[str, Candidate] = {}
    for choice in draft.resolved.spec.providers:
        part = draft.resolved.node_classes.get(choice.name)
        if part is None:
            continue
        types = eligible_types(draft.resolved.spec, choice.name, part.spec)
        for region in served_regions(draft, choice.name, part.spec.credentials_secret_ref.name):
            if choice.regions and region.region not in choice.regions:
                continue
            zones = tuple(
                zone
                for zone in subnets_of(part.spec, region.region)
                if not choice.zones or zone in choice.zones
            )
            if types and zones:
                found[str(region)] = Candidate(region=region, types=types, zones=zones)
    return tuple(found[key] for key in sorted(found))


def served_regions(draft: Draft, provider: str, account: str) -> tuple[RegionKey, ...]:
    """The operator's regions of one provider and account."""
    return tuple(
        region
        for region in draft.settings.served_regions
        if region.provider == provider and region.account == account
    )


def room(draft: Draft) -> int:
    """How many launches the ceiling still allows.

    The ceiling is ``maxInstances`` plus one for each slot whose machine has a cloud's notice and whose
    replacement is ordered; every launch counts from its order until its absence is confirmed.
    """
    live = draft.live()
    noticed = {m.slot for m in live if m.notice_at is not None and m.leave is LeaveReason.INTERRUPTED}
    replaced = sum(1 for slot in draft.state.slots if slot.id in noticed and slot.token)
    return draft.resolved.spec.max_instances + replaced - len(live)


def may_buy(draft: Draft, slot: Slot) -> bool:
    """Whether one more launch for this slot keeps the ceiling."""
    if room(draft) > 0:
        return True
    return (
        any(
            m.slot == slot.id and m.notice_at is not None and m.leave is LeaveReason.INTERRUPTED
            for m in draft.live()
        )
        and room(draft) + 1 > 0
    )


def bootstrap_unhealthy(draft: Draft) -> bool:
    """Whether machines of different offers failed to join one after the other."""
    failures = draft.state.join_failures
    return len(failures) >= _BOOTSTRAP_FAILURES and len(set(failures)) > 1


def launches_barred(draft: Draft, *, before_reading: bool = False) -> str:
    """Why nothing may be bought now, empty when it may.

    Args:
        draft: The pool.
        before_reading: Leave out that the cluster was not read yet: asked to decide what to read.
    """
    state = draft.state
    if state.deletion is not None:
        return "the pool is being deleted"
    if draft.paused(PauseScope.LAUNCHES):
        return "launches are paused"
    if state.nodes_as_of is None and not before_reading:
        return "the cluster was not read yet"
    if bootstrap_unhealthy(draft):
        return "machines do not join: check the node class's image, template and join secret"
    if state.next_round_at is not None and draft.now < state.next_round_at:
        return f"the next round of offers is at {state.next_round_at:%H:%M:%S}Z"
    return ""


def plan_purchases(draft: Draft) -> None:
    """Order launches for slots that wait for one."""
    waiting = [slot for slot in draft.state.slots if not slot.token]
    if not waiting or launches_barred(draft):
        return
    if not any(may_buy(draft, slot) for slot in waiting):
        return
    if not _offers_at_hand(draft):
        return
    _fill(draft, waiting)


def _offers_at_hand(draft: Draft) -> bool:
    """Whether the round's offers are read; asks for them when they are not."""
    market, now = draft.state.market, draft.now
    if market.started_at is None or market.read_at is None or _is_stale(draft, market):
        return _open_round(draft)
    if not market.waiting_for:
        return True
    return bool(market.offers) and now - market.started_at >= seconds(SLOW_REGION_SECONDS)


def _is_stale(draft: Draft, market: Market) -> bool:
    age_limit = seconds(draft.settings.price_max_age_seconds)
    return market.read_at is not None and draft.now - market.read_at > age_limit


def _open_round(draft: Draft) -> bool:
    usable = [
        c
        for c in candidates(draft)
        if draft.region(c.region).health is RegionHealth.OK and draft.is_fresh(c.region)
    ]
    if _reads_pending(draft) or not usable:
        if not usable and not _reads_pending(draft):
            _fail_round(draft, "no region can be used now")
        return False
    for candidate in usable:
        draft.order(
            ReadOffers(
                region=candidate.region,
                query=OfferQuery(
                    instance_types=tuple(t.name for t in candidate.types),
                    zones=candidate.zones,
                    max_age=seconds(draft.settings.price_max_age_seconds),
                ),
            )
        )
    market = Market(waiting_for=tuple(str(c.region) for c in usable), started_at=draft.now, read_at=draft.now)
    draft.update(market=market)
    return False


def _reads_pending(draft: Draft) -> bool:
    """Whether a region that could serve is still being read for the first time or after a silence."""
    patience = seconds(SLOW_REGION_SECONDS)
    views = [draft.region(c.region) for c in candidates(draft)]
    return any(v.reading and v.reading_since and draft.now - v.reading_since < patience for v in views)


def _fill(draft: Draft, waiting: list[Slot]) -> None:
    strategy = strategy_of(draft)
    zones = {str(c.region): c.zones for c in candidates(draft)}
    offers = [
        o
        for o in draft.state.market.offers
        if o.zone in zones.get(str(o.region_key), ()) and _region_usable(draft, o.region_key)
    ]
    ranking = rank_offers(
        offers,
        draft.resolved.spec,
        strategy,
        tuple(part.spec for part in draft.resolved.profiles),
        holds=draft.state.holds,
        stability={},
        now=draft.now,
    )
    for slot in waiting:
        if not may_buy(draft, slot):
            continue
        offer = _choose(ranking, offers, slot, strategy)
        if offer is None:
            if not draft.state.market.waiting_for:
                _fail_round(draft, _why_none(ranking, slot))
            return
        if not _within_budget(draft, offer):
            return
        _mint(draft, slot, offer)


def _region_usable(draft: Draft, key: RegionKey) -> bool:
    return draft.region(key).health is RegionHealth.OK and draft.is_fresh(key)


def _choose(ranking: Ranking, offers: list[Offer], slot: Slot, strategy: StrategySpec) -> Offer | None:
    """The best offer, or after a refusal the next step of the ladder."""
    last = slot.excluded[-1] if slot.excluded else ""
    if last.endswith(_OTHER_SUBNET):
        # The same zone has a subnet that was not tried yet.
        return next((o for o in ranking.offers if o.key == last.removesuffix(_OTHER_SUBNET)), None)
    refused = next((o for o in offers if o.key == last), None)
    if refused is None:
        return next((o for o in ranking.offers if o.key not in slot.excluded), None)
    return next_offer(ranking, refused, slot.excluded, strategy)


def _why_none(ranking: Ranking, slot: Slot) -> str:
    reasons = Counter(entry.reason for entry in ranking.excluded)
    parts = [f"{reason} {count}" for reason, count in sorted(reasons.items())]
    if slot.excluded:
        parts.append(f"refused for {slot.id} {len(slot.excluded)}")
    listed = ", ".join(parts) or "no region sells the wanted GPUs"
    return f"no offer left ({listed})"


def _within_budget(draft: Draft, offer: Offer) -> bool:
    """Whether buying keeps an hourly budget that stops launches."""
    hourly = draft.resolved.spec.budget.hourly
    if hourly is None or hourly.action is not BudgetAction.STOP_LAUNCHES or offer.price is None:
        return True
    spent = sum((m.offer.price.per_hour for m in draft.live() if m.offer.price), Decimal(0))
    return spent + offer.price.per_hour <= hourly.amount


def _mint(draft: Draft, slot: Slot, offer: Offer) -> None:
    """Write a launch down with its token; from here on it counts."""
    number = draft.state.launch_counter + 1
    token = f"{draft.resolved.uid}-{draft.state.chain}-{number}"
    node_class = draft.resolved.node_classes[offer.provider].spec
    subnet_index = slot.excluded.count(f"{offer.key}{_OTHER_SUBNET}")
    request = launch_request(
        draft.resolved, node_class, offer, token=token, slot=slot.id, number=number, subnet_index=subnet_index
    )
    draft.update(launch_counter=number, launches_total=draft.state.launches_total + 1)
    draft.add_machine(
        Machine(
            token=token,
            slot=slot.id,
            offer=offer,
            subnet_index=subnet_index,
            ordered_at=draft.now,
            node_name="",
            shown_at=draft.now,
            in_flight="launch",
        )
    )
    draft.set_slot(slot.id, token=token)
    draft.order(Launch(token=token, request=request))
    price = f"{offer.price.per_hour} {offer.price.currency}/h" if offer.price else "no price stated"
    draft.announce(
        EventReason.LAUNCH_ORDERED,
        f"Ordered {offer.instance_type.name} in {offer.zone} for {slot.id} at {price}",
        token,
    )


def _fail_round(draft: Draft, why: str) -> None:
    """Nothing could be bought: say so and try again in the next round."""
    failed = draft.state.failed_rounds + 1
    draft.update(
        failed_rounds=failed,
        round_failure=why,
        next_round_at=draft.now + seconds(draft.settings.round_retry_seconds),
        market=Market(),
    )
    for slot in draft.state.slots:
        if not slot.token and slot.excluded:
            draft.set_slot(slot.id, excluded=())
    # One Event per run of failures and one Warning at the third: a drought is not a flood of Events.
    if failed in (1, _WARN_AFTER_ROUNDS):
        draft.announce(
            EventReason.SCALE_UP_FAILED,
            f"No offer could be bought in {failed} round(s): {why}",
            f"{draft.state.launches_total}:{failed}:{draft.now.isoformat()}",
            warning=failed >= _WARN_AFTER_ROUNDS,
        )


# What answers lead to -----------------------------------------------------------------------------


def absorb_success(draft: Draft, machine: Machine, instance_id: str) -> None:
    """A machine was made: the round is no longer failing and the offer's strikes are forgotten."""
    slot = draft.slot(machine.slot)
    if slot is not None and slot.excluded:
        draft.set_slot(slot.id, excluded=())
    draft.update(
        holds=without_hold(draft.state.holds, machine.offer),
        failed_rounds=0,
        round_failure="",
        next_round_at=None,
    )
    draft.announce(
        EventReason.INSTANCE_CREATED,
        f"{machine.offer.provider} made {instance_id} in {machine.offer.zone}"
        f" ({machine.offer.instance_type.name})",
        machine.token,
    )


def absorb_refusal(draft: Draft, machine: Machine, refusal: Refusal) -> None:
    """The market said no: hold the offer and free the slot for the next step of the ladder."""
    _forget(draft, machine)
    slot = draft.slot(machine.slot)
    node_class = draft.resolved.node_classes.get(machine.offer.provider)
    subnets = subnets_of(node_class.spec, machine.offer.region) if node_class else {}
    more_subnets = machine.subnet_index + 1 < len(subnets.get(machine.offer.zone, ()))
    if slot is not None and more_subnets and refusal.code is ErrorCode.INSUFFICIENT_CAPACITY:
        draft.set_slot(slot.id, excluded=(*slot.excluded, f"{machine.offer.key}{_OTHER_SUBNET}"))
        return
    if slot is not None:
        draft.set_slot(slot.id, excluded=(*slot.excluded, machine.offer.key))
    draft.update(holds=with_refusal(draft.state.holds, refusal, machine.offer, draft.settings, now=draft.now))
    held = hold_for(machine.offer, draft.state.holds)
    until = f", held until {held.until:%H:%M:%S}Z" if held else ""
    draft.announce(
        EventReason.LAUNCH_REFUSED,
        f"{machine.offer.key}: {refusal.code} ({refusal.vendor_code}){until}",
        machine.token,
    )


def absorb_rejection(draft: Draft, machine: Machine, rejected: Rejected) -> None:
    """The request cannot succeed as it is: hold the region (or the account's cloud) and say why."""
    _forget(draft, machine)
    offer = machine.offer
    wide = rejected.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN)
    prefix = f"{offer.provider}" if wide else f"{offer.provider}/{offer.region}"
    subject = (
        f"{offer.provider}: Secret {offer.account}" if wide else f"{offer.provider} {offer.region}: launch"
    )
    reason = f"{subject} was rejected: {rejected.vendor_code} {rejected.message}".strip()
    hold = OfferHold(prefix=prefix, until=draft.now + _REJECTED_HOLD, reason=f"{rejected.code}: {reason}")
    draft.update(holds=(*(h for h in draft.state.holds if h.prefix != prefix), hold))
    draft.announce(EventReason.LAUNCH_REJECTED, reason, machine.token, warning=True)


def hold_failed_offer(draft: Draft, machine: Machine, *, blame_offer: bool) -> None:
    """A machine did not come up: the offer rests like one without stock, if it is to blame."""
    if not blame_offer:
        return
    refusal = Refusal(
        code=ErrorCode.INSUFFICIENT_CAPACITY, vendor_code=machine.leave_detail or "LaunchFailed"
    )
    draft.update(holds=with_refusal(draft.state.holds, refusal, machine.offer, draft.settings, now=draft.now))


def _forget(draft: Draft, machine: Machine) -> None:
    """No machine came of this launch: nothing to end, nothing to bill."""
    slot = draft.slot(machine.slot)
    if slot is not None and slot.token == machine.token:
        draft.set_slot(slot.id, token="")
    draft.drop_machine(machine.token)


def rejected_holds(draft: Draft) -> tuple[OfferHold, ...]:
    """Holds that stand for a wrong request or wrong rights, which an edit may have mended."""
    codes = (ErrorCode.INVALID_REQUEST, ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN)
    return tuple(h for h in draft.state.holds if h.reason.startswith(tuple(f"{c}:" for c in codes)))
