"""The definitions in ``deploy/crds`` are what the models say, and the check that holds them so can fail."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from crd_bridge import schema
from crd_bridge.kinds import KINDS, POOL


def test_deploy_crds_are_what_the_models_say() -> None:
    assert schema.check_crds() == []


def test_check_crds_names_file_and_line_when_one_differs(tmp_path: Path) -> None:
    schema.write_crds(tmp_path)
    path = tmp_path / "gpuspotpools.yaml"
    path.write_text(path.read_text().replace("kind: GPUSpotPool\n", "kind: GpuSpotPool\n"))
    (difference,) = schema.check_crds(tmp_path)
    assert difference == f"{path}:10 has 'kind: GpuSpotPool', the models say 'kind: GPUSpotPool'"


def test_check_crds_names_the_length_when_only_the_end_differs(tmp_path: Path) -> None:
    schema.write_crds(tmp_path)
    path = tmp_path / "gpuspotstrategies.yaml"
    path.write_text(path.read_text() + "# more\n")
    (difference,) = schema.check_crds(tmp_path)
    assert str(path) in difference


def test_check_crds_names_a_missing_and_a_foreign_file(tmp_path: Path) -> None:
    schema.write_crds(tmp_path)
    (tmp_path / "gpuspotpools.yaml").rename(tmp_path / "pools.yaml")
    assert schema.check_crds(tmp_path) == [
        f"{tmp_path}/gpuspotpools.yaml is missing",
        f"{tmp_path}/pools.yaml belongs to no kind",
    ]


def test_write_crds_writes_the_same_twice(tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in schema.write_crds(tmp_path / "a")}
    second = {path.name: path.read_bytes() for path in schema.write_crds(tmp_path / "b")}
    assert first == second
    assert len(first) == len(KINDS)


def test_definition_has_the_names_that_users_type() -> None:
    names = {kind.kind: (kind.plural, kind.short_name) for kind in KINDS}
    assert names == {
        "GPUSpotPool": ("gpuspotpools", "gsp"),
        "GPUSpotStrategy": ("gpuspotstrategies", "gss"),
        "GPUWorkloadProfile": ("gpuworkloadprofiles", "gwp"),
        "GPUSpotNodeClass": ("gpuspotnodeclasses", "gsnc"),
    }


def test_definition_reads_back_from_its_yaml_unchanged() -> None:
    text = schema.crd_documents()["gpuspotpools.yaml"]
    assert yaml.safe_load(text) == schema.custom_resource_definition(POOL)


def test_definition_of_a_pool_has_the_status_as_a_subresource() -> None:
    definition: Any = schema.custom_resource_definition(POOL)
    assert definition["spec"]["versions"][0]["subresources"] == {"status": {}}


def test_main_refuses_unknown_arguments() -> None:
    with pytest.raises(SystemExit, match="--check"):
        schema.main(["--chek"])


def test_main_ends_well_when_the_check_finds_nothing() -> None:
    schema.main(["--check"])
