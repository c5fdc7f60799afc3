"""What can be wrong, or odd, with one field: the changes that the variants are made of."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.variants.yaml_text import Doubled, Raw

Node = dict[str, Any]
Expected = Literal["refused", "accepted", "either"]

UNKNOWN = "surpriseField"
TEXTS = (
    "",
    " ",
    "训练池-🚀",
    "ünïcödé",
    "\u202eright-to-left",
    "line\nbreak",
    "tab\tand\u0007bell",
    "null\u0000byte",
    "UPPER-Case",
    "a--b..c",
    "-starts-with-a-dash",
    "{{ template }}",
    "' or 1=1 --",
    "x" * 300,
    "池" * 5000,
)
"""Texts that break programs; whether a field takes one is for its own bounds to say."""
NO_NUMBERS = ("two", "3", True, [1], {"a": 1}, Raw("1e400"), Raw("12:30:45"))
HUGE = (10**30, -(10**30), 2**63, Raw("1e300"), Raw("99999999999999999999999999"))


@dataclass(frozen=True)
class Change:
    """One change of one value."""

    what: str
    value: Any
    expected: Expected
    named: str = ""
    """Name that a refusal must hold when it is not the field's own."""


def changes_of(node: Node, value: Any, rng: random.Random) -> Iterator[Change]:
    """Every change that makes sense for a field of this schema and value, null apart."""
    match node["type"]:
        case "integer" | "number":
            yield from _number_changes(node, rng)
        case "string":
            yield from _text_changes(node)
        case "boolean":
            yield from _switch_changes()
        case "array":
            yield from _list_changes(node, value, rng)
        case _:
            yield from _map_changes(node, value)


def _number_changes(node: Node, rng: random.Random) -> Iterator[Change]:
    low, high = node["minimum"], node["maximum"]
    yield from (Change(f"no number: {value!r:.20}", value, "refused") for value in NO_NUMBERS)
    yield from (Change(f"huge number {value!s:.20}", value, "refused") for value in HUGE)
    yield Change("just below the least", low - 1, "refused")
    yield Change("just above the most", high + 1, "refused")
    yield Change("negative", -rng.randint(1, 10**6), "refused")
    yield Change("a number with an underscore, as YAML 1.1 allows", Raw("1_000"), "either")
    yield Change("the least", low, "either")
    yield Change("the most", high, "either")
    if node["type"] == "integer":
        yield Change("a fraction", low + rng.random() * 0.9 + 0.05, "refused")
        yield Change("a whole number with a point", Raw(f"{low}.0"), "either")
        yield Change("a whole number in hexadecimal", Raw(f"0x{low:x}"), "either")
    else:
        yield Change("a tiny number", Raw("1e-12"), "accepted")
        yield Change("many decimals", Raw("0.12345678901234567890123456789"), "accepted")


def _text_changes(node: Node) -> Iterator[Change]:
    for value in TEXTS:
        yield Change(f"text {value!r:.24}", value, _text_expectation(node, value))
    for value in (5, 1.5, True, ["a"], {"a": "b"}, Raw("2026-11-29")):
        yield Change(f"no text: {value!r:.20}", value, "either" if isinstance(value, Raw) else "refused")
    for value in node.get("enum", []):
        yield Change(f"allowed value {value}", value, "either")
        yield Change(f"other case of {value}", value.swapcase(), "refused")


def _text_expectation(node: Node, value: str) -> Expected:
    if "enum" in node:
        return "accepted" if value in node["enum"] else "refused"
    pattern = node.get("pattern", "").replace("$", r"\Z")
    fits = (
        node.get("minLength", 0) <= len(value) <= node.get("maxLength", len(value))
        and re.search(pattern, value) is not None
    )
    return "accepted" if fits else "refused"


def _switch_changes() -> Iterator[Change]:
    for value in ("true", "yes please", 1, 0.0, [True], {"on": True}, Raw("0x1")):
        yield Change(f"no switch: {value!r:.20}", value, "refused")
    for value in (True, False, Raw("yes"), Raw("off")):
        yield Change(f"switch {value}", value, "accepted")


def _list_changes(node: Node, value: list[Any], rng: random.Random) -> Iterator[Change]:
    first = value[0]
    for wrong in ("text", 7, True, {"0": first}):
        yield Change(f"no list: {wrong!r:.20}", wrong, "refused")
    yield Change("an empty list", [], "refused" if node.get("minItems") else "accepted")
    yield Change("a list of null", [None], "refused")
    yield Change("a list in a list", [value], "refused")
    yield Change("a mixed list", [first, 5], "refused")
    length = rng.randint(node["maxItems"] + 1, 3000)
    yield Change(f"a list of {length}", [_other(first, number) for number in range(length)], "refused")
    unique = node.get("x-kubernetes-list-type") in ("set", "map")
    yield Change("the first entry twice", [*value, first], "refused" if unique else "either")


def _other(item: Any, number: int) -> Any:
    """An entry like ``item``, but another one."""
    return {**item, "strategyRef": f"s-{number}"} if isinstance(item, dict) else f"{item}-{number}"


def _map_changes(node: Node, value: dict[str, Any]) -> Iterator[Change]:
    for wrong in ("text", 7, True, [value]):
        yield Change(f"no map: {wrong!r:.20}", wrong, "refused")
    key = next(iter(value))
    yield Change("the first key twice", Doubled(value, key, value[key]), "refused", named=key)
    yield Change(
        "the last key twice", Doubled(value, (last := list(value)[-1]), value[last]), "refused", named=last
    )
    if "properties" in node:
        yield Change("an empty map", {}, "refused" if "required" in node else "accepted")
        for strange in (UNKNOWN, key.lower() if key.lower() != key else key.upper(), key[:-1], "意外"):
            yield Change(f"unknown field {strange}", {**value, strange: 1}, "refused", named=strange)
        deep: Any = {"a": 1}
        for _ in range(60):
            deep = {"a": deep}
        yield Change("a deep unknown tree", {**value, UNKNOWN: deep}, "refused", named=UNKNOWN)
    else:
        yield Change("an empty map", {}, "accepted")
        many = {f"k{number}": value[key] for number in range(node["maxProperties"] + 1)}
        yield Change("too many entries", many, "refused")
        yield Change("an empty key", {"": value[key]}, "refused")
        yield Change("a key of unicode", {"标签": value[key]}, "refused")
        yield Change("a long key", {"k" * 400: value[key]}, "refused")
