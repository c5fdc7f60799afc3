"""The GPU instance types that the four clouds sell, and how pools name them.

Source: the vendors' GPU pages as collected in July 2026. Memory of one GPU is what it is sold as: where
an API reports less (AWS says 22.4 GiB for an A10G of 24 GB) the sold size stands here, so that ``A10G-24G``
means the same everywhere. A GPU that its vendor does not name has the name that others give it (H20), or
that of its family (PNV6). Types with a fraction of a GPU are left out: no pool can ask for one.
"""

import re
from typing import Final

from domain.contracts.offers import InstanceType, Interconnect, ProviderName

_LINKS: Final = {
    "-": Interconnect.SINGLE,
    "pcie": Interconnect.PCIE,
    "nvlink": Interconnect.NVLINK,
    "nvswitch": Interconnect.NVSWITCH,
}

# Columns: type, GPU model, GPUs, GB of one GPU, vCPUs, RAM in GiB, link.
_TENCENT: Final = """
GN7.2XLARGE32        T4    1  16    8   32  -
GN7.5XLARGE80        T4    1  16   20   80  -
GN7.10XLARGE160      T4    2  16   40  160  pcie
GN7.20XLARGE320      T4    4  16   80  320  pcie
GN8.LARGE56          P40   1  24    6   56  -
GN8.14XLARGE448      P40   8  24   56  448  pcie
PNV4.7XLARGE116      A10   1  24   28  116  -
PNV4.28XLARGE466     A10   4  24  112  466  pcie
PNV4.56XLARGE932     A10   8  24  224  932  pcie
PNV5b.64XLARGE768    PNV5b 8  48  256  768  pcie
PNV6.32XLARGE1280    PNV6  8  96  128 1280  pcie
GN10Xp.2XLARGE40     V100  1  32   10   40  -
GN10Xp.10XLARGE160   V100  4  32   40  160  nvlink
GN10Xp.20XLARGE320   V100  8  32   80  320  nvlink
GN10X.18XLARGE320    V100  8  32   72  320  nvlink
GT4.4XLARGE96        A100  1  40   16   96  -
GT4.20XLARGE474      A100  4  40   82  474  nvlink
GT4.41XLARGE948      A100  8  40  164  948  nvlink
"""

_ALIYUN: Final = """
ecs.gn6i-c4g1.xlarge       T4    1  16    4    15  -
ecs.gn6i-c24g1.24xlarge    T4    4  16   96   372  pcie
ecs.gn6v-c8g1.2xlarge      V100  1  16    8    32  -
ecs.gn6v-c8g1.16xlarge     V100  8  16   64   256  nvlink
ecs.gn6e-c12g1.3xlarge     V100  1  32   12    92  -
ecs.gn6e-c12g1.24xlarge    V100  8  32   96   736  nvlink
ecs.gn7i-c8g1.2xlarge      A10   1  24    8    30  -
ecs.gn7i-c16g1.4xlarge     A10   1  24   16    60  -
ecs.gn7i-c32g1.32xlarge    A10   4  24  128   752  pcie
ecs.gn7i-8x.32xlarge       A10   8  24  128   512  pcie
ecs.gn7-c12g1.3xlarge      A100  1  40   12    95  -
ecs.gn7-c13g1.26xlarge     A100  8  40  104   760  nvswitch
ecs.gn7e-c16g1.4xlarge     A100  1  80   16   125  -
ecs.gn7e-c16g1.32xlarge    A100  8  80  128  1000  nvlink
ecs.ebmgn7.26xlarge        A100  8  40  104   768  nvswitch
ecs.ebmgn7e.32xlarge       A100  8  80  128  1024  nvswitch
ecs.gn8is.2xlarge          L20   1  48    8    64  -
ecs.gn8is-8x.32xlarge      L20   8  48  128  1024  pcie
ecs.gn8v.4xlarge           H20   1  96   16    96  -
ecs.gn8v-8x.48xlarge       H20   8  96  192  1024  nvlink
"""

_HUAWEI: Final = """
pi2.2xlarge.4      T4    1  16    8    32  -
pi2.4xlarge.4      T4    2  16   16    64  pcie
pi2.8xlarge.4      T4    4  16   32   128  pcie
g6.4xlarge.4       T4    1  16   16    64  -
g6.20xlarge.7      T4    2  16   80   560  pcie
p2s.2xlarge.8      V100  1  32    8    64  -
p2s.4xlarge.8      V100  2  32   16   128  pcie
p2s.8xlarge.8      V100  4  32   32   256  pcie
p2s.16xlarge.8     V100  8  32   64   512  pcie
p2v.2xlarge.8      V100  1  16    8    64  -
p2v.16xlarge.8     V100  8  16   64   512  nvlink
p3.2xlarge.8       A100  1  80    8    64  -
p3.8xlarge.8       A100  4  80   32   256  pcie
p3.16xlarge.8      A100  8  80   64   512  pcie
p5s.5xlarge.12     H100  1  80   20   240  -
p5s.40xlarge.12    H100  8  80  160  1920  pcie
p5e.40xlarge.12    H100  8  94  160  1920  pcie
pi5e.2xlarge.4     L4    1  24    8    32  -
pi5e.24xlarge.4    L4    6  24   96   384  pcie
g7.24xlarge.8      A40   2  48   96   768  pcie
"""

