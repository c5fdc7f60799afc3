"""Nodes that claim a pool but match no machine of it: removed once it is certain that theirs is gone."""

from datetime import datetime

from domain.contracts.commands import DeleteNodes
from domain.contracts.facts import NodeFact
from domain.contracts.offers import RegionKey
from domain.contracts.outcomes import NodesDeleted
from domain.decisions.pool_draft import Draft, seconds
from domain.decisions.pool_regions import regions_of_pool

_BATCH = 100


def dark_strays(draft: Draft) -> list[NodeFact]:
    """Strays that are not ready; a ready one has a living machine, which is somebody's."""
    return [node for node in draft.state.strays if not node.ready]


def plan_burials(draft: Draft) -> None:
    """Remove dark strays that no region knows a machine of, some time after they were first seen."""
    dark = dark_strays(draft)
    since = draft.state.strays_dark_since
    if not dark:
        draft.update(strays_dark_since=None)
    elif since is None:
        draft.update(strays_dark_since=draft.now)
    elif not draft.state.burying and _is_due(draft) and not regions_to_witness(draft):
        _bury(draft, dark[:_BATCH])


def _is_due(draft: Draft) -> bool:
    certain, retry = certain_from(draft), draft.state.burial_retry_at
    return certain is not None and draft.now >= certain and (retry is None or draft.now >= retry)


def certain_from(draft: Draft) -> datetime | None:
    """From when on a reading without their machines tells that they are gone; None without dark strays."""
    since = draft.state.strays_dark_since
    return None if since is None else since + seconds(draft.settings.newborn_seconds)


def regions_to_witness(draft: Draft) -> tuple[RegionKey, ...]:
    """Regions that were not read since then, when the time has come."""
    certain = certain_from(draft)
    if certain is None or draft.now < certain:
        return ()
    views = [draft.region(region) for region in regions_of_pool(draft)]
    return tuple(view.region for view in views if view.as_of is None or view.as_of < certain)


def _bury(draft: Draft, dark: list[NodeFact]) -> None:
    draft.update(burying=tuple(node.provider_id for node in dark))
    draft.order(DeleteNodes(nodes={node.provider_id: node.name for node in dark}))


def absorb_burials(draft: Draft, fact: NodesDeleted) -> None:
    """Strays were removed, or will be tried again."""
    if not set(fact.provider_ids) & set(draft.state.burying):
        return
    retry = draft.now + seconds(draft.settings.polling_interval_seconds)
    gone = () if fact.error else fact.provider_ids
    draft.update(
        burying=(),
        burial_retry_at=retry if fact.error else None,
        strays=tuple(node for node in draft.state.strays if node.provider_id not in gone),
    )
