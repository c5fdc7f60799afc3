"""The proxy of raw connections: bytes pass, are held, are late, and connections are cut or refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sandbox.tcp_faults import Direction, TcpFaults

clients: list[asyncio.StreamWriter] = []


@asynccontextmanager
async def before_echo() -> AsyncIterator[tuple[TcpFaults, list[bytes]]]:
    received: list[bytes] = []
    clients.clear()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(line)
            writer.write(line)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    faults = TcpFaults("echo", "127.0.0.1", server.sockets[0].getsockname()[1])
    await faults.start()
    yield faults, received
    await faults.close()
    server.close()
    for writer in clients:
        writer.close()


async def ask(faults: TcpFaults) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", faults.port)
    clients.append(writer)
    return reader, writer


async def test_tcp_faults_passes_bytes_and_the_end_of_input() -> None:
    async with before_echo() as (faults, _):
        reader, writer = await ask(faults)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.write_eof()
        assert await reader.read() == b""


async def test_tcp_faults_adds_its_delay() -> None:
    async with before_echo() as (faults, _):
        faults.delay_seconds = 0.1
        reader, writer = await ask(faults)
        started = time.monotonic()
        writer.write(b"x\n")
        await reader.readline()
        assert time.monotonic() - started >= 0.2


async def test_tcp_faults_holds_answers_and_loses_none_of_them() -> None:
    async with before_echo() as (faults, received):
        reader, writer = await ask(faults)
        faults.hold(Direction.DOWN)
        writer.write(b"x\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)
        assert received == [b"x\n"]
        faults.release()
        assert await asyncio.wait_for(reader.readline(), 2) == b"x\n"


async def test_tcp_faults_holds_requests_back_from_the_server() -> None:
    async with before_echo() as (faults, received):
        reader, writer = await ask(faults)
        faults.hold(Direction.UP)
        writer.write(b"x\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.2)
        assert received == []
        faults.release()
        assert await asyncio.wait_for(reader.readline(), 2) == b"x\n"


async def test_tcp_faults_cuts_open_connections_and_serves_new_ones() -> None:
    async with before_echo() as (faults, _):
        reader, writer = await ask(faults)
        writer.write(b"x\n")
        await reader.readline()
        faults.cut()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readline(), 2)
        reader, writer = await ask(faults)
        writer.write(b"y\n")
        assert await reader.readline() == b"y\n"


async def test_tcp_faults_refuses_connections_until_it_accepts_again() -> None:
    async with before_echo() as (faults, _):
        port = faults.port
        await faults.refuse()
        with pytest.raises(ConnectionRefusedError):
            await ask(faults)
        await faults.accept()
        assert faults.port == port
        reader, writer = await ask(faults)
        writer.write(b"x\n")
        assert await reader.readline() == b"x\n"