_AWS: Final = """
p3.2xlarge        V100          1   16    8    61  -
p3.8xlarge        V100          4   16   32   244  nvlink
p3.16xlarge       V100          8   16   64   488  nvlink
p3dn.24xlarge     V100          8   32   96   768  nvlink
p4d.24xlarge      A100          8   40   96  1152  nvswitch
p4de.24xlarge     A100          8   80   96  1152  nvswitch
p5.4xlarge        H100          1   80   16   256  -
p5.48xlarge       H100          8   80  192  2048  nvswitch
p5e.48xlarge      H200          8  141  192  2048  nvswitch
p5en.48xlarge     H200          8  141  192  2048  nvswitch
p6-b200.48xlarge  B200          8  179  192  2048  nvswitch
g4dn.xlarge       T4            1   16    4    16  -
g4dn.12xlarge     T4            4   16   48   192  pcie
g5.xlarge         A10G          1   24    4    16  -
g5.12xlarge       A10G          4   24   48   192  pcie
g5.48xlarge       A10G          8   24  192   768  pcie
g6.xlarge         L4            1   24    4    16  -
g6.48xlarge       L4            8   24  192   768  pcie
g6e.xlarge        L40S          1   48    4    32  -
g6e.48xlarge      L40S          8   48  192  1536  pcie
g7e.48xlarge      RTX-PRO-6000  8   96  192  2048  pcie
"""

_GPU_TYPE: Final = re.compile(r"(?P<model>.+)-(?P<memory>[1-9][0-9]*)G")


def _rows(provider: ProviderName, table: str) -> tuple[InstanceType, ...]:
    return tuple(_row(provider, line.split()) for line in table.strip().splitlines())


def _row(provider: ProviderName, cells: list[str]) -> InstanceType:
    name, model, count, memory, vcpus, ram, link = cells
    return InstanceType(
        provider=provider,
        name=name,
        gpu_model=model,
        gpu_count=int(count),
        gpu_memory_gb=int(memory),
        vcpu_count=int(vcpus),
        ram_gib=int(ram),
        interconnect=_LINKS[link],
    )


CATALOGUE: Final[dict[ProviderName, tuple[InstanceType, ...]]] = {
    ProviderName.TENCENT: _rows(ProviderName.TENCENT, _TENCENT),
    ProviderName.ALIYUN: _rows(ProviderName.ALIYUN, _ALIYUN),
    ProviderName.HUAWEI: _rows(ProviderName.HUAWEI, _HUAWEI),
    ProviderName.AWS: _rows(ProviderName.AWS, _AWS),
}
"""Every known GPU instance type by provider, in the order of the vendor's families."""

_BY_NAME: Final = {(row.provider, row.name): row for rows in CATALOGUE.values() for row in rows}


def instance_type(provider: ProviderName, name: str) -> InstanceType | None:
    """The row of one instance type, or None when the catalogue lacks it."""
    return _BY_NAME.get((provider, name))


def types_for(provider: ProviderName, gpu_type: str) -> tuple[InstanceType, ...]:
    """Instance types of one provider that carry a GPU type.

    Args:
        provider: The cloud to look in.
        gpu_type: ``MODEL-MEMORY`` such as ``A100-40G``, or a bare model, which any memory satisfies; case
            counts.

    Returns:
        Rows in the catalogue's order; empty when the name is unknown or this cloud does not sell it.
    """
    match = _GPU_TYPE.fullmatch(gpu_type)
    if match is None:
        return tuple(row for row in CATALOGUE[provider] if row.gpu_model == gpu_type)
    model, memory = match["model"], int(match["memory"])
    return tuple(row for row in CATALOGUE[provider] if row.gpu_model == model and row.gpu_memory_gb == memory)


def known_gpu_types() -> tuple[str, ...]:
    """Every name a pool may use, sorted: bare models and ``MODEL-MEMORY`` forms of all four clouds."""
    rows = _BY_NAME.values()
    return tuple(sorted({row.gpu_type for row in rows} | {row.gpu_model for row in rows}))
