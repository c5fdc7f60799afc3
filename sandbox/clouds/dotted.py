"""Dotted names of form parameters, as Alibaba and AWS send them: lists and objects in a flat form.

``Tag.1.Key=a&Tag.1.Value=b`` is a list ``Tag`` of one object; lists count from 1 without gaps.
"""

from typing import TypeGuard
from urllib.parse import parse_qsl


class DottedNameError(ValueError):
    """Names that contradict each other.

    Attributes:
        name: Which parameter.
        why: What is wrong with it, without its value.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


def nested(form: str) -> dict[str, object]:
    """A form's texts by name: lists as tuples, nested objects as mappings.

    Raises:
        DottedNameError: a name that comes twice, or as a value and as parts of it; a gap in a list.
    """
    values: dict[str, object] = {}
    for name, text in parse_qsl(form, keep_blank_values=True):
        _put(values, name, text)
    return {name: _frozen(name, value) for name, value in values.items()}


def _put(values: dict[str, object], name: str, text: str) -> None:
    """Enter ``Tag.1.Key`` at ``values["Tag"]["1"]["Key"]``."""
    *path, last = name.split(".")
    level = values
    for step in path:
        below = level.setdefault(step, {})
        if not _has_parts(below):
            raise DottedNameError(name, "a value and parts of it cannot be given together")
        level = below
    if last in level:
        raise DottedNameError(name, "given twice")
    level[last] = text


def _frozen(name: str, value: object) -> object:
    """Mappings that count 1, 2, 3 as tuples, others as they are, at every level."""
    if not _has_parts(value):
        return value
    parts = {step: _frozen(f"{name}.{step}", part) for step, part in value.items()}
    if not all(step.isdecimal() for step in parts):
        return parts
    wanted = [str(index) for index in range(1, len(parts) + 1)]
    if set(parts) != set(wanted):
        raise DottedNameError(name, "a list counts from 1 without gaps")
    return tuple(parts[index] for index in wanted)


def _has_parts(value: object) -> TypeGuard[dict[str, object]]:
    """Whether this is a level of a dotted name: only ``_put`` makes dictionaries here."""
    return isinstance(value, dict)
