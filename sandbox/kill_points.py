"""Killing the worker at an exact point of a purchase or a termination, with proof that it was there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from domain.contracts.offers import ProviderName
from sandbox.clouds.faults import Fault, FaultKind
from sandbox.clouds.hooks import Hook, HookPoint
from sandbox.clouds.requests import RequestRecord
from sandbox.expectation import expect
from sandbox.observer import Json
from sandbox.operator_processes import WORKER
from sandbox.watched_pool import WatchedPool

_WAIT_SECONDS = 60
_TEMPORAL = f"temporal-{WORKER}"


class KillPoint(StrEnum):
    """Where the worker dies."""

    BEFORE_SENT = "before the request leaves"
    """The proxy kills it when the request comes, and passes nothing on: the cloud never sees it."""
    RECEIVED = "received but not carried out"
    CARRIED_OUT = "carried out but not answered"
    ANSWERED = "answered but the activity not completed"
    """Nothing that the worker says reaches Temporal any more when the answer is sent."""
    COMPLETED = "completed but the next workflow task not run"
    """Temporal has the result; nothing that Temporal says reaches the worker any more."""


@dataclass(frozen=True)
class Deed:
    """What is going on when the worker dies."""

    name: str
    activity: str
    actions: Mapping[ProviderName, str]
    """Each vendor's word for it."""


PURCHASE = Deed(
    "purchase",
    "cloud.create_instance",
    {ProviderName.TENCENT: "RunInstances", ProviderName.ALIYUN: "RunInstances"},
)
TERMINATION = Deed(
    "termination",
    "cloud.terminate_instances",
    {ProviderName.TENCENT: "TerminateInstances", ProviderName.ALIYUN: "DeleteInstances"},
)


@dataclass
class KillTrap:
    """One trap for the next such request of a pool, on a stack that runs through proxies.

    Arm it, start the deed, ``wait`` for the kill, ``disarm``, start the worker again.
    """

    pool: WatchedPool
    point: KillPoint
    deed: Deed
    _requests_before: dict[ProviderName, int] = field(default_factory=dict[ProviderName, int], init=False)
    _rule: str = field(default_factory=lambda: f"kill-point-{uuid.uuid4()}", init=False)
    """Own name of this trap's rule: hits of an earlier trap prove nothing."""

    def arm(self) -> None:
        """Set hooks, faults and rules at both clouds."""
        pid = self.pool.stack.operator.pid(WORKER)
        for provider, action in self.deed.actions.items():
            self._requests_before[provider] = len(self.pool.stack.cloud(provider).requests())
            self._arm_cloud(provider, action, pid)

    def wait(self) -> str:
        """Return what proves the point, once the worker is dead.

        Raises:
            ExpectationError: The point was not reached in time.
        """
        if self.point is KillPoint.COMPLETED:
            proof = expect(
                f"Temporal has the {self.deed.name}'s result", self._completed, within_seconds=_WAIT_SECONDS
            )
            self.pool.stack.operator.kill(WORKER)
            return proof
        proof = expect(f"the worker dies: {self.point}", self._proof, within_seconds=_WAIT_SECONDS)
        return expect(
            "the worker is dead",
            lambda: None if self.pool.stack.operator.is_alive(WORKER) else proof,
            within_seconds=5,
        )

    def disarm(self) -> None:
        """Take everything back. What was held of a dead worker's words is thrown away, not delivered."""
        switches = self.pool.stack.switches
        for provider in self.deed.actions:
            self.pool.stack.cloud(provider).clear_hooks()
            self.pool.stack.cloud(provider).clear_faults()
            switches.clear_rules(provider)
        switches.switch(_TEMPORAL, "cut")
        switches.switch(_TEMPORAL, "release")

    def _arm_cloud(self, provider: ProviderName, action: str, pid: int) -> None:
        cloud, switches = self.pool.stack.cloud(provider), self.pool.stack.switches
        match self.point:
            case KillPoint.BEFORE_SENT:
                rule = {"id": self._rule, "act": "cut", "contains": action, "kill_pid": pid}
                switches.add_rule(provider, rule)
            case KillPoint.RECEIVED:
                cloud.set_fault(Fault(kind=FaultKind.DROP, action=action, count=1))
                cloud.set_hook(Hook(point=HookPoint.RECEIVED, action=action, kill_pid=pid))
            case KillPoint.CARRIED_OUT:
                cloud.set_hook(Hook(point=HookPoint.CARRIED_OUT, action=action, kill_pid=pid))
            case KillPoint.ANSWERED:
                hold = switches.switch_url(_TEMPORAL, "hold?direction=up")
                cloud.set_hook(Hook(point=HookPoint.CARRIED_OUT, action=action, url=hold))
                cloud.set_hook(Hook(point=HookPoint.ANSWERED, action=action, kill_pid=pid))
            case KillPoint.COMPLETED:
                hold = switches.switch_url(_TEMPORAL, "hold?direction=down")
                cloud.set_hook(Hook(point=HookPoint.CARRIED_OUT, action=action, url=hold))

    def _proof(self) -> str | None:
        if self.point is KillPoint.BEFORE_SENT:
            return self._stopped_by_proxy()
        for provider, record in self._records():
            if record.points and self._is_at_point(record):
                return f"{provider} request {record.number} {record.action}: {', '.join(record.points)}"
        return None

    def _stopped_by_proxy(self) -> str | None:
        for provider in self.deed.actions:
            hits = [hit for hit in self.pool.stack.switches.hits(provider) if hit["rule"] == self._rule]
            reached = [record for name, record in self._records() if name is provider]
            if hits and not reached:
                return f"the proxy of {provider} stopped it at {hits[-1]['at']}"
        return None

    def _is_at_point(self, record: RequestRecord) -> bool:
        match self.point:
            case KillPoint.RECEIVED:
                return not record.carried_out
            case KillPoint.ANSWERED:
                answered = any(point.startswith("answered") for point in record.points)
                return answered and self.deed.activity in self._pending()
            case _:
                return record.carried_out

    def _pending(self) -> list[str]:
        return self.pool.observer.pending_activities(self.pool.workflow_id)

    def _records(self) -> list[tuple[ProviderName, RequestRecord]]:
        """Requests of this deed since the trap was armed."""
        return [
            (provider, record)
            for provider, action in self.deed.actions.items()
            for record in self.pool.stack.cloud(provider).requests(
                action, after=self._requests_before[provider]
            )
        ]

    def _completed(self) -> str | None:
        """The event of the result, if no workflow task was completed after it."""
        if not any(record.carried_out for _, record in self._records()):
            return None
        events = self.pool.observer.newest_events(self.pool.workflow_id)
        scheduled = {event["eventId"]: event for event in events}
        for event in events:
            if event["eventType"] == "EVENT_TYPE_WORKFLOW_TASK_COMPLETED":
                return None
            if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_COMPLETED" and self._is_of_deed(
                event, scheduled
            ):
                return f"event {event['eventId']} completed {self.deed.activity}, no workflow task after it"
        return None

    def _is_of_deed(self, event: Json, events: Mapping[str, Json]) -> bool:
        number = event["activityTaskCompletedEventAttributes"]["scheduledEventId"]
        scheduled = events.get(number, {}).get("activityTaskScheduledEventAttributes", {})
        return scheduled.get("activityType", {}).get("name") == self.deed.activity
