"""Finding and building AWS's mock, with a stand-in for Go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.control_plane.binaries import cache_folder
from sandbox.control_plane.compilation import CompilationError
from sandbox.control_plane.metadata_mock import NAME, find_or_build_mock

FAKE_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit 0; fi
if [ -n "$FAKE_GO_FAILS" ]; then echo "no such module" >&2; exit 1; fi
echo "$PWD $@" >> "$FAKE_GO_CALLS"
while [ "$1" != -o ]; do shift; done
echo program > "$2" && chmod +x "$2"
"""


@pytest.fixture
def build_env(tmp_path: Path) -> dict[str, str]:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    return {
        "PATH": f"{go.parent}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "FAKE_GO_CALLS": str(tmp_path / "calls"),
    }


def silent(_line: str) -> None:
    """Progress that nobody reads."""


def test_mock_is_built_once_from_its_own_module(build_env: dict[str, str]) -> None:
    built = find_or_build_mock(build_env, silent)
    assert find_or_build_mock(build_env, silent) == built
    assert os.access(built, os.X_OK)
    assert (built.name, built.parent.parent) == (NAME, cache_folder(build_env))
    assert built.parent.name.startswith("ec2-metadata-mock-v1.")
    (call,) = Path(build_env["FAKE_GO_CALLS"]).read_text().splitlines()
    assert call.split()[0].endswith("sandbox/control_plane/metadata_mock")
    assert call.endswith("github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock")


def test_mock_of_the_assets_folder_is_taken_as_it_is(tmp_path: Path, build_env: dict[str, str]) -> None:
    (tmp_path / "assets").mkdir()
    env = {**build_env, "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    assert find_or_build_mock(env, silent).parent.parent == cache_folder(env)
    (tmp_path / "assets" / NAME).touch(mode=0o755)
    assert find_or_build_mock(env, silent) == tmp_path / "assets" / NAME


def test_mock_that_cannot_be_built_leaves_nothing_that_looks_built(build_env: dict[str, str]) -> None:
    with pytest.raises(CompilationError, match="no such module"):
        find_or_build_mock({**build_env, "FAKE_GO_FAILS": "1"}, silent)
    assert all(path.is_file() for path in cache_folder(build_env).iterdir())
    assert os.access(find_or_build_mock(build_env, silent), os.X_OK)
