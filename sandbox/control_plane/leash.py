"""Becomes another program that the kernel kills when its parent dies.

Run as a script, before the program: ``python leash.py PARENT_PID PROGRAM ARGUMENT...``. A child made with
``preexec_fn`` would do the same, but is unsafe in a parent with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Source: prctl(2). It outlives exec; the parent it means is the thread that made this process."""


def main(arguments: list[str]) -> None:
    """Ask the kernel, look whether the parent is already gone, and exec."""
    parent_pid, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() == int(parent_pid):
        os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
