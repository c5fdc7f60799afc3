"""Servers, flavors and policies as Huawei's answers show them."""

from collections.abc import Sequence
from typing import Final, cast

from domain.contracts.offers import InstanceType
from sandbox.clouds.huawei_parameters import ON_DEMAND, SPOT
from sandbox.clouds.ledger import Machine, MachineState

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
STATES: Final = {
    MachineState.PENDING: "BUILD",
    MachineState.RUNNING: "ACTIVE",
    MachineState.FAILED: "ERROR",
    MachineState.ENDING: "ACTIVE",
    MachineState.GONE: "DELETED",
}
_TASKS: Final = {MachineState.PENDING: "spawning", MachineState.ENDING: "deleting"}
_POWER: Final = {MachineState.RUNNING: 1}


def status_of(machine: Machine) -> str:
    """The vendor's word; an ending server still says ACTIVE, and its task says that it is being deleted."""
    return machine.vendor_state or STATES[machine.state]


def shown(machine: Machine, project: str, row: InstanceType, disks: Sequence[str]) -> dict[str, object]:
    """One server in full."""
    order, status = machine.order, status_of(machine)
    failed = {"code": 500, "message": "The guest did not start."} if status == "ERROR" else None
    return {
        "id": machine.id,
        "name": order.name,
        "status": status,
        "tenant_id": project,
        "user_id": "",
        "created": machine.created_at.strftime(TIME_FORMAT),
        "updated": (machine.running_at or machine.created_at).strftime(TIME_FORMAT),
        "auto_terminate_time": order.release_at.strftime(TIME_FORMAT) if order.release_at else "",
        "OS-EXT-AZ:availability_zone": order.zone,
        "OS-EXT-STS:vm_state": "building" if status == "BUILD" else status.lower(),
        "OS-EXT-STS:task_state": None if machine.vendor_state else _TASKS.get(machine.state),
        "OS-EXT-STS:power_state": _POWER.get(machine.state, 0),
        "flavor": _flavor_of(row),
        "image": {"id": order.image_id},
        "key_name": order.details["key_name"],
        "addresses": {str(order.details["vpcid"]): [_address(machine)]},
        "metadata": {
            "charging_mode": "2" if order.spot else "0",
            "vpc_id": order.details["vpcid"],
            "metering.resourcespeccode": f"{row.name}.linux",
        },
        "security_groups": [{"id": group} for group in _texts(order.details["security_groups"])],
        "tags": [f"{key}={value}" for key, value in machine.tags.items()],
        "sys_tags": [{"key": "_sys_enterprise_project_id", "value": "0"}],
        "locked": False,
        "fault": failed,
        "os-extended-volumes:volumes_attached": [{"id": disk, "device": ""} for disk in disks],
        "description": "",
        "host_status": "UP",
        "enterprise_project_id": "0",
    }


def unknown(server_id: str) -> dict[str, object]:
    """What a list by ids says of one that is not there."""
    return {"id": server_id, "fault": {"code": 404, "message": "Server could not be found"}}


def flavor(row: InstanceType, zones: Sequence[tuple[str, bool]]) -> dict[str, object]:
    """An instance type with its words of sale: zone, and whether there is any."""
    words = ",".join(f"{zone}({'normal' if some else 'sellout'})" for zone, some in zones)
    return {
        "id": row.name,
        "name": row.name,
        "vcpus": str(row.vcpu_count),
        "ram": row.ram_gib * 1024,
        "disk": "0",
        "os_extra_specs": {
            "cond:operation:status": "abandon",
            "cond:operation:az": words,
            "cond:spot:operation:status": "abandon",
            "cond:spot:operation:az": words,
            "pci_passthrough:alias": f"nvidia-{row.gpu_model.lower()}:{row.gpu_count}",
            "info:gpu:name": f"{row.gpu_count} * NVIDIA {row.gpu_model}",
        },
    }


def policy(number: int, row: InstanceType, zone: str, mode: str, *, some: bool) -> dict[str, object]:
    """How one type is sold in one zone in one way."""
    shown: dict[str, object] = {
        "id": number,
        "flavor_id": row.name,
        "availability_zone_id": zone,
        "sell_mode": mode,
        "sell_status": "available" if some else "sellout",
    }
    if mode == SPOT:
        # Guaranteed blocks are not sold for these types.
        shown["spot_options"] = {
            "longest_spot_duration_hours": 0,
            "largest_spot_duration_count": 0,
            "interruption_policy": "immediate",
        }
    return shown


MODES: Final = (ON_DEMAND, SPOT)


def limits(kind: str, most: int | None, used: Sequence[InstanceType]) -> dict[str, object]:
    """Limits of the account and what of them is used; -1 is no limit, and only machines have one here.

    Args:
        kind: ``Spot``, or empty for all machines.
        most: How many machines there may be.
        used: The types of those that there are.
    """
    return {
        f"maxTotal{kind}Instances": -1 if most is None else most,
        f"total{kind}InstancesUsed": len(used),
        f"maxTotal{kind}Cores": -1,
        f"total{kind}CoresUsed": sum(row.vcpu_count for row in used),
        f"maxTotal{kind}RAMSize": -1,
        f"total{kind}RAMUsed": sum(row.ram_gib * 1024 for row in used),
    }


def _flavor_of(row: InstanceType) -> dict[str, object]:
    return {
        "id": row.name,
        "name": row.name,
        "vcpus": str(row.vcpu_count),
        "ram": str(row.ram_gib * 1024),
        "disk": "0",
        "gpus": [
            {
                "name": f"NVIDIA {row.gpu_model}",
                "count": row.gpu_count,
                "memory_mb": row.gpu_memory_gb * 1024,
            }
        ],
    }


def _address(machine: Machine) -> dict[str, object]:
    return {
        "addr": machine.private_ip,
        "version": "4",
        "OS-EXT-IPS:type": "fixed",
        "primary": True,
    }


def _texts(value: object) -> list[str]:
    return list(cast("list[str]", value))
