"""Looks for secrets in texts, in every form in which they could have got there, and never shows one."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote

MAX_LAYERS = 3
"""Layers of base64 that are opened: a payload of a history, the user data in it, and one to spare."""
_ENCODED = re.compile(rb"[A-Za-z0-9+/_-]{16,}")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_GZIP = 31
"""The window of zlib that stands for the format of gzip."""


@dataclass(frozen=True)
class Secret:
    """Something that must not be found; shown by its name alone."""

    name: str
    value: str = field(repr=False)

    @cached_property
    def forms(self) -> Mapping[str, bytes]:
        """Form to what it looks like."""
        plain = self.value.encode()
        once = quote(self.value, safe="")
        found = {"plain": plain, "URL-encoded": once.encode(), "URL-encoded twice": quote(once).encode()}
        for shift in range(3):
            inner = _base64_inside(plain, shift)
            found[f"base64 at {shift}"] = inner
            found[f"URL-safe base64 at {shift}"] = inner.translate(bytes.maketrans(b"+/", b"-_"))
        return found


@dataclass(frozen=True)
class Place:
    """A text that somebody may read."""

    name: str
    content: bytes = field(repr=False)
    layers: int = MAX_LAYERS
    """How many layers of base64 are opened; 0 for a file in which payloads lie open."""

    @classmethod
    def of(cls, name: str, text: str) -> Place:
        """A place with this text."""
        return cls(name, text.encode())


def search(places: Iterable[Place], secrets: Iterable[Secret]) -> list[str]:
    """One line for each secret that a place holds: which, where, in which form, how deep."""
    wanted = tuple(secrets)
    return [
        f"{secret.name} in {place.name}: {form}" + (f", inside {depth} layers" if depth else "")
        for place in places
        for depth, content in enumerate(_layers(place.content, place.layers))
        for secret in wanted
        for form in _forms_in(content, secret)[:1]
    ]


def _forms_in(content: bytes, secret: Secret) -> list[str]:
    return [form for form, look in secret.forms.items() if look in content]


def _base64_inside(plain: bytes, shift: int) -> bytes:
    """The part of a base64 text that depends on the secret alone when ``shift`` bytes stand before it."""
    whole = base64.b64encode(bytes(shift) + plain)
    first = -(-shift * 8 // 6)
    last = (shift + len(plain)) * 8 // 6
    return whole[first:last]


def _layers(content: bytes, further: int) -> Iterator[bytes]:
    """The text itself, then all that its base64 parts hold, joined, and so on."""
    yield content
    opened = b"\n".join(filter(None, map(_opened, set(_ENCODED.findall(content))))) if further else b""
    if opened:
        yield from _layers(opened, further - 1)


def _opened(word: bytes) -> bytes:
    """What a base64 word holds, unpacked when it was packed; empty when it is none."""
    text = word.translate(_URL_SAFE)
    # One character too many is cut off: it may be a neighbour's.
    text = text[: len(text) - 1] if len(text) % 4 == 1 else text
    try:
        plain = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""
    return _unpacked(plain)


def _unpacked(plain: bytes) -> bytes:
    for window in (_GZIP, zlib.MAX_WBITS):
        try:
            return zlib.decompress(plain, window)
        except zlib.error:
            continue
    return plain
