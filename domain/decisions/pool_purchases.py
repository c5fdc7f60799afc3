"""How empty slots are filled: the ceiling, rounds of offers, and the mint of tokens."""

from decimal import Decimal
from itertools import groupby

from domain.contracts.announcements import EventReason
from domain.contracts.commands import Launch, ReadOffers
from domain.contracts.errors import KEYS_REFUSED, ErrorCode
from domain.contracts.facts import RegionHealth
from domain.contracts.instances import OfferQuery
from domain.contracts.money import ExchangeRate
from domain.contracts.offers import Offer, RegionKey
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, Market, OfferHold, Slot
from domain.contracts.pools import BudgetAction, PauseScope
from domain.contracts.strategies import StrategySpec
from domain.decisions.costs import hourly_sum
from domain.decisions.eligibility import eligible_types
from domain.decisions.fallback import next_offer
from domain.decisions.launch_requests import launch_request
from domain.decisions.pool_costs import month_cost
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_regions import Candidate, candidates, gaps, is_usable, missing_machines
from domain.decisions.scoring import ExcludedOffer, Ranking, rank_offers

SLOW_REGION_SECONDS = 5
"""A round waits this long for a region that does not answer, if others have."""
_BOOTSTRAP_FAILURES = 3
"""Join failures in a row, over at least two offers, that point at the image or the join secret."""
_WARN_AFTER_ROUNDS = 3
SAME_ZONE = "#again"
"""Marks an offer key of ``Slot.excluded`` whose zone is tried once more, in its next subnet if it has one."""
NO_REGION = "no region can be used now"
"""How the failure of a round begins that found no region to buy in."""
OVER_BUDGET = "over budget"
"""How the failure of a round begins that a budget stopped."""


def strategy_of(draft: Draft) -> StrategySpec:
    """The strategy in force; the default is CostFirst."""
    part = draft.resolved.strategies.get(draft.strategy_name())
    return part.spec if part is not None else StrategySpec()


# The ceiling ----------------------------------------------------------------------------------------


def room(draft: Draft) -> int:
    """How many launches the ceiling still allows.

    The ceiling is ``maxInstances`` plus one for each slot whose machine has a cloud's notice and whose
    replacement is ordered; every launch counts from its order until its absence is confirmed.
    """
    noticed = noticed_slots(draft)
    replaced = sum(1 for slot in draft.slots if slot.id in noticed and slot.token)
    counted = len(draft.live()) + len(missing_machines(draft))
    return draft.resolved.spec.max_instances + replaced - counted


def noticed_slots(draft: Draft) -> frozenset[str]:
    """Slots whose machine has a cloud's notice and still lives."""
    return frozenset(
        m.slot for m in draft.live() if m.notice_at is not None and m.leave is LeaveReason.INTERRUPTED
    )


def buyable(draft: Draft) -> list[Slot]:
    """Slots that wait for a launch and may have one now, as far as the ceiling goes, oldest first."""
    waiting = [slot for slot in draft.slots if not slot.token]
    if not waiting:
        return []
    noticed, left = noticed_slots(draft), room(draft)
    found: list[Slot] = []
    for slot in waiting:
        # A launch for a slot under notice raises the ceiling by the one that it takes.
        cost = 0 if slot.id in noticed else 1
        if left >= cost:
            found.append(slot)
            left -= cost
    return found


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


def rejected_holds(draft: Draft) -> tuple[OfferHold, ...]:
    """Holds that stand for a wrong request or wrong rights, which an edit may have mended."""
    codes = tuple(f"{code}:" for code in (ErrorCode.INVALID_REQUEST, *sorted(KEYS_REFUSED)))
    return tuple(h for h in draft.state.holds if h.reason.startswith(codes))


# Rounds of offers -----------------------------------------------------------------------------------


def plan_purchases(draft: Draft) -> None:
    """Order launches for slots that wait for one."""
    if launches_barred(draft) or not buyable(draft) or _reads_pending(draft):
        return
    if _offers_at_hand(draft):
        _fill(draft)


def _offers_at_hand(draft: Draft) -> bool:
    """Whether the round's offers are read; asks for them when they are not."""
    market = draft.state.market
    if market.started_at is None or draft.now - market.started_at > seconds(
        draft.settings.price_max_age_seconds
    ):
        return _open_round(draft)
    if not market.waiting_for:
        return True
    return bool(market.offers) and draft.now - market.started_at >= seconds(SLOW_REGION_SECONDS)


