"""A proxy of raw connections that can refuse, cut, delay and hold bytes before any server, TLS or not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.ports import HOST

_CHUNK_BYTES = 65536


class Direction(StrEnum):
    """Which way bytes go."""

    UP = "up"
    """From the client to the server."""
    DOWN = "down"
    """From the server to the client."""


@dataclass(eq=False)
class _Connection:
    """One client and its connection to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    pumps: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def cut(self) -> None:
        for writer in (self.client, self.server):
            reset(writer.transport)
        for pump in self.pumps:
            pump.cancel()


def reset(transport: asyncio.BaseTransport) -> None:
    """End a connection by RST, as a crash does; a plain close would say that all went well."""
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


class TcpFaults:
    """One listening port that passes everything to one server until told otherwise.

    All methods belong to the event loop that called ``start``. Switches act on open connections too.
    """

    def __init__(self, name: str, upstream_host: str, upstream_port: int) -> None:
        """Describe a proxy before ``upstream_host:upstream_port``; ``name`` is for messages."""
        self.name = name
        self.delay_seconds = 0.0
        """Added to each chunk of bytes in each direction."""
        self.connections_seen = 0
        self._upstream = (upstream_host, upstream_port)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        for event in self._flowing.values():
            event.set()

    @property
    def port(self) -> int:
        """The listening port on 127.0.0.1, the same after ``refuse`` and ``accept``."""
        return self._port

    async def start(self, port: int = 0) -> int:
        """Listen on ``port`` (0: any free one) and return it."""
        self._port = port
        await self.accept()
        return self._port

    async def accept(self) -> None:
        """Listen again on the same port. Does nothing when it listens."""
        if self._server is None:
            self._server = await asyncio.start_server(self._greet, HOST, self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Look like a dead server: open connections are cut, new ones are refused by the kernel."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Reset every open connection; new ones are served."""
        for connection in list(self._open):
            connection.cut()

    def hold(self, *directions: Direction) -> None:
        """Keep bytes back, without losing them, until ``release``; both directions when none is named."""
        for direction in directions or tuple(Direction):
            self._flowing[direction].clear()

    def release(self) -> None:
        """Let bytes flow again in both directions."""
        for event in self._flowing.values():
            event.set()

    async def close(self) -> None:
        """Stop listening and cut everything."""
        await self.refuse()
        await asyncio.gather(*self._serving)

    def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve in a task of our own: a coroutine here would be a task that nobody can wait for."""
        self.connections_seen += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            reset(writer.transport)  # a dead server behind us looks dead to the client as well
            return
        connection = _Connection(writer, server_writer)
        connection.pumps = [
            asyncio.create_task(self._pump(reader, server_writer, Direction.UP)),
            asyncio.create_task(self._pump(server_reader, writer, Direction.DOWN)),
        ]
        self._open.add(connection)
        try:
            await asyncio.wait(connection.pumps, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            connection.cut()
            await asyncio.gather(*connection.pumps, return_exceptions=True)
            self._open.discard(connection)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Carry bytes one way until that side ends; then end the other side's input the same way."""
        while chunk := await reader.read(_CHUNK_BYTES):
            if self.delay_seconds > 0:
                await asyncio.sleep(self.delay_seconds)
            await self._flowing[direction].wait()
            writer.write(chunk)
            await writer.drain()
        await self._flowing[direction].wait()
        with contextlib.suppress(OSError):  # the other side may have gone first, which is no fault of ours
            writer.write_eof()
