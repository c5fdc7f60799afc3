"""The reader of notices against the simulated metadata service and against services that misbehave."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from aiohttp import web

from domain.contracts.interruptions import Notice, NoticeKind
from domain.contracts.offers import ProviderName
from node_agent.metadata import _SERVICES, MetadataReader, Reading
from sandbox.clouds.ledger import Ledger, Machine, Order
from sandbox.metadata import MetadataServer, metadata_of_machine
from sandbox.metadata_sessions import Sessions
from sandbox.ports import HOST, pick_ports
from tests.steps import to_do

pytestmark = pytest.mark.wire

START = datetime(2026, 2, 28, 23, 28, tzinfo=UTC)
ACTION = "/latest/meta-data/spot/instance-action"
TIME = "/latest/meta-data/spot/termination-time"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


@dataclass
class Scene:
    """One machine of one cloud, its metadata service and a reader that runs on it."""

    provider: ProviderName
    reader: MetadataReader
    ledger: Ledger
    machine: Machine
    clock: list[datetime]

    def pass_by(self, seconds: float) -> None:
        self.clock[0] += timedelta(seconds=seconds)


@pytest.fixture
async def scene(provider: ProviderName) -> AsyncIterator[Scene]:
    assert provider in _SERVICES, to_do(
        3, f"node_agent/metadata.py has no address for machines of {provider}"
    )
    clock = [START]
    ledger = Ledger(clock=lambda: clock[0], id_prefix="i-")
    order = Order("region-1", "zone-1", "gpu.large", True, Decimal(1), "image-1", "subnet-1")
    (machine,) = ledger.buy(order)
    server = MetadataServer(
        lambda machine_id: metadata_of_machine(provider, machine) if machine_id == machine.id else None,
        lambda _: provider,
        Sessions(lambda: clock[0]),
    )
    reader = MetadataReader(provider, f"{await server.start()}/machines/{machine.id}")
    yield Scene(provider, reader, ledger, machine, clock)
    await reader.close()
    await server.stop()


def reclaims(reading: Reading) -> list[Notice]:
    return [notice for notice in reading.notices if notice.kind is NoticeKind.RECLAIM]


@pytest.mark.parametrize("provider", ProviderName)
async def test_reader_finds_nothing_before_the_notice_and_the_notice_after_it(scene: Scene) -> None:
    assert await scene.reader.read() == Reading()
    scene.ledger.reclaim(scene.machine.id, notice_seconds=120)
    reading = await scene.reader.read()
    (notice,) = reclaims(reading)
    told = None if scene.provider is ProviderName.HUAWEI else START + timedelta(seconds=120)
    assert (notice.provider, notice.deadline, reading.faults) == (scene.provider, told, ())


@pytest.mark.parametrize("provider", [ProviderName.ALIYUN, ProviderName.HUAWEI, ProviderName.AWS])
async def test_reader_opens_a_new_session_when_the_old_one_is_over(scene: Scene) -> None:
    assert await scene.reader.read() == Reading()
    scene.pass_by(21_600)
    scene.ledger.reclaim(scene.machine.id, notice_seconds=120)
    reading = await scene.reader.read()
    assert len(reclaims(reading)) == 1
    assert reading.faults == ()


@pytest.mark.parametrize("provider", [ProviderName.AWS])
async def test_reader_tells_a_recommendation_from_a_notice(scene: Scene) -> None:
    scene.ledger.warn(scene.machine.id)
    (risk,) = (await scene.reader.read()).notices
    assert (risk.kind, risk.issued_at, risk.deadline) == (NoticeKind.RISK, START, None)
    scene.pass_by(60)
    scene.ledger.reclaim(scene.machine.id, notice_seconds=120)
    reading = await scene.reader.read()
    assert [notice.kind for notice in reading.notices] == [NoticeKind.RECLAIM, NoticeKind.RISK]
    assert reading.notices[1] == risk


@dataclass
class Oddity:
    """A service that answers what a test says: path to status and text."""

    answers: dict[str, tuple[int, str]]
    asked: list[str] = field(default_factory=list[str])
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        status, text = self.answers.get(request.path, (404, ""))
        location = {"Location": TIME} if 300 <= status < 400 else {}
        return web.Response(status=status, text=text, headers=location)


@pytest.fixture
async def oddity() -> AsyncIterator[Oddity]:
    odd = Oddity({"/latest/api/token": (200, "token-1")})
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", odd.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    odd.url = f"http://{HOST}:{runner.addresses[0][1]}"
    yield odd
    await runner.cleanup()


async def read_once(provider: ProviderName, url: str, *, timeout_seconds: float = 2.0) -> Reading:
    reader = MetadataReader(provider, url, timeout_seconds=timeout_seconds)
    try:
        return await reader.read()
    finally:
        await reader.close()


@pytest.mark.parametrize("status", [204, 302, 400, 401, 429, 500, 503])
async def test_reader_reports_a_fault_when_the_status_is_neither_yes_nor_no(
    oddity: Oddity, status: int
) -> None:
    oddity.answers[ACTION] = oddity.answers[TIME] = (status, "")
    reading = await read_once(ProviderName.AWS, oddity.url)
    assert reading.notices == ()
    assert reading.faults == tuple(f"GET {oddity.url}{path}: status {status}" for path in (ACTION, TIME))


async def test_reader_takes_the_older_path_when_the_newer_cannot_be_read(oddity: Oddity) -> None:
    oddity.answers |= {ACTION: (200, "<html>"), TIME: (200, "2026-02-28T23:30:00Z"), REBALANCE: (500, "")}
    reading = await read_once(ProviderName.AWS, oddity.url)
    assert [(notice.source, notice.deadline) for notice in reading.notices] == [
        (TIME, datetime(2026, 2, 28, 23, 30, tzinfo=UTC))
    ]
    assert [fault.split(" is not ")[0] for fault in reading.faults] == [
        ACTION,
        f"GET {oddity.url}{REBALANCE}: status 500",
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, ""), "no session: status 404"),
        ((403, ""), "no session: status 403"),
        ((200, ""), "the answer is no token"),
        ((200, "<html>\r\nlog in here</html>"), "the answer is no token"),
    ],
)
async def test_reader_of_aws_asks_nothing_without_a_session(
    oddity: Oddity, answer: tuple[int, str], reason: str
) -> None:
    oddity.answers |= {"/latest/api/token": answer, ACTION: (200, "")}
    reading = await read_once(ProviderName.AWS, oddity.url)
    assert reading == Reading(faults=(f"PUT {oddity.url}/latest/api/token: {reason}",))
    assert oddity.asked == ["PUT /latest/api/token"]


@pytest.mark.parametrize("status", [404, 405])
async def test_reader_goes_without_a_session_where_there_are_none(oddity: Oddity, status: int) -> None:
    path = "/openstack/latest/spot/instance-action"
    oddity.answers |= {"/meta-data/latest/api/token": (status, ""), path: (200, "")}
    reading = await read_once(ProviderName.HUAWEI, oddity.url)
    assert ([notice.source for notice in reading.notices], reading.faults) == ([path], ())


async def test_reader_reports_a_fault_when_nobody_answers() -> None:
    url = f"http://{HOST}:{pick_ports(1)[0]}"
    reading = await read_once(ProviderName.TENCENT, url)
    assert reading.notices == ()
    assert reading.faults[0].startswith(f"GET {url}/latest/meta-data/spot/termination-time: ")


async def test_reader_gives_up_on_a_service_that_is_silent() -> None:
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        reading = await read_once(ProviderName.ALIYUN, url, timeout_seconds=0.1)
    assert reading.notices == ()
    assert len(reading.faults) == 1
    assert reading.faults[0].startswith(f"PUT {url}/latest/api/token: ")


async def test_reader_never_goes_through_a_proxy(oddity: Oddity, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, f"http://{HOST}:9")
    assert await read_once(ProviderName.TENCENT, oddity.url) == Reading()
    assert oddity.asked == ["GET /latest/meta-data/spot/termination-time"]
