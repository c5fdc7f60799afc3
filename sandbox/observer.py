"""What a person could see from outside: pools, Nodes and workflows, read over HTTP without any SDK."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sandbox.node_api import ApiAccess
from sandbox.temporal_server import NAMESPACE

Json = dict[str, Any]

_TIMEOUT_SECONDS = 5.0


class NotThereError(Exception):
    """A server did not answer, or has no such object; the text says which."""


@dataclass(frozen=True)
class MachineSeen:
    """One machine as its pool reports it."""

    id: str
    provider: str
    region: str
    zone: str
    status: str
    phase: str
    slot: str
    node: str


@dataclass(frozen=True)
class PoolSeen:
    """A pool's workflow at one moment."""

    workflow_id: str
    run_id: str
    desired: int
    current: int
    ready: int
    machines: tuple[MachineSeen, ...]
    waits_for: str

    def running(self) -> tuple[MachineSeen, ...]:
        """Machines that the cloud runs and that joined."""
        return tuple(m for m in self.machines if m.status == "Running" and m.node)


class Observer:
    """Looks at one stack. Synchronous; each look is one request."""

    def __init__(self, access: ApiAccess, temporal_url: str) -> None:
        """Look with these rights at Kubernetes, and at Temporal's own HTTP API."""
        self._access = access
        self._temporal_url = temporal_url
        self._tls = ssl.create_default_context(cafile=access.ca) if access.ca else None

    def resource(self, path: str) -> Json | None:
        """One object or list of the Kubernetes API, None when there is none.

        Raises:
            NotThereError: The API server does not answer.
        """
        headers = {"Authorization": f"Bearer {self._access.token}"} if self._access.token else {}
        return self._get(self._access.server + path, headers)

    def pool_resource(self, namespace: str, name: str) -> Json | None:
        """The GPUSpotPool, None when it is gone."""
        group = "/apis/spotgpu.zuoyang.cn/v1alpha1"
        return self.resource(f"{group}/namespaces/{namespace}/gpuspotpools/{name}")

    def nodes(self) -> dict[str, Json]:
        """Nodes by provider id; those without one are left out."""
        found = self.resource("/api/v1/nodes") or {"items": []}
        return {node["spec"]["providerID"]: node for node in found["items"] if node["spec"].get("providerID")}

    def workflow_status(self, workflow_id: str) -> str:
        """Temporal's word for the newest run, as ``WORKFLOW_EXECUTION_STATUS_RUNNING``; empty if none."""
        found = self._get(self._workflow_url(workflow_id), {})
        return "" if found is None else str(found["workflowExecutionInfo"]["status"])

    def pending_activities(self, workflow_id: str) -> list[str]:
        """Types of the activities that the newest run waits for."""
        found = self._get(self._workflow_url(workflow_id), {}) or {}
        return [str(activity["activityType"]["name"]) for activity in found.get("pendingActivities") or ()]

    def newest_events(self, workflow_id: str) -> list[Json]:
        """Up to 200 events of the newest run, newest first."""
        found = self._get(f"{self._workflow_url(workflow_id)}/history-reverse?maximumPageSize=200", {}) or {}
        history: Json = found.get("history") or {}
        return list(history.get("events") or ())

    def pool(self, namespace: str, name: str) -> PoolSeen:
        """Ask the pool's workflow for its state.

        Raises:
            NotThereError: No workflow, no worker, or no answer in time.
        """
        workflow_id = f"pool:{namespace}:{name}"
        url = f"{self._workflow_url(workflow_id)}/query/state"
        found = self._get(url, {"Content-Type": "application/json"}, body={"query": {}})
        if found is None:
            raise NotThereError(f"no workflow {workflow_id}")
        snapshot: Json = found["queryResult"][0]
        status: Json = snapshot["status"]
        reference: Json = status.get("workflow") or {}
        return PoolSeen(
            workflow_id=workflow_id,
            run_id=str(reference.get("runId", "")),
            desired=int(status.get("desiredInstances", 0)),
            current=int(status.get("currentInstances", 0)),
            ready=int(status.get("readyInstances", 0)),
            machines=tuple(_machine(fields) for fields in status.get("instances") or ()),
            waits_for=str(snapshot.get("waits_for", "")),
        )

    def _workflow_url(self, workflow_id: str) -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/workflows/{quote(workflow_id, safe='')}"
        return self._temporal_url + path

    def _get(self, url: str, headers: Mapping[str, str], body: Json | None = None) -> Json | None:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=content, headers=dict(headers))  # noqa: S310 - own servers
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._tls))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise NotThereError(f"{url}: {error.code}: {error.read()[:300]!r}") from error
        except (OSError, ValueError) as error:
            raise NotThereError(f"{url}: {error}") from error


def _machine(fields: Json) -> MachineSeen:
    return MachineSeen(
        id=str(fields["id"]),
        provider=str(fields["provider"]),
        region=str(fields["region"]),
        zone=str(fields.get("zone", "")),
        status=str(fields["status"]),
        phase=str(fields.get("phase", "")),
        slot=str(fields.get("slot", "")),
        node=str(fields.get("nodeName", "")),
    )
