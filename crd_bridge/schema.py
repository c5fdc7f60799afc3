"""The custom resource definitions: generated from the models, written to ``deploy/crds``, compared with it.

``python -m crd_bridge.schema`` writes the files; with ``--check`` it fails when they differ from the models.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import JsonValue
from typing_extensions import override

from crd_bridge.crd_rules import OBJECT_RULES
from crd_bridge.kinds import CATEGORY, KINDS, Column, ResourceKind
from crd_bridge.objects import (
    JsonObject,
    ObjectHeader,
    Problem,
    ResourceError,
    ResourceObject,
    known_machines,
    parse,
    parse_header,
    parse_node_class,
    parse_pool,
    parse_profile,
    parse_strategy,
)
from crd_bridge.structural import Node, rules_of, structural_schema
from domain.contracts.names import GROUP, VERSION

__all__ = [
    "CRD_FOLDER",
    "JsonObject",
    "ObjectHeader",
    "Problem",
    "ResourceError",
    "ResourceObject",
    "check_crds",
    "crd_documents",
    "custom_resource_definition",
    "known_machines",
    "parse",
    "parse_header",
    "parse_node_class",
    "parse_pool",
    "parse_profile",
    "parse_strategy",
    "write_crds",
]

CRD_FOLDER: Final = Path(__file__).parents[1] / "deploy" / "crds"
"""Where the generated files live in the repository."""
_HEADER: Final = (
    "# Generated from domain/contracts by `python -m crd_bridge.schema`; edits by hand are lost.\n"
)
_API_VERSION_TEXT: Final = "Version of the API that this object is written in."
_KIND_TEXT: Final = "Kind of this object."


def custom_resource_definition(kind: ResourceKind[Any]) -> Node:
    """Return the CustomResourceDefinition of one kind as JSON.

    Raises:
        SchemaError: A model has no structural form.
    """
    version: Node = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": _object_schema(kind)},
    }
    if kind.status is not None:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def crd_documents() -> dict[str, str]:
    """Return the text of every generated file by its name, the same for the same models."""
    return {f"{kind.plural}.yaml": _yaml(custom_resource_definition(kind)) for kind in KINDS}


def write_crds(folder: Path = CRD_FOLDER) -> list[Path]:
    """Write every definition into ``folder``, which is made if needed; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, text in crd_documents().items():
        (folder / name).write_text(text)
        written.append(folder / name)
    return written


def check_crds(folder: Path = CRD_FOLDER) -> list[str]:
    """Compare ``folder`` with the models and return one sentence for each difference, none when equal."""
    wanted = crd_documents()
    found = {path.name: path.read_text() for path in sorted(folder.glob("*.yaml"))}
    return [
        *(f"{folder / name} is missing" for name in wanted if name not in found),
        *(f"{folder / name} belongs to no kind" for name in found if name not in wanted),
        *(
            _first_difference(folder / name, text, found[name])
            for name, text in wanted.items()
            if name in found and found[name] != text
        ),
    ]


def _object_schema(kind: ResourceKind[Any]) -> Node:
    properties: Node = {
        "apiVersion": {"description": _API_VERSION_TEXT, "type": "string"},
        "kind": {"description": _KIND_TEXT, "type": "string"},
        "metadata": {"type": "object"},
        "spec": structural_schema(kind.spec, with_defaults=True),
    }
    if kind.status is not None:
        properties["status"] = structural_schema(kind.status, with_defaults=False)
    schema: Node = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": properties,
    }
    if rules := OBJECT_RULES.get(kind.spec):
        schema["x-kubernetes-validations"] = rules_of(rules)
    return schema


def _column(column: Column) -> JsonValue:
    entry: Node = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    if column.wide:
        entry["priority"] = 1
    return entry


class _PlainDumper(yaml.SafeDumper):
    """Writes every part out: an anchor would make two fields of one file look like one."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: Node) -> str:
    text = yaml.dump(  # pyright: ignore[reportUnknownMemberType]  # its stubs leave one type open
        document, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True
    )
    return _HEADER + text


def _first_difference(path: Path, wanted: str, found: str) -> str:
    """Name the first line that differs."""
    ours, theirs = wanted.splitlines(), found.splitlines()
    for number, (want, have) in enumerate(zip(ours, theirs, strict=False), start=1):
        if want != have:
            return f"{path}:{number} has {have.strip()!r}, the models say {want.strip()!r}"
    return f"{path} has {len(theirs)} lines, the models make {len(ours)}"


def main(arguments: Iterable[str]) -> None:
    """Write the files, or with ``--check`` compare them and end with the differences."""
    given = list(arguments)
    if given == ["--check"]:
        if differences := check_crds():
            raise SystemExit("\n".join([*differences, "run `python -m crd_bridge.schema` and commit"]))
    elif given:
        raise SystemExit(f"unknown arguments {given}: use none to write, or --check")
    else:
        write_crds()


if __name__ == "__main__":
    main(sys.argv[1:])
