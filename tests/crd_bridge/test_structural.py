"""The generated schema is structural, bounded and described: a checker of its own walks it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field, JsonValue

from crd_bridge.kinds import KINDS, POOL, ResourceKind
from crd_bridge.schema import custom_resource_definition
from crd_bridge.structural import SchemaError, structural_schema
from domain.contracts.resources import ResourceModel

Node = dict[str, Any]

ALLOWED_KEYS = {
    "type", "description", "default", "enum", "format", "pattern", "minLength", "maxLength", "minimum",
    "maximum", "exclusiveMinimum", "minItems", "maxItems", "items", "properties", "required",
    "additionalProperties", "maxProperties", "x-kubernetes-validations", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
}  # fmt: skip
"""What a structural schema may hold and ours uses; no $ref, anyOf, allOf, oneOf, not, title, nullable."""


def root_of(kind: ResourceKind[Any]) -> Node:
    definition: Any = custom_resource_definition(kind)
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Every schema node below and with ``schema``, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def offenders(kind: ResourceKind[Any], part: str, is_fine: Callable[[Node], bool]) -> list[str]:
    """Paths of the nodes of ``spec`` or ``status`` that are not fine."""
    root = root_of(kind)["properties"].get(part, {"type": "object", "properties": {}})
    return [path for path, node in nodes(root, part) if not is_fine(node)]


def is_structural(node: Node) -> bool:
    return (
        set(node) <= ALLOWED_KEYS
        and node["type"] in {"object", "array", "string", "integer", "number", "boolean"}
        and ("items" in node) == (node["type"] == "array")
        and not ("properties" in node and "additionalProperties" in node)
    )


def is_bounded(node: Node) -> bool:
    match node["type"]:
        case "string":
            return "maxLength" in node or "enum" in node or node.get("format") == "date-time"
        case "array":
            return "maxItems" in node
        case "object":
            return "maxProperties" in node or "properties" in node
        case _:
            return True


def has_limits(node: Node) -> bool:
    return node["type"] not in {"integer", "number"} or {"minimum", "maximum"} <= set(node)


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@every_kind
@pytest.mark.parametrize("part", ["spec", "status"])
def test_schema_is_structural(kind: ResourceKind[Any], part: str) -> None:
    assert offenders(kind, part, is_structural) == []


@every_kind
@pytest.mark.parametrize("part", ["spec", "status"])
def test_schema_bounds_every_list_map_and_string(kind: ResourceKind[Any], part: str) -> None:
    assert offenders(kind, part, is_bounded) == []


@every_kind
def test_schema_of_a_spec_limits_every_number(kind: ResourceKind[Any]) -> None:
    assert offenders(kind, "spec", has_limits) == []


def test_schema_of_a_status_has_no_defaults() -> None:
    """A status is written whole: what the server filled in would be nobody's observation."""
    assert offenders(POOL, "status", lambda node: "default" not in node) == []


@every_kind
def test_schema_describes_every_field(kind: ResourceKind[Any]) -> None:
    silent = [
        f"{path}.{name}"
        for path, node in nodes(root_of(kind), kind.kind)
        for name, child in node.get("properties", {}).items()
        if len(child.get("description", "")) < 5 and f"{path}.{name}" != f"{kind.kind}.metadata"
    ]
    assert silent == []


@every_kind
def test_schema_default_fits_its_own_node(kind: ResourceKind[Any]) -> None:
    for path, node in nodes(root_of(kind)["properties"]["spec"], "spec"):
        if "default" not in node:
            continue
        default = node["default"]
        assert default in node.get("enum", [default]), path
        assert node.get("minimum", default) <= default if node["type"] == "integer" else True, path
        assert "required" not in node, path


def test_schema_defaults_of_nested_parts_are_reachable() -> None:
    """A default below an object works only if the object itself has a default, up to the spec."""
    spec = root_of(POOL)["properties"]["spec"]
    with_parts = [name for name, node in spec["properties"].items() if node["type"] == "object"]
    assert {name for name in with_parts if spec["properties"][name].get("default") == {}} == {
        "interruptStrategy", "scaleStrategy", "timeouts", "onDemand", "priceReplacement", "spread",
    }  # fmt: skip
    assert spec["properties"]["scaleStrategy"]["properties"]["cooldownSeconds"]["default"] == 300


def test_schema_restricts_no_gpu_type_to_known_names() -> None:
    items = root_of(POOL)["properties"]["spec"]["properties"]["gpuTypes"]["items"]
    assert "enum" not in items


class _Mixed(ResourceModel):
    """Says what a structural schema cannot."""

    either: int | str = 1
    """An integer or a text."""


class _Keyed(ResourceModel):
    """Has a map whose keys follow a pattern."""

    by_name: dict[Annotated[str, Field(pattern="^a$")], int] = Field(default_factory=dict[str, int])
    """A number by name."""


class _Open(ResourceModel):
    """Takes anything."""

    anything: JsonValue = None
    """Whatever it is."""


class _Halves(ResourceModel):
    """Has a number that is a multiple of another."""

    price: Annotated[float, Field(multiple_of=0.5)] = 1.0
    """A price in halves."""


@pytest.mark.parametrize(
    ("model", "place"),
    [
        pytest.param(_Mixed, "_Mixed.either", id="union"),
        pytest.param(_Keyed, "_Keyed.byName", id="pattern of keys"),
        pytest.param(_Halves, "_Halves.price", id="multiple of"),
        pytest.param(_Open, "_Open.anything", id="anything"),
    ],
)
def test_schema_refuses_what_has_no_structural_form(model: type[ResourceModel], place: str) -> None:
    with pytest.raises(SchemaError, match=place):
        structural_schema(model, with_defaults=True)


def test_schema_writes_a_positive_price_as_an_exclusive_bound() -> None:
    price: Mapping[str, Any] = root_of(POOL)["properties"]["spec"]["properties"]["maxPricePerHour"]
    assert price["type"] == "number"
    assert (price["minimum"], price["exclusiveMinimum"]) == (0, True)
