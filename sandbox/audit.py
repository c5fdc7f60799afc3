"""The clouds' own books against what happened: ledgers, request logs, tokens."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from domain.contracts.offers import ProviderName
from sandbox.clouds.admin import MachineView
from sandbox.clouds.requests import RequestRecord
from sandbox.expectation import ExpectationError
from sandbox.market import CURRENCY
from sandbox.stack import Stack

_CREATE_ACTIONS = {ProviderName.HUAWEI: "CreatePostPaidServers"}
_USUAL_CREATE_ACTION = "RunInstances"
_LAUNCH_TAG = "spotgpu-launch"


def audit(stack: Stack, pool_uid: str) -> list[str]:
    """Compare what each cloud's ledger has of a pool with the cloud's request log; nothing may be left.

    Returns:
        One line for each cloud, for people.

    Raises:
        ExpectationError: A machine is left, was bought twice, or has no purchase.
    """
    lines: list[str] = []
    controls = {config.provider: stack.cloud(config.provider) for config in stack.world.clouds}
    bought = {name: control.machines(tags={"spotgpu-pool": pool_uid}) for name, control in controls.items()}
    tokens = [each.tags.get(_LAUNCH_TAG, "") for machines in bought.values() for each in machines]
    chains = {_chain(token) for token in tokens} - {""}
    for provider, machines in bought.items():
        requests = controls[provider].requests(create_action(provider))
        created = [request for request in requests if _is_of(request, pool_uid, chains)]
        problems = [*_doubles(machines), *_unaccounted(machines, created)]
        problems += [f"{machine.id} is left" for machine in machines if machine.left]
        if problems:
            raise ExpectationError(f"{provider}'s ledger: {'; '.join(problems)}")
        cost = sum((machine.cost for machine in machines), Decimal(0))
        lines.append(
            f"{provider}'s ledger: {len(machines)} machines by {_carried_out(created)} purchases "
            f"({len(created)} create requests), all ended, 0 left, {cost:.4f} {CURRENCY}"
        )
    return lines


def create_action(provider: ProviderName) -> str:
    """The vendor's name of its create call."""
    return _CREATE_ACTIONS.get(provider, _USUAL_CREATE_ACTION)


def doubled_tokens(machines: list[MachineView]) -> list[str]:
    """Launch tokens that made more than one machine."""
    counts = Counter(machine.client_token for machine in machines)
    return sorted(token for token, count in counts.items() if token and count > 1)


def _chain(name: str) -> str:
    """The chain in a launch token or in the name of its machine; both end in ``CHAIN-NUMBER``."""
    return name.rsplit("-", 2)[-2] if name.count("-") > 1 else ""


def _is_of(request: RequestRecord, pool_uid: str, chains: set[str]) -> bool:
    """Whether a create call is of a pool: by its token, or by the machine's name where that is a digest."""
    if request.client_token.startswith(pool_uid):
        return True
    return _chain(str(request.parameters.get("name", ""))) in chains


def _doubles(machines: list[MachineView]) -> list[str]:
    return [f"token {token} made several machines" for token in doubled_tokens(machines)]


def _unaccounted(machines: list[MachineView], created: list[RequestRecord]) -> list[str]:
    """Machines that no request of the log made."""
    made = {machine_id for record in created if record.carried_out for machine_id in record.machine_ids}
    return [f"{m.id} was made by no logged request" for m in machines if m.id not in made]


def _carried_out(created: list[RequestRecord]) -> int:
    return len({record.client_token for record in created if record.carried_out})
