"""Which Go is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.control_plane.go_toolchain import GoToolchainError, find_go, parse_version


def a_go(path: Path, version: str) -> Path:
    """Write a program that says it is Go of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def never(line: str) -> None:
    """Progress of an installation that must not happen."""
    raise AssertionError(line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("go1.26.8\n", (1, 26), id="release"),
        pytest.param("go1.27rc1", (1, 27), id="release candidate"),
        pytest.param("devel +abc", None, id="no version"),
    ],
)
def test_parse_version_reads_major_and_minor(text: str, expected: tuple[int, int] | None) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize("version", ["go1.26.0", "go1.27.1", "go2.0"])
def test_find_go_takes_path_when_it_is_new_enough(tmp_path: Path, version: str) -> None:
    on_path = a_go(tmp_path / "path" / "go", version)
    assert find_go({"PATH": str(on_path.parent)}, tmp_path / "cache", never) == on_path


def test_find_go_takes_the_installed_one_when_path_is_too_old(tmp_path: Path) -> None:
    on_path = a_go(tmp_path / "path" / "go", "go1.25.9")
    installed = a_go(tmp_path / "cache" / "go-1.26" / "go" / "bin" / "go", "go1.26.6")
    assert find_go({"PATH": str(on_path.parent)}, tmp_path / "cache", never) == installed


def test_find_go_says_what_to_do_when_the_installed_one_is_broken(tmp_path: Path) -> None:
    a_go(tmp_path / "cache" / "go-1.26" / "go" / "bin" / "go", "nothing")
    with pytest.raises(GoToolchainError, match=r"Delete .*go-1\.26"):
        find_go({"PATH": "/nowhere"}, tmp_path / "cache", never)
