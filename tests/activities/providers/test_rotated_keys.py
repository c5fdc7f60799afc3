"""A Secret with wrong keys, then with right ones, under a region's watch: real adapters, simulated clouds."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from activities.providers.registry import ProviderRegistry
from activities.regions import RegionActivities
from activities.signatures import WatchRegionRequest
from domain.contracts.errors import ErrorCode
from domain.contracts.facts import RegionHealth, RegionState
from domain.contracts.installation import Installation
from domain.contracts.settings import SyncSettings
from sandbox.clouds.server import served
from tests.activities.builders import an_attempt
from tests.activities.providers.cloud_case import CloudCase, found_cases
from tests.crd_bridge.waiting import until
from tests.fakes.directory import FakePools
from workers.secrets import AccountCredentials, OperatorSecrets

pytestmark = pytest.mark.wire

WRONG = "aWrongSecretThatNobodyKnows"
QUICK = SyncSettings(polling_interval_seconds=0.05, run_seconds=60, failures_to_open=3)


class Store:
    """The cluster's Secrets; each has the keys that were put there last."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    async def read_secret(self, name: str, namespace: str) -> dict[str, str]:
        return dict(self.keys)


@pytest.fixture(params=found_cases(), ids=lambda case: case.provider.value)
def case(request: pytest.FixtureRequest) -> CloudCase:
    return request.param


@pytest.fixture
def address(case: CloudCase) -> Iterator[str]:
    with served(case.simulator(case.settings())) as base_url:
        yield urlsplit(base_url).netloc


def states(pools: FakePools) -> list[RegionState]:
    return [payload for _, _, payload in pools.told if isinstance(payload, RegionState)]


async def test_rotated_secret_opens_the_circuit_and_closes_it_again(case: CloudCase, address: str) -> None:
    store, pools = Store(), FakePools("a")
    store.keys = dict(case.keys)
    secrets = OperatorSecrets(store, "ops", asyncio.get_running_loop(), max_age_seconds=0)
    registry = ProviderRegistry(
        [case.key], lambda key: case.build(key, AccountCredentials(secrets, key), address, 10)
    )
    hands = RegionActivities(registry, Installation(id="inst-1"), pools, jitter=lambda: 0.0)
    request = WatchRegionRequest(region=case.key, settings=QUICK)
    watch = asyncio.ensure_future(an_attempt().run(hands.watch_region, request))
    try:
        for keys, health in (
            (case.keys, RegionHealth.OK),
            ({**case.keys, "accessKeySecret": WRONG}, RegionHealth.CIRCUIT_OPEN),
            (case.keys, RegionHealth.OK),
            ({}, RegionHealth.CIRCUIT_OPEN),
            (case.keys, RegionHealth.OK),
        ):
            store.keys = dict(keys)
            await until(lambda h=health: states(pools) and states(pools)[-1].health is h, seconds=15)
        assert not watch.done(), "wrong keys end no watch"
    finally:
        watch.cancel()
        await asyncio.wait([watch])
        registry.close()
    opened = [state for state in states(pools) if state.health is RegionHealth.CIRCUIT_OPEN]
    assert [state.code for state in opened] == [ErrorCode.UNAUTHENTICATED] * 2
    assert all(f"{case.key.account}" in state.reason for state in opened)
    assert WRONG not in str(pools.told)
