"""AWS's own mock of the metadata service of EC2: a second witness, built by the test that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.control_plane.binaries import (
    ASSETS_VARIABLE,
    MODULE_FOLDER,
    build_once,
    cache_folder,
    locks_hash,
    required_version,
)
from sandbox.control_plane.compilation import Program

NAME = "ec2-metadata-mock"

_MODULE = "github.com/aws/amazon-ec2-metadata-mock"
_FOLDER = MODULE_FOLDER / "metadata_mock"


def find_or_build_mock(env: Mapping[str, str], progress: Callable[[str], None]) -> Path:
    """Return the program of ``KUBEBUILDER_ASSETS`` if it is there, else that of the cache, built first.

    A build takes seconds once its modules are there.

    Args:
        env: Environment to read and to build in, as for the control plane.
        progress: Told in one line what is being done.

    Raises:
        GoToolchainError: There is no Go and none can be installed.
        CompilationError: Go could not build it.
    """
    given = Path(env.get(ASSETS_VARIABLE, ""), NAME)
    if env.get(ASSETS_VARIABLE) and os.access(given, os.X_OK):
        return given
    version = required_version(_FOLDER / "go.mod", _MODULE)
    target = cache_folder(env) / f"{NAME}-{version}-{locks_hash(_FOLDER, ('go.mod', 'go.sum'))}"
    if not target.exists():
        program = Program(NAME, f"{_MODULE}/cmd/{NAME}", _FOLDER)
        build_once(target, "AWS's mock of the metadata service of EC2", [program], env, progress)
    return target / NAME
