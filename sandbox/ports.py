"""Free ports on loopback, for servers that come back to the same port after a kill."""

from __future__ import annotations

import os
import random
import socket

HOST = "127.0.0.1"

# Below the range from which the kernel takes ports of outgoing connections (32768 and up): a port that we
# come back to after a kill is not taken by someone's connection meanwhile.
_CANDIDATES = range(20000, 32000)
_SHARES = 16
"""Two sandboxes that start at the same moment look in different shares first: a port is only taken later."""


def pick_ports(count: int) -> list[int]:
    """Choose ports on 127.0.0.1 that nobody listens on now, all different, in random order.

    Those of this process's own share come first.

    Raises:
        OSError: Fewer than ``count`` are free.
    """
    chosen: list[int] = []
    share = os.getpid() % _SHARES
    shuffled = random.sample(_CANDIDATES, len(_CANDIDATES))
    for port in sorted(shuffled, key=lambda port: port % _SHARES != share):
        if len(chosen) == count:
            break
        if _is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise OSError(f"only {len(chosen)} of {count} ports are free on {HOST} between 20000 and 32000")
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
