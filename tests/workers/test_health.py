import time
from urllib.parse import urlsplit

import aiohttp
import pytest

from workers.errors import ConfigurationError
from workers.health import Health, serve


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_health_is_ready_only_when_nothing_is_waited_for() -> None:
    health = Health()
    async with serve(health, "127.0.0.1", 0) as address:
        health.waits_for = "Temporal"
        assert await fetch(f"{address}/readyz") == (503, "waits for: Temporal\n")
        health.waits_for = ""
        assert await fetch(f"{address}/readyz") == (200, "ready\n")


async def test_health_is_live_while_the_loop_turns() -> None:
    health = Health()
    async with serve(health, "127.0.0.1", 0) as address:
        assert (await fetch(f"{address}/livez"))[0] == 200
        health._turned_at = time.monotonic() - 60
        status, text = await fetch(f"{address}/livez")
    assert (status, "60 s" in text) == (503, True)


async def test_health_serves_metrics_that_are_up_to_date() -> None:
    health = Health()
    refreshed: list[bool] = []

    async def refresh() -> None:
        refreshed.append(True)

    health.before_metrics = refresh
    async with serve(health, "127.0.0.1", 0) as address:
        await fetch(f"{address}/livez")
        assert refreshed == []
        status, text = await fetch(f"{address}/metrics")
    assert (status, refreshed) == (200, [True])
    assert "# TYPE spotgpu_provider_calls_total counter" in text


async def test_health_says_when_its_port_is_taken() -> None:
    async with serve(Health(), "127.0.0.1", 0) as address:
        port = urlsplit(address).port
        with pytest.raises(
            ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}.*SPOTGPU_HEALTH_PORT"
        ):
            async with serve(Health(), "127.0.0.1", port or 0):
                pass
