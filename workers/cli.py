"""The command line ``spotgpu``."""

import argparse
import asyncio
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from workers import processes
from workers.errors import ConfigurationError

_SANDBOX: Final = "sandbox"
_SETTINGS: Final = (
    "Settings are environment variables: TEMPORAL_ADDRESS and its like for Temporal, KUBECONFIG for "
    "Kubernetes, SPOTGPU_* for the rest. docs/operations.md lists them."
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    processes.leave(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 must be called or configured otherwise."""
    if arguments[:1] == [_SANDBOX]:
        return _sandbox(arguments[1:])
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigurationError as error:
        sys.stderr.write(f"spotgpu: {error}\n")
        return processes.MISCONFIGURED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spotgpu", description="Pools of GPU spot instances, kept at their level."
    )
    parser.add_argument("--version", action="version", version=f"spotgpu {version('spotgpu')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, does in (
        ("worker", _worker, "run workflows and activities until SIGTERM"),
        ("bridge", _bridge, "turn custom resources into workflow messages until SIGTERM"),
    ):
        process = commands.add_parser(
            name, help=does, description=f"{does[0].upper()}{does[1:]}.", epilog=_SETTINGS
        )
        process.set_defaults(command=command)
    crd = commands.add_parser("crd", help="the custom resource definitions of deploy/crds")
    actions = crd.add_subparsers(required=True, metavar="ACTION")
    write = actions.add_parser("write", aliases=["generate"], help="write them from the models")
    write.set_defaults(command=_write_crds)
    check = actions.add_parser("check", help="fail if they are not what the models say")
    check.set_defaults(command=_check_crds)
    attributes = commands.add_parser(
        "search-attributes", help="the search attributes of the Temporal namespace"
    )
    steps = attributes.add_subparsers(required=True, metavar="ACTION")
    steps.add_parser("register", help="add those that are missing").set_defaults(command=_register)
    replay = commands.add_parser("replay", help="replay recorded histories against this build's workflows")
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a history as JSON")
    replay.set_defaults(command=_replay)
    commands.add_parser(_SANDBOX, help="the outside world in miniature: sandbox up, down, status and more")
    return parser


def _worker(_: argparse.Namespace) -> int:
    # Each command imports its own world: the bridge needs no cloud, `crd check` needs no Temporal.
    from workers.temporal_worker import run_worker

    return processes.run(run_worker)


def _bridge(_: argparse.Namespace) -> int:
    from workers.bridge import run_bridge_process

    return processes.run(run_bridge_process)


def _write_crds(_: argparse.Namespace) -> int:
    from crd_bridge.schema import write_crds

    for path in write_crds():
        print(path)
    return 0


def _check_crds(_: argparse.Namespace) -> int:
    from crd_bridge.schema import check_crds

    differences = check_crds()
    for difference in differences:
        sys.stderr.write(f"{difference}\n")
    if differences:
        sys.stderr.write("run: spotgpu crd write, and commit the result\n")
    return processes.FAILED if differences else 0


def _register(_: argparse.Namespace) -> int:
    return asyncio.run(_register_attributes())


async def _register_attributes() -> int:
    from workers import search_attributes
    from workers.connections import connect_temporal
    from workers.settings import read_settings

    client = await connect_temporal(read_settings(), "spotgpu-cli")
    added = await search_attributes.register(client)
    print(f"registered: {', '.join(added)}" if added else "all search attributes are registered")
    return 0


def _replay(options: argparse.Namespace) -> int:
    from workers.replay import read_history, replay

    failed = 0
    for path in options.files:
        problem = asyncio.run(replay(read_history(path)))
        print(f"{path}: {problem or 'ok'}")
        failed += bool(problem)
    return processes.FAILED if failed else 0


def _sandbox(arguments: list[str]) -> int:
    try:
        commands = importlib.import_module("sandbox.commands")
    except ModuleNotFoundError as error:
        hint = "install spotgpu[sandbox]" if error.name != "sandbox.commands" else "this build has no sandbox"
        sys.stderr.write(f"spotgpu: module {error.name} is missing; {hint}\n")
        return processes.MISCONFIGURED
    return int(commands.main(arguments))
