import io
import json
import logging
from collections.abc import Iterator

import pytest

from activities.telemetry.logs import MASK, JsonFormatter, SecretFilter, configure


@pytest.fixture
def secrets() -> SecretFilter:
    return SecretFilter()


def rendered(secrets: SecretFilter, message: str, *args: object, **extra: object) -> dict[str, object]:
    record = logging.getLogger("test").makeRecord(
        "test", logging.INFO, "f", 1, message, args, None, extra=extra
    )
    return json.loads(JsonFormatter(secrets).format(record))


def test_record_is_one_json_object_with_its_facts(secrets: SecretFilter) -> None:
    line = rendered(secrets, "Bought %s", "one", pool="default/a", count=2, price=1.5, zones=("a", "b"))
    assert line["message"] == "Bought one"
    assert (line["pool"], line["count"], line["price"], line["zones"]) == ("default/a", 2, 1.5, ["a", "b"])
    assert (line["level"], line["logger"]) == ("INFO", "test")
    assert str(line["time"]).endswith("+00:00")


def test_record_carries_its_error(secrets: SecretFilter) -> None:
    secrets.remember(["hunter2-and-more"])
    error = ValueError("failed with hunter2-and-more")
    record = logging.makeLogRecord({"msg": "x", "exc_info": (ValueError, error, None)})
    line = json.loads(JsonFormatter(secrets).format(record))
    assert f"ValueError: failed with {MASK}" in line["error"]


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param("AKID" + "z8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", id="Tencent key id"),
        pytest.param("LTAI" + "5tExampleKeyIdOfAlibaba", id="Alibaba key id"),
        pytest.param("AKIA" + "IOSFODNN7EXAMPLE", id="AWS key id"),
        pytest.param("abcdef.0123456789abcdef", id="bootstrap token"),
        pytest.param("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", id="JSON web token"),
        pytest.param("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", id="private key"),
    ],
)
def test_text_that_looks_like_a_secret_is_masked(secrets: SecretFilter, secret: str) -> None:
    line = rendered(secrets, f"call with {secret} failed", detail=f"again {secret}")
    assert secret not in json.dumps(line)
    assert MASK in str(line["message"])


def test_signature_and_bearer_token_are_masked(secrets: SecretFilter) -> None:
    text = secrets.clean("Authorization: TC3-HMAC-SHA256 Signature=0a1b2c3d, Bearer opaque-token-1")
    assert "0a1b2c3d" not in text
    assert "opaque-token-1" not in text


@pytest.mark.parametrize(
    "key", ["accessKeySecret", "access_key_secret", "password", "user_data", "Authorization", "join_token"]
)
def test_value_under_a_secret_name_is_masked(secrets: SecretFilter, key: str) -> None:
    assert rendered(secrets, "x", **{key: "anything"})[key] == MASK
    assert rendered(secrets, "x", outer={key: "anything"})["outer"] == {key: MASK}


def test_value_that_was_read_from_a_secret_is_masked_wherever_it_stands(secrets: SecretFilter) -> None:
    secrets.remember(["correct horse\nbattery staple\n", "correct horse battery"])
    line = rendered(secrets, "at first correct horse battery", then=["battery staple", "correct horse"])
    assert line["message"] == f"at first {MASK}"
    assert line["then"] == [MASK, MASK]


def test_short_values_blank_out_no_ordinary_words(secrets: SecretFilter) -> None:
    secrets.remember(["on", "true", ""])
    assert rendered(secrets, "turned on")["message"] == "turned on"


def test_secret_across_the_cut_is_masked(secrets: SecretFilter) -> None:
    secrets.remember(["s3cr3t-value"])
    line = rendered(secrets, "x" * 8185 + "s3cr3t-value")
    assert "s3c" not in str(line["message"])


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_restored_logging")
def test_configure_sends_every_record_to_one_place() -> None:
    sink = io.StringIO()
    configure("WARNING", sink)
    logging.getLogger("any.module").warning("seen")
    logging.getLogger("any.module").info("not seen")
    assert [json.loads(line)["message"] for line in sink.getvalue().splitlines()] == ["seen"]