def _open_round(draft: Draft) -> bool:
    usable = [c for c in candidates(draft) if is_usable(draft, c.region)]
    if not usable:
        _fail_round(draft, _why_no_region(draft))
        return False
    for candidate in usable:
        draft.order(ReadOffers(region=candidate.region, query=_query(draft, candidate)))
    waiting = tuple(str(c.region) for c in usable)
    draft.update(market=Market(waiting_for=waiting, started_at=draft.now, read_at=draft.now))
    return False


def _query(draft: Draft, candidate: Candidate) -> OfferQuery:
    return OfferQuery(
        instance_types=tuple(t.name for t in candidate.types),
        overrides=candidate.overrides,
        zones=candidate.zones,
        max_age=seconds(draft.settings.price_max_age_seconds),
    )


def _reads_pending(draft: Draft) -> bool:
    """Whether a region that could serve is still being read for the first time or after a silence."""
    patience = seconds(SLOW_REGION_SECONDS)
    views = [draft.region(c.region) for c in candidates(draft)]
    return any(v.reading and v.reading_since and draft.now - v.reading_since < patience for v in views)


def _why_no_region(draft: Draft) -> str:
    found = candidates(draft)
    if not found:
        return f"{NO_REGION}: {_why_no_candidate(draft)}"
    return f"{NO_REGION}: " + ", ".join(f"{c.region} {_region_state(draft, c.region)}" for c in found)


def _why_no_candidate(draft: Draft) -> str:
    """The first thing that is missing on the way from the spec to a machine."""
    spec, classes = draft.resolved.spec, draft.resolved.node_classes
    enabled = [c.name for c in spec.providers if c.name in draft.settings.enabled_providers]
    if not enabled:
        return "none of the spec's providers is enabled in this operator"
    with_class = [name for name in enabled if name in classes]
    if not with_class:
        return f"no node class for {', '.join(enabled)}"
    if not any(eligible_types(spec, name, classes[name].spec) for name in with_class):
        wanted = ", ".join(spec.gpu_types)
        narrowed = ", ".join(name for choice in spec.providers for name in choice.instance_types)
        among = f" among its instanceTypes ({narrowed})" if narrowed else ""
        return f"no instance type of {', '.join(with_class)}{among} has the wanted GPUs ({wanted})"
    chosen = [choice for choice in spec.providers if choice.name in with_class]
    return "; ".join(gap for choice in chosen for gap in gaps(draft, choice))


def _region_state(draft: Draft, key: RegionKey) -> str:
    view = draft.region(key)
    if view.health is RegionHealth.OK:
        return "was not read lately"
    return f"{view.health} ({view.reason})" if view.reason else view.health.value


def _fill(draft: Draft) -> None:
    """Order a launch for each slot that may have one; a slot that gets none waits for the next round."""
    strategy = strategy_of(draft)
    zones = {str(c.region): c.zones for c in candidates(draft) if is_usable(draft, c.region)}
    if not zones:
        _fail_round(draft, _why_no_region(draft))
        return
    offers = [o for o in draft.state.market.offers if o.zone in zones.get(str(o.region_key), ())]
    ranking = rank_offers(
        offers,
        draft.resolved.spec,
        strategy,
        tuple(part.spec for part in draft.resolved.profiles),
        holds=draft.state.holds,
        stability={},
        rates=draft.settings.exchange_rates,
        now=draft.now,
    )
    failure, bought = "", False
    for slot in buyable(draft):
        offer = _choose(ranking, offers, slot, strategy)
        refused = _why_none(draft, ranking, slot) if offer is None else over_budget(draft, offer)
        if offer is None or refused:
            failure = failure or refused
            continue
        _mint(draft, slot, offer, ranking.rate_of(offer))
        bought = True
    # While a launch of this round is under way, or a region has not answered, the round is not over.
    if failure and not bought and not draft.state.market.waiting_for and not _is_launching(draft):
        _fail_round(draft, failure)


def _is_launching(draft: Draft) -> bool:
    return any(m.phase is MachinePhase.ORDERED and m.leave is None for m in draft.live())


