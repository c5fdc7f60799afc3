"""A process of the operator is judged by itself, not by whoever answers at its port."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandbox.control_plane.processes import ProcessError, ProcessTable
from sandbox.operator_processes import Operator, OperatorConfig, process_names
from workers.health import Health, serve


def test_workers_beyond_the_first_are_numbered() -> None:
    assert process_names(1) == ("worker", "bridge")
    assert process_names(3) == ("worker", "bridge", "worker-2", "worker-3")


async def test_operator_is_not_ready_because_another_answers_at_its_port(tmp_path: Path) -> None:
    health = Health()
    health.waits_for = ""
    async with serve(health, "127.0.0.1", 0) as address:
        config = OperatorConfig(
            environment={"SPOTGPU_REGIONS": "no region"},
            kubeconfigs={"worker": tmp_path / "none"},
            temporal={"worker": "127.0.0.1:1"},
            health_ports={"worker": urlsplit(address).port or 0},
            base={},
            die_with_parent=True,
        )
        operator = Operator(config, ProcessTable(tmp_path / "pids", tmp_path / "logs"), tmp_path)
        with pytest.raises(ProcessError, match="worker ended"):
            await asyncio.to_thread(operator.wait_ready, "worker")
