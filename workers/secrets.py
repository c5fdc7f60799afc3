"""Secrets of the operator's namespace, read from threads and kept for seconds only."""

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Protocol

from activities.telemetry.logs import SECRETS
from domain.contracts.errors import ClusterError, ErrorCode, ProviderError
from domain.contracts.offers import RegionKey

_log = logging.getLogger(__name__)

_CALL_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 2.0
"""When it was read before: many callers wait for it, and have less time than that."""
KEYS: Final = ("accessKeyId", "accessKeySecret")
"""What a credentials Secret must hold, unless it names a role; ``token`` may be there, too."""
ROLE_KIND: Final = "workload-identity"
"""``kind`` of a Secret that holds no secret but names a role; what it needs is the adapter's to say."""


class SecretStore(Protocol):
    """The part of the Kubernetes adapter that reads Secrets."""

    async def read_secret(self, name: str, namespace: str) -> dict[str, str]:
        """The decoded values by key."""
        ...


class OperatorSecrets:
    """Reads on the event loop for callers in threads; every value that was read is masked in logs."""

    def __init__(
        self,
        store: SecretStore,
        namespace: str,
        loop: asyncio.AbstractEventLoop,
        *,
        max_age_seconds: float,
    ) -> None:
        self.namespace = namespace
        self._store = store
        self._loop = loop
        self._max_age_seconds = max_age_seconds
        self._kept: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """One for each Secret, so that one that cannot be read holds up no other."""

    def read(self, name: str) -> Mapping[str, str]:
        """See ``SecretReader.read``; never to be called on the event loop itself.

        While the API does not answer, what was read last is used for another while.

        Raises:
            ClusterError: ``NOT_FOUND``, ``UNAVAILABLE`` when the loop or the API never answered, or another.
        """
        with self._locks[name]:
            kept = self._kept.get(name)
            if kept is not None and time.monotonic() - kept[0] < self._max_age_seconds:
                return kept[1]
            try:
                values = self._fetch(name, _CALL_SECONDS if kept is None else _AGAIN_SECONDS)
            except ClusterError as error:
                if kept is None or error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED):
                    self._kept.pop(name, None)
                    raise
                # What the API server's absence must not take away: the sight of machines, and their ends.
                _log.warning("Secret not read again", extra={"secret": name, "reason": str(error)})
                values = kept[1]
            self._kept[name] = (time.monotonic(), values)
            return values

    def _fetch(self, name: str, within_seconds: float) -> Mapping[str, str]:
        waiting = asyncio.run_coroutine_threadsafe(self.fetch(name), self._loop)
        try:
            return waiting.result(within_seconds)
        except TimeoutError as error:
            waiting.cancel()
            raise ClusterError(
                ErrorCode.UNAVAILABLE,
                f"no answer within {within_seconds:.0f} s",
                operation=f"get secrets/{name}",
            ) from error

    async def fetch(self, name: str) -> Mapping[str, str]:
        """Read on the event loop, past what is kept."""
        values = await self._store.read_secret(name, self.namespace)
        if values.get("kind") != ROLE_KIND:
            SECRETS.remember(values.values())
        return values


class AccountCredentials:
    """The keys of one account, for an adapter."""

    def __init__(self, secrets: OperatorSecrets, key: RegionKey) -> None:
        self._secrets = secrets
        self._key = key

    def read(self) -> Mapping[str, str]:
        """See ``Credentials.read``."""
        name = self._key.account
        try:
            values = self._secrets.read(name)
        except ClusterError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise self._unauthenticated(_missing(name, self._secrets.namespace)) from error
            if error.code is ErrorCode.INVALID_REQUEST:  # it is there and holds what is no text
                raise self._unauthenticated(f"Secret {self._secrets.namespace}/{name}: {error}") from error
            raise ProviderError(
                ErrorCode.UNAVAILABLE, str(error), provider=self._key.provider, operation="credentials"
            ) from error
        problem = flaw_of(values, name, self._secrets.namespace)
        if problem:
            raise self._unauthenticated(problem)
        return values

    def _unauthenticated(self, text: str) -> ProviderError:
        return ProviderError(
            ErrorCode.UNAUTHENTICATED, text, provider=self._key.provider, operation="credentials"
        )


def flaw_of(values: Mapping[str, str], name: str, namespace: str) -> str:
    """Why no cloud can take the keys of a credentials Secret, as a sentence; empty when one may."""
    if values.get("kind") == ROLE_KIND:
        return ""
    missing = [key for key in KEYS if not values.get(key)]
    if missing:
        return f"Secret {namespace}/{name} lacks {' and '.join(missing)}"
    unsendable = [key for key, value in sorted(values.items()) if _is_sent(key) and not _is_word(value)]
    if unsendable:
        return (
            f"Secret {namespace}/{name}: {' and '.join(unsendable)} with a space, a line end or another"
            " character that no key has"
        )
    return ""


def _is_sent(key: str) -> bool:
    return key in (*KEYS, "token") or key.startswith("projectId")


def _is_word(value: str) -> bool:
    """Whether it fits into a header. A line end, which ``echo`` leaves, would look like a broken network."""
    return value.isascii() and value.isprintable() and " " not in value


def _missing(name: str, namespace: str) -> str:
    return f"Secret {namespace}/{name} does not exist"


async def check_account(secrets: OperatorSecrets, name: str) -> str:
    """What is wrong with the credentials of an account, as a sentence; empty when nothing."""
    try:
        values = await secrets.fetch(name)
    except ClusterError as error:
        return _missing(name, secrets.namespace) if error.code is ErrorCode.NOT_FOUND else str(error)
    return flaw_of(values, name, secrets.namespace)
