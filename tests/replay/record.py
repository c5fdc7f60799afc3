"""Records the histories that the replay tests read: ``make histories``, once per release."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from sandbox.temporal_server import TemporalServer, find_program
from tests.replay.standing_stories import STANDING_STORIES
from tests.replay.stories import STORIES
from tests.workflows.conftest import serving
from tests.workflows.outside import Outside
from workflows.runtime import DATA_CONVERTER

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = ROOT / "tests" / "histories"


async def record(address: str) -> list[Path]:
    """Live every story and write one file per run."""
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    written: list[Path] = []
    for name, story in STORIES.items():
        outside = Outside()
        async with serving(client, outside):
            written += await _write(name, await story(client, outside))
    for name, standing in STANDING_STORIES.items():
        written += await _write(name, await standing(client))
    return written


async def _write(name: str, handles: list[WorkflowHandle[Any, Any]]) -> list[Path]:
    written: list[Path] = []
    for number, handle in enumerate(handles, start=1):
        path = HISTORIES / f"{name}-{number}.json"
        # Traces of failed activities name files of this machine; who reads a history needs their names only.
        told = (await handle.fetch_history()).to_json().replace(f"{ROOT}/", "")
        path.write_text(told + "\n")
        written.append(path)
    return written


def main() -> None:
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = TemporalServer(Path(folder), find_program())
        server.start()
        try:
            written = asyncio.run(record(server.address))
        finally:
            server.stop()
    sys.stdout.write("".join(f"{path.name}\n" for path in written))


if __name__ == "__main__":
    main()
