"""The conditions of a pool: each with a reason, a message, and the time of its last change."""

from dataclasses import dataclass

from domain.contracts.catalogue import known_gpu_types, types_for
from domain.contracts.errors import KEYS_REFUSED, ErrorCode
from domain.contracts.facts import RegionHealth
from domain.contracts.offers import ProviderName
from domain.contracts.pool_state import LeaveReason, Machine, MachinePhase, OfferHold, RegionView
from domain.contracts.status import Condition, ConditionType
from domain.decisions.holds import REASON_QUOTA, REASON_UNANSWERED
from domain.decisions.pool_costs import hourly_cost, month_cost
from domain.decisions.pool_deletion import waits_for
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_levels import cooldown_after, desired_instances, slots_missing
from domain.decisions.pool_purchases import OVER_BUDGET, bootstrap_unhealthy, launches_barred, rejected_holds
from domain.decisions.pool_regions import regions_of_spec

_ALWAYS = (ConditionType.READY,)
_MAX_MESSAGE = 1024
_KEYS_REJECTED = "CredentialsRejected"


@dataclass(frozen=True)
class Verdict:
    """One condition as it is judged now."""

    holds: bool
    reason: str
    message: str = ""


def _yes(reason: str, message: str = "") -> Verdict:
    return Verdict(holds=True, reason=reason, message=message)


def _no(reason: str, message: str = "") -> Verdict:
    return Verdict(holds=False, reason=reason, message=message)


def judge_conditions(draft: Draft) -> tuple[Condition, ...]:
    """Every condition that holds, and those that held before as False, in a fixed order."""
    verdicts = {
        ConditionType.READY: _ready(draft),
        ConditionType.SCALE_UP_IN_PROGRESS: _scale_up(draft),
        ConditionType.SCALE_UP_FAILED: _scale_up_failed(draft),
        ConditionType.SCALE_DOWN_IN_PROGRESS: _scale_down(draft),
        ConditionType.REBUILD_IN_PROGRESS: _rebuild(draft),
        ConditionType.CAPACITY_DEGRADED: _capacity(draft),
        ConditionType.BUDGET_EXCEEDED: _budget(draft),
        ConditionType.PROVIDER_UNAVAILABLE: _provider(draft),
        ConditionType.BOOTSTRAP_UNHEALTHY: _bootstrap(draft),
        ConditionType.DRAIN_BLOCKED: _drain(draft),
        ConditionType.CONFIGURATION_INVALID: _configuration(draft),
        ConditionType.DELETING: _deleting(draft),
    }
    before = {c.type: c for c in draft.state.conditions}
    return tuple(
        _condition(draft, kind, verdict, before.get(kind.value))
        for kind, verdict in verdicts.items()
        if verdict.holds or kind in _ALWAYS or kind.value in before
    )


def _condition(draft: Draft, kind: ConditionType, verdict: Verdict, before: Condition | None) -> Condition:
    status = "True" if verdict.holds else "False"
    same = before is not None and before.status == status
    return Condition(
        type=kind.value,
        status=status,
        reason=verdict.reason,
        message=verdict.message[:_MAX_MESSAGE],
        observed_generation=draft.resolved.generation,
        last_transition_time=before.last_transition_time if same and before else draft.now,
    )


def _ready(draft: Draft) -> Verdict:
    desired = desired_instances(draft)
    ready = sum(1 for m in draft.live() if m.phase is MachinePhase.READY and m.leave is None)
    if draft.state.deletion is not None:
        return _no("Deleting", "the pool is being deleted")
    message = f"{ready} of {desired} instances are ready"
    return _yes("AtLevel", message) if ready >= desired else _no("BelowLevel", message)


def _scale_up(draft: Draft) -> Verdict:
    coming = [m for m in draft.live() if m.leave is None and m.phase is not MachinePhase.READY]
    waiting = sum(1 for slot in draft.state.slots if not slot.token)
    if not coming and not waiting:
        return _level_waits(draft)
    where: dict[str, int] = {}
    for machine in coming:
        place = f"{machine.offer.provider} {machine.offer.region}"
        where[place] = where.get(place, 0) + 1
    parts = [f"creating {count} instances on {place}" for place, count in sorted(where.items())]
    if waiting:
        parts.append(f"{waiting} slots wait for an offer")
    return _yes("Launching", ", ".join(parts))