def _choose(ranking: Ranking, offers: list[Offer], slot: Slot, strategy: StrategySpec) -> Offer | None:
    """The best offer, or after a refusal the next step of the ladder."""
    last = slot.excluded[-1] if slot.excluded else ""
    key = last.removesuffix(SAME_ZONE)
    # As ranked where it still is: with its price in the pool's currency, or bounded.
    refused = next((o for o in (*ranking.offers, *offers) if o.key == key), None)
    if refused is None:
        return next((o for o in ranking.offers if o.key not in slot.excluded), None)
    # The same zone once more, in its next subnet if it has one, unless the offer was held meanwhile.
    again = key != last and any(o.key == key for o in ranking.offers)
    return next_offer(ranking, refused, slot.excluded, strategy, retry_same_zone=again)


def _why_none(draft: Draft, ranking: Ranking, slot: Slot) -> str:
    parts = [
        _excluded(list(entries))
        for _, entries in groupby(sorted(ranking.excluded, key=_by_reason), _by_reason)
    ]
    if slot.excluded:
        parts.append(f"refused for {slot.id} {len(slot.excluded)}")
    parts.extend(f"offers not read: {text}" for text in draft.state.market.unread)
    listed = "; ".join(parts) or "no region sells the wanted GPUs"
    return f"no offer left ({listed})"


def _by_reason(entry: ExcludedOffer) -> str:
    return entry.reason


def _excluded(entries: list[ExcludedOffer]) -> str:
    """How many offers one reason leaves out, and the cheapest of them in its own words."""
    nearest = min(entries, key=_price_of)
    return f"{nearest.reason} {len(entries)}, such as {nearest.offer.key}: {nearest.detail}"


def _price_of(entry: ExcludedOffer) -> Decimal:
    return entry.offer.price.per_hour if entry.offer.price else Decimal("Infinity")


def over_budget(draft: Draft, offer: Offer) -> str:
    """Which budget that stops launches this purchase would break, empty when it breaks none."""
    budget, currency = draft.resolved.spec.budget, draft.resolved.spec.currency
    monthly, hourly = budget.monthly, budget.hourly
    if monthly and monthly.action is BudgetAction.STOP_LAUNCHES and month_cost(draft) >= monthly.amount:
        return f"{OVER_BUDGET}: the {monthly.amount} {currency} of this month are spent"
    if hourly is None or hourly.action is not BudgetAction.STOP_LAUNCHES or offer.price is None:
        return ""
    spent = hourly_sum(m.offer.price for m in draft.live())
    if spent + offer.price.per_hour <= hourly.amount:
        return ""
    price = f"{offer.price.per_hour} {currency}/h"
    return f"{OVER_BUDGET}: {spent} and {price} of {offer.key} are above {hourly.amount} {currency}/h"


def _mint(draft: Draft, slot: Slot, offer: Offer, rate: ExchangeRate | None) -> None:
    """Write a launch down with its token; from here on it counts."""
    number = draft.state.launch_counter + 1
    while draft.machine(token := draft.token(number)) is not None:
        # A workflow that was reset counts again from where it stood; what it bought since was adopted.
        number += 1
    node_class = draft.resolved.node_classes[offer.provider].spec
    subnet_index = slot.excluded.count(f"{offer.key}{SAME_ZONE}")
    alive = draft.settings.dead_man_seconds
    request = launch_request(
        draft.resolved,
        node_class,
        offer,
        token=token,
        slot=slot.id,
        number=number,
        subnet_index=subnet_index,
        rate=rate,
        dead_man_at=draft.now + seconds(alive) if alive else None,
    )
    draft.update(launch_counter=number, launches_total=draft.state.launches_total + 1)
    draft.add_machine(
        Machine(
            token=token,
            slot=slot.id,
            offer=offer,
            subnet_index=subnet_index,
            ordered_at=draft.now,
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
        slots=tuple(s if s.token else s.model_copy(update={"excluded": ()}) for s in draft.slots),
    )
    # One Event per run of failures and one Warning at the third: a drought is not a flood of Events.
    if failed in (1, _WARN_AFTER_ROUNDS):
        draft.announce(
            EventReason.SCALE_UP_FAILED,
            f"No offer could be bought in {failed} round(s): {why}",
            f"{draft.state.launches_total}:{failed}:{draft.now.isoformat()}",
            warning=failed >= _WARN_AFTER_ROUNDS,
        )
