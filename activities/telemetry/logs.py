"""Log format: one JSON object per line, without secrets."""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO, cast

from typing_extensions import override

MASK: Final = "***"
# Shorter values would blank out ordinary words.
_SHORTEST_SECRET: Final = 6
_LONGEST_TEXT: Final = 8192

_SECRET_KEYS: Final = re.compile(
    r"secret$|secretkey|accesskeysecret|password|passwd|token$|authorization|private_?key|user_?data|api_?key",
    re.IGNORECASE,
)
_SECRET_TEXTS: Final = (
    # Key ids of Tencent, Alibaba and AWS: not secret by themselves, but they belong in no log.
    re.compile(r"\bAKID[0-9A-Za-z]{16,}\b|\bLTAI[0-9A-Za-z]{12,}\b|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a bootstrap token of kubeadm
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"(?<=Bearer )\S+|(?<=Signature=)[0-9A-Za-z%/+=]+", re.IGNORECASE),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
)
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class SecretFilter:
    """Masks secrets in text: values that were read from Secrets, and whatever looks like a key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: tuple[str, ...] = ()

    def remember(self, values: Iterable[str]) -> None:
        """Mask these values, and their lines, from now on."""
        lines = {part for value in values for part in (value, *value.splitlines())}
        fresh = {line.strip() for line in lines if len(line.strip()) >= _SHORTEST_SECRET}
        with self._lock:
            # Longest first, so that no rest of a longer secret stays behind.
            self._values = tuple(sorted(fresh | set(self._values), key=lambda v: (-len(v), v)))

    def clean(self, text: str) -> str:
        """The text with every secret replaced by ``***``."""
        for value in self._values:
            text = text.replace(value, MASK)
        for pattern in _SECRET_TEXTS:
            text = pattern.sub(MASK, text)
        return text


SECRETS: Final = SecretFilter()
"""The filter of this process."""


class JsonFormatter(logging.Formatter):
    """Renders a record as one line: time, level, logger, message, its extra facts, and the error if any."""

    def __init__(self, secrets: SecretFilter = SECRETS) -> None:
        super().__init__()
        self._secrets = secrets

    @override
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object; text is cut at 8 KiB."""
        facts: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self._text(record.getMessage()),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD and not key.startswith("_") and key not in facts:
                facts[key] = self._value(key, value)
        if record.exc_info:
            facts["error"] = self._text(self.formatException(record.exc_info))
        return json.dumps(facts, ensure_ascii=False, default=str)

    def _text(self, text: str) -> str:
        # Cleaned before it is cut: a secret cut in half would not be recognised.
        return self._secrets.clean(text)[:_LONGEST_TEXT]

    def _value(self, key: str, value: object) -> object:
        if _SECRET_KEYS.search(key):
            return MASK
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            # A record's extra is untyped; every key is turned into text.
            mapping = cast("Mapping[object, object]", value)
            return {str(name): self._value(str(name), item) for name, item in mapping.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value("", item) for item in cast("Iterable[object]", value)]
        return self._text(str(value))


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send every record of this process to ``stream`` (default: standard error) as JSON."""
    sink = logging.StreamHandler(stream or sys.stderr)
    sink.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [sink]
    root.setLevel(level)
    # The Alibaba SDK attaches a DEBUG handler of its own when imported, and would print requests.
    logging.getLogger("darabonba-core").setLevel(logging.WARNING)
