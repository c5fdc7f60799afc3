"""A sandbox of the bench's own: the operator's usual intervals, an audit log, and a few hands."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from domain.contracts.offers import ProviderName
from sandbox.clouds.admin import SettingsRequest
from sandbox.clouds.tencent import TencentCloud
from sandbox.clusters import OwnCluster
from sandbox.control_plane import components
from sandbox.control_plane.components import API_SERVER, CONTROLLER_MANAGER
from sandbox.operator_processes import PROCESSES, kind_of
from sandbox.provision import EXAMPLES, OPERATOR_NAMESPACE
from sandbox.run_folder import StackFolder
from sandbox.shortened import SHORTENED
from sandbox.stack import Stack, StackOptions
from tests.bench.meters import AUDIT_POLICY, AuditLog, Usage, usage
from tests.crd_bridge.raw_api import RawApi, collection

REGION = "ap-guangzhou"
ZONES = ("ap-guangzhou-3", "ap-guangzhou-6")
SERVED = f"{ProviderName.TENCENT}:tencent-credentials:{REGION}"
NAMESPACE = "default"
USUAL: Mapping[str, str] = {
    # How long a stopped worker may linger changes no figure, but each run would wait for it.
    setting.variable: setting.usual
    for setting in SHORTENED
    if setting.variable != "SPOTGPU_GRACEFUL_SHUTDOWN_SECONDS"
}
HEARTBEAT_SECONDS = 300
"""A kubelet sends a status that did not change every five minutes (and renews a Lease, which no operator
watches). The sandbox does it every 5 s, since its machines must be seen to lose power: 60 times the load on
everybody who watches Nodes."""
_PLENTY = 2000
_POLL_SECONDS = 0.25


class BenchError(Exception):
    """A measurement could not be taken; the message says what was waited for."""


def tell(line: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Rig:
    """A running stack with its meters."""

    stack: Stack
    audit: AuditLog
    api: RawApi

    def apply_pool(self, name: str, **fields: object) -> None:
        """Create a pool in one region of one cloud; ``fields`` of the spec win over the demo pool's."""
        pool = yaml.safe_load((EXAMPLES / "demo-pool.yaml").read_text())
        pool["metadata"] = {"name": name, "namespace": NAMESPACE}
        pool["spec"]["providers"] = [{"name": ProviderName.TENCENT.value, "regions": [REGION]}]
        pool["spec"].update(fields)
        answer = self.api.create(NAMESPACE, "gpuspotpools", json.dumps(pool))
        if not answer.ok:
            raise BenchError(f"pool {name} was refused: {answer.message}")

    def status(self, name: str) -> dict[str, Any]:
        """Status of a pool, empty before its first writing."""
        return self.api.send("GET", f"{collection(NAMESPACE, 'gpuspotpools')}/{name}").body.get("status", {})

    def ready_nodes(self) -> int:
        """Nodes whose condition Ready is True, from the API server's cache."""
        items = self.api.send("GET", "/api/v1/nodes?resourceVersion=0").body["items"]
        return sum(_is_ready(node) for node in items)

    def usage(self) -> dict[str, Usage]:
        """Workers and bridge so far, those of a kind together."""
        operator = self.stack.operator
        each = [(kind_of(name), usage(operator.pid(name))) for name in operator.names]
        return {
            kind: Usage(
                sum(used.cpu_seconds for of, used in each if of == kind),
                sum(used.peak_mb for of, used in each if of == kind),
            )
            for kind in PROCESSES
        }

    def lift_stock(self) -> None:
        """Let the market never be the limit."""
        for zone in ZONES:
            self.stack.cloud(ProviderName.TENCENT).set_capacity(zone, None, _PLENTY)

    def lift_cloud_rates(self) -> None:
        """Let the cloud admit any rate."""
        rates = dict.fromkeys(TencentCloud.rates_per_second, 0)
        self.stack.cloud(ProviderName.TENCENT).change_settings(
            SettingsRequest(rates_per_second=rates, default_rate_per_second=0)
        )


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextmanager
def running(folder: Path, settings: Mapping[str, str], *, workers: int = 1) -> Generator[Rig]:
    """Bring a stack up in an empty folder, with ``settings`` over the usual ones, and end it after."""
    policy, log = folder / "audit-policy.yaml", folder / "audit.log"
    folder.mkdir(parents=True)
    policy.write_text(AUDIT_POLICY.format(namespace=OPERATOR_NAMESPACE))
    stages = _stages_with_slow_heartbeats(folder)
    options = StackOptions(
        os.environ,
        settings={**USUAL, "SPOTGPU_REGIONS": SERVED, **settings},
        workers=workers,
        control_plane_arguments={
            API_SERVER: (f"--audit-policy-file={policy}", f"--audit-log-path={log}"),
            CONTROLLER_MANAGER: (f"--node-monitor-grace-period={3 * HEARTBEAT_SECONDS}s",),
        },
    )
    stack = Stack(StackFolder(folder / "stack"), options, tell)
    with patch.object(components, "STAGE_FILES", stages):
        stack.up()
    try:
        cluster = stack.cluster
        if not isinstance(cluster, OwnCluster):
            raise BenchError("the bench measures on its own control plane only")
        with RawApi(cluster.server, cluster.ca_file, cluster.plane.admin_token) as api:
            yield Rig(stack, AuditLog(log), api)
    finally:
        stack.down()


def _stages_with_slow_heartbeats(folder: Path) -> tuple[Path, ...]:
    """Copies of the sandbox's stages in which a heartbeat comes as often as a kubelet's."""
    copies: list[Path] = []
    for stage in components.STAGE_FILES:
        text = stage.read_text()
        slow = text.replace("Milliseconds: 5000", f"Milliseconds: {HEARTBEAT_SECONDS * 1000}")
        slow = slow.replace("fromdateiso8601 + 5 |", f"fromdateiso8601 + {HEARTBEAT_SECONDS} |")
        if "node-heartbeat" in text and slow.count(str(HEARTBEAT_SECONDS)) != 2:
            raise BenchError(f"{stage} does not say any more how often heartbeats come")
        copies.append(folder / stage.name)
        copies[-1].write_text(slow)
    return tuple(copies)


def wait_until(what: str, holds: Callable[[], bool], timeout_seconds: float) -> None:
    """Poll until something holds.

    Raises:
        BenchError: It did not in time.
    """
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        if time.monotonic() >= deadline:
            raise BenchError(f"waited {timeout_seconds:.0f} s in vain for: {what}")
        time.sleep(_POLL_SECONDS)


def now() -> datetime:
    """This moment, UTC."""
    return datetime.now(UTC)
