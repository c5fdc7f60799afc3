"""What a machine of one provider needs to become a node: the spec of GPUSpotNodeClass."""

from pydantic import Field

from domain.contracts.offers import ProviderName
from domain.contracts.resources import ResourceModel


class SecretRef(ResourceModel):
    """A Secret in the operator's own namespace."""

    name: str
    """Name of the Secret."""


class RegionImage(ResourceModel):
    """The image of one region."""

    region: str
    """Region in the provider's spelling."""
    image_id: str
    """Image id in that region."""


class ZoneSubnet(ResourceModel):
    """The subnet of one zone; a second entry for the same zone is tried when the first has no address."""

    zone: str
    """Zone in the provider's spelling."""
    subnet_id: str
    """Subnet (vSwitch) id in that zone."""


class RegionNetwork(ResourceModel):
    """The network of one region."""

    region: str
    """Region in the provider's spelling."""
    vpc_id: str = ""
    """VPC id."""
    security_group_ids: tuple[str, ...] = ()
    """Security groups, at most 5."""
    subnets: tuple[ZoneSubnet, ...] = ()
    """Subnets by zone; a zone without a subnet is not bought in."""


class SystemDisk(ResourceModel):
    """The disk that the machine boots from; deleted with it."""

    type: str
    """Disk kind in the provider's spelling."""
    size_gb: int = Field(default=100, alias="sizeGB")
    """Size in GB."""


class Join(ResourceModel):
    """How a machine joins the cluster."""

    secret_ref: SecretRef
    """Secret with keys server, token and caCertHash."""
    user_data_template: str
    """Script that runs at first boot. {{ providerID }}, {{ taints }}, {{ labels }}, {{ nodeName }},
    {{ metadata.instanceIdURL }} and {{ join.* }} are filled in."""


class InstanceTypeOverride(ResourceModel):
    """A GPU instance type that the catalogue lacks, or knows wrongly."""

    name: str
    """Instance type in the provider's spelling."""
    gpu_model: str
    """GPU model, for example A100."""
    gpu_count: int
    """GPUs of the machine."""
    gpu_memory_gb: int = Field(alias="gpuMemoryGB")
    """Memory of one GPU in GB."""
    interconnect: str = "pcie"
    """single, pcie, nvlink or nvswitch."""
    vcpu_count: int = 1
    """vCPUs of the machine."""
    ram_gib: int = Field(default=1, alias="ramGiB")
    """Memory of the machine in GiB."""


class NodeClassSpec(ResourceModel):
    """What a machine of one provider needs to become a node."""

    provider: ProviderName
    """Cloud that this class is for."""
    credentials_secret_ref: SecretRef
    """Secret in the operator's namespace with the cloud's keys; its name is the account."""
    images: tuple[RegionImage, ...] = ()
    """Image by region; a region without an image is not bought in."""
    network: tuple[RegionNetwork, ...] = ()
    """Network by region; a region without a network is not bought in."""
    system_disk: SystemDisk
    """The disk that the machine boots from."""
    key_pair_id: str = ""
    """Key pair for access by SSH."""
    join: Join
    """How a machine joins the cluster."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the Node, beside those of the operator."""
    taints: tuple[str, ...] = ()
    """Taints of the Node as key=value:Effect, beside those of the operator."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the machine, beside those of the operator."""
    instance_types: tuple[InstanceTypeOverride, ...] = ()
    """GPU instance types that the catalogue lacks, or knows wrongly."""
