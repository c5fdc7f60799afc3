"""Child processes: recorded, found again, ended, never mistaken for another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.control_plane import processes
from sandbox.control_plane.processes import ProcessError, ProcessRecord, ProcessTable

REPOSITORY = Path(processes.__file__).parents[2]
ENV = {"PATH": "/usr/bin:/bin"}
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]


def a_table(folder: Path) -> ProcessTable:
    """Make a table with its folders."""
    for name in ("pids", "logs"):
        (folder / name).mkdir(exist_ok=True)
    return ProcessTable(folder / "pids", folder / "logs")


def wait_for(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Poll until ``condition()`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("leashed", [True, False])
def test_start_records_a_process_that_another_table_can_stop(tmp_path: Path, leashed: bool) -> None:
    owner = a_table(tmp_path)
    record = owner.start("sleeper", ["/bin/sleep", "60"], ENV, die_with_parent=leashed)
    other = a_table(tmp_path)
    assert other.record("sleeper") == record
    assert other.is_alive("sleeper")
    other.stop("sleeper", grace_seconds=5)
    assert not owner.is_alive("sleeper")
    assert owner.record("sleeper") is None


def test_start_refuses_a_second_of_the_same_name(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.start("sleeper", ["/bin/sleep", "60"], ENV, die_with_parent=True)
    with pytest.raises(ProcessError, match="sleeper runs already"):
        table.start("sleeper", ["/bin/sleep", "60"], ENV, die_with_parent=True)
    table.kill("sleeper")


def test_start_names_the_program_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="cannot start ghost: /no/such: No such file"):
        a_table(tmp_path).start("ghost", ["/no/such"], ENV, die_with_parent=False)


def test_stop_kills_what_does_not_hear_after_its_grace(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.start("deaf", STUBBORN, ENV, die_with_parent=True)
    wait_for(lambda: table.log_tail("deaf") == "deaf")
    table.stop("deaf", grace_seconds=0.3)
    assert not table.is_alive("deaf")


def test_stop_leaves_a_process_alone_that_got_a_recorded_pid(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    bystander = subprocess.Popen(["/bin/sleep", "60"])
    stale = ProcessRecord(bystander.pid, birth_ticks=1, command=("etcd",))
    stale.save(tmp_path / "pids" / "etcd.json")
    assert not table.is_alive("etcd")
    table.stop("etcd", grace_seconds=0.1)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_is_alive_is_false_for_a_zombie(tmp_path: Path) -> None:
    owner = a_table(tmp_path)
    record = owner.start("sleeper", ["/bin/sleep", "60"], ENV, die_with_parent=False)
    os.kill(record.pid, signal.SIGKILL)
    wait_for(lambda: not record.is_alive())
    assert Path(f"/proc/{record.pid}").exists()
    assert not a_table(tmp_path).is_alive("sleeper")
    owner.kill("sleeper")


def test_is_alive_while_any_thread_runs_though_the_first_has_ended(tmp_path: Path) -> None:
    """So does a killed server for a moment: its first thread is a zombie, and the others hold its port."""
    table = a_table(tmp_path)
    program = (
        "import ctypes, threading, time;"
        " threading.Thread(target=time.sleep, args=(60,)).start();"
        " ctypes.CDLL(None).pthread_exit(None)"
    )
    record = table.start("headless", [sys.executable, "-c", program], ENV, die_with_parent=True)
    wait_for(lambda: Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert table.is_alive("headless")
    table.kill("headless")
    assert not Path(f"/proc/{record.pid}").exists(), "gone and reaped"


def test_record_survives_saving(tmp_path: Path) -> None:
    record = ProcessRecord(1, 2, ("etcd", "--data-dir=x"))
    record.save(tmp_path / "etcd.json")
    assert ProcessRecord.load(tmp_path / "etcd.json") == record
    assert ProcessRecord.load(tmp_path / "none.json") is None
    assert replace(record, pid=3) != record


@pytest.mark.parametrize(
    ("leashed", "survives"),
    [pytest.param(True, False, id="leashed"), pytest.param(False, True, id="detached")],
)
def test_child_dies_with_a_killed_parent_only_when_asked(
    tmp_path: Path, leashed: bool, survives: bool
) -> None:
    a_table(tmp_path)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from sandbox.control_plane.processes import ProcessTable\n"
        "folder = Path(sys.argv[1])\n"
        "table = ProcessTable(folder / 'pids', folder / 'logs')\n"
        f"table.start('sleeper', ['/bin/sleep', '60'], {{}}, die_with_parent={leashed})\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(  # noqa: S603 - this test's own code
        [sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY
    )
    table = a_table(tmp_path)
    wait_for(lambda: sleeps(table))
    parent.kill()
    parent.wait()
    if not survives:
        wait_for(lambda: not table.is_alive("sleeper"))
    assert table.is_alive("sleeper") is survives
    table.kill("sleeper")


def sleeps(table: ProcessTable) -> bool:
    """Return whether the child has become its program; before that it is still Python."""
    record = table.record("sleeper")
    return record is not None and Path(f"/proc/{record.pid}/comm").read_text().strip() == "sleep"
