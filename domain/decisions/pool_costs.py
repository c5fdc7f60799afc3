"""What a pool costs: by the hour now, and in the calendar month so far."""

from decimal import Decimal

from domain.decisions.costs import Bill, Ledger, hourly_sum, month_total
from domain.decisions.pool_draft import Draft


def hourly_cost(draft: Draft) -> Decimal:
    """Sum of the hourly prices of the machines that the cloud has named."""
    return hourly_sum(m.offer.price for m in draft.live() if m.instance_id)


def month_cost(draft: Draft) -> Decimal:
    """Cost of the calendar month so far, UTC, unrounded."""
    running = [
        Bill(m.offer.price.per_hour, m.billed_from, m.billed_until)
        for m in draft.machines
        if m.billed_from is not None and m.offer.price is not None
    ]
    ledger = Ledger(draft.state.ledger_month, draft.state.ledger_closed)
    return month_total(ledger, running, now=draft.now)
