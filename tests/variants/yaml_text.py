"""Writes YAML that no ordinary writer would: keys that stand twice, numbers that no float holds."""

import json
from collections.abc import Iterator
from typing import Any


class Raw(str):
    """A scalar that is written as it stands, without quotes."""

    __slots__ = ()


class Doubled(dict[str, Any]):
    """A map in which one key stands a second time, at its end."""

    def __init__(self, once: dict[str, Any], key: str, again: Any) -> None:
        super().__init__(once)
        self.again = (key, again)


def to_yaml(body: dict[str, Any]) -> str:
    """Write one document in block style, with JSON's scalars."""
    return "\n".join(_map_lines(body, "")) + "\n"


def _map_lines(body: dict[str, Any], indent: str) -> Iterator[str]:
    pairs = [*body.items(), *([body.again] if isinstance(body, Doubled) else [])]
    for key, value in pairs:
        yield from _entry_lines(f"{indent}{_key(key)}:", value, indent)


def _entry_lines(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield head
        yield from _map_lines(value, f"{indent}  ")
    elif isinstance(value, list) and value:
        yield head
        for item in value:
            yield from _item_lines(item, f"{indent}  ")
    else:
        yield f"{head} {_scalar(value)}"


def _item_lines(item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list) and item:
        lines = list(
            _map_lines(item, f"{indent}  ") if isinstance(item, dict) else _nested(item, f"{indent}  ")
        )
        yield f"{indent}- {lines[0].lstrip(' ')}"
        yield from lines[1:]
    else:
        yield f"{indent}- {_scalar(item)}"


def _nested(items: list[Any], indent: str) -> Iterator[str]:
    for item in items:
        yield from _item_lines(item, indent)


def _key(key: str) -> str:
    return (
        key if key.isalnum() and key.isascii() and not key.isdigit() else json.dumps(key, ensure_ascii=False)
    )


def _scalar(value: Any) -> str:
    return str(value) if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)
