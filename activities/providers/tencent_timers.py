"""Tencent's dead-man switch: timers beside machines, at most one each, which nothing can change.

So a renewal takes the old timer away and sets a new one. When it is broken off between the two, the machine
has none until the renewal is repeated: nothing ends by mistake.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from activities.providers import tencent_answers as answers
from activities.providers.dead_man import to_second

MAX_IDS_PER_CALL: Final = 100
END: Final = "TerminateInstances"
WAITING: Final = "UNDO"
"""Status of a timer that was not carried out yet; others cannot be taken away."""


class Send(Protocol):
    """Sends one CVM request and raises ``ProviderError`` for faults."""

    def __call__(self, action: str, parameters: Mapping[str, object], /) -> Mapping[str, object]:
        """The body of the answer."""
        ...


def timer(at: datetime) -> dict[str, str]:
    """The switch as calls take it."""
    return {"TimerAction": END, "ActionTime": to_second(at)}


def read_timers(send: Send, instance_ids: Sequence[str]) -> list[answers.SeenTimer]:
    """Timers that wait, of at most 100 machines: one call."""
    wanted = {"InstanceIds": list(instance_ids), "TimerAction": END, "StatusList": [WAITING]}
    body = send("DescribeInstancesActionTimer", wanted)
    return list(answers.DescribeInstancesActionTimer.model_validate(body).action_timers)


def clear_timers(send: Send, instance_ids: Sequence[str]) -> None:
    """Take the timers of at most 100 machines away: two calls, one when there are none."""
    waiting = [each.action_timer_id for each in read_timers(send, instance_ids)]
    if waiting:
        send("DeleteInstancesActionTimer", {"ActionTimerIds": waiting})


def set_timers(send: Send, instance_ids: Sequence[str], at: datetime) -> None:
    """Give at most 100 machines, which all exist, a new timer: two or three calls."""
    clear_timers(send, instance_ids)
    send("ImportInstancesActionTimer", {"InstanceIds": list(instance_ids), "ActionTimer": timer(at)})
