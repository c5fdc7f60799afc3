"""What a call of an adapter costs beside the network: CPU time of our code and the vendor's SDK.

The yardstick is the same requests sent bare, over one kept connection, and answered with the same bytes.
"""

import statistics
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest.mock import patch

from domain.contracts.names import TAG_INSTALLATION
from sandbox.clouds.cloud import WireAnswer, WireRequest
from tests.activities.providers.cloud_case import CloudCase
from tests.bench.rig import tell
from tests.bench.simulated import MACHINES, SimulatedRegion, simulated

ROUNDS = 20
_MS = 1000


@dataclass(frozen=True)
class Overhead:
    """Median CPU time of one call of the adapter, and of the bare requests that it consists of."""

    provider: str
    operation: str
    requests: int
    sent_bytes: int
    """Bodies and targets."""
    received_bytes: int
    cpu_ms: float
    bare_ms: float

    @property
    def ratio(self) -> float:
        """How many times a bare request."""
        return self.cpu_ms / self.bare_ms


@dataclass(frozen=True)
class Exchange:
    """A request as it came in, and what was answered."""

    request: WireRequest
    answer: WireAnswer


class ClientCpu:
    """CPU time of this process without its server thread: an SDK may have threads of its own."""

    def __init__(self, server: threading.Thread) -> None:
        assert server.ident is not None, "a server that was started"
        self._clock = time.pthread_getcpuclockid(server.ident)

    def seconds(self) -> float:
        """So far."""
        return time.process_time() - time.clock_gettime(self._clock)

    def median_of(self, call: Callable[[int], object]) -> float:
        """Seconds of the median call, after one that warms up."""
        spent: list[float] = []
        for number in range(ROUNDS + 1):
            before = self.seconds()
            call(number)
            spent.append(self.seconds() - before)
        return statistics.median(spent[1:])


def measure(case: CloudCase) -> list[Overhead]:
    """List all machines, describe one, buy one: each against its bare requests."""
    with simulated(case) as region:
        tell(f"  {case.provider}: CPU time of a call")
        ids = region.fill()
        provider, tags = region.provider, {TAG_INSTALLATION: case.request().tags[TAG_INSTALLATION]}
        return [
            _overhead(region, f"list of {MACHINES}", lambda _: provider.list_tagged(tags)),
            _overhead(region, "describe of 1", lambda _: provider.describe(ids[:1])),
            _overhead(region, "launch of 1", lambda number: region.launch(MACHINES + number)),
        ]


def _overhead(region: SimulatedRegion, operation: str, call: Callable[[int], object]) -> Overhead:
    cpu = ClientCpu(region.server).median_of(call)
    with _recorded(region) as exchanges:
        call(ROUNDS + 1)
    return Overhead(
        provider=region.case.provider.value,
        operation=operation,
        requests=len(exchanges),
        sent_bytes=sum(len(each.request.target) + len(each.request.body) for each in exchanges),
        received_bytes=sum(len(each.answer.body) for each in exchanges),
        cpu_ms=cpu * _MS,
        bare_ms=_bare_seconds(exchanges) * _MS,
    )


@contextmanager
def _recorded(region: SimulatedRegion) -> Generator[list[Exchange]]:
    """What goes over the wire, filled in when the block is over."""
    exchanges: list[Exchange] = []
    requests: list[WireRequest] = []
    answers: list[WireAnswer] = []
    cloud = region.cloud
    opened, answered = cloud.open, cloud.answer

    def keep_request(wire: WireRequest) -> object:
        requests.append(wire)
        return opened(wire)

    def keep_answer(payload: Mapping[str, object], request_id: str) -> WireAnswer:
        answers.append(answered(payload, request_id))
        return answers[-1]

    with patch.object(cloud, "open", keep_request), patch.object(cloud, "answer", keep_answer):
        yield exchanges
    exchanges += [Exchange(*pair) for pair in zip(requests, answers, strict=True)]


def _bare_seconds(exchanges: Sequence[Exchange]) -> float:
    """CPU seconds of sending these requests over a kept connection and reading the answers."""
    with _canned([each.answer for each in exchanges]) as (port, server):
        connection = HTTPConnection("127.0.0.1", port)

        def send(_: int) -> None:
            for each in exchanges:
                wire = each.request
                connection.request(wire.method, wire.target, wire.body, dict(wire.headers))
                connection.getresponse().read()

        try:
            return ClientCpu(server).median_of(send)
        finally:
            connection.close()


@contextmanager
def _canned(answers: Sequence[WireAnswer]) -> Generator[tuple[int, threading.Thread]]:
    """A server that gives these answers in turn, over one connection at a time."""
    count = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 20
        """Buffered: head and body leave at once, or the client would wait for the second of two packets."""

        def answer(self) -> None:
            nonlocal count
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = answers[count % len(answers)].body
            count += 1
            self.send_response_only(200)  # which writes no log
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, thread
        server.shutdown()
        thread.join()
