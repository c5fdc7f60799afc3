"""Addresses and data disks of simulated machines: what ends with its machine, what survives and costs."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandbox.clouds.ledger import Machine


@dataclass
class Possession:
    """An address or a data disk.

    Attributes:
        kind: ``publicip`` or ``volume``.
        ends_with_server: Its ``delete_on_termination``; the delete call can set it for all of a server.
        attached: False once the server is gone.
    """

    id: str
    kind: str
    server_id: str
    ends_with_server: bool
    attached: bool = True
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class Leftovers:
    """Everything that is attached to a server or was. Listens to the ledger."""

    def __init__(self) -> None:
        self._all: dict[str, Possession] = {}
        self._numbers = itertools.count(1)

    def attach(
        self, server_id: str, kind: str, *, ends_with_server: bool, tags: Mapping[str, str] | None = None
    ) -> Possession:
        """Give a server an address or a disk, with the purchase or later."""
        number = next(self._numbers)
        made = Possession(f"{kind}-{number:08x}", kind, server_id, ends_with_server, tags=dict(tags or {}))
        self._all[made.id] = made
        return made

    def condemn(self, server_ids: Collection[str], kind: str) -> None:
        """The delete call said that things of this kind end with these servers."""
        for each in self._all.values():
            if each.server_id in server_ids and each.kind == kind:
                each.ends_with_server = True

    def server_gone(self, machine: Machine) -> None:
        """A server ended, whoever ended it."""
        of_server = [each for each in self._all.values() if each.server_id == machine.id]
        for each in of_server:
            each.attached = False
            if each.ends_with_server:
                del self._all[each.id]

    def all(self, kind: str) -> tuple[Possession, ...]:
        """Everything of a kind, oldest first."""
        return tuple(each for each in self._all.values() if each.kind == kind)

    def of(self, server_id: str) -> tuple[Possession, ...]:
        """What a server has."""
        return tuple(each for each in self._all.values() if each.server_id == server_id and each.attached)

    def release(self, thing_id: str, kind: str) -> None:
        """Give up for good what is attached to nothing.

        Raises:
            KeyError: no such thing.
            ValueError: it is attached.
        """
        thing = self._all[thing_id]
        if thing.kind != kind:
            raise KeyError(thing_id)
        if thing.attached:
            raise ValueError(f"{thing_id} is attached to {thing.server_id}")
        del self._all[thing_id]

    def surviving(self) -> tuple[Possession, ...]:
        """What is left of servers that are gone."""
        return tuple(each for each in self._all.values() if not each.attached)
