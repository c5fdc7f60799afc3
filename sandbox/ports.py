"""Free ports on loopback, for servers that come back to the same port after a kill."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"

# Below the range from which the kernel takes ports of outgoing connections (32768 and up): a port that we
# come back to after a kill is not taken by someone's connection meanwhile.
_CANDIDATES = range(20000, 32000)
_SHARES = 16
"""Between a port's choice and its server's start anyone may take it: each process chooses from a share of
its own, and never the same port twice."""

_chosen: set[int] = set()


def pick_ports(count: int) -> list[int]:
    """Choose ports on 127.0.0.1 that nobody listens on now, in random order.

    All different, from one another and from all that this process chose before. Those of the share that
    this process holds come first.

    Raises:
        OSError: Fewer than ``count`` are free.
    """
    shuffled = random.sample(_CANDIDATES, len(_CANDIDATES))
    picked: list[int] = []
    for port in sorted(shuffled, key=lambda port: port % _SHARES != _share()):
        if len(picked) == count:
            break
        if port not in _chosen and _is_free(port):
            picked.append(port)
    if len(picked) < count:
        raise OSError(f"only {len(picked)} of {count} ports are free on {HOST} between 20000 and 32000")
    _chosen.update(picked)
    return picked


@cache
def _share() -> int:
    """A share that no other process holds, kept until this one ends; any, when all are held."""
    folder = Path(tempfile.gettempdir()) / f"spotgpu-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for share in range(_SHARES):
        # A bare descriptor: nothing closes it before the process ends, and with it the lock.
        held = os.open(folder / str(share), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            continue
        return share
    return os.getpid() % _SHARES


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
