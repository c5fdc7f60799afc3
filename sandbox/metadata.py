"""The metadata service of the machines: what they are, and the notice that they will be taken back.

One server serves all machines below ``/machines/ID``; what follows is the vendor's own path. A program that
runs on a machine gets that address instead of the vendor's link-local one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from aiohttp import web

from domain.contracts.offers import ProviderName
from sandbox.clouds.ledger import Machine
from sandbox.metadata_sessions import SESSION_RULES, SessionRules, Sessions
from sandbox.ports import HOST

# Source: Tencent Cloud document 213/32487 (January 2024): the time has no zone and is UTC+8.
_TENCENT_ZONE = timezone(timedelta(hours=8))
_TENCENT_NOTICE = "/latest/meta-data/spot/termination-time"
# Source: Alibaba Cloud ECS, instance metadata (April 2026).
_ALIYUN_NOTICE = "/latest/meta-data/instance/spot/termination-time"
# Source: a public agent for several clouds, which takes any answer as the notice; its content is not known.
_HUAWEI_NOTICE = "/openstack/latest/spot/instance-action"
# Source: EC2 user guide, "Spot Instance interruption notices" and "EC2 instance rebalance recommendations".
_AWS_ACTION = "/latest/meta-data/spot/instance-action"
_AWS_TIME = "/latest/meta-data/spot/termination-time"
_AWS_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"

_INSTANCE_ID = "/latest/meta-data/instance-id"
_USER_DATA = "/latest/user-data"
# Source: Huawei Cloud ECS, "Obtaining Metadata": the server's id is the uuid of the OpenStack document.
_HUAWEI_DOCUMENT = "/openstack/latest/meta_data.json"
_HUAWEI_USER_DATA = "/openstack/latest/user_data"

# Sources: the pages named above; Tencent Cloud document 213/4934 for Tencent's names. Path to what is there.
_PLACES: Mapping[ProviderName, Mapping[str, Callable[[Machine], str]]] = {
    ProviderName.TENCENT: {
        "/latest/meta-data/placement/region": lambda machine: machine.order.region,
        "/latest/meta-data/placement/zone": lambda machine: machine.order.zone,
        "/latest/meta-data/instance/instance-type": lambda machine: machine.order.instance_type,
        "/latest/meta-data/local-ipv4": lambda machine: machine.private_ip,
    },
    ProviderName.ALIYUN: {
        "/latest/meta-data/region-id": lambda machine: machine.order.region,
        "/latest/meta-data/zone-id": lambda machine: machine.order.zone,
        "/latest/meta-data/instance/instance-type": lambda machine: machine.order.instance_type,
        "/latest/meta-data/private-ipv4": lambda machine: machine.private_ip,
    },
    ProviderName.HUAWEI: {
        "/latest/meta-data/placement/availability-zone": lambda machine: machine.order.zone,
        "/latest/meta-data/instance-type": lambda machine: machine.order.instance_type,
        "/latest/meta-data/local-ipv4": lambda machine: machine.private_ip,
    },
    ProviderName.AWS: {
        "/latest/meta-data/placement/region": lambda machine: machine.order.region,
        "/latest/meta-data/placement/availability-zone": lambda machine: machine.order.zone,
        "/latest/meta-data/instance-type": lambda machine: machine.order.instance_type,
        "/latest/meta-data/instance-life-cycle": lambda m: "spot" if m.order.spot else "on-demand",
        "/latest/meta-data/local-ipv4": lambda machine: machine.private_ip,
    },
}


def metadata_of_machine(provider: ProviderName, machine: Machine) -> dict[str, str]:
    """Everything that a machine's metadata service says now: path to text.

    Args:
        provider: The machine's cloud.
        machine: As its ledger has it; its notice is there from the moment the cloud takes it back.
    """
    texts = metadata_of(provider, machine.id, machine.reclaim_at)
    texts |= {path: read(machine) for path, read in _PLACES.get(provider, {}).items()}
    if provider is ProviderName.HUAWEI:
        place = {"availability_zone": machine.order.zone, "region_id": machine.order.region}
        texts[_HUAWEI_DOCUMENT] = json.dumps({"uuid": machine.id, **place})
    if machine.order.user_data:
        texts[_HUAWEI_USER_DATA if provider is ProviderName.HUAWEI else _USER_DATA] = machine.order.user_data
    risk_at = machine.risk_at or machine.notice_at  # the recommendation comes with the notice at the latest
    if provider is ProviderName.AWS and risk_at is not None:
        texts[_AWS_REBALANCE] = json.dumps({"noticeTime": _utc(risk_at)})
    return texts


def metadata_of(provider: ProviderName, machine_id: str, reclaim_at: datetime | None) -> dict[str, str]:
    """A machine's id and its notice, as its vendor serves them: path to text; no notice, no path (404).

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
        texts[_ALIYUN_NOTICE] = _utc(reclaim_at)
    elif provider is ProviderName.HUAWEI:
        texts[_HUAWEI_NOTICE] = "{}"
    elif provider is ProviderName.AWS:
        texts[_AWS_ACTION] = json.dumps({"action": "terminate", "time": _utc(reclaim_at)})
        texts[_AWS_TIME] = _utc(reclaim_at)
    return texts


def _identity(provider: ProviderName, machine_id: str) -> dict[str, str]:
    """Where a machine of this cloud learns its own id."""
    if provider is ProviderName.HUAWEI:
        return {_HUAWEI_DOCUMENT: json.dumps({"uuid": machine_id})}
    return {_INSTANCE_ID: machine_id}


def _utc(moment: datetime) -> str:
    """Whole seconds, the rest cut off: no machine lives longer than its notice says."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class MetadataServer:
    """Serves what ``texts`` gives for a machine's id: None for a machine that is unknown or has no power."""

    def __init__(
        self,
        texts: Callable[[str], Mapping[str, str] | None],
        provider_of: Callable[[str], ProviderName | None] = lambda _: None,
        sessions: Sessions | None = None,
    ) -> None:
        """Serve machines as strictly as their vendors do.

        Args:
            texts: A machine's id to what its service says.
            provider_of: A machine's id to its cloud, whose sessions it has; None for a cloud without.
            sessions: Where tokens are kept.
        """
        self.base_url = ""
        self._texts = texts
        self._provider_of = provider_of
        self._sessions = sessions or Sessions()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Listen on loopback and return the base address."""
        app = web.Application()
        app.router.add_route("*", "/machines/{id}/{path:.*}", self._serve)
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
        machine_id, path = request.match_info["id"], "/" + request.match_info["path"]
        texts = self._texts(machine_id)
        if texts is None:
            return web.Response(status=404)
        provider = self._provider_of(machine_id)
        rules = SESSION_RULES.get(provider) if provider else None
        if rules is not None and path == rules.path:
            return self._open_session(request, rules, machine_id)
        if request.method != "GET":
            return web.Response(status=405)
        token = request.headers.get(rules.token_header) if rules else None
        if rules is not None and not self._sessions.admits(rules, machine_id, token):
            return web.Response(status=401)
        text = texts.get(path)
        return web.Response(status=404) if text is None else web.Response(text=text)

    def _open_session(self, request: web.Request, rules: SessionRules, machine_id: str) -> web.Response:
        if request.method != "PUT":
            return web.Response(status=405)
        seconds = request.headers.get(rules.life_header, "")
        token = self._sessions.open(machine_id, seconds)
        if token is None:
            return web.Response(status=400)
        return web.Response(text=token, headers={rules.life_header: seconds})
