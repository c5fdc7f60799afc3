"""Which judgement serves which manual order, the same for updates and signals."""

from pydantic import ValidationError

from domain.contracts.pool_state import Market
from domain.contracts.pools import PauseScope
from domain.decisions import pool_interventions as judge
from domain.decisions.pool_draft import Draft
from domain.decisions.pool_interventions import InterventionRefusedError
from domain.decisions.pool_purchases import rejected_holds
from workflows import messages as m


def carry_out_order(draft: Draft, order: m.Intervention) -> str:
    """Write an order into the draft and say what it did.

    Raises:
        InterventionRefusedError: it cannot be carried out; nothing may be kept of the draft.
    """
    match order:
        case m.Pause():
            return judge.pause(draft, PauseScope(order.scope))
        case m.Resume():
            return judge.resume(draft, PauseScope(order.scope))
        case m.ScaleTo():
            return judge.scale_to(
                draft, order.instances, order.expires_after_seconds, by=order.by, reason=order.reason
            )
        case m.ReplaceInstance():
            return judge.replace_instance(draft, order.id)
        case m.TerminateInstance():
            return judge.terminate_instance(draft, order.id)
        case m.QuarantineZone():
            return judge.quarantine_zone(draft, order.provider, order.zone, order.minutes)
        case m.ClearZone():
            return judge.clear_zone(draft, order.provider, order.zone)
        case m.ForceDelete():
            return judge.force_delete(draft, order.stage)
        case m.Resync():
            return judge.resync(draft)
        case _:
            raise InterventionRefusedError(f"{type(order).__name__} is not an order to a pool")


def forget_failures(draft: Draft) -> None:
    """An edit may have mended what was rejected: try again at once, with offers read anew."""
    rejected = rejected_holds(draft)
    draft.update(
        holds=tuple(hold for hold in draft.state.holds if hold not in rejected),
        join_failures=(),
        next_round_at=None,
        market=Market(),
    )


def wanted_fields(kind: type[m.Intervention]) -> list[str]:
    """What an order cannot do without, as it is spelt in JSON."""
    return [field.alias or name for name, field in kind.model_fields.items() if field.is_required()]


def first_errors(error: ValidationError) -> str:
    """The first faults of a payload with their fields, bounded."""
    parts = [
        f"{'.'.join(str(p) for p in fault['loc']) or 'payload'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)[:5]
    ]
    return "; ".join(parts)[:500]
