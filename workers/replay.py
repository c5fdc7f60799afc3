"""Replaying recorded histories with this build's workflows and the worker's own converter."""

import json
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workers.errors import ConfigurationError
from workers.wiring import WORKFLOWS
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER


def read_history(path: Path) -> WorkflowHistory:
    """A history as ``temporal workflow show --output json`` writes it.

    Raises:
        ConfigurationError: The file is no history.
    """
    try:
        return WorkflowHistory.from_json(path.stem, json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is no recorded history: {error}") from error


async def replay(history: WorkflowHistory) -> str:
    """What is wrong with one history, on one line; empty when it replays."""
    replayer = Replayer(workflows=WORKFLOWS, workflow_runner=WORKFLOW_RUNNER, data_converter=DATA_CONVERTER)
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return " ".join(str(result.replay_failure).split())[:500] if result.replay_failure else ""
