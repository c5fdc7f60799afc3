"""The documents speak of what is there: targets, settings, series, interventions."""

import os
import re
from pathlib import Path

import pytest

from activities.telemetry import metrics
from domain.contracts.settings import PoolSettings
from tests.architecture.tree import ROOT, repository_files, text_of
from workers.settings import Settings
from workflows.messages import INTERVENTIONS

DOCUMENTS = [path for path in repository_files() if path.endswith(".md")]
# Given by the wiring with every envelope, not set one by one.
WIRED = {
    "exchange_rates",
    "served_regions",
    "enabled_providers",
    "polling_interval_seconds",
    "orphan_policy",
    "operator_namespace",
}
POOL_SETTINGS = set(PoolSettings.model_fields) - WIRED


def targets() -> set[str]:
    """Targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_names_only_targets_that_exist(document: str) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", text_of(document), re.MULTILINE))
    assert named - targets() == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_links_only_to_files_that_exist(document: str) -> None:
    links = re.findall(r"\]\((?![a-z]+://|#|mailto:)([^)#]+)", text_of(document))
    assert [link for link in links if not ((ROOT / document).parent / link).exists()] == []


def test_every_target_has_one_line_of_help() -> None:
    helped = set(re.findall(r"^([a-z][a-z0-9-]*):.*## \S", text_of("Makefile"), re.MULTILINE))
    assert targets() - helped == set()


def test_operations_list_every_setting_of_the_operator() -> None:
    text = text_of("docs/operations.md")
    names = {f"SPOTGPU_{field.upper()}" for field in Settings.model_fields} - {"SPOTGPU_POOL"}
    names |= {f"SPOTGPU_POOL__{field.upper()}" for field in POOL_SETTINGS}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_operations_list_only_settings_that_exist() -> None:
    known = {f"SPOTGPU_{field.upper()}" for field in Settings.model_fields}
    known |= {f"SPOTGPU_POOL__{field.upper()}" for field in PoolSettings.model_fields}
    named = set(re.findall(r"`(SPOTGPU_[A-Z_]+[A-Z])`", text_of("docs/operations.md")))
    assert named - known == set()


def defaults() -> dict[str, float]:
    """Every setting whose default is a number, with that number."""
    fields = {f"SPOTGPU_{name.upper()}": field for name, field in Settings.model_fields.items()}
    fields |= {f"SPOTGPU_POOL__{name.upper()}": PoolSettings.model_fields[name] for name in POOL_SETTINGS}
    numbers = {name: field.default for name, field in fields.items()}
    return {name: value for name, value in numbers.items() if isinstance(value, int | float)}


def test_operations_tell_the_defaults_that_the_program_has() -> None:
    rows = re.findall(r"^\| `(SPOTGPU_[A-Z_]+)` \| ([^|]*?) \|", text_of("docs/operations.md"), re.MULTILINE)
    told = {name: float(text) for name, text in rows if re.fullmatch(r"[0-9.]+", text)}
    assert told == defaults()


def series() -> set[str]:
    """Names of every series that the code defines."""
    return set(re.findall(r'"(spotgpu_[a-z_]+)"', Path(metrics.__file__).read_text()))


def test_operations_list_every_series() -> None:
    text = text_of("docs/operations.md")
    assert {name for name in series() if not re.search(rf"`{name}(_total)?`", text)} == set()


def test_operations_list_only_series_that_exist() -> None:
    named = set(re.findall(r"`(spotgpu_[a-z_]+)`", text_of("docs/operations.md")))
    assert {
        name for name in named if name not in series() and name.removesuffix("_total") not in series()
    } == set()


@pytest.mark.parametrize("name", sorted(INTERVENTIONS))
def test_readme_shows_every_intervention_with_its_fields(name: str) -> None:
    lines = [line for line in text_of("README.md").splitlines() if line.startswith(f"| `{name}`")]
    assert len(lines) == 1
    fields = {field.alias or key for key, field in INTERVENTIONS[name].model_fields.items()} - {
        "by",
        "reason",
    }
    assert {field for field in fields if field not in lines[0]} == set()


def test_readme_shows_the_workload_example_as_it_is() -> None:
    _, _, example = text_of("docs/examples/training-pod.yaml").partition("\n")
    assert f"```yaml\n{example}```" in text_of("README.md")


def test_examples_are_all_described() -> None:
    described = set(re.findall(r"`([a-z-]+\.yaml)`", text_of("docs/examples/README.md")))
    assert described == {path.name for path in (ROOT / "docs" / "examples").glob("*.yaml")}


def test_ci_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
