"""What a workload needs: the spec of GPUWorkloadProfile."""

from enum import StrEnum

from pydantic import Field

from domain.contracts.resources import ResourceModel


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

    min_count: int = 1
    """GPUs without which the workload cannot start (the size of its gang)."""
    min_memory_gb: int | None = Field(default=None, alias="minMemoryGB")
    """Memory of one GPU in GB, at least."""
    preferred_topology: Topology = Topology.ANY
    """NVLink, PCIe or Any."""


class InterruptTolerance(ResourceModel):
    """What the workload bears."""

    max_interrupt_percent: int = 100
    """Share of the workload's machines that may be disrupted at the same time, in percent."""
    checkpoint_enabled: bool = False
    """Whether the workload can save its state."""
    checkpoint_interval_seconds: int | None = None
    """Seconds between two checkpoints of its own."""


class Checkpoint(ResourceModel):
    """How to ask for a checkpoint."""

    signal: CheckpointSignal = CheckpointSignal.ANNOTATION
    """Annotation, Exec or HTTP."""
    command: tuple[str, ...] = ()
    """Command for Exec."""
    uri: str = ""
    """Where checkpoints are kept, or the address for HTTP."""


class ProfileSpec(ResourceModel):
    """What a kind of workload needs of the pool that it is bound to."""

    gpu_requirement: GpuRequirement = Field(default_factory=GpuRequirement)
    """GPUs that the workload needs."""
    priority: Priority = Priority.MEDIUM
    """high, medium or low."""
    interrupt_tolerance: InterruptTolerance = Field(default_factory=InterruptTolerance)
    """What the workload bears."""
    pool_ref: str
    """Name of the GPUSpotPool in the same namespace that serves this workload."""
    pod_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the workload's pods; empty means spotgpu.zuoyang.io/profile=<name of this profile>."""
    throughput: dict[str, float] = Field(default_factory=dict)
    """Relative speed per GPU model, for example {A100: 1.0, V100: 0.4}."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """How to ask for a checkpoint."""
    pre_pull_images: tuple[str, ...] = ()
    """Images to pull when a node joins."""
