"""What a workload needs: the spec of GPUWorkloadProfile."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.contracts.resources import (
    LabelKey,
    LabelValue,
    ObjectName,
    Percent,
    ResourceModel,
)


class Topology(StrEnum):
    """How the GPUs of one machine should be joined."""

    NVLINK = "NVLink"
    PCIE = "PCIe"
    ANY = "Any"


class Priority(StrEnum):
    """How important the workload is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class CheckpointSignal(StrEnum):
    """How a workload is told to save."""

    ANNOTATION = "Annotation"
    EXEC = "Exec"
    HTTP = "HTTP"


class GpuRequirement(ResourceModel):
    """GPUs that the workload needs."""

    min_count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """GPUs without which the workload cannot start (the size of its gang)."""
    min_memory_gb: Annotated[int, Field(ge=1, le=1024)] | None = Field(default=None, alias="minMemoryGB")
    """Memory of one GPU in GB, at least; unset means any."""
    preferred_topology: Topology = Topology.ANY
    """How the GPUs of one machine should be joined: NVLink, PCIe or Any."""


class InterruptTolerance(ResourceModel):
    """What the workload bears."""

    max_interrupt_percent: Percent = 100
    """Not in effect yet: share of the workload's machines that may be disrupted at the same time, in percent;
    0 forbids every disruption that can be put off."""
    checkpoint_enabled: bool = False
    """Not in effect yet: whether the workload can save its state."""
    checkpoint_interval_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """Not in effect yet: seconds between two checkpoints that the workload takes by itself; unset means
    unknown."""


class Checkpoint(ResourceModel):
    """How to ask for a checkpoint."""

    signal: CheckpointSignal = CheckpointSignal.ANNOTATION
    """How the workload is told to save: Annotation on its pods, Exec of a command in them, or HTTP."""
    command: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=32)] = ()
    """Command and its arguments for Exec."""
    uri: Annotated[str, Field(max_length=2048)] = ""
    """Where checkpoints are kept, or the address for HTTP."""


ThroughputKey = Annotated[str, Field(min_length=1, max_length=64)]
"""A GPU model, for example A100."""


class ProfileSpec(ResourceModel):
    """What a kind of workload needs of the pool that it is bound to."""

    gpu_requirement: GpuRequirement = Field(default_factory=GpuRequirement)
    """GPUs that the workload needs."""
    priority: Priority = Priority.MEDIUM
    """Not in effect yet: how important the workload is, high, medium or low."""
    interrupt_tolerance: InterruptTolerance = Field(default_factory=InterruptTolerance)
    """Not in effect yet: what the workload bears."""
    pool_ref: ObjectName
    """Name of the GPUSpotPool in the same namespace that serves this workload."""
    pod_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(
        default_factory=dict[str, str]
    )
    """Labels of the workload's pods; unset means spotgpu.zuoyang.io/profile=NAME with this profile's name."""
    throughput: Annotated[
        dict[ThroughputKey, Annotated[float, Field(gt=0, le=1_000_000)]],
        Field(max_length=64),
    ] = Field(default_factory=dict[str, float])
    """Not in effect yet: relative speed of the workload by GPU model, for example A100 1.0 and V100 0.4."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """Not in effect yet: how to ask for a checkpoint."""
    pre_pull_images: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(max_length=32),
    ] = ()
    """Not in effect yet: container images to pull when a node joins."""
