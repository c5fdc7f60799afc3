"""What the bench reads from outside the operator: its processes, the API server's audit log, the clouds."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sandbox.clouds.admin import MachineView

_TICKS = os.sysconf("SC_CLK_TCK")

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:{namespace}"]
  - level: None
"""


@dataclass(frozen=True)
class Usage:
    """A process so far."""

    cpu_seconds: float
    peak_mb: float
    """High-water mark of the resident memory, in megabytes of 1,000,000 bytes."""


def usage(pid: int) -> Usage:
    """Read ``/proc``; threads count, ended children do not.

    Raises:
        FileNotFoundError: There is no such process.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, peak_kb * 1024 / 1e6)


@dataclass(frozen=True)
class AuditLog:
    """What the API server wrote down of the operator's own identities."""

    path: Path

    def count(self, since: datetime, until: datetime) -> Counter[str]:
        """Requests that arrived in a span, as ``account verb resource``; a running watch counts once."""
        seen: dict[str, str] = {}
        for line in self.path.read_text().splitlines():
            event = json.loads(line)
            if since <= datetime.fromisoformat(event["requestReceivedTimestamp"]) < until:
                seen[event["auditID"]] = _request_name(event)
        return Counter(seen.values())


def _request_name(event: Mapping[str, Any]) -> str:
    account = event["user"]["username"].rpartition(":")[2]
    target = event.get("objectRef", {})
    parts = [target[key] for key in ("resource", "subresource") if target.get(key)]
    return f"{account} {event['verb']} {'/'.join(parts) or event['requestURI'].partition('?')[0]}"


def most_at_once(machines: Iterable[MachineView]) -> int:
    """The largest number of machines that held capacity at one moment, exactly, from the cloud's ledger."""
    changes: list[tuple[datetime, int]] = []
    for machine in machines:
        changes.append((machine.created_at, 1))
        if machine.ended_at is not None:
            changes.append((machine.ended_at, -1))
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
