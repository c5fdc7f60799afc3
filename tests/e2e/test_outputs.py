"""What kubectl and temporal show of a pool is what the documents show, times and ids aside."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
import yaml

from sandbox.expectation import expect
from sandbox.provision import EXAMPLES
from sandbox.stack import Stack
from sandbox.temporal_server import find_program
from sandbox.watched_pool import WatchedPool
from tests.e2e.golden import compare, described, steps_apart, steps_of, steps_with_summaries

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


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


@pytest.mark.usefixtures("stack")
def test_get_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    compare("kubectl-get-gsp", lambda: kubectl(pool, "get", "gsp"))


@pytest.mark.usefixtures("stack")
def test_describe_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    compare("kubectl-describe-gsp", lambda: kubectl(pool, "describe", "gsp", pool.name), described)


@pytest.mark.usefixtures("stack")
def test_workflow_list_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    query = f'WorkflowType = "GPUSpotPool" AND PoolNamespace = "{pool.namespace}"'
    compare("temporal-workflow-list", lambda: temporal(pool, "workflow", "list", "--query", query))


@pytest.mark.usefixtures("stack")
def test_workflow_show_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    show = ("workflow", "show", "--workflow-id", pool.workflow_id)
    compare("temporal-workflow-show", lambda: temporal(pool, *show), steps_of)


@pytest.mark.usefixtures("stack")
def test_workflow_metadata_reads_as_the_docs_show_it(pool: WatchedPool) -> None:
    show = ("workflow", "metadata", "--workflow-id", pool.workflow_id)
    compare("temporal-workflow-metadata", lambda: temporal(pool, *show))


@pytest.mark.usefixtures("stack")
def test_every_step_has_the_summary_that_the_docs_show(pool: WatchedPool) -> None:
    show = ("workflow", "show", "--workflow-id", pool.workflow_id, "--output", "json")
    compare("temporal-workflow-steps", lambda: steps_with_summaries(temporal(pool, *show)), steps_apart)
