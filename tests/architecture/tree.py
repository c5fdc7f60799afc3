"""The files of the repository as the architecture tests see them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("activities", "crd_bridge", "domain", "node_agent", "sandbox", "workers", "workflows")


@cache
def repository_files() -> tuple[str, ...]:
    """Paths of every file that is or could be committed, relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607  git is found by PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(sorted(path for path in set(listed) if (ROOT / path).is_file()))


def product_modules() -> list[str]:
    """Python files of the rooms."""
    return [p for p in repository_files() if p.endswith(".py") and p.split("/")[0] in ROOMS]


def text_of(path: str) -> str:
    """Text of a file of the repository; bytes that are no UTF-8 are replaced."""
    return (ROOT / path).read_text(errors="replace")


@cache
def syntax_of(path: str) -> ast.Module:
    """Syntax tree of a Python file of the repository."""
    return ast.parse(text_of(path), filename=path)
