"""What is laid for a new cloud is in order, and fails its suite until it is filled."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox.skeleton import ENTRIES, FILES, OWN_IMPORT, ROOT, SkeletonError, _filled, lay, main
from tests.architecture.tree import repository_files

NEW = "volcano"


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with a new cloud in it."""
    root = tmp_path_factory.mktemp("clone")
    for path in repository_files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    (root / ".venv").symlink_to(ROOT / ".venv")
    lay(NEW, root)
    return root


def run(laid: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name(arguments[0])
    return subprocess.run(  # noqa: S603 - our own tools on our own files
        [str(tool), *arguments[1:]],
        cwd=laid,
        env={**os.environ, "PYTHONPATH": str(laid)},
        capture_output=True,
        text=True,
        check=False,
    )


def new_files() -> Sequence[str]:
    return [path.format(name=NEW) for path in FILES.values()]


def test_what_is_laid_passes_lint_and_format(laid: Path) -> None:
    paths = [*new_files(), *{entry.path for entry in ENTRIES if entry.path.endswith(".py")}]
    for command in (["check"], ["format", "--check"]):
        done = run(laid, "ruff", *command, *paths)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.wire  # beside the suite that it runs: too slow for the unit level
@pytest.mark.timeout(240)
def test_what_is_laid_passes_import_contracts_and_types(laid: Path) -> None:
    contracts = run(laid, "lint-imports")
    assert contracts.returncode == 0, contracts.stdout[-3000:]
    types = run(laid, "pyright", *[p for p in new_files() if not p.startswith("tests/")])
    assert types.returncode == 0, types.stdout


@pytest.mark.wire  # beside the suite that it runs: too slow for the unit level
@pytest.mark.timeout(240)
def test_what_is_laid_passes_no_test_of_the_suite_and_says_what_is_to_do(laid: Path) -> None:
    suite = "tests/activities/providers/test_conformance.py"
    done = run(laid, "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", NEW, suite)
    summary = done.stdout.splitlines()[-1]
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\d\d failed", summary), summary
    assert "passed" not in summary
    assert "skipped" not in summary
    failures = [line for line in done.stdout.splitlines() if re.search(r"(Error|E  )", line)]
    assert failures
    assert f"TO DO: the catalogue has no to-do.gpu.type of {NEW}" in done.stdout


def test_lay_tells_what_to_do_when_a_name_is_no_good_or_taken(laid: Path) -> None:
    for name in ("", "A", "9lives", "two-words", "x" * 17):
        with pytest.raises(SkeletonError, match="2 to 16 lower-case letters"):
            lay(name, laid)
    with pytest.raises(SkeletonError, match=r"activities/providers/tencent.py is there already"):
        lay("tencent", laid)
    with pytest.raises(SkeletonError, match=rf"{NEW}.py is there already"):
        lay(NEW, laid)


@pytest.mark.parametrize("name", ["ali", "zeta9"])
def test_imports_of_any_name_are_in_order(name: str, tmp_path: Path) -> None:
    for template in FILES:
        laid = _filled(ROOT, template, name)
        own = [line for line in laid.splitlines() if OWN_IMPORT.match(line)]
        assert own == sorted(own, key=lambda line: line.split()[1])


def test_lay_writes_nothing_when_a_file_is_not_as_expected(laid: Path, tmp_path: Path) -> None:
    for path in {entry.path for entry in ENTRIES} | {f"docs/provider-template/{name}" for name in FILES}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    catalogue = tmp_path / "domain/contracts/catalogue.py"
    catalogue.write_text("")
    with pytest.raises(SkeletonError, match=r"catalogue.py has no single"):
        lay(NEW, tmp_path)
    assert not (tmp_path / "activities/providers").exists()


def test_command_wants_one_name_and_answers_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["tencent"]) == 1
    assert "is there already" in capsys.readouterr().err
