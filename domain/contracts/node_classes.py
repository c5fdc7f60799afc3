"""What a machine of one provider needs to become a node: the spec of GPUSpotNodeClass."""

from typing import Annotated, Final

from pydantic import Field

from domain.contracts.offers import Interconnect, ProviderName
from domain.contracts.resources import (
    CloudName,
    LabelKey,
    LabelValue,
    ObjectName,
    OptionalCloudName,
    ResourceModel,
    TagKey,
    TagValue,
)

MAX_USER_DATA_CHARS: Final = 12_288
"""Tencent takes 16 KB of base64, which is 12 KiB of text; filled-in values make the rest."""


class SecretRef(ResourceModel):
    """A Secret in the operator's own namespace."""

    name: ObjectName
    """Name of a Secret in the operator's namespace."""


class RegionImage(ResourceModel):
    """The image of one region."""

    region: CloudName
    """Region in the provider's spelling."""
    image_id: CloudName
    """Image id in that region."""


class ZoneSubnet(ResourceModel):
    """The subnet of one zone."""

    zone: CloudName
    """Zone in the provider's spelling."""
    subnet_id: CloudName
    """Subnet (vSwitch) id in that zone."""


class RegionNetwork(ResourceModel):
    """The network of one region."""

    region: CloudName
    """Region in the provider's spelling."""
    vpc_id: OptionalCloudName = ""
    """VPC id."""
    security_group_ids: Annotated[tuple[CloudName, ...], Field(max_length=5)] = ()
    """Security groups, at most 5."""
    subnets: Annotated[tuple[ZoneSubnet, ...], Field(max_length=64)] = ()
    """Subnets by zone; a zone without a subnet is not bought in. A second entry for the same zone is tried
    when the first has no address left."""


class SystemDisk(ResourceModel):
    """The disk that the machine boots from; deleted with it."""

    type: CloudName
    """Disk kind in the provider's spelling."""
    size_gb: Annotated[int, Field(ge=20, le=32_768)] = Field(default=100, alias="sizeGB")
    """Size in GB."""


class Join(ResourceModel):
    """How a machine joins the cluster."""

    secret_ref: SecretRef
    """Secret in the operator's namespace with keys server, token and caCertHash."""
    user_data_template: Annotated[str, Field(min_length=1, max_length=MAX_USER_DATA_CHARS)]
    """Script that runs at first boot; keep it small and fetch the rest. {{ providerID }}, {{ taints }},
    {{ labels }}, {{ nodeName }}, {{ metadata.instanceIdURL }}, {{ join.server }}, {{ join.token }} and
    {{ join.caCertHash }} are filled in."""


class InstanceTypeOverride(ResourceModel):
    """A GPU instance type that the catalogue lacks, or knows wrongly."""

    name: CloudName
    """Instance type in the provider's spelling."""
    gpu_model: CloudName
    """GPU model, for example A100."""
    gpu_count: Annotated[int, Field(ge=1, le=64)]
    """GPUs of the machine."""
    gpu_memory_gb: Annotated[int, Field(ge=1, le=1024)] = Field(alias="gpuMemoryGB")
    """Memory of one GPU in GB."""
    interconnect: Interconnect = Interconnect.PCIE
    """How its GPUs are joined: single (one GPU), pcie, nvlink or nvswitch."""
    vcpu_count: Annotated[int, Field(ge=1, le=4096)] = 1
    """vCPUs of the machine."""
    ram_gib: Annotated[int, Field(ge=1, le=65_536)] = Field(default=1, alias="ramGiB")
    """Memory of the machine in GiB."""


class NodeClassSpec(ResourceModel):
    """What a machine of one provider needs to become a node."""

    provider: ProviderName
    """Cloud that this class is for."""
    credentials_secret_ref: SecretRef
    """Secret in the operator's namespace with the cloud's keys; its name is the account."""
    images: Annotated[tuple[RegionImage, ...], Field(max_length=64)] = ()
    """Image by region; a region without an image is not bought in."""
    network: Annotated[tuple[RegionNetwork, ...], Field(max_length=64)] = ()
    """Network by region; a region without a network is not bought in."""
    system_disk: SystemDisk
    """The disk that the machine boots from; it is deleted with the machine."""
    key_pair_id: OptionalCloudName = ""
    """Key pair for access by SSH; unset means none."""
    join: Join
    """How a machine joins the cluster."""
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict[str, str]
    )
    """Labels of the Node, beside those of the operator."""
    taints: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    max_length=400,
                    pattern=r"^[A-Za-z0-9][A-Za-z0-9./_-]*(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$",
                ),
            ],
            ...,
        ],
        Field(max_length=16),
    ] = ()
    """Taints of the Node as key=value:Effect, beside those of the operator."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=10)] = Field(default_factory=dict[str, str])
    """Tags of the machine at the cloud, beside those of the operator."""
    instance_types: Annotated[tuple[InstanceTypeOverride, ...], Field(max_length=128)] = ()
    """GPU instance types that the catalogue lacks, or knows wrongly."""
