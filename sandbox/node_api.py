"""The few requests that machines send to the Kubernetes API, counted apart from the operator's."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

JsonObject = dict[str, Any]

_REQUEST_TIMEOUT = ClientTimeout(total=10)
_TLS_GOODBYE_SECONDS = 0.25
_WATCH_SECONDS = 240
_WATCH_TIMEOUT = ClientTimeout(total=_WATCH_SECONDS + 10)
_WATCH_LINE_BYTES = 4 * 1024 * 1024


class NodeApiError(Exception):
    """The API server refused, or did not answer (status 0); the text says what."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}" if status else text)
        self.status = status


@dataclass(frozen=True)
class ApiAccess:
    """Where the API server is and who asks."""

    server: str
    """URL."""
    ca: Path | None = None
    """What to trust; None for plain HTTP."""
    token: str = ""
    """Bearer token; empty where the server asks for none (``kubectl proxy``)."""


class NodeApi:
    """One session for all machines. Belongs to the event loop that opened it."""

    def __init__(self, access: ApiAccess) -> None:
        self.requests: Counter[str] = Counter()
        """Requests sent by the machines, by verb."""
        headers = {"User-Agent": "spotgpu-sandbox-machines"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        tls = ssl.create_default_context(cafile=access.ca) if access.ca else True
        self._connector = TCPConnector(ssl=tls, limit=16)
        self._session = ClientSession(
            access.server,
            connector=self._connector,
            headers=headers,
            trust_env=False,
            read_bufsize=_WATCH_LINE_BYTES,
        )

    async def close(self) -> None:
        """Free the connections."""
        await self._connector.close(abort_ssl=True)
        await self._session.close()
        # Source: aiohttp, "Graceful shutdown": requests that were cut leave connections that say goodbye over
        # TLS without anybody to wait for; a loop that ends at once would leak them.
        await asyncio.sleep(_TLS_GOODBYE_SECONDS)

    async def create_node(self, body: JsonObject) -> JsonObject:
        """Register a Node.

        Raises:
            NodeApiError: 409 when the name is taken.
        """
        return await self._call("create", "POST", "/api/v1/nodes", body)

    async def node(self, name: str) -> JsonObject | None:
        """One Node, None when there is none of that name."""
        try:
            return await self._call("get", "GET", f"/api/v1/nodes/{name}")
        except NodeApiError as error:
            if error.status == 404:
                return None
            raise

    async def patch_node(self, name: str, patch: Mapping[str, object], *, status: bool = False) -> bool:
        """Merge-patch a Node or its status; False when it is gone."""
        path = f"/api/v1/nodes/{name}{'/status' if status else ''}"
        return await self._patch(path, patch)

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, object]) -> bool:
        """Merge-patch a Pod; False when it is gone."""
        return await self._patch(f"/api/v1/namespaces/{namespace}/pods/{name}", patch)

    async def pods(self, node_name: str = "") -> tuple[list[JsonObject], str]:
        """Pods of one Node, or all that are bound to any, and the list's resource version."""
        selector = f"spec.nodeName={node_name}" if node_name else "spec.nodeName!="
        answer = await self._call("list", "GET", f"/api/v1/pods?fieldSelector={selector}")
        return answer["items"], answer["metadata"]["resourceVersion"]

    async def watch_bound_pods(self, resource_version: str) -> AsyncIterator[JsonObject]:
        """Pods as they are bound to a Node or changed, until the server ends the watch.

        Raises:
            NodeApiError: The version is too old, or the connection broke: list again.
        """
        self.requests["watch"] += 1
        query = f"watch=true&fieldSelector=spec.nodeName!=&resourceVersion={resource_version}"
        path = f"/api/v1/pods?{query}&timeoutSeconds={_WATCH_SECONDS}"
        try:
            async with self._session.get(path, timeout=_WATCH_TIMEOUT) as answer:
                if answer.status != 200:
                    raise NodeApiError(answer.status, await answer.text())
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise NodeApiError(int(event["object"].get("code", 500)), str(event["object"]))
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]
        except (ClientError, TimeoutError, ValueError) as error:
            raise NodeApiError(0, f"watch of pods: {error!r}") from error

    async def _patch(self, path: str, patch: Mapping[str, object]) -> bool:
        try:
            await self._call("patch", "PATCH", path, patch)
        except NodeApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _call(
        self, verb: str, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> JsonObject:
        self.requests[verb] += 1
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            async with self._session.request(
                method,
                path,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": kind},
                timeout=_REQUEST_TIMEOUT,
            ) as answer:
                text = await answer.text()
                if answer.status >= 400:
                    raise NodeApiError(answer.status, text)
                return json.loads(text)
        except (ClientError, TimeoutError) as error:
            raise NodeApiError(0, f"{method} {path}: {error!r}") from error
