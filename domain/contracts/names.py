"""Every name that is shared with the outside: tags, labels, taints, annotations, search attributes."""

from typing import Final

GROUP: Final = "spotgpu.zuoyang.cn"
VERSION: Final = "v1alpha1"
FINALIZER: Final = f"{GROUP}/cloud-instance-cleanup"

# Tags on every machine. Keys stay within Huawei's 36 characters and values within its 43.
TAG_INSTALLATION: Final = "spotgpu-installation"
TAG_EPOCH: Final = "spotgpu-epoch"
TAG_POOL: Final = "spotgpu-pool"
TAG_SLOT: Final = "spotgpu-slot"
TAG_LAUNCH: Final = "spotgpu-launch"
TAG_RETAINED: Final = "spotgpu-retained"

PREFIX: Final = "spotgpu.zuoyang.io"
LABEL_PROFILE: Final = f"{PREFIX}/profile"
LABEL_POOL: Final = f"{PREFIX}/pool"
LABEL_POOL_UID: Final = f"{PREFIX}/pool-uid"
LABEL_SLOT: Final = f"{PREFIX}/slot"
LABEL_PROVIDER: Final = f"{PREFIX}/provider"
LABEL_GPU_MODEL: Final = f"{PREFIX}/gpu-model"
LABEL_GPU_COUNT: Final = f"{PREFIX}/gpu-count"
LABEL_GPU_MEMORY: Final = f"{PREFIX}/gpu-memory-gb"
LABEL_INTERCONNECT: Final = f"{PREFIX}/interconnect"
LABEL_LIFECYCLE: Final = f"{PREFIX}/lifecycle"
LABEL_REGION: Final = "topology.kubernetes.io/region"
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"

TAINT_SPOT: Final = f"{PREFIX}/spot-instance"
TAINT_GPU_NOT_READY: Final = f"node.alpha.{PREFIX}/gpu-not-ready"
TAINT_INTERRUPTING: Final = f"{PREFIX}/interrupting"
TAINT_DRAINING: Final = f"{PREFIX}/draining"
GPU_RESOURCE: Final = "nvidia.com/gpu"

# Search attributes: registered by a job and by the sandbox, checked when a worker starts.
SEARCH_KEYWORDS: Final = ("PoolUid", "PoolNamespace", "PoolName", "PoolPhase")
SEARCH_BOOLS: Final = ("PoolHeld",)
SEARCH_INTS: Final = ("PoolReady", "PoolDesired")
SEARCH_KEYWORD_LISTS: Final = ("Provider", "Region")

INSTALLATION_CONFIG_MAP: Final = "spotgpu-installation"
"""ConfigMap in the operator's namespace with keys ``id`` (a UUID made once) and ``epoch``."""
