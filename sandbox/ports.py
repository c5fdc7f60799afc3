"""Free ports on loopback, for servers that come back to the same port after a kill."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the range from which the kernel takes ports of outgoing connections (32768 and up): a port that we
# come back to after a kill is not taken by someone's connection meanwhile.
_CANDIDATES = range(20000, 32000)


def pick_ports(count: int) -> list[int]:
    """Choose ports on 127.0.0.1 that nobody listens on now, all different, in random order.

    Raises:
        OSError: Fewer than ``count`` are free.
    """
    chosen: list[int] = []
    for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
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
