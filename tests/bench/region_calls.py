"""Calls that a quiet region costs at each cloud, watched as the worker watches it.

What happens in an hour is counted part by part at short intervals, and put together at the usual ones: polls,
the look which dead-man switches are due, their renewal, and orphan sweeps.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from activities.market import MarketActivities
from activities.regions import RegionActivities
from activities.signatures import InstallationRequest, LeftoversRequest, OffersRequest, WatchRegionRequest
from domain.contracts.installation import Installation
from domain.contracts.instances import OfferQuery
from domain.contracts.names import TAG_INSTALLATION, TAG_POOL
from domain.contracts.offers import ProviderName, RegionKey
from domain.contracts.settings import SyncSettings
from tests.activities.builders import an_attempt
from tests.activities.providers.cloud_case import CloudCase
from tests.bench.rig import BenchError, tell
from tests.bench.simulated import MACHINES, SimulatedRegion, simulated
from tests.fakes.directory import FakePools
from workers.settings import Settings

POLLS = 20
GOALS: dict[ProviderName, int] = {ProviderName.AWS: 260}
USUAL_GOAL = 140
_POLL_SECONDS = 0.05
_HOUR = 3600
_LIMIT_SECONDS = 120


@dataclass(frozen=True)
class RegionCalls:
    """Calls of one region with ``MACHINES`` machines in which nothing happens, each part by action."""

    provider: str
    polls: int
    """Readings of the region that ``poll`` counts."""
    poll: dict[str, int]
    look: dict[str, int]
    """Of one look which switches are due."""
    renewal: dict[str, int]
    """Of one renewal of every machine's switch."""
    sweep: dict[str, int]
    """Of an hour of orphan sweeps that find nothing."""
    offers: dict[str, int]
    """Of one reading of price and stock, which no quiet pool asks for."""

    @property
    def hourly(self) -> dict[str, float]:
        """Calls an hour at the operator's usual intervals, by part."""
        settings = SyncSettings()
        return {
            "polls": _total(self.poll) / self.polls * _HOUR / settings.polling_interval_seconds,
            "looks": _total(self.look) * _HOUR / settings.dead_man_check_seconds,
            "renewals": _total(self.renewal) * _HOUR / settings.dead_man_renew_seconds,
            "sweeps": _total(self.sweep),
        }

    @property
    def goal(self) -> int:
        """At most so many an hour."""
        return GOALS.get(ProviderName(self.provider), USUAL_GOAL)


def measure(case: CloudCase) -> RegionCalls:
    """Fill a region of this cloud and count."""
    with simulated(case) as region:
        tell(f"  {case.provider}: {MACHINES} machines")
        ids = region.fill()
        return asyncio.run(_count(region, set(ids)))


async def _count(region: SimulatedRegion, ids: set[str]) -> RegionCalls:
    pools = FakePools(region.case.request().tags[TAG_POOL])
    pools.owned[region.case.request().tags[TAG_POOL]] = ids
    usual = SyncSettings()
    poll = await _watched(region, pools, POLLS, dead_man_renew_seconds=0)
    looked = await _watched(region, pools, 1, dead_man_renew_seconds=usual.dead_man_renew_seconds)
    look = looked - _share(poll, 1)
    # Switches that were set a day ahead are due at once when two days ahead are wanted.
    day = usual.dead_man_ahead_seconds
    renewed = await _watched(region, pools, POLLS, dead_man_renew_seconds=day, dead_man_ahead_seconds=2 * day)
    sweep, offers = await asyncio.to_thread(lambda: (_sweeps(region), _offers(region)))
    return RegionCalls(
        provider=region.case.provider.value,
        polls=POLLS,
        poll=dict(poll),
        look=dict(look),
        renewal=dict(renewed - poll - look),
        sweep=dict(sweep),
        offers=dict(offers),
    )


async def _watched(region: SimulatedRegion, pools: FakePools, polls: int, **settings: float) -> Counter[str]:
    """Calls of so many polls of the region's watch, and of what it does beside."""
    done, counted = asyncio.Event(), 0

    async def count(_: RegionKey) -> None:
        nonlocal counted
        counted += 1
        if counted == polls:
            done.set()
            await asyncio.Event().wait()

    hands = RegionActivities(region.registry, _installation(region), pools, ease=count)
    chosen = SyncSettings(polling_interval_seconds=_POLL_SECONDS).model_copy(update=settings)
    request = WatchRegionRequest(region=region.case.key, settings=chosen)
    mark = region.mark()
    watch = asyncio.ensure_future(an_attempt().run(hands.watch_region, request))
    try:
        await asyncio.wait_for(done.wait(), _LIMIT_SECONDS)
    finally:
        watch.cancel()
        await asyncio.wait([watch])
    return region.calls_since(mark)


def _sweeps(region: SimulatedRegion) -> Counter[str]:
    """The two activities of each sweep of an hour that suspects nobody."""
    settings = Settings().for_sweeps()
    machines = InstallationRequest(
        region=region.case.key, retained_age_seconds=settings.leftovers_interval_seconds
    )
    leftovers = LeftoversRequest(region=region.case.key, interval_seconds=settings.leftovers_interval_seconds)
    hands = RegionActivities(region.registry, _installation(region), FakePools())

    def sweep() -> None:
        reading = an_attempt().run(hands.list_installation, machines)
        if len(reading.machines) != MACHINES:
            raise BenchError(f"{region.case.provider} lists {len(reading.machines)} of {MACHINES} machines")
        an_attempt().run(hands.sweep_leftovers, leftovers)

    sweeps = round(_HOUR / Settings().sweep_interval_seconds)
    return _calls_of(region, lambda: [sweep() for _ in range(sweeps)])


def _offers(region: SimulatedRegion) -> Counter[str]:
    query = OfferQuery(instance_types=(region.case.instance_type,))
    request = OffersRequest(region=region.case.key, query=query)
    hands = MarketActivities(region.registry)
    return _calls_of(region, lambda: an_attempt().run(hands.list_offers, request))


def _calls_of(region: SimulatedRegion, work: Callable[[], object]) -> Counter[str]:
    mark = region.mark()
    work()
    return region.calls_since(mark)


def _installation(region: SimulatedRegion) -> Installation:
    return Installation(id=region.case.request().tags[TAG_INSTALLATION])


def _share(poll: Counter[str], polls: int) -> Counter[str]:
    """What so many of the counted polls cost."""
    return Counter({action: round(count * polls / POLLS) for action, count in poll.items()})


def _total(calls: dict[str, int]) -> int:
    return sum(calls.values())
