"""The API server over plain HTTPS: one kept connection, answers with status and JSON."""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from domain.contracts.names import GROUP, VERSION

JSON = "application/json"
YAML = "application/yaml"


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """The words of a refusal."""
        return str(self.body.get("message", ""))


class RawApi:
    """One connection, opened again when the server closed it."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=ca_file)
        address = urlsplit(server)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=30
        )
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: str | None = None, content_type: str = JSON) -> Answer:
        """Send one request and read its answer whole."""
        headers = {**self._headers, "Content-Type": content_type}
        data = None if body is None else body.encode()
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        # A URL that is not served yet answers in plain words.
        is_json = (answer.getheader("Content-Type") or "").startswith(JSON)
        return Answer(answer.status, json.loads(text) if is_json else {"message": text.strip()})

    def create(self, namespace: str, plural: str, text: str) -> Answer:
        """Create from YAML as kubectl does by default: unknown and doubled fields are refused."""
        return self.send("POST", f"{collection(namespace, plural)}?fieldValidation=Strict", text, YAML)


def collection(namespace: str, plural: str) -> str:
    """Path of one of our collections."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"
