"""Sandbox runner and data converter that workers, bridge, tests and replay share."""

from typing import Final

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

TRUSTED: Final = ("domain", "activities.signatures", "workflows.messages", "workflows.options")
"""What each run of a workflow shares with the process instead of importing it anew.

``domain`` has no clock, no randomness and no I/O, which import rules prove. The three modules only declare
models, names and options, which a test proves; to make their models again takes 35 ms of CPU for each
workflow that a worker takes up, its whole pools after a restart (ADR 10).
"""

WORKFLOW_RUNNER: Final = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules(*TRUSTED),
)
"""Runs every workflow of the product."""

DATA_CONVERTER: Final[DataConverter] = pydantic_data_converter
"""Encodes every payload; client, worker, replayer and tests must all use this one."""
