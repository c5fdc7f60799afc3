"""Ports that are chosen before their servers start are nobody else's meanwhile."""

import subprocess
import sys

from sandbox.ports import pick_ports


def test_pick_ports_never_chooses_a_port_twice() -> None:
    chosen = [port for _ in range(20) for port in pick_ports(12)]
    assert len(set(chosen)) == len(chosen)


def test_two_processes_choose_from_different_shares() -> None:
    pick_ports(1)
    script = "from sandbox.ports import pick_ports\nprint(*pick_ports(300))"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  # our own module
    theirs = {int(port) for port in other.stdout.split()}
    assert len(theirs) == 300
    assert theirs.isdisjoint(pick_ports(300))
