"""How Alibaba lists machines: the fields of one instance, and pages."""

import base64
from collections.abc import Sequence
from datetime import datetime

from domain.contracts.catalogue import CATALOGUE
from domain.contracts.offers import ProviderName
from sandbox.clouds import aliyun_parameters as parameters
from sandbox.clouds.ledger import Machine, MachineState


def view(machine: Machine, status: str) -> dict[str, object]:
    """One instance as DescribeInstances shows it, with the vendor's word for its state."""
    order = machine.order
    row = next(row for row in CATALOGUE[ProviderName.ALIYUN] if row.name == order.instance_type)
    details = dict(order.details)
    vpc_id = details.pop("VpcId")
    locks = [{"LockReason": "Recycling", "LockMsg": ""}] if is_recycling(machine) else []
    return {
        "InstanceId": machine.id,
        "InstanceName": order.name,
        "Status": status,
        "RegionId": order.region,
        "ZoneId": order.zone,
        "InstanceType": order.instance_type,
        "InstanceTypeFamily": ".".join(order.instance_type.split("-")[0].split(".")[:2]),
        "Cpu": row.vcpu_count,
        "Memory": row.ram_gib * 1024,
        "GPUAmount": row.gpu_count,
        "GPUSpec": f"NVIDIA {row.gpu_model}",
        "ImageId": order.image_id,
        "InstanceNetworkType": "vpc",
        "VpcAttributes": {
            "VpcId": vpc_id,
            "VSwitchId": order.subnet_id,
            "NatIpAddress": "",
            "PrivateIpAddress": {"IpAddress": [machine.private_ip]},
        },
        "PublicIpAddress": {"IpAddress": []},
        "Tags": {"Tag": [{"TagKey": key, "TagValue": value} for key, value in machine.tags.items()]},
        "OperationLocks": {"LockReason": locks},
        "CreationTime": _minute(machine.created_at),
        "StartTime": _minute(machine.running_at) if machine.running_at else "",
        "ExpiredTime": "2099-12-31T15:59Z",
        "AutoReleaseTime": _minute(order.release_at) if order.release_at else "",
        "DeletionProtection": False,
        # Of a machine that runs there is nothing to say.
        "StoppedMode": "StopCharging" if machine.state is MachineState.STOPPED else "Not-applicable",
        "IoOptimized": True,
        "OSType": "linux",
        **details,
    }


def is_recycling(machine: Machine) -> bool:
    """Whether the cloud said that it takes the machine back; its status stays Running."""
    return machine.notice_at is not None and machine.live


def page_token(last_id: str) -> str:
    """The NextToken after a page that ends with this machine."""
    return base64.urlsafe_b64encode(last_id.encode()).decode()


def page_start(token: str, seen: Sequence[str], ever: Sequence[str]) -> int:
    """Where the page after the token's machine begins, also when that machine is gone by now.

    Args:
        token: NextToken of the page before, empty for the first page.
        seen: Ids to page through, in the order of ``ever``.
        ever: Ids of all machines that ever were, oldest first.
    """
    if not token:
        return 0
    ages = {each: number for number, each in enumerate(ever)}
    try:
        last = ages[base64.urlsafe_b64decode(token).decode()]
    except (KeyError, ValueError) as exc:
        raise parameters.invalid("NextToken", "it is not from the page before") from exc
    return sum(ages[each] <= last for each in seen)


def _minute(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%MZ")
