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
from tests.architecture.tree import ROOMS, repository_files

# No vendors: the tests hold where a new cloud was laid, too. The second is as long as a name may be.
NEW = ("nimbus", "stratocumulus999")


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with two new clouds in it, one laid after the other."""
    root = tmp_path_factory.mktemp("clone")
    for path in repository_files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    (root / ".venv").symlink_to(ROOT / ".venv")
    for name in NEW:
        lay(name, root)
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


def copy_what_is_read(source: Path, target: Path) -> None:
    """Templates and files with entries, without a module of any cloud."""
    for path in {entry.path for entry in ENTRIES} | {f"docs/provider-template/{name}" for name in FILES}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)


def errors_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What each failed test says, in their order."""
    return [line for line in done.stdout.splitlines() if line.startswith("E  ")]


def new_files() -> Sequence[str]:
    return [path.format(name=name) for name in NEW for path in FILES.values()]


def modules_that_name_clouds(laid: Path) -> list[str]:
    """Every module that may spell the clouds out. The type checker takes twice as long for all there are."""
    paths = [path for path in repository_files() if path.endswith(".py") and path.split("/")[0] in ROOMS]
    return [path for path in paths if "ProviderName" in (laid / path).read_text()]


def test_what_is_laid_passes_lint_and_format(laid: Path) -> None:
    for command in (["check"], ["format", "--check"]):
        done = run(laid, "ruff", *command, ".")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.wire  # beside the suite that it runs: too slow for the unit level
@pytest.mark.timeout(240)
def test_what_is_laid_passes_import_contracts_and_types(laid: Path) -> None:
    contracts = run(laid, "lint-imports")
    assert contracts.returncode == 0, contracts.stdout[-3000:]
    own = [path for path in new_files() if not path.startswith("tests/")]
    types = run(laid, "pyright", *own, *modules_that_name_clouds(laid))
    assert types.returncode == 0, types.stdout


@pytest.mark.wire  # beside the suite that it runs: too slow for the unit level
@pytest.mark.timeout(240)
def test_what_is_laid_passes_no_test_of_the_suite_and_says_what_is_to_do(laid: Path) -> None:
    suite = "tests/activities/providers/test_conformance.py"
    done = run(laid, "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", NEW[0], suite)
    summary = done.stdout.splitlines()[-1]
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\d\d failed", summary), summary
    assert "passed" not in summary
    assert "skipped" not in summary
    failures = errors_of(done)
    assert failures
    assert [line for line in failures if not re.search(r"TO DO, step \d", line)] == []


def test_lay_tells_what_to_do_when_a_name_is_no_good_or_taken(laid: Path) -> None:
    for name in ("", "A", "9lives", "two-words", "x" * 17):
        with pytest.raises(SkeletonError, match="2 to 16 lower-case letters"):
            lay(name, laid)
    with pytest.raises(SkeletonError, match=r"activities/providers/tencent.py is there already"):
        lay("tencent", laid)
    with pytest.raises(SkeletonError, match=rf"{NEW[0]}.py is there already"):
        lay(NEW[0], laid)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("class", "is a word of Python"),
        ("match", "is a word of Python"),
        ("none", "is a word of Python"),
        ("None", "2 to 16 lower-case letters"),
        ("on", "is no text in YAML"),
        ("null", "is no text in YAML"),
        ("json", "is a module of Python"),
        ("base", r"activities/providers/base.py is there already"),
        ("codes", r"activities/providers/codes.py is there already"),
        ("registry", r"activities/providers/registry.py is there already"),
        ("endpoints", r"activities/providers/endpoints.py is there already"),
        ("ledger", r"sandbox/clouds/ledger.py is there already"),
        ("cloud", r"sandbox/clouds/cloud.py is there already"),
        ("leftover", r"activities/providers/leftover_checks.py is there already"),
        ("domain", r"domain is there already"),
    ],
)
def test_lay_refuses_a_name_that_makes_a_bad_module(name: str, why: str) -> None:
    with pytest.raises(SkeletonError, match=why):
        lay(name)


def test_lay_enters_nothing_twice(laid: Path, tmp_path: Path) -> None:
    copy_what_is_read(laid, tmp_path)
    with pytest.raises(SkeletonError, match=rf"offers.py knows {NEW[0]} already"):
        lay(NEW[0], tmp_path)


@pytest.mark.wire  # as above
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NEW)
def test_first_thing_to_do_is_the_first_step_of_the_page(laid: Path, name: str) -> None:
    steps = "tests/activities/providers/test_steps.py"
    done = run(laid, "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", name, steps)
    said = re.findall(r"TO DO, step (\d)", "\n".join(errors_of(done)))
    assert said == ["2", "2", "3", "3"], done.stdout


@pytest.mark.parametrize("name", ["ali", "zeta9"])
def test_imports_of_any_name_are_in_order(name: str, tmp_path: Path) -> None:
    for template in FILES:
        laid = _filled(ROOT, template, name)
        own = [line for line in laid.splitlines() if OWN_IMPORT.match(line)]
        assert own == sorted(own, key=lambda line: line.split()[1])


def test_lay_writes_nothing_when_a_file_is_not_as_expected(laid: Path, tmp_path: Path) -> None:
    copy_what_is_read(ROOT, tmp_path)
    catalogue = tmp_path / "domain/contracts/catalogue.py"
    catalogue.write_text("")
    with pytest.raises(SkeletonError, match=r"catalogue.py has no single"):
        lay(NEW[0], tmp_path)
    assert not (tmp_path / "activities/providers").exists()


def test_command_wants_one_name_and_answers_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["tencent"]) == 1
    assert "is there already" in capsys.readouterr().err
