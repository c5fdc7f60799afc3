"""What kubectl and temporal show of a pool is what the documents show, times and ids aside.

``SPOTGPU_TEST_WRITE_OUTPUTS=1`` writes ``docs/outputs`` anew instead of comparing.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
import yaml

from sandbox.expectation import expect
from sandbox.provision import EXAMPLES
from sandbox.stack import Stack
from sandbox.temporal_server import find_program
from sandbox.watched_pool import WatchedPool
from tests.e2e.conftest import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OUTPUTS = REPOSITORY / "docs" / "outputs"
WRITE = bool(os.environ.get("SPOTGPU_TEST_WRITE_OUTPUTS"))

# What differs between two runs: who made the machine, where, when, and what it cost. In this order.
MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"(qcloud:///\d+/|\b(cn-[a-z]+|alicloud://cn-[a-z]+)\.)?\b(ins|i)-[0-9a-z]{6,}", "<id>"),
    (r"\b(tencent|aliyun)-\d+-\d+-\d+-\d+|\btraining-pool-a100-[0-9a-f]{8}-\d+", "<node>"),
    (r"\b(ap-[a-z]+-\d+|cn-[a-z]+-[a-z])\b", "<zone>"),
    (r"\b(ap|cn)-(guangzhou|shanghai|shenzhen|beijing)\b", "<region>"),
    (r"\b(GT4|ecs)\.[\w.-]+", "<type>"),
    (r"\b(tencent|aliyun)\b(?! )", "<provider>"),
    (r"\b(tencent|aliyun) made", "<provider> made"),
    (r"\bA100-\d0G", "<gpu>"),
    (r"\b\d+\.\d+\b", "<amount>"),
    (r"\b(Resource Version:\s+)\d+", r"\1<number>"),
    (r"\b\d+m?s?\d*s\b|\b(now|an?|\d+) (seconds?|minutes?)? ?ago\b|\b<?\d+s \(x\d+ over \d+s\)", "<age>"),
    (r" {2,}", "  "),
]


def masked(text: str) -> list[str]:
    """Lines without what differs between runs."""
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def described(text: str) -> list[str]:
    """Description with its Events in no particular order, each once: several of a second have none."""
    lines = masked(text)
    start = lines.index("Events:")
    return [*lines[:start], *sorted(set(lines[start:]))]


def steps_of(text: str) -> list[str]:
    """Kinds of steps of a history, each once; how many there are depends on how fast the clouds answer."""
    return sorted({line.split()[-1] for line in masked(text) if "<time>" in line})


@pytest.fixture(scope="module")
def pool(whole_stack: Stack) -> Iterator[WatchedPool]:
    pool = WatchedPool(whole_stack, "documents", "training-pool-a100")
    pool.apply(yaml.safe_load((EXAMPLES / "demo-pool.yaml").read_text()))
    expect("2 machines", lambda: pool.at_level(2), within_seconds=60)
    expect("a status that says so", lambda: is_calm(pool) or None, within_seconds=30)
    yield pool
    pool.delete()
    expect("the pool leaves nothing", lambda: pool.is_gone() or None, within_seconds=60)


def is_calm(pool: WatchedPool) -> bool:
    """Whether status and Events have told of both machines."""
    text = kubectl(pool, "describe", "gsp", pool.name)
    return text.count("InstanceReady") == 2 and "2 of 2 instances are ready" in text


def kubectl(pool: WatchedPool, *arguments: str) -> str:
    return pool.stack.cluster.kubectl(*arguments, f"--namespace={pool.namespace}")


def temporal(pool: WatchedPool, *arguments: str) -> str:
    command = [str(find_program()), *arguments, "--address", pool.stack.temporal.address, "--color", "never"]
    return subprocess.run(  # noqa: S603  the sandbox's own program
        command, capture_output=True, text=True, check=True, timeout=30
    ).stdout


def compare(name: str, shown: str, reading: Callable[[str], list[str]] = masked) -> None:
    path = OUTPUTS / f"{name}.txt"
    if WRITE:
        path.write_text("\n".join(line.rstrip() for line in shown.strip().splitlines()) + "\n")
    assert reading(shown) == reading(path.read_text())


@pytest.mark.usefixtures("stack")
def test_get_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    compare("kubectl-get-gsp", kubectl(pool, "get", "gsp"))


@pytest.mark.usefixtures("stack")
def test_describe_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    compare("kubectl-describe-gsp", kubectl(pool, "describe", "gsp", pool.name), described)


@pytest.mark.usefixtures("stack")
def test_workflow_list_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    query = f'WorkflowType = "GPUSpotPool" AND PoolNamespace = "{pool.namespace}"'
    compare("temporal-workflow-list", temporal(pool, "workflow", "list", "--query", query))


@pytest.mark.usefixtures("stack")
def test_workflow_show_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    shown = temporal(pool, "workflow", "show", "--workflow-id", pool.workflow_id)
    compare("temporal-workflow-show", shown, steps_of)
