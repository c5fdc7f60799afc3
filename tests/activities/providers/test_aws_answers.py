"""The AWS adapter and what a vendor and its gateways answer: the captures' words, and odd ones."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import pytest

from activities.providers.aws import AwsProvider, build
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import Created, Refusal, Rejected
from domain.contracts.names import TAG_POOL
from tests.activities.providers.aws_case import CASE
from tests.activities.providers.cloud_case import Keys
from tests.sandbox.clouds.aws_builders import TYPE, ZONE, captured

BOOT = "#!/bin/sh\necho token=abcdef.0123456789abcdef\n"
XML = {"Content-Type": "text/xml;charset=UTF-8"}
IMAGES = (
    '<DescribeImagesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><imagesSet><item>'
    "<imageId>x</imageId><rootDeviceName>/dev/sda1</rootDeviceName></item></imagesSet></DescribeImagesResponse>"
)
NO_IMAGE = "<DescribeImagesResponse><imagesSet/></DescribeImagesResponse>"


def fault_of(action: object, *arguments: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        action(*arguments)
    return caught.value


class Scripted(ThreadingHTTPServer):
    """Answers each request with the same response; for DescribeImages with an image."""

    daemon_threads = True

    def __init__(self, status: int, headers: Mapping[str, str], body: str, images: str) -> None:
        super().__init__(("127.0.0.1", 0), _Scribe)
        self.answer = (status, headers, body)
        self.images = (200, XML, images)
        self.actions: list[str] = []


class _Scribe(BaseHTTPRequestHandler):
    server: Scripted

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.server.actions.append(form["Action"])
        asks_for_image = form["Action"] == "DescribeImages"
        status, headers, body = self.server.images if asks_for_image else self.server.answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@contextmanager
def answering(
    status: int, body: str, headers: Mapping[str, str] = XML, images: str = IMAGES
) -> Iterator[tuple[AwsProvider, Scripted]]:
    server = Scripted(status, headers, body, images)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    provider = build(CASE.key, Keys(dict(CASE.keys)), endpoint=f"127.0.0.1:{server.server_port}")
    try:
        yield provider, server
    finally:
        provider.close()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def replaying(case: str) -> Iterator[tuple[AwsProvider, Scripted]]:
    response = captured(case)["exchanges"][0]["response"]
    with answering(response["status"], response["body"], response["headers"]) as pair:
        yield pair


def test_a_captured_success_names_the_machine() -> None:
    with replaying("create_success") as (provider, server):
        assert provider.launch(CASE.request(), BOOT) == Created(instance_id="i-0aaaa", zone=ZONE)
        assert server.actions == ["DescribeImages", "RunInstances"]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("create_error_capacity_500_retries_off", ErrorCode.INSUFFICIENT_CAPACITY),
        ("create_error_capacity_500_standard_default", ErrorCode.INSUFFICIENT_CAPACITY),
        ("create_error_capacity_500_legacy_default", ErrorCode.INSUFFICIENT_CAPACITY),
        ("create_error_price", ErrorCode.PRICE_TOO_LOW),
    ],
)
def test_captured_refusals_are_values_after_one_request(case: str, code: ErrorCode) -> None:
    with replaying(case) as (provider, server):
        result = provider.launch(CASE.request(), BOOT)
        assert isinstance(result, Refusal)
        assert (result.code, result.not_offered) == (code, False)
        assert server.actions.count("RunInstances") == 1


@pytest.mark.parametrize(
    ("case", "code"),
    [("auth", ErrorCode.UNAUTHENTICATED), ("auto_client_token", ErrorCode.INVALID_REQUEST)],
)
def test_captured_rejections_are_values(case: str, code: ErrorCode) -> None:
    with replaying(case) as (provider, _):
        result = provider.launch(CASE.request(), BOOT)
        assert isinstance(result, Rejected)
        assert result.code is code


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("create_throttled_503", ErrorCode.THROTTLED),
        ("idempotent_mismatch", ErrorCode.UNKNOWN_OUTCOME),
    ],
)
def test_captured_faults_are_raised_after_one_request(case: str, code: ErrorCode) -> None:
    with replaying(case) as (provider, server):
        fault = fault_of(provider.launch, CASE.request(), BOOT)
        assert fault.code is code
        assert fault.vendor_code == captured(case)["sdk_result"]["error"]["Code"]
        assert server.actions.count("RunInstances") == 1


def test_a_captured_price_is_read_without_losing_digits() -> None:
    response = captured("spot_price_history")["exchanges"][0]["response"]
    with answering(200, response["body"]) as (provider, _):
        quote = provider._spot_quotes([(ZONE, TYPE)])[ZONE, TYPE]
    assert quote is not None
    assert str(quote.per_hour) == "0.402300"


def test_a_captured_ending_is_accepted() -> None:
    with replaying("terminate_success") as (provider, server):
        provider.terminate(["i-0aaaa"])
        assert server.actions == ["TerminateInstances"]


NO_INSTANCE = (
    '<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{}</RunInstancesResponse>'
)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, NO_INSTANCE.format(""), id="no list"),
        pytest.param(200, NO_INSTANCE.format("<instancesSet/>"), id="empty list"),
        pytest.param(200, NO_INSTANCE.format("<instancesSet><item/></instancesSet>"), id="no id"),
        pytest.param(200, "", id="empty"),
        pytest.param(200, "not XML", id="not XML"),
        pytest.param(502, "<html><body>Bad Gateway</body></html>", id="gateway's page"),
        pytest.param(503, "", id="empty 503"),
        pytest.param(500, "{}", id="500 with JSON"),
    ],
)
def test_an_unusable_answer_to_a_create_leaves_the_outcome_open(status: int, body: str) -> None:
    with answering(status, body) as (provider, server):
        assert fault_of(provider.launch, CASE.request(), BOOT).code is ErrorCode.UNKNOWN_OUTCOME
        assert server.actions.count("RunInstances") == 1
        assert fault_of(provider.list_tagged, {TAG_POOL: "pool-1"}).code is ErrorCode.UNAVAILABLE


def test_a_request_with_two_machines_is_of_unknown_outcome() -> None:
    place = "<placement><availabilityZone>z</availabilityZone></placement>"
    both = "".join(f"<item><instanceId>i-{number}</instanceId>{place}</item>" for number in (1, 2))
    with answering(200, NO_INSTANCE.format(f"<instancesSet>{both}</instancesSet>")) as (provider, _):
        fault = fault_of(provider.launch, CASE.request(), BOOT)
        assert fault.code is ErrorCode.UNKNOWN_OUTCOME
        assert "2 instances" in str(fault)


@pytest.mark.parametrize(
    "images", [IMAGES.replace("<rootDeviceName>/dev/sda1</rootDeviceName>", ""), NO_IMAGE]
)
def test_an_image_without_a_root_device_rejects_the_launch(images: str) -> None:
    with answering(500, "", images=images) as (provider, server):
        result = provider.launch(CASE.request(), BOOT)
        assert isinstance(result, Rejected)
        assert "correct the node class" in result.message
        assert server.actions == ["DescribeImages"]
