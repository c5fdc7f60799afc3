"""``spotgpu sandbox up|down|status|build|demo|chaos``: the one place of the sandbox that prints."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from domain.contracts.offers import ProviderName
from sandbox.accounts import NODE_CLASSES, USUAL_CLOUDS, clouds_named
from sandbox.chaos import Case, Stage, matrix, pairs, run_cases, singles
from sandbox.control_plane.binaries import MissingProgramError, find_or_build
from sandbox.control_plane.compilation import CompilationError
from sandbox.control_plane.go_toolchain import GoToolchainError
from sandbox.control_plane.launcher import ControlPlaneError
from sandbox.control_plane.processes import ProcessError
from sandbox.expectation import ExpectationError
from sandbox.observer import NotThereError
from sandbox.operator_processes import Operator
from sandbox.run_folder import StackFolder, default_folder
from sandbox.shortened import shortened_lines
from sandbox.stack import Stack, StackError, StackOptions
from sandbox.story import DEMO_POOL, Story
from sandbox.temporal_server import TemporalServerError, find_program

DONE, FAILED, MISUSED = 0, 1, 2

_EXPECTED = (
    StackError,
    ControlPlaneError,
    TemporalServerError,
    ProcessError,
    MissingProgramError,
    CompilationError,
    GoToolchainError,
    ExpectationError,
    NotThereError,
)
"""Failures whose text alone says what to do; anything else is a bug and shows its trace."""


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 called wrongly."""
    try:
        options = _parser().parse_args(list(argv))
    except SystemExit as end:
        return int(end.code or 0)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        with _terminated_as_interrupted():
            return command(options)
    except _EXPECTED as error:
        _complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        _complain("interrupted; everything that was started has been ended")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spotgpu sandbox",
        description="The outside world in miniature.",
        epilog="How to let a cloud throttle, refuse, vanish and more: docs/sandbox.md.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start everything and let it run")
    _add_choices_of_up(up)
    down = commands.add_parser("down", help="end everything")
    down.set_defaults(command=_down)
    status = commands.add_parser("status", help="list each part and whether it answers")
    status.set_defaults(command=_status)
    build = commands.add_parser("build", help="build the control plane into the cache, if it is not there")
    build.set_defaults(command=_build)
    demo = commands.add_parser("demo", help="tell the life of a pool on real parts, in a sandbox of its own")
    demo.set_defaults(command=_demo)
    chaos = commands.add_parser("chaos", help="kill each part, alone and in pairs, at each stage of a pool")
    chaos.set_defaults(command=_chaos, cluster="own")
    chaos.add_argument("--singles", action="store_true", help="only one part at a time")
    chaos.add_argument("--pairs", type=int, metavar="K", help="only K pairs, chosen by the seed")
    chaos.add_argument(
        "--stages", nargs="+", choices=[stage.value for stage in Stage], help="only these stages"
    )
    for command in (up, down, status):
        command.add_argument("--folder", type=Path, help="run folder (default: in the user's state folder)")
    for command in (up, demo, chaos):
        command.add_argument("--seed", type=int, default=1, help="of the clouds' market and of all chance")
    for command in (up, demo):
        command.add_argument(
            "--cluster",
            choices=("own", "current"),
            default="own",
            help="own: a control plane of the sandbox; current: the cluster that KUBECONFIG names",
        )
    return parser


def _add_choices_of_up(up: argparse.ArgumentParser) -> None:
    up.set_defaults(command=_up)
    up.add_argument("--foreground", action="store_true", help="stay, and end everything at Ctrl-C")
    up.add_argument(
        "--clouds",
        type=_clouds,
        default=USUAL_CLOUDS,
        metavar="NAMES",
        help=f"comma-separated, of {','.join(NODE_CLASSES)} (default: {','.join(USUAL_CLOUDS)})",
    )
    up.add_argument("--workers", type=_workers, default=1, metavar="N", help="worker processes (default: 1)")


def _build(_: argparse.Namespace) -> int:
    find_or_build(os.environ, _say)
    return DONE


def _up(options: argparse.Namespace) -> int:
    folder = _folder(options)
    existing = Stack.attach(folder, os.environ, _say)
    if existing is None or not any(part.answers for part in existing.status()):
        if existing is not None:
            existing.down()  # what a start that was broken off left running has its pids in there
        _forget(folder)
    chosen = _stack_options(options, die_with_parent=options.foreground)
    stack = Stack(folder, replace(chosen, clouds=options.clouds, workers=options.workers), _say)
    stack.up()
    _introduce(stack)
    if options.foreground:
        _wait_for_interrupt(stack)
    return DONE


def _down(options: argparse.Namespace) -> int:
    folder = _folder(options)
    stack = Stack.attach(folder, os.environ, _say)
    if stack is None:
        _say(f"no sandbox was ever started in {folder.path}")
        return DONE
    stack.down()
    _say(f"everything is ended; logs are in {_logs(folder)}")
    return DONE


