"""The metadata service of the machines: their own id, and the notice that they will be taken back.

One server serves all machines below ``/machines/ID``; what follows is the vendor's own path. A program that
runs on a machine gets that address instead of the vendor's link-local one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from aiohttp import web

from domain.contracts.offers import ProviderName
from sandbox.ports import HOST

# Source: Tencent Cloud document 213/32487 (January 2024): the time has no zone and is UTC+8.
_TENCENT_ZONE = timezone(timedelta(hours=8))
_TENCENT_NOTICE = "/latest/meta-data/spot/termination-time"
# Source: Alibaba Cloud ECS, instance metadata (April 2026).
_ALIYUN_NOTICE = "/latest/meta-data/instance/spot/termination-time"
_INSTANCE_ID = "/latest/meta-data/instance-id"
# Source: Huawei Cloud ECS, "Obtaining Metadata": the server's id is the uuid of the OpenStack document.
_HUAWEI_DOCUMENT = "/openstack/latest/meta_data.json"


def metadata_of(provider: ProviderName, machine_id: str, reclaim_at: datetime | None) -> dict[str, str]:
    """Path to text, as the machine's vendor serves it; a notice is absent (404) until there is one.

    Args:
        provider: The cloud.
        machine_id: The vendor's instance id.
        reclaim_at: When the cloud takes the machine back, UTC; None without a notice.
    """
    texts = _identity(provider, machine_id)
    if reclaim_at is None:
        return texts
    if provider is ProviderName.TENCENT:
        texts[_TENCENT_NOTICE] = reclaim_at.astimezone(_TENCENT_ZONE).strftime("%Y-%m-%d %H:%M:%S")
    elif provider is ProviderName.ALIYUN:
        texts[_ALIYUN_NOTICE] = reclaim_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return texts


def _identity(provider: ProviderName, machine_id: str) -> dict[str, str]:
    """Where a machine of this cloud learns its own id."""
    if provider is ProviderName.HUAWEI:
        return {_HUAWEI_DOCUMENT: json.dumps({"uuid": machine_id})}
    return {_INSTANCE_ID: machine_id}


class MetadataServer:
    """Serves what ``texts`` gives for a machine's id: None for a machine that is unknown or has no power."""

    def __init__(self, texts: Callable[[str], Mapping[str, str] | None]) -> None:
        self.base_url = ""
        self._texts = texts
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Listen on loopback and return the base address."""
        app = web.Application()
        app.router.add_get("/machines/{id}/{path:.*}", self._serve)
        runner = self._runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        self.base_url = f"http://{HOST}:{runner.addresses[0][1]}"
        return self.base_url

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        texts = self._texts(request.match_info["id"]) or {}
        text = texts.get("/" + request.match_info["path"])
        return web.Response(status=404) if text is None else web.Response(text=text)
