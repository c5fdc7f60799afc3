"""From a pydantic model to a structural OpenAPI v3 schema, the form that the API server takes.

Pydantic writes JSON Schema 2020: references, unions with null, numeric exclusive bounds, titles. A structural
schema has none of these. What cannot be said in it is an error here, not a silent loss.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from crd_bridge.crd_rules import LIST_TYPES, RULES, Rule
from domain.contracts.resources import ResourceModel

Node = dict[str, JsonValue]
"""One schema node as JSON."""

_COPIED: Final = (
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
)
_DROPPED: Final = frozenset({"title", "propertyNames"})
"""Titles repeat the names. Bounds of a map's keys are rules, for a structural schema has no word for them."""
_TRANSLATED: Final = frozenset(
    {
        "$ref",
        "anyOf",
        "type",
        "description",
        "default",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
    }
)


class SchemaError(Exception):
    """A model says something that a structural schema cannot; the message names the place."""


def structural_schema(model: type[ResourceModel], *, with_defaults: bool) -> Node:
    """Return the schema of one model with all its parts in place.

    Args:
        model: Spec or status of a kind.
        with_defaults: Whether the API server shall fill in defaults; not in a status, which is written whole.

    Raises:
        SchemaError: The model has no structural form.
    """
    document = model.model_json_schema(by_alias=True)
    definitions = document.pop("$defs", {})
    translator = _Translator(definitions, _by_name(model), with_defaults=with_defaults)
    return translator.node(document, model.__name__, owner=model)


def rules_of(rules: Iterable[Rule]) -> list[JsonValue]:
    """Return rules as ``x-kubernetes-validations``."""
    written: list[JsonValue] = []
    for rule in rules:
        entry: Node = {"rule": rule.cel, "message": rule.message}
        if rule.field_path:
            entry["fieldPath"] = rule.field_path
        written.append(entry)
    return written


def one_line(text: str) -> str:
    """Return a docstring as one line of plain text."""
    return " ".join(text.replace("``", "").split())


def _by_name(model: type[ResourceModel]) -> dict[str, type[ResourceModel]]:
    """Return every resource model by the name that references use."""
    found: dict[str, type[ResourceModel]] = {}
    waiting: list[type[ResourceModel]] = [ResourceModel]
    while waiting:
        current = waiting.pop()
        found[current.__name__] = current
        waiting.extend(current.__subclasses__())
    found[model.__name__] = model
    return found


class _Translator:
    """Walks one JSON Schema document; every node knows the model that it belongs to, for its rules."""

    def __init__(
        self,
        definitions: Mapping[str, Node],
        models: Mapping[str, type[ResourceModel]],
        *,
        with_defaults: bool,
    ) -> None:
        self._definitions = definitions
        self._models = models
        self._with_defaults = with_defaults

    def node(self, source: Node, place: str, *, owner: type[ResourceModel] | None = None) -> Node:
        """Translate one node; ``owner`` is the model that the node describes, if it is a model's."""
        source, owner = self._resolve(source, place, owner)
        unknown = set(source) - set(_COPIED) - _DROPPED - _TRANSLATED
        if unknown:
            raise SchemaError(f"{place}: no structural form for {', '.join(sorted(unknown))}")
        if not isinstance(source.get("type"), str):
            raise SchemaError(f"{place}: a node needs exactly one type, this one has {source.get('type')}")
        target: Node = {}
        if isinstance(description := source.get("description"), str):
            target["description"] = one_line(description)
        target["type"] = source["type"]
        target.update({key: source[key] for key in _COPIED if key in source})
        target.update(_bounds(source))
        self._add_children(source, target, place, owner)
        if owner is not None and owner in RULES:
            target["x-kubernetes-validations"] = rules_of(RULES[owner])
        return target

    def _resolve(
        self, source: Node, place: str, owner: type[ResourceModel] | None
    ) -> tuple[Node, type[ResourceModel] | None]:
        """Follow references and take the one branch of a union that remains; siblings win over the target."""
        while "$ref" in source or "anyOf" in source:
            siblings = {key: value for key, value in source.items() if key not in ("$ref", "anyOf")}
            if "$ref" in source:
                name = str(source["$ref"]).removeprefix("#/$defs/")
                owner = self._models.get(name)
                source = {**self._definitions[name], **siblings}
            else:
                source = {**_only_branch(source["anyOf"], place), **siblings}
        return source, owner

    def _add_children(
        self, source: Node, target: Node, place: str, owner: type[ResourceModel] | None
    ) -> None:
        match source["type"]:
            case "array":
                target["items"] = self.node(_object(source.get("items"), f"{place}[]"), f"{place}[]")
            case "object" if "additionalProperties" in source:
                values = _object(source["additionalProperties"], f"{place}{{}}")
                target["additionalProperties"] = self.node(values, f"{place}{{}}")
            case "object":
                if "required" in source:
                    target["required"] = source["required"]
                target["properties"] = self._properties(source, place, owner)
            case _:
                pass

    def _properties(self, source: Node, place: str, owner: type[ResourceModel] | None) -> Node:
        properties: Node = {}
        for name, value in _object(source.get("properties"), place).items():
            field = _object(value, f"{place}.{name}")
            node = self.node(field, f"{place}.{name}")
            if self._with_defaults and (default := _default(field, node)) is not None:
                node["default"] = default
            if owner is not None:
                node.update(LIST_TYPES.get((owner, name), {}))
            properties[name] = node
        return properties


def _object(value: JsonValue, place: str) -> Node:
    if not isinstance(value, dict):
        raise SchemaError(f"{place}: expected a schema, found {value!r}")
    return value


def _only_branch(branches: JsonValue, place: str) -> Node:
    """Return what is left of a union without null, and without the text form of a ``Decimal``."""
    nodes = [_object(branch, place) for branch in branches] if isinstance(branches, list) else []
    left = [node for node in nodes if node.get("type") != "null"]
    if [node.get("type") for node in left] == ["number", "string"]:
        left = [node for node in left if node.get("type") == "number"]
    if len(left) != 1:
        raise SchemaError(f"{place}: a structural schema has no union of {len(left)} kinds of values")
    return left[0]


def _bounds(source: Node) -> Node:
    """Numeric bounds in OpenAPI's older form, where ``exclusiveMinimum`` is a switch."""
    bounds: Node = {}
    if "minimum" in source:
        bounds["minimum"] = _plain_number(source["minimum"])
    if "exclusiveMinimum" in source:
        bounds["minimum"] = _plain_number(source["exclusiveMinimum"])
        bounds["exclusiveMinimum"] = True
    if "maximum" in source:
        bounds["maximum"] = _plain_number(source["maximum"])
    return bounds


def _plain_number(value: JsonValue) -> JsonValue:
    """A whole float as an integer, so that the generated text does not depend on how a bound was written."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _default(field: Node, node: Node) -> JsonValue:
    """What the API server fills in: a stated value, or an empty object whose own fields have defaults.

    Empty texts, lists and maps are left out: they mean "unset", and would only clutter the stored object.
    """
    stated = field.get("default")
    if stated not in (None, "", [], {}):
        return stated
    nullable = "anyOf" in field
    properties = node.get("properties")
    if nullable or "required" in node or not isinstance(properties, dict):
        return None
    has_defaults = any(isinstance(item, dict) and "default" in item for item in properties.values())
    return {} if has_defaults and "default" not in field else None
