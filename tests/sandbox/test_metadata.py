"""The metadata service: ids at once, notices in each vendor's words once there is one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from aiohttp import ClientSession

from domain.contracts.offers import ProviderName
from sandbox.clouds.ledger import Ledger, Order
from sandbox.metadata import MetadataServer, metadata_of, metadata_of_machine
from sandbox.metadata_sessions import SESSION_RULES, SessionRules, Sessions
from tests.steps import to_do

END = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("provider", "path", "text"),
    [
        pytest.param(
            ProviderName.TENCENT,
            "/latest/meta-data/spot/termination-time",
            "2026-03-02 07:30:00",
            id="Tencent: UTC+8 without a zone",
        ),
        pytest.param(
            ProviderName.ALIYUN,
            "/latest/meta-data/instance/spot/termination-time",
            "2026-03-01T23:30:00Z",
            id="Alibaba: UTC with Z",
        ),
        pytest.param(ProviderName.HUAWEI, "/openstack/latest/spot/instance-action", "{}", id="Huawei"),
        pytest.param(
            ProviderName.AWS,
            "/latest/meta-data/spot/instance-action",
            '{"action": "terminate", "time": "2026-03-01T23:30:00Z"}',
            id="AWS: action and time",
        ),
        pytest.param(
            ProviderName.AWS,
            "/latest/meta-data/spot/termination-time",
            "2026-03-01T23:30:00Z",
            id="AWS: what there was before",
        ),
    ],
)
def test_metadata_has_the_notice_in_the_vendors_words(provider: ProviderName, path: str, text: str) -> None:
    assert path not in metadata_of(provider, "i-1", None)
    assert metadata_of(provider, "i-1", END)[path] == text


def test_metadata_of_huawei_has_the_id_in_the_openstack_document_alone() -> None:
    texts = metadata_of(ProviderName.HUAWEI, "7e1a6c0b", None)
    assert {path: json.loads(text) for path, text in texts.items()} == {
        "/openstack/latest/meta_data.json": {"uuid": "7e1a6c0b"}
    }


async def test_metadata_server_serves_each_machine_its_own() -> None:
    texts = {name: metadata_of(ProviderName.TENCENT, name, None) for name in ("ins-1", "ins-2")}
    server = MetadataServer(texts.get)
    url = await server.start()
    async with ClientSession() as client:
        answers = [
            await client.get(f"{url}/machines/{name}/latest/meta-data/{leaf}")
            for name, leaf in (
                ("ins-1", "instance-id"),
                ("ins-2", "instance-id"),
                ("ins-3", "instance-id"),
                ("ins-1", "spot/termination-time"),
            )
        ]
        seen = [(answer.status, await answer.text()) for answer in answers]
    await server.stop()
    assert seen == [(200, "ins-1"), (200, "ins-2"), (404, ""), (404, "")]


PLACES = {
    ProviderName.TENCENT: {
        "/latest/meta-data/instance-id": "i-1",
        "/latest/meta-data/placement/region": "region-1",
        "/latest/meta-data/placement/zone": "zone-1",
        "/latest/meta-data/instance/instance-type": "gpu.large",
        "/latest/user-data": "#!/bin/sh\n",
    },
    ProviderName.ALIYUN: {
        "/latest/meta-data/instance-id": "i-1",
        "/latest/meta-data/region-id": "region-1",
        "/latest/meta-data/zone-id": "zone-1",
        "/latest/meta-data/instance/instance-type": "gpu.large",
        "/latest/user-data": "#!/bin/sh\n",
    },
    ProviderName.HUAWEI: {
        "/openstack/latest/meta_data.json": (
            '{"uuid": "i-1", "availability_zone": "zone-1", "region_id": "region-1"}'
        ),
        "/latest/meta-data/placement/availability-zone": "zone-1",
        "/latest/meta-data/instance-type": "gpu.large",
        "/openstack/latest/user_data": "#!/bin/sh\n",
    },
    ProviderName.AWS: {
        "/latest/meta-data/instance-id": "i-1",
        "/latest/meta-data/placement/region": "region-1",
        "/latest/meta-data/placement/availability-zone": "zone-1",
        "/latest/meta-data/instance-type": "gpu.large",
        "/latest/meta-data/instance-life-cycle": "spot",
        "/latest/user-data": "#!/bin/sh\n",
    },
}


def order(user_data: str = "") -> Order:
    return Order("region-1", "zone-1", "gpu.large", True, Decimal(1), "image-1", "subnet-1", user_data)


@pytest.mark.parametrize("provider", ProviderName)
def test_metadata_says_what_the_machine_is(provider: ProviderName) -> None:
    assert provider in PLACES, to_do(
        3, f"what sandbox/metadata.py says on machines of {provider}, and PLACES here"
    )
    ledger = Ledger(clock=lambda: END, id_prefix="i-")
    bare, scripted = *ledger.buy(order()), *ledger.buy(order("#!/bin/sh\n"))
    texts = metadata_of_machine(provider, scripted)
    wanted = {path: text.replace("i-1", scripted.id) for path, text in PLACES[provider].items()}
    assert {path: texts.get(path) for path in wanted} == wanted
    assert not [path for path in metadata_of_machine(provider, bare) if "user" in path]


def test_metadata_of_aws_recommends_before_or_with_the_notice() -> None:
    clock = [END]
    ledger = Ledger(clock=lambda: clock[0], id_prefix="i-")
    early, late = ledger.buy(order(), 2)
    ledger.warn(early.id)
    clock[0] += timedelta(seconds=60)
    for machine in (early, late):
        ledger.reclaim(machine.id, notice_seconds=120)
    said = [
        json.loads(metadata_of_machine(ProviderName.AWS, machine)[path])
        for machine in (early, late)
        for path in ("/latest/meta-data/events/recommendations/rebalance",)
    ]
    assert said == [{"noticeTime": "2026-03-01T23:30:00Z"}, {"noticeTime": "2026-03-01T23:31:00Z"}]


@dataclass
class Door:
    """The service of two machines of one cloud, and a client."""

    url: str
    client: ClientSession
    clock: list[datetime]

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, *, machine: str = "i-1"
    ) -> tuple[int, str]:
        url = f"{self.url}/machines/{machine}{path}"
        async with self.client.request(method, url, headers=headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def door(provider: ProviderName) -> AsyncIterator[Door]:
    clock = [END]
    texts = {name: {"/path": name} for name in ("i-1", "i-2")}
    server = MetadataServer(texts.get, lambda _: provider, Sessions(lambda: clock[0]))
    url = await server.start()
    async with ClientSession() as client:
        yield Door(url, client, clock)
    await server.stop()


def session_of(rules: SessionRules, seconds: str = "60") -> tuple[str, str, dict[str, str]]:
    return "PUT", rules.path, {rules.life_header: seconds}


@pytest.mark.parametrize("provider", SESSION_RULES)
async def test_session_is_good_for_its_machine_until_its_time_is_over(
    door: Door, provider: ProviderName
) -> None:
    rules = SESSION_RULES[provider]
    status, token = await door.ask(*session_of(rules))
    headers = {rules.token_header: token}
    assert status == 200
    assert await door.ask("GET", "/path", headers) == (200, "i-1")
    assert await door.ask("GET", "/path", headers, machine="i-2") == (401, "")
    assert await door.ask("GET", "/nothing", headers) == (404, "")
    door.clock[0] += timedelta(seconds=60)
    assert await door.ask("GET", "/path", headers) == (401, "")


@pytest.mark.parametrize("provider", SESSION_RULES)
async def test_service_of_aws_alone_answers_nobody_without_a_session(
    door: Door, provider: ProviderName
) -> None:
    wanted = (401, "") if provider is ProviderName.AWS else (200, "i-1")
    assert await door.ask("GET", "/path") == wanted
    assert await door.ask("GET", "/path", {SESSION_RULES[provider].token_header: "made-up"}) == (401, "")


@pytest.mark.parametrize("provider", [ProviderName.AWS])
@pytest.mark.parametrize("seconds", ["", "0", "21601", "-1", "1.5", "long", "²"])
async def test_session_is_refused_without_a_proper_length(
    door: Door, provider: ProviderName, seconds: str
) -> None:
    assert await door.ask(*session_of(SESSION_RULES[provider], seconds)) == (400, "")


@pytest.mark.parametrize("provider", [ProviderName.AWS])
async def test_service_knows_one_method_a_path(door: Door, provider: ProviderName) -> None:
    assert await door.ask("GET", SESSION_RULES[provider].path) == (405, "")
    assert await door.ask("POST", "/path") == (405, "")
    assert await door.ask(*session_of(SESSION_RULES[provider]), machine="i-3") == (404, "")
