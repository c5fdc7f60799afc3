"""Region to adapter: each cloud's module is imported by name, and only when a region of it is used."""

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, cast

from activities.providers.base import Credentials, Provider, Turn, at_once
from activities.providers.instrumented import InstrumentedProvider, OnThrottled, nobody
from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.offers import ProviderName, RegionKey

_ROOM: Final = "activities.providers"


class AdapterModule(Protocol):
    """What every module ``activities/providers/<cloud>.py`` offers."""

    def build(
        self, key: RegionKey, credentials: Credentials, *, endpoint: str = "", turn: Turn = at_once
    ) -> Provider:
        """An adapter for one region.

        Args:
            key: Which region of which account.
            credentials: Where the keys are read, at each use.
            endpoint: Replaces the vendor's own address when given.
            turn: Taken before each request.
        """
        ...


Builder = Callable[[RegionKey], Provider]


class ProviderRegistry:
    """Builds each served region's adapter once, at first use, and keeps it. Safe from several threads."""

    def __init__(
        self, served: Iterable[RegionKey], build: Builder, on_throttled: OnThrottled = nobody
    ) -> None:
        """Serve these regions; ``on_throttled`` as for ``InstrumentedProvider``."""
        self._on_throttled = on_throttled
        self._served = frozenset(str(key) for key in served)
        self._build = build
        self._built: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def provider(self, key: RegionKey) -> Provider:
        """The adapter of a region.

        Raises:
            ProviderError: ``INVALID_REQUEST`` when the region is not served here or its SDK is missing.
        """
        name = str(key)
        if name not in self._served:
            raise ProviderError(
                ErrorCode.INVALID_REQUEST,
                f"region {name} is not served; add it to SPOTGPU_REGIONS",
                provider=key.provider,
                operation="connect",
            )
        with self._lock:
            if name not in self._built:
                self._built[name] = InstrumentedProvider(self._build(key), self._on_throttled)
            return self._built[name]

    def close(self) -> None:
        """Release every adapter that was built."""
        with self._lock:
            for provider in self._built.values():
                provider.close()
            self._built.clear()


def build_adapter(
    key: RegionKey, credentials: Credentials, endpoints: Mapping[ProviderName, str], turn: Turn = at_once
) -> Provider:
    """Import the cloud's module and build its adapter, which takes a turn before each request.

    Raises:
        ProviderError: ``INVALID_REQUEST`` when this build has no such adapter, or its SDK is not installed.
    """
    room = f"{_ROOM}.{key.provider}"
    try:
        # The module is chosen by configuration, so its type is stated here: the conformance suite checks it.
        module = cast("AdapterModule", importlib.import_module(room))
    except ModuleNotFoundError as error:
        raise ProviderError(
            ErrorCode.INVALID_REQUEST,
            f"this build has no adapter for {key.provider}"
            if error.name == room
            else f"module {error.name} is missing; install spotgpu[{key.provider}]",
            provider=key.provider,
            operation="connect",
        ) from error
    return module.build(key, credentials, endpoint=endpoints.get(key.provider, ""), turn=turn)
