"""What every test shares: how many examples properties try, and a proxy-free environment."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline anywhere: the machine may be busy, and a property is about values, not about time.
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# The SDKs of two clouds send even loopback calls to a proxy, whatever NO_PROXY says.
for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(name, None)
    os.environ.pop(name.lower(), None)

ROOT = Path(__file__).resolve().parents[1]
# Levels that are a matter of the room: adapters meet servers on loopback, recorded histories take their time.
LEVELS = {
    "tests/activities/providers/": "wire",
    "tests/activities/cluster/test_kube.py": "wire",
    "tests/sandbox/": "wire",
    "tests/replay/": "replay",
}
NEEDING_SERVERS = ("temporal", "cluster", "e2e")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(name) for name in NEEDING_SERVERS):
            continue
        where = item.path.relative_to(ROOT).as_posix()
        for start, level in LEVELS.items():
            if where.startswith(start):
                item.add_marker(level)
