"""One client for all calls until the keys change, and none after it was closed."""

from collections.abc import Mapping

from activities.providers.keyed_client import KeyedClient


class Keys:
    def __init__(self) -> None:
        self.values = {"accessKeyId": "one"}

    def read(self) -> Mapping[str, str]:
        return self.values


class Connection:
    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys = keys
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_one_client_serves_until_the_keys_change() -> None:
    keys = Keys()
    clients = KeyedClient(keys, Connection)
    first = clients.get()
    assert clients.get() is first
    keys.values = {"accessKeyId": "two"}
    second = clients.get()
    assert second.keys == {"accessKeyId": "two"}
    assert not first.closed, "a thread may still be using it"


def test_closed_client_is_forgotten_and_may_be_built_again() -> None:
    clients = KeyedClient(Keys(), Connection)
    first = clients.get()
    clients.close()
    clients.close()
    assert first.closed
    assert clients.get() is not first
