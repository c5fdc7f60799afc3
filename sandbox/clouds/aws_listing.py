"""How EC2 lists instances and spot requests: their fields, and the words for their states."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from sandbox.clouds.ledger import EndReason, Machine, MachineState

# Source: InstanceState of the EC2 API reference.
STATE_CODES: Final[Mapping[str, int]] = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
OWNER: Final = "123456789012"
"""The account's number."""
_STATES: Final[Mapping[MachineState, str]] = {
    MachineState.PENDING: "pending",
    MachineState.RUNNING: "running",
    MachineState.FAILED: "terminated",
    MachineState.ENDING: "shutting-down",
    MachineState.GONE: "terminated",
}
_REASONS: Final[Mapping[str, str]] = {
    "Client.UserInitiatedShutdown": "User initiated shutdown",
    "Server.SpotInstanceTermination": "Spot instance termination",
    "Server.InternalError": "Internal error on launch",
}
_OWN_DIGITS: Final = 8
"""Digits of a machine's id that its spot request and volume carry too."""


def state_word(machine: Machine) -> str:
    """The vendor's word for a machine's state."""
    return machine.vendor_state or _STATES[machine.state]


def state_reason(machine: Machine) -> str:
    """The vendor's code for why a machine ends or ended; empty while it lives."""
    if machine.state is MachineState.FAILED or machine.end_reason is EndReason.RELEASED:
        return "Server.InternalError"
    if machine.end_reason is EndReason.RECLAIMED:
        return "Server.SpotInstanceTermination"
    return "Client.UserInitiatedShutdown" if machine.end_reason is not EndReason.NONE else ""


def is_listed(machine: Machine, now: datetime, terminated_for: timedelta) -> bool:
    """Whether the list shows a machine: not before it is visible, and for a while after it has ended."""
    if machine.visible_at > now or machine.end_reason is EndReason.OUT_OF_BAND:
        return False
    over = {MachineState.GONE: machine.gone_at, MachineState.FAILED: machine.ended_at}.get(machine.state)
    return over is None or now < over + terminated_for


def spot_request_id(machine: Machine) -> str:
    """The id of the spot request behind a machine, empty for on-demand."""
    return f"sir-{machine.id[-_OWN_DIGITS:]}" if machine.order.spot else ""


def spot_state(machine: Machine) -> str:
    """State of a one-time request: active until its instance ends."""
    return "active" if machine.live else "closed"


def spot_status(machine: Machine) -> str:
    """Status code of the request behind a machine."""
    if machine.live:
        return "fulfilled" if machine.notice_at is None else "marked-for-termination"
    if machine.state is MachineState.FAILED:
        return "system-error"
    if machine.end_reason is EndReason.RECLAIMED:
        return "instance-terminated-no-capacity"
    return "instance-terminated-by-user"


def instance(machine: Machine) -> dict[str, object]:
    """One instance as RunInstances and DescribeInstances show it."""
    word, code, order = state_word(machine), state_reason(machine), machine.order
    details = order.details
    shown: dict[str, object] = {
        "instanceId": machine.id,
        "imageId": order.image_id,
        "instanceState": {"code": STATE_CODES[word], "name": word},
        "reason": f"{_REASONS[code]} ({machine.ended_at})" if code else "",
        "keyName": details["key"] or None,
        "amiLaunchIndex": 0,
        "instanceType": order.instance_type,
        "launchTime": machine.created_at.replace(microsecond=0),
        "placement": {"availabilityZone": order.zone, "groupName": "", "tenancy": "default"},
        "monitoring": {"state": "disabled"},
        "stateReason": {"code": code, "message": f"{code}: {_REASONS[code]}"} if code else None,
        "architecture": "x86_64",
        "rootDeviceType": "ebs",
        "rootDeviceName": details["root_device"],
        "blockDeviceMapping": [],
        "virtualizationType": "hvm",
        "instanceLifecycle": "spot" if order.spot else None,
        "spotInstanceRequestId": spot_request_id(machine) or None,
        "clientToken": order.client_token,
        "tagSet": _tags(machine.tags),
        "hypervisor": "xen",
        "ebsOptimized": False,
    }
    return shown if word == "terminated" else shown | _network(machine)


def _network(machine: Machine) -> dict[str, object]:
    """What an instance has until it is terminated."""
    details = machine.order.details
    volume = {
        "volumeId": f"vol-{machine.id[-_OWN_DIGITS:]}",
        "status": "attached",
        "attachTime": machine.created_at,
        "deleteOnTermination": True,
    }
    return {
        "subnetId": machine.order.subnet_id or None,
        "vpcId": details["vpc"] or None,
        "privateIpAddress": machine.private_ip,
        "groupSet": details["groups"],
        "blockDeviceMapping": [{"deviceName": details["root_device"], "ebs": volume}],
    }


def reservations(machines: tuple[Machine, ...]) -> list[dict[str, object]]:
    """Instances grouped by the call that bought them."""
    groups: dict[str, list[Machine]] = {}
    for machine in machines:
        groups.setdefault(str(machine.order.details["reservation"]), []).append(machine)
    return [
        {
            "reservationId": number,
            "ownerId": OWNER,
            "groupSet": [],
            "instancesSet": [instance(machine) for machine in group],
        }
        for number, group in groups.items()
    ]


def spot_request(machine: Machine) -> dict[str, object]:
    """The request behind a spot instance."""
    order, details = machine.order, machine.order.details
    changed_at = machine.ended_at or machine.notice_at or machine.created_at
    status = spot_status(machine)
    return {
        "spotInstanceRequestId": spot_request_id(machine),
        "spotPrice": details["bid"],
        "type": "one-time",
        "state": spot_state(machine),
        "status": {
            "code": status,
            "updateTime": changed_at,
            "message": f"Your Spot request is {status}.",
        },
        "instanceId": machine.id,
        "launchedAvailabilityZone": order.zone,
        "launchSpecification": {"imageId": order.image_id, "instanceType": order.instance_type},
        "createTime": machine.created_at,
        "productDescription": "Linux/UNIX",
        "instanceInterruptionBehavior": "terminate",
        "tagSet": details["spot_tags"],
    }


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
