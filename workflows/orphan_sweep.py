"""OrphanSweep: finds machines of the installation that nobody owns, and reports or ends them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities import signatures
from activities.signatures import (
    AskOwnersAnswer,
    AskOwnersRequest,
    EventsRequest,
    InstallationReading,
    InstallationRequest,
    InstancesRequest,
    LeftoversRequest,
    OffersRequest,
    SweepRecord,
)
from domain.contracts.announcements import Announcement
from domain.contracts.facts import OwnedMachine
from domain.contracts.instances import OfferQuery
from domain.contracts.offers import CapacityType, Offer
from domain.contracts.pools import OrphanPolicy
from domain.contracts.sweeps import SweepReport
from domain.decisions import orphans as judge
from workflows import options
from workflows.messages import ORPHAN_SWEEP_WORKFLOW, OrphanSweepInput

Item = TypeVar("Item")

_ASKED_AT_ONCE: Final = 500
_ENDED_AT_ONCE: Final = 100
_EVENTS_AT_ONCE: Final = 50
_PRICE_MAX_AGE: Final = timedelta(hours=1)
_WITH_LEFTOVERS: Final = "20261129-leftovers"


@workflow.defn(name=ORPHAN_SWEEP_WORKFLOW)
class OrphanSweep:
    """Two sightings, two explicit denials, then the policy."""

    @workflow.init
    def __init__(self, request: OrphanSweepInput) -> None:
        self._region = request.region
        self._settings = request.settings
        self._released: tuple[str, ...] = ()
        self._note = ""

    @workflow.run
    async def run(self, request: OrphanSweepInput) -> SweepReport:
        """One sweep of one region."""
        first = await self._read()
        if first.highest_epoch > first.own_epoch:
            return await self._stand_down(first)
        await self._publish([judge.announce_retained(m, now=workflow.now()) for m in first.retained])
        if workflow.patched(_WITH_LEFTOVERS):
            await self._sweep_leftovers()
        suspected, _ = await self._disowned(self._old_enough(first))
        if not suspected:
            return await self._report(first, (), ())
        await workflow.sleep(
            timedelta(seconds=request.settings.confirm_after_seconds), summary="before the second sighting"
        )
        second = await self._read()
        if second.highest_epoch > second.own_epoch:
            return await self._stand_down(second)
        again = judge.still_there(suspected, second.machines)
        found, answer = await self._disowned(again)
        orphans = await self._priced(found)
        doomed = judge.to_reclaim(orphans, answer.policies, request.settings.orphan_policy)
        await self._publish([judge.announce_orphan(o, now=workflow.now()) for o in orphans])
        await self._reclaim(doomed)
        return await self._report(second, orphans, doomed)

    async def _read(self) -> InstallationReading:
        return await workflow.execute_activity(
            signatures.list_installation,
            InstallationRequest(
                region=self._region, retained_age_seconds=self._settings.leftovers_interval_seconds
            ),
            **options.list_installation(self._region),
        )

    def _old_enough(self, reading: InstallationReading) -> tuple[OwnedMachine, ...]:
        age = timedelta(seconds=self._settings.min_age_seconds)
        return judge.suspects(reading.machines, min_age=age, now=reading.as_of)

    async def _disowned(
        self, machines: Sequence[OwnedMachine]
    ) -> tuple[tuple[OwnedMachine, ...], AskOwnersAnswer]:
        """Machines that their owners deny, with the policies of their pools."""
        answer = AskOwnersAnswer(answers=())
        for part in _parts(machines, _ASKED_AT_ONCE):
            one = await workflow.execute_activity(
                signatures.ask_owners,
                AskOwnersRequest(region=self._region, machines=tuple(part)),
                **options.ASK_OWNERS,
            )
            answer = AskOwnersAnswer(
                answers=(*answer.answers, *one.answers), policies={**answer.policies, **one.policies}
            )
        return judge.disowned(machines, answer.answers), answer

    async def _priced(self, orphans: tuple[OwnedMachine, ...]) -> tuple[OwnedMachine, ...]:
        """Orphans with their price; a price that cannot be read holds up nothing."""
        offers: list[Offer] = []
        for capacity in CapacityType:
            types = sorted({o.instance_type for o in orphans if o.capacity_type is capacity})
            if not types:
                continue
            query = OfferQuery(instance_types=tuple(types), capacity_type=capacity, max_age=_PRICE_MAX_AGE)
            try:
                answer = await workflow.execute_activity(
                    signatures.list_offers,
                    OffersRequest(region=self._region, query=query),
                    **options.list_offers(self._region),
                )
            except ActivityError as error:
                workflow.logger.warning("Orphans are not priced", extra={"reason": str(error.cause)})
            else:
                offers += answer.offers
        return judge.priced(orphans, offers)

    async def _sweep_leftovers(self) -> None:
        """Addresses and disks without a machine; what cannot be read holds up nothing."""
        release = self._settings.orphan_policy is OrphanPolicy.RECLAIM
        request = LeftoversRequest(
            region=self._region,
            min_age_seconds=self._settings.min_age_seconds,
            release=release,
            interval_seconds=self._settings.leftovers_interval_seconds,
        )
        try:
            found = await workflow.execute_activity(
                signatures.sweep_leftovers, request, **options.sweep_leftovers(self._region)
            )
        except ActivityError as error:
            self._note = f"addresses and disks were not swept: {error.cause}"
            workflow.logger.warning("Leftovers are not swept", extra={"reason": str(error.cause)})
            return
        self._released = tuple(each.id for each in found.released)
        now = workflow.now()
        events = [judge.announce_released(each, now=now) for each in found.released]
        stay = found.shown if release else (*found.waiting, *found.shown)
        if stay:
            events.append(judge.announce_leftovers(stay, where=str(self._region), now=now))
        await self._publish(events)

    async def _reclaim(self, doomed: Sequence[OwnedMachine]) -> None:
        for part in _parts(doomed, _ENDED_AT_ONCE):
            await workflow.execute_activity(
                signatures.terminate_instances,
                InstancesRequest(region=self._region, instance_ids=tuple(m.instance_id for m in part)),
                **options.terminate_instances(self._region, priority=options.SWEEP),
                summary=f"{len(part)} orphans",
            )
            await self._publish([judge.announce_reclaimed(m, now=workflow.now()) for m in part])

    async def _stand_down(self, reading: InstallationReading) -> SweepReport:
        """Another installation took over: say so, and end nothing."""
        event = judge.announce_lost_epoch(
            reading.own_epoch, reading.highest_epoch, where=str(self._region), now=workflow.now()
        )
        await self._publish([event])
        note = f"epoch {reading.highest_epoch} is above our {reading.own_epoch}: nothing is ended"
        return SweepReport(seen=len(reading.machines), note=note)

    async def _publish(self, events: Sequence[Announcement]) -> None:
        """Tell of it; what cannot be told within half a minute holds up nothing."""
        for part in _parts(events, _EVENTS_AT_ONCE):
            request = EventsRequest(
                pool=None, operator_namespace=self._settings.operator_namespace, events=tuple(part)
            )
            try:
                await workflow.execute_activity(signatures.publish_events, request, **options.TELL_OF_SWEEP)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                workflow.logger.warning("Events were not published", extra={"reason": str(error.cause)})
                return

    async def _report(
        self,
        reading: InstallationReading,
        orphans: tuple[OwnedMachine, ...],
        doomed: tuple[OwnedMachine, ...],
    ) -> SweepReport:
        ended = {machine.instance_id for machine in doomed}
        left = [orphan for orphan in orphans if orphan.instance_id not in ended]
        record = SweepRecord(
            region=self._region,
            orphans=len(left),
            reclaimed=len(doomed),
            cost_per_hour=judge.hourly_cost(left),
        )
        await workflow.execute_activity(signatures.record_sweep, record, **options.RECORD_SWEEP)
        return SweepReport(
            seen=len(reading.machines),
            orphans=orphans,
            reclaimed=tuple(machine.instance_id for machine in doomed),
            retained=len(reading.retained),
            released=self._released,
            note=self._note,
        )


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
