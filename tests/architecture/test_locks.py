"""The locks are complete, hashed, free of addresses, and hold no ancient boto3."""

import re
import tomllib
from importlib.metadata import version

import pytest

from tests.architecture.tree import ROOT, text_of

LOCKS = ("requirements.lock", "requirements-dev.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins_of(lock: str) -> dict[str, str]:
    """Version by normalised name."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text_of(lock), re.MULTILINE)
    return {normalised(name): pinned for name, pinned in pins}


def normalised(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(requirements: list[str]) -> set[str]:
    """Normalised names of requirements, without our own."""
    names = {normalised(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]) for requirement in requirements}
    return names - {normalised(PROJECT["project"]["name"])}


def numbers(text: str) -> tuple[int, ...]:
    """Release numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_holds_no_address(lock: str) -> None:
    assert [line for line in text_of(lock).splitlines() if "://" in line or line.startswith("-")] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_a_hash_for_every_pin(lock: str) -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", text_of(lock), flags=re.MULTILINE)
    bare = [entry.splitlines()[0] for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    assert bare == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_dependency_and_extra(lock: str) -> None:
    project = PROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(r for e in project["optional-dependencies"].values() for r in e),
    ]
    assert wanted(requirements) - set(pins_of(lock)) == set()


def test_development_lock_pins_the_development_group_and_agrees_with_the_other() -> None:
    development = pins_of("requirements-dev.lock")
    assert wanted(PROJECT["dependency-groups"]["dev"]) - set(development) == set()
    assert {n: v for n, v in pins_of("requirements.lock").items() if development.get(n) != v} == {}


def test_every_dependency_has_a_lower_bound() -> None:
    project = PROJECT["project"]
    requirements = [*project["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    requirements += [r for extra in project["optional-dependencies"].values() for r in extra]
    assert [r for r in requirements if ">=" not in r and not r.startswith("spotgpu[")] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_a_recent_boto3(lock: str) -> None:
    assert numbers(pins_of(lock)["boto3"]) >= (1, 40)


def test_installed_boto3_is_recent() -> None:
    assert numbers(version("boto3")) >= (1, 40)
