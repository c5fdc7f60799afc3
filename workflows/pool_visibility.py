"""What lists and searches show of a pool: search attributes, written only when they change."""

from collections.abc import Sequence
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from domain.contracts.pools import PauseScope
from domain.contracts.status import ConditionType, PoolStatus
from domain.decisions.pool_deletion import regions_of_spec
from domain.decisions.pool_draft import Draft

_UID: Final = SearchAttributeKey.for_keyword("PoolUid")
_NAMESPACE: Final = SearchAttributeKey.for_keyword("PoolNamespace")
_NAME: Final = SearchAttributeKey.for_keyword("PoolName")
_PHASE: Final = SearchAttributeKey.for_keyword("PoolPhase")
_HELD: Final = SearchAttributeKey.for_bool("PoolHeld")
_READY: Final = SearchAttributeKey.for_int("PoolReady")
_DESIRED: Final = SearchAttributeKey.for_int("PoolDesired")
_PROVIDER: Final = SearchAttributeKey.for_keyword_list("Provider")
_REGION: Final = SearchAttributeKey.for_keyword_list("Region")


class Visibility:
    """Search attributes of one pool."""

    def __init__(self) -> None:
        self._shown: list[SearchAttributeUpdate[Any]] = []

    def show(self, draft: Draft, status: PoolStatus) -> None:
        """Write the attributes that changed; one event when any did, none otherwise."""
        wanted = _attributes(draft, status)
        changed = [update for update in wanted if update not in self._shown]
        if changed:
            # The SDK leaves the type of an attribute's value open in this signature.
            workflow.upsert_search_attributes(changed)  # pyright: ignore[reportUnknownMemberType]
            self._shown = wanted


def is_held(draft: Draft) -> bool:
    """Whether any pause holds, of the spec or of a human."""
    return draft.resolved.spec.paused is not PauseScope.NONE or bool(draft.state.manual_pauses)


def _attributes(draft: Draft, status: PoolStatus) -> list[SearchAttributeUpdate[Any]]:
    regions = regions_of_spec(draft)
    providers: Sequence[str] = sorted({region.provider.value for region in regions})
    names: Sequence[str] = sorted(region.search_value for region in regions)
    return [
        _UID.value_set(draft.resolved.uid),
        _NAMESPACE.value_set(draft.resolved.namespace),
        _NAME.value_set(draft.resolved.name),
        _PHASE.value_set(_phase(status)),
        _HELD.value_set(is_held(draft)),
        _READY.value_set(status.ready_instances),
        _DESIRED.value_set(status.desired_instances),
        _PROVIDER.value_set(providers),
        _REGION.value_set(names),
    ]


def _phase(status: PoolStatus) -> str:
    holding = {c.type for c in status.conditions if c.status == "True"}
    for kind in (ConditionType.DELETING, ConditionType.CONFIGURATION_INVALID, ConditionType.SCALE_UP_FAILED):
        if kind.value in holding:
            return kind.value
    return "Ready" if ConditionType.READY.value in holding else "BelowLevel"
