"""Timers of simulated machines at Tencent: at most one each, made with the purchase or later."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sandbox.clouds import tencent_parameters as parameters
from sandbox.clouds import tencent_purchase as purchase
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.ledger import Machine


class TimerBook:
    """Which timer a machine has; its time is the machine's own ``release_at``."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def set(
        self, machines: Sequence[Machine], timer: parameters.ActionTimer, now: datetime
    ) -> Mapping[str, object]:
        """Give machines a timer: all or none."""
        at = purchase.release_at(timer, now)
        for machine in machines:
            if machine.order.release_at is not None:
                text = f"The instance `{machine.id}` already has a timer of this kind."
                raise VendorError("FailedOperation.MutActionTimerExist", text)
        for machine in machines:
            machine.order = replace(machine.order, release_at=at)
        return {"ActionTimerIds": [self._id(machine) for machine in machines]}

    def clear(self, machines: Iterable[Machine], timer_ids: Sequence[str]) -> None:
        """Take timers away: all or none."""
        owners = {self._id(machine): machine for machine in machines if machine.order.release_at}
        missing = [each for each in timer_ids if each not in owners]
        if missing:
            raise VendorError("InvalidParameterValue", f"The timer `{missing[0]}` does not exist.")
        for each in timer_ids:
            owners[each].order = replace(owners[each].order, release_at=None)
            del self._ids[owners[each].id]

    def shown(
        self, machines: Iterable[Machine], wanted: parameters.DescribeInstancesActionTimer
    ) -> Mapping[str, object]:
        """Timers that pass every condition; all of them wait, since one that fired took its machine away."""
        if wanted.status_list and "UNDO" not in wanted.status_list:
            return {"ActionTimers": []}
        timers = [
            {
                "ActionTimerId": self._id(machine),
                "InstanceId": machine.id,
                "TimerAction": "TerminateInstances",
                "ActionTime": machine.order.release_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "Status": "UNDO",
                "Externals": None,
            }
            for machine in machines
            if machine.order.release_at is not None
            and (not wanted.instance_ids or machine.id in wanted.instance_ids)
            and (not wanted.action_timer_ids or self._id(machine) in wanted.action_timer_ids)
        ]
        return {"ActionTimers": timers}

    def _id(self, machine: Machine) -> str:
        if machine.id not in self._ids:
            self._ids[machine.id] = f"at-{next(self._numbers):08x}"
        return self._ids[machine.id]
