"""A vendor's client for the keys of this moment: read at each use, so that a rotation needs no restart."""

import threading
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from activities.providers.base import Credentials


class Closing(Protocol):
    """A client that holds connections."""

    def close(self) -> None:
        """Release them."""
        ...


ClientT = TypeVar("ClientT", bound=Closing)


class KeyedClient(Generic[ClientT]):
    """Keeps one client and builds another when the keys have changed. Safe from several threads."""

    def __init__(self, credentials: Credentials, connect: Callable[[Mapping[str, str]], ClientT]) -> None:
        """Build nothing yet; ``connect`` makes a client of keys."""
        self._credentials = credentials
        self._connect = connect
        self._lock = threading.Lock()
        self._built: tuple[Mapping[str, str], ClientT] | None = None

    def get(self) -> ClientT:
        """The client for the keys of this moment.

        Raises:
            ProviderError: The keys cannot be read, or no client can be made of them.
        """
        keys = dict(self._credentials.read())
        with self._lock:
            if self._built is None or self._built[0] != keys:
                # The client before stays open for the threads that are using it; nobody holds it after them.
                self._built = (keys, self._connect(keys))
            return self._built[1]

    def close(self) -> None:
        """Release the connections and forget the keys."""
        with self._lock:
            built, self._built = self._built, None
        if built is not None:
            built[1].close()
