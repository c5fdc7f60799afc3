"""Outputs that the documents show: compared with what is shown now, without what differs between two runs.

``make goldens`` writes ``docs/outputs`` anew.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUTPUTS = Path(__file__).resolve().parents[2] / "docs" / "outputs"
_LOOK_SECONDS = 30
WRITE = bool(os.environ.get("SPOTGPU_TEST_WRITE_OUTPUTS"))

# What differs between two runs: who made the machine, where, when, and what it cost. In this order.
MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r"\b\d\d-\d\d \d\d:\d\d:\d\d\b", "<time>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"(qcloud:///\d+/|\b(cn-[a-z]+|alicloud://cn-[a-z]+)\.)?\b(ins|i)-[0-9a-z]{6,}", "<id>"),
    (r"\b(tencent|aliyun)-\d+-\d+-\d+-\d+|\btraining-pool-a100-[0-9a-f]{8}-\d+", "<node>"),
    (r"\b(ap-[a-z]+-\d+|cn-[a-z]+-[a-z])\b", "<zone>"),
    (r"\b(ap|cn)-(guangzhou|shanghai|shenzhen|beijing)\b", "<region>"),
    (r"\b(GT4|ecs)\.[\w.-]+", "<type>"),
    (r"\b(tencent|aliyun)\b(?! )", "<provider>"),
    (r"\b(tencent|aliyun) made", "<provider> made"),
    (r"\bA100-\d0G", "<gpu>"),
    # Money may happen to be whole: a pool that has just begun has cost 0 so far.
    (r"((?:Cost|Cost This Month|Price Per Hour):\s+)\d+(?:\.\d+)?", r"\1<amount>"),
    (r"\b\d+(?:\.\d+)?(?=\s+default \(CostFirst\)| CNY/h)", "<amount>"),
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


def steps_with_summaries(history: str) -> str:
    """Activities and timers of a history (JSON) with their summaries, as the Temporal UI lists them."""
    lines = [line for event in json.loads(history)["events"] if (line := _step(event))]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {summary}" for name, summary in lines)


def _step(event: dict[str, Any]) -> tuple[str, str] | None:
    """What an event begins and its summary; None for all but activities and timers."""
    activity = event.get("activityTaskScheduledEventAttributes")
    if activity is None and "timerStartedEventAttributes" not in event:
        return None
    name = "timer" if activity is None else activity["activityType"]["name"]
    payload = event.get("userMetadata", {}).get("summary", {}).get("data")
    return name, json.loads(base64.b64decode(payload)) if payload else ""


def steps_apart(text: str) -> list[str]:
    """Each step with each part of its summary once: what comes together in a batch is a matter of luck."""
    steps: set[str] = set()
    for line in masked(text):
        name, _, summary = line.partition("  ")
        # Which deadline a timer is for, and how far the pool is when it says so, is luck, too.
        summary = "" if name == "timer" else re.sub(r"\d+ of \d+", "<n> of <n>", summary)
        steps.update(f"{name}  {part}" for part in summary.split(", "))
    return sorted(steps)


def compare(name: str, look: Callable[[], str], reading: Callable[[str], list[str]] = masked) -> None:
    """Fail unless what is shown comes to read as the document; write the document first if that is asked for.

    What a pool shows lags behind by its reporting interval, more on a busy machine: look again for a while.
    """
    path = OUTPUTS / f"{name}.txt"
    if WRITE:
        path.write_text("\n".join(line.rstrip() for line in look().strip().splitlines()) + "\n")
    wanted = reading(path.read_text())
    deadline = time.monotonic() + _LOOK_SECONDS
    seen = reading(look())
    while seen != wanted and time.monotonic() < deadline:
        time.sleep(1)
        seen = reading(look())
    assert seen == wanted, "\n".join(difflib.unified_diff(wanted, seen, path.name, "shown", lineterm=""))
