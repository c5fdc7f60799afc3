"""One builder at a time, across processes."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

_WAIT_REPORT_SECONDS = 10.0


@contextmanager
def exclusive(lock_path: Path, progress: Callable[[str], None]) -> Generator[None]:
    """Hold the lock file; the kernel gives it back when the holder dies."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("a") as lock:
        started = time.monotonic()
        told = -_WAIT_REPORT_SECONDS
        while not _try_lock(lock.fileno()):
            waited = time.monotonic() - started
            if waited - told >= _WAIT_REPORT_SECONDS:
                progress(f"another process builds the same, waiting for it: {waited:.0f} s")
                told = waited
            time.sleep(0.2)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