def _level_waits(draft: Draft) -> Verdict:
    """Nothing is being bought: the level is met, or something bars the next launches."""
    short = slots_missing(draft, desired_instances(draft))
    if not short or draft.state.deletion is not None:
        return _no("AtLevel")
    why = launches_barred(draft) or cooldown_after(draft, draft.state.last_scale_up_at)
    return _no("Waiting", f"{short} launches to order ({why})")


def _scale_up_failed(draft: Draft) -> Verdict:
    failed = draft.state.failed_rounds
    if not failed:
        return _no("OfferFound")
    return _yes("NoOffer", f"{failed} rounds without a purchase: {draft.state.round_failure}")


def _scale_down(draft: Draft) -> Verdict:
    going = [m for m in draft.live() if m.leave in (LeaveReason.SCALE_DOWN, LeaveReason.SURPLUS)]
    return _yes("Removing", _names("removing", going)) if going else _no("AtLevel")


def _names(verb: str, machines: list[Machine]) -> str:
    return f"{verb} " + ", ".join(m.instance_id or m.token for m in machines[:10])


def _rebuild(draft: Draft) -> Verdict:
    lost = (LeaveReason.INTERRUPTED, LeaveReason.LOST)
    going = [m for m in draft.live() if m.leave in lost]
    return _yes("Interrupted", _names("replacing", going)) if going else _no("Rebuilt")


def _capacity(draft: Draft) -> Verdict:
    quota = [h for h in draft.state.holds if h.until > draft.now and h.reason.startswith(REASON_QUOTA)][:5]
    if quota:
        # Each is cut by itself, so that none takes the room of another's limit: numbers stand first.
        room = _MAX_MESSAGE // len(quota) - len("; ")
        return _yes(REASON_QUOTA, "; ".join(_quota_text(hold)[:room] for hold in quota))
    short = draft.resolved.spec.min_instances - sum(1 for m in draft.live() if m.leave is None)
    if short > 0 and draft.state.failed_rounds and draft.state.deletion is None:
        return _yes("BelowMinimum", f"{short} instances below minInstances: {draft.state.round_failure}")
    return _no("Sufficient")


def _quota_text(hold: OfferHold) -> str:
    why = hold.reason.removeprefix(f"{REASON_QUOTA}: ")
    return f"{hold.prefix} until {hold.until:%H:%M:%S}Z: {why}"


def _budget(draft: Draft) -> Verdict:
    budget, currency = draft.resolved.spec.budget, draft.resolved.spec.currency
    if draft.state.round_failure.startswith(OVER_BUDGET):
        return _yes("LaunchesStopped", draft.state.round_failure)
    if budget.hourly is not None and hourly_cost(draft) >= budget.hourly.amount:
        return _yes("Hourly", f"{hourly_cost(draft)} of {budget.hourly.amount} {currency} an hour")
    if budget.monthly is not None and month_cost(draft) >= budget.monthly.amount:
        return _yes("Monthly", f"more than {budget.monthly.amount} {currency} this month")
    return _no("WithinBudget")


def _provider(draft: Draft) -> Verdict:
    problems = [*_not_served(draft), *_unwell(draft)]
    if not problems:
        return _no("Available")
    return _yes(problems[0][0], "; ".join(text for _, text in problems))


def _not_served(draft: Draft) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    served = regions_of_spec(draft)
    for choice in draft.resolved.spec.providers:
        if choice.name not in draft.settings.enabled_providers:
            enabled = ", ".join(draft.settings.enabled_providers) or "none"
            found.append(
                ("NotEnabled", f"{choice.name} is not enabled in this operator (enabled: {enabled})")
            )
            continue
        part = draft.resolved.node_classes.get(choice.name)
        account = part.spec.credentials_secret_ref.name if part else ""
        here = {r.region for r in served if r.provider == choice.name and account in ("", r.account)}
        missing = [region for region in choice.regions if region not in here]
        if missing:
            found.append(
                ("NotServed", f"{choice.name} {', '.join(missing)}: {_serve(draft, choice.name, account)}")
            )
    return found


