"""Answers of the API server: errors with the field paths of their causes, and lines of a watch."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast, get_args

from activities.cluster.base import Object, WatchEvent, WatchEventType
from domain.contracts.errors import ClusterError, ErrorCode

CODES: Final[Mapping[int, ErrorCode]] = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.INVALID_REQUEST,
    406: ErrorCode.INVALID_REQUEST,
    408: ErrorCode.UNAVAILABLE,
    409: ErrorCode.CONFLICT,
    # The version or the continue token is too old: like a lost version check, read anew and go on.
    410: ErrorCode.CONFLICT,
    413: ErrorCode.INVALID_REQUEST,
    415: ErrorCode.INVALID_REQUEST,
    422: ErrorCode.INVALID_REQUEST,
    429: ErrorCode.THROTTLED,
}
"""HTTP status to the closed set; 5xx is ``UNAVAILABLE``, any other ``UNKNOWN``."""

_EVENT_TYPES: Final = frozenset(cast("tuple[str, ...]", get_args(WatchEventType)))


def error_from(operation: str, status: int, text: str, headers: Mapping[str, str]) -> ClusterError:
    """Translate an answer: the server's message with the field paths of its causes."""
    try:
        parsed: object = json.loads(text)
    except ValueError:
        parsed = None
    body = cast("Object", parsed) if isinstance(parsed, dict) else {}
    return ClusterError(
        CODES.get(status, ErrorCode.UNAVAILABLE if status >= 500 or status == 0 else ErrorCode.UNKNOWN),
        _message_of(body) or text.strip(),
        operation=operation,
        status=status,
        retry_after=_retry_after(body, headers),
    )


def _message_of(status: Object) -> str:
    """``message (field: cause; …)``: causes whose words the message does not hold already."""
    message = str(status.get("message") or status.get("reason") or "")
    details = cast("Object", status.get("details") or {})
    extra: list[str] = []
    for cause in cast("list[Object]", details.get("causes") or []):
        path, words = str(cause.get("field") or ""), str(cause.get("message") or cause.get("reason") or "")
        if (path and path not in message) or words not in message:
            extra.append(f"{path}: {words}" if path else words)
    return f"{message} ({'; '.join(extra)})" if extra else message


def _retry_after(status: Object, headers: Mapping[str, str]) -> timedelta | None:
    details = cast("Object", status.get("details") or {})
    stated = str(headers.get("Retry-After") or details.get("retryAfterSeconds") or "").strip()
    return timedelta(seconds=int(stated)) if re.fullmatch(r"[0-9]{1,6}", stated) else None


def event_from(operation: str, line: bytes) -> WatchEvent:
    """One line of a watch.

    Raises:
        ClusterError: The server's ERROR event, with its code as status (410 for a version too old).
    """
    event = cast("Object", json.loads(line))
    kind, body = str(event.get("type")), cast("Object", event.get("object") or {})
    if kind in _EVENT_TYPES:
        return WatchEvent(type=cast("WatchEventType", kind), object=body)
    raise error_from(operation, int(body.get("code") or 0), json.dumps(body), {})
