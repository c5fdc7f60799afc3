"""Recorded histories replay on today's code with the worker's own runner and converter."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.replay.standing_stories import STANDING_STORIES
from tests.replay.stories import STORIES
from workers.wiring import WORKFLOWS
from workflows.runtime import DATA_CONVERTER, WORKFLOW_RUNNER

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in HISTORIES])
async def test_history_replays(path: Path) -> None:
    replayer = Replayer(workflows=WORKFLOWS, data_converter=DATA_CONVERTER, workflow_runner=WORKFLOW_RUNNER)
    history = await asyncio.to_thread(path.read_text)
    await replayer.replay_workflow(WorkflowHistory.from_json(path.stem, history))


def test_every_story_has_a_recorded_history() -> None:
    assert {path.stem.rsplit("-", 1)[0] for path in HISTORIES} >= {*STORIES, *STANDING_STORIES}
