"""Whether a component works: the URL that says so, and how it is asked."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

from sandbox.control_plane.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    HOST,
    KWOK,
    SCHEDULER,
    Settings,
)


def health_url(component: str, settings: Settings) -> str:
    """Return the URL that answers 200 once the component works."""
    ports = settings.ports
    return {
        ETCD: f"http://{HOST}:{ports.etcd_client}/health",
        API_SERVER: f"{settings.server}/readyz",
        CONTROLLER_MANAGER: f"https://{HOST}:{ports.controller_manager}/healthz",
        SCHEDULER: f"https://{HOST}:{ports.scheduler}/healthz",
        KWOK: f"http://{HOST}:{ports.kwok}/healthz",
    }[component]


def answers_ok(url: str, *, ca: Path | None = None, token: str | None = None) -> bool:
    """Ask once. Without a CA any certificate will do: each component made its own, and no secret is sent."""
    context = ssl.create_default_context(cafile=ca)
    if ca is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    headers = {"Authorization": f"Bearer {token}"} if token and ca else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own health URLs
    try:
        with direct.open(request, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False  # not yet, or an answer that is no 200: the caller asks again until its deadline
