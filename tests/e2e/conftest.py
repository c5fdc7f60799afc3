"""One whole sandbox for all tests of this room, every way of the operator through a proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.chaos import Case
from sandbox.run_folder import StackFolder
from sandbox.stack import Stack, StackOptions

ORDER = (
    "test_four_clouds.py",
    "test_kill_points.py",
    "test_chaos.py",
    "test_variants.py",
    "test_nodes.py",
    "test_failing_purchases.py",
    "test_commands.py",
    "test_chaos_of_pairs.py",
    "test_outputs.py",
)
"""So that four processes, each with files of its own, end at about the same time.

The longest come first, but for one: a process with two tests left is given its next file at once, so the one
that begins with two long tests takes the fifth.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return ORDER.index(item.path.name) if item.path.name in ORDER else len(ORDER)

    if all(item.path.parent == Path(__file__).parent for item in items):
        items.sort(key=place)


@pytest.fixture(scope="session")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = StackFolder(tmp_path_factory.mktemp("stack"))
    stack = Stack(folder, StackOptions(os.environ, seed=1, through_proxies=True), print)
    stack.up()
    yield stack
    stack.down()


@pytest.fixture
def stack(whole_stack: Stack) -> Iterator[Stack]:
    """The sandbox with both of the operator's processes alive, whatever the test before did."""
    revive(whole_stack)
    yield whole_stack
    for cloud in whole_stack.world.clouds:
        whole_stack.cloud(cloud.provider).clear_hooks()
        whole_stack.cloud(cloud.provider).clear_faults()
        whole_stack.switches.clear_rules(cloud.provider)


def revive(stack: Stack) -> None:
    """Start what does not run and wait for the operator's processes."""
    for name in stack.operator.names:
        if not stack.operator.is_alive(name):
            stack.operator.start(name)
        stack.operator.wait_ready(name)


def named(case: Case) -> str:
    """Id of a chaos case in the report: what is killed, and when."""
    return "-".join((*case.targets, case.stage))


CHAOS_SEED = 1
REPOSITORY = Path(__file__).resolve().parents[2]
