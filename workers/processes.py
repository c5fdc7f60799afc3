"""The edge of a process: signals, the one line of an expected failure, and an end that cannot hang."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio import activity, workflow

from activities.telemetry import logs
from workers.errors import ConfigurationError
from workers.settings import Settings, read_settings

FAILED: Final = 1
MISCONFIGURED: Final = 2

_log = logging.getLogger(__name__)

Body = Callable[[Settings, asyncio.Event], Awaitable[None]]


def run(body: Body) -> int:
    """Read the settings, run ``body`` until SIGTERM or SIGINT, and return the exit code.

    A second signal ends the process at once. An expected failure is one line on standard error.
    """
    try:
        settings = read_settings()
        _configure_logs(settings.log_level)
        asyncio.run(_until_signal(body, settings))
    except ConfigurationError as error:
        sys.stderr.write(f"spotgpu: {error}\n")
        return MISCONFIGURED
    except Exception:  # noqa: BLE001  # the edge of the process: logged with its trace, mended by a restart
        _log.exception("Process failed")
        return FAILED
    return 0


def _configure_logs(level: str) -> None:
    logs.configure(level)
    # The facts stand in fields of their own; Temporal would repeat them in every message.
    activity.logger.activity_info_on_message = False
    workflow.logger.workflow_info_on_message = False
    # One line per queue at each shutdown says nothing that "Worker drains" does not say.
    logging.getLogger("temporalio.worker._worker").setLevel(max(logging.WARNING, logging.getLogger().level))


async def _until_signal(body: Body, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            leave(FAILED)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await body(settings, stop)


def leave(code: int) -> None:
    """End this process now, after a flush: beside Temporal's core the interpreter's own end may hang."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
