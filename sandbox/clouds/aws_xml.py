"""Answers of EC2 as XML: elements in the API's namespace, lists as ``item`` elements."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeGuard
from xml.etree.ElementTree import Element, SubElement, tostring

NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
HEADERS: Final[Mapping[str, str]] = {"Content-Type": "text/xml;charset=UTF-8"}


def success(payload: Mapping[str, object], request_id: str) -> bytes:
    """The body of a success.

    Args:
        payload: One name, that of the root element, to its content; nothing gives an answer without content.
        request_id: The vendor's number of the request.
    """
    root = Element(next(iter(payload), "Response"), {"xmlns": NAMESPACE})
    SubElement(root, "requestId").text = request_id
    for content in payload.values():
        _fill(root, content)
    return tostring(root, encoding="UTF-8", xml_declaration=True)


def failure(code: str, message: str, request_id: str) -> bytes:
    """The body of an error; it has no namespace."""
    root = Element("Response")
    error = SubElement(SubElement(root, "Errors"), "Error")
    SubElement(error, "Code").text = code
    SubElement(error, "Message").text = message
    SubElement(root, "RequestID").text = request_id
    return tostring(root, encoding="UTF-8", xml_declaration=True)


def _fill(element: Element, content: object) -> None:
    """Write a value below an element; None leaves no trace."""
    if _is_object(content):
        for name, inner in content.items():
            if inner is not None:
                _fill(SubElement(element, name), inner)
    elif isinstance(content, list | tuple):
        for inner in content:  # pyright: ignore[reportUnknownVariableType] - items are looked at one by one
            _fill(SubElement(element, "item"), inner)  # pyright: ignore[reportUnknownArgumentType] - as above
    else:
        element.text = _text(content)


def _is_object(content: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(content, Mapping)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return str(value)
