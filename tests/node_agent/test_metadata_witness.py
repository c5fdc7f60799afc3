"""Our metadata service of EC2 beside AWS's own mock: the same reader reads both and hears the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from domain.contracts.interruptions import Notice, NoticeKind
from domain.contracts.offers import ProviderName
from node_agent.metadata import MetadataReader, Reading
from sandbox.clouds.ledger import Ledger, Machine, Order
from sandbox.control_plane.metadata_mock import find_or_build_mock
from sandbox.metadata import MetadataServer, metadata_of_machine
from sandbox.ports import HOST, pick_ports

# The mock is built with Go, as the control plane is.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 30
Mock = Callable[..., AbstractContextManager[str]]
RISK = datetime(2030, 1, 7, 1, 1, 47, tzinfo=UTC)
NOTICE_SECONDS = 120
END = RISK + timedelta(seconds=NOTICE_SECONDS)
TOKEN_PATH = "/latest/api/token"
TOKEN = "X-aws-ec2-metadata-token"
LIFE = "X-aws-ec2-metadata-token-ttl-seconds"
ACTION = "/latest/meta-data/spot/instance-action"


@dataclass
class Ours:
    """Our service with one machine of AWS."""

    url: str
    ledger: Ledger
    machine: Machine


@pytest.fixture
async def ours() -> AsyncIterator[Ours]:
    ledger = Ledger(clock=lambda: RISK, id_prefix="i-")
    (machine,) = ledger.buy(Order("us-west-2", "us-west-2a", "g5.xlarge", True, Decimal(1), "ami", "subnet"))
    server = MetadataServer(
        lambda _: metadata_of_machine(ProviderName.AWS, machine), lambda _: ProviderName.AWS
    )
    yield Ours(f"{await server.start()}/machines/{machine.id}", ledger, machine)
    await server.stop()


@pytest.fixture(scope="module")
def program() -> Path:
    return find_or_build_mock(os.environ, lambda line: sys.stderr.write(f"{line}\n") and None)


@pytest.fixture
def mock(program: Path, tmp_path: Path) -> Mock:
    """Start AWS's mock with options of its ``spot`` command; gives its address."""

    @contextmanager
    def run(*options: str) -> Iterator[str]:
        port = pick_ports(1)[0]
        command = [str(program), "spot", "--imdsv2", "--hostname", HOST, "--port", str(port), *options]
        with (tmp_path / "mock.log").open("wb") as log:
            # It reads settings from HOME and from AEMM_ variables: none of ours.
            process = subprocess.Popen(  # noqa: S603 - a program that we built, no shell
                command, env={"HOME": str(tmp_path)}, cwd=tmp_path, stdout=log, stderr=log
            )
            try:
                yield f"http://{HOST}:{port}"
            finally:
                process.kill()
                process.wait()

    return run


async def answers_of(url: str) -> dict[str, int]:
    """Status of each question that tells a strict service from a lax one."""
    async with ClientSession() as client:

        async def ask(method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
            async with client.request(method, url + path, headers=headers) as answer:
                return answer.status, await answer.text()

        _, token = await ask("PUT", TOKEN_PATH, {LIFE: "21600"})
        questions = {
            "no length": ("PUT", TOKEN_PATH, {}),
            "length of 0": ("PUT", TOKEN_PATH, {LIFE: "0"}),
            "length of 21601": ("PUT", TOKEN_PATH, {LIFE: "21601"}),
            "length in words": ("PUT", TOKEN_PATH, {LIFE: "long"}),
            "length of 1": ("PUT", TOKEN_PATH, {LIFE: "1"}),
            "no token": ("GET", ACTION, {}),
            "token made up": ("GET", ACTION, {TOKEN: "made-up"}),
            "token": ("GET", ACTION, {TOKEN: token}),
            "no such path": ("GET", "/latest/meta-data/spot/nothing", {TOKEN: token}),
        }
        return {name: (await ask(*question))[0] for name, question in questions.items()}


async def wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with ClientSession() as client:
        while True:
            try:
                async with client.get(url):
                    return
            except ClientConnectionError:
                assert time.monotonic() < deadline, f"no answer from {url} within {PATIENCE_SECONDS} s"
                await asyncio.sleep(0.05)


async def read(url: str) -> Reading:
    reader = MetadataReader(ProviderName.AWS, url)
    try:
        return await reader.read()
    finally:
        await reader.close()


async def test_reader_hears_the_same_from_our_service_and_from_aws_own_mock(ours: Ours, mock: Mock) -> None:
    ours.ledger.warn(ours.machine.id)
    ours.ledger.reclaim(ours.machine.id, notice_seconds=NOTICE_SECONDS)
    stated = ["--time", "2030-01-07T01:03:47Z", "--rebalance-rec-time", "2030-01-07T01:01:47Z"]
    with mock(*stated) as url:
        await wait_until_it_answers(url)
        theirs = await read(url)
    assert await read(ours.url) == theirs
    assert theirs == Reading(
        (
            Notice(
                provider=ProviderName.AWS,
                kind=NoticeKind.RECLAIM,
                source=ACTION,
                action="terminate",
                deadline=END,
            ),
            Notice(
                provider=ProviderName.AWS,
                kind=NoticeKind.RISK,
                source="/latest/meta-data/events/recommendations/rebalance",
                issued_at=RISK,
            ),
        )
    )


async def test_reader_hears_of_the_risk_alone_while_the_notice_is_to_come(ours: Ours, mock: Mock) -> None:
    ours.ledger.warn(ours.machine.id)
    with mock("--mock-delay-sec", "3600", "--rebalance-rec-time", "2030-01-07T01:01:47Z") as url:
        await wait_until_it_answers(url)
        theirs = await read(url)
    assert await read(ours.url) == theirs
    assert [notice.kind for notice in theirs.notices] == [NoticeKind.RISK]


async def test_reader_hears_nothing_from_either_before_the_notice(ours: Ours, mock: Mock) -> None:
    with mock("--mock-delay-sec", "3600", "--rebalance-delay-sec", "3600") as url:
        await wait_until_it_answers(url)
        assert await read(url) == await read(ours.url) == Reading()


async def test_our_service_is_as_strict_as_the_mock_of_aws(ours: Ours, mock: Mock) -> None:
    ours.ledger.reclaim(ours.machine.id, notice_seconds=NOTICE_SECONDS)
    with mock() as url:
        await wait_until_it_answers(url)
        theirs = await answers_of(url)
    assert await answers_of(ours.url) == theirs
    assert theirs["no token"] == 401