def _status(options: argparse.Namespace) -> int:
    folder = _folder(options)
    stack = Stack.attach(folder, os.environ, _say)
    parts = [] if stack is None else stack.status()
    for part in parts:
        _say(f"{part.name:<12} {'answers' if part.answers else 'does not answer':<16} {part.where}")
    answering = {part.name for part in parts if part.answers}
    if stack is not None and answering >= {"kubernetes", "temporal", "world"}:
        _say_addresses(stack)
    if not answering:
        _say(f"no sandbox runs in {folder.path}; start one with: spotgpu sandbox up")
    return DONE if parts and all(part.answers for part in parts) else FAILED


def _demo(options: argparse.Namespace) -> int:
    with _fresh_stack(options) as stack:
        _say_shortened()
        started = time.monotonic()
        Story(stack, _say).run()
        _say(f"the story is true, told in {time.monotonic() - started:.0f} s (seed {options.seed})")
    return DONE


def _chaos(options: argparse.Namespace) -> int:
    cases = chosen_cases(options)
    with _fresh_stack(options) as stack:
        _say(f"{len(cases)} cases, seed {options.seed}")
        verdicts = run_cases(stack, cases, _say)
        bad = [verdict for verdict in verdicts if not verdict.is_good]
        _say(
            f"{len(verdicts)} cases: {sum(len(v.orphans) for v in verdicts)} orphans, "
            f"{sum(len(v.doubles) for v in verdicts)} doubles, {len(bad)} wrong end states"
        )
        if bad:
            raise ExpectationError(
                f"chaos found {len(bad)} bad cases of {len(verdicts)} (seed {options.seed})"
            )
    return DONE


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """The whole matrix, or the parts of it that the options name."""
    stages = [Stage(name) for name in options.stages] if options.stages else list(Stage)
    cases = matrix(options.seed, stages=stages)
    if not options.singles and options.pairs is None:
        return cases
    return [
        *(singles(cases) if options.singles else []),
        *pairs(cases, options.seed, options.pairs or 0),
    ]


def _clouds(text: str) -> tuple[ProviderName, ...]:
    try:
        return clouds_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes: give 1 or more")
    return int(text)


@contextmanager
def _fresh_stack(options: argparse.Namespace, *, through_proxies: bool = False) -> Generator[Stack]:
    """Start a stack in a folder of its own and end it; the folder stays when something went wrong."""
    path = Path(tempfile.mkdtemp(prefix="spotgpu-"))
    chosen = _stack_options(options, die_with_parent=True, through_proxies=through_proxies)
    stack = Stack(StackFolder(path), chosen, _say)
    try:
        stack.up()
        yield stack
    except BaseException:
        _complain(f"logs are kept in {_logs(stack.folder)}")
        raise
    finally:
        stack.down()
    shutil.rmtree(path)


def _stack_options(
    options: argparse.Namespace, *, die_with_parent: bool, through_proxies: bool = False
) -> StackOptions:
    return StackOptions(
        os.environ,
        seed=options.seed,
        cluster=options.cluster,
        die_with_parent=die_with_parent,
        through_proxies=through_proxies,
    )


def _introduce(stack: Stack) -> None:
    """Say where everything is and what to try."""
    kubectl = f"KUBECONFIG={stack.cluster.kubeconfig} {_kubectl(stack)}"
    _say_shortened()
    _say_addresses(stack)
    _say("To let something go wrong, see docs/sandbox.md.")
    _say("Try next:")
    _say(f"  {kubectl} apply -f {DEMO_POOL}")
    _say(f"  {kubectl} get gsp -w")
    _say(f"  {find_program()} workflow list --address {stack.temporal.address}")


def _say_addresses(stack: Stack) -> None:
    _say(f"Temporal UI  {stack.temporal.ui_url}")
    _say(f"Temporal     {stack.temporal.address}")
    _say(f"KUBECONFIG   {stack.cluster.kubeconfig}")
    for line in metrics_lines(stack.operator):
        _say(line)


def metrics_lines(operator: Operator) -> list[str]:
    """One line for each process, for people."""
    return [f"metrics      {operator.metrics_url(name)} ({name})" for name in operator.names]


def _logs(folder: StackFolder) -> str:
    return ", ".join(str(path) for path in folder.log_folders()) or str(folder.path)


def _kubectl(stack: Stack) -> str:
    found = shutil.which("kubectl")
    return found or str(stack.binaries.kubectl)


def _say_shortened() -> None:
    _say("Settings of the operator that the sandbox shortens (never a field of a resource):")
    for line in shortened_lines():
        _say(line)


def _forget(folder: StackFolder) -> None:
    """Begin anew: the clouds of an earlier run are gone, so its cluster and workflows would miss them."""
    for path in (folder.control_plane, folder.temporal, folder.logs):
        shutil.rmtree(path, ignore_errors=True)


def _wait_for_interrupt(stack: Stack) -> None:
    _say("Ctrl-C ends everything.")
    try:
        signal.pause()
    finally:
        stack.down()


def _folder(options: argparse.Namespace) -> StackFolder:
    return StackFolder((options.folder or default_folder(os.environ)).resolve())


@contextmanager
def _terminated_as_interrupted() -> Generator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that what was started is ended."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the sandbox's voice, given to everything that reports


def _complain(line: str) -> None:
    sys.stderr.write(f"spotgpu: {line}\n")
