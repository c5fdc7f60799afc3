"""Sandbox runner and data converter that workers, bridge, tests and replay share."""

from typing import Final

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

WORKFLOW_RUNNER: Final = SandboxedWorkflowRunner(
    # Only domain is trusted: it has no clock, no randomness and no I/O, which import rules prove.
    restrictions=SandboxRestrictions.default.with_passthrough_modules("domain"),
)
"""Runs every workflow of the product."""

DATA_CONVERTER: Final[DataConverter] = pydantic_data_converter
"""Encodes every payload; client, worker, replayer and tests must all use this one."""