def _serve(draft: Draft, provider: ProviderName, account: str) -> str:
    """What a region lacks that no worker serves, and what is served instead."""
    regions = [str(region) for region in draft.settings.served_regions if region.provider == provider]
    served = ", ".join(regions) or "none"
    return f"not served with account {account}; add it to SPOTGPU_REGIONS (served of {provider}: {served})"


def _unwell(draft: Draft) -> list[tuple[str, str]]:
    """Regions that fail and accounts that are refused; first what waits for a person."""
    regions = [
        (_cause(view), f"{view.region.provider} {view.region.region}: {view.reason or view.health}")
        for view in draft.state.regions.values()
        if view.health is not RegionHealth.OK
    ]
    holds = [
        (_KEYS_REJECTED, hold.reason)
        for hold in rejected_holds(draft)
        if not hold.reason.startswith(f"{ErrorCode.INVALID_REQUEST}:") and hold.until > draft.now
    ]
    silent = [
        ("PurchasesFail", f"{hold.prefix.replace('/', ' ')}: purchases fail, {hold.reason}")
        for hold in draft.state.holds
        if hold.reason.startswith(REASON_UNANSWERED) and hold.until > draft.now
    ]
    return sorted(regions + holds + silent, key=lambda problem: problem[0] != _KEYS_REJECTED)


def _cause(view: RegionView) -> str:
    return _KEYS_REJECTED if view.code in KEYS_REFUSED else "Unreachable"


def _bootstrap(draft: Draft) -> Verdict:
    if not bootstrap_unhealthy(draft):
        return _no("Joining")
    offers = ", ".join(sorted(set(draft.state.join_failures)))
    count = len(draft.state.join_failures)
    return _yes(
        "JoinFailures",
        f"{count} machines in a row did not join ({offers}): check the node class's image, user data"
        " template and join secret; launches go on after an edit or a resync",
    )


def _drain(draft: Draft) -> Verdict:
    blocked = [f"{m.node_name}: {b}" for m in draft.live() for b in m.blockers]
    return _yes("Blocked", "; ".join(blocked[:10])) if blocked else _no("Free")


def _configuration(draft: Draft) -> Verdict:
    problems = list(_configuration_errors(draft))
    if not problems:
        return _no("Valid")
    return _yes(problems[0][0], "; ".join(text for _, text in problems))


def _configuration_errors(draft: Draft) -> list[tuple[str, str]]:
    """Reason and text of each thing in the resource that cannot be served."""
    found: list[tuple[str, str]] = []
    unknown = [name for name in draft.resolved.spec.gpu_types if not _is_known(draft, name)]
    if unknown:
        found.append(
            (
                "UnknownGpuType",
                f"unknown GPU types {', '.join(unknown)}; known: {', '.join(known_gpu_types())}",
            )
        )
    found.extend(("ReferenceMissing", f"{u.kind} {u.name}: {u.message}") for u in draft.resolved.unresolved)
    found.extend(
        ("LaunchRejected", hold.reason)
        for hold in rejected_holds(draft)
        if hold.reason.startswith(f"{ErrorCode.INVALID_REQUEST}:") and hold.until > draft.now
    )
    return found


def _is_known(draft: Draft, gpu_type: str) -> bool:
    if any(types_for(provider, gpu_type) for provider in ProviderName):
        return True
    own = (o for part in draft.resolved.node_classes.values() for o in part.spec.instance_types)
    return any(gpu_type in (o.gpu_model, f"{o.gpu_model}-{o.gpu_memory_gb}G") for o in own)


def _deleting(draft: Draft) -> Verdict:
    deletion = draft.state.deletion
    if deletion is None:
        return _no("NotDeleting")
    return _yes(deletion.stage, f"waits for {waits_for(draft)}")
