"""The search for secrets finds a planted one in every form, and only then."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest

from tests.e2e.secret_search import Place, Secret, search

pytestmark = pytest.mark.e2e

SECRET = Secret("the key", "wrong/secret+marked=0123456789abcdef")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": lambda text: json.dumps({"key": text}),
    "in a query": lambda text: urlencode({"key": text}),
    "in a query in a query": lambda text: quote(urlencode({"key": text}), safe=""),
    "base64": encoded,
    "base64 of a payload": lambda text: json.dumps({"data": encoded(json.dumps({"key": text}))}),
    "base64, one byte later": lambda text: encoded(f"x{text}yz"),
    "base64, two bytes later": lambda text: encoded(f"xx{text}y"),
    "URL-safe base64": lambda text: base64.urlsafe_b64encode(f"??>{text}".encode()).decode(),
    "base64 without its end": lambda text: encoded(f"{text}x").rstrip("="),
    "base64 behind a word": lambda text: f"abc{encoded(f'{text} and more')}",
    "base64 of base64": lambda text: encoded(f"user data: {encoded(f'token={text}')}"),
    "base64 of a query": lambda text: encoded(urlencode({"key": text})),
    "packed": lambda text: base64.b64encode(gzip.compress(text.encode())).decode(),
}


@pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])
def test_search_finds_a_planted_secret(form: Callable[[str], str]) -> None:
    place = Place.of("a log", f"before {form(SECRET.value)} behind")
    found = search([place], [SECRET])
    assert found
    assert all(line.startswith("the key in a log: ") for line in found)
    assert SECRET.value not in str(found), "the finding itself must not tell it"


@pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])
def test_search_finds_nothing_else(form: Callable[[str], str]) -> None:
    place = Place.of("a log", f"before {form('another/secret+marked=0123456789abcde')} behind")
    assert search([place], [SECRET]) == []


def test_search_shows_no_secret() -> None:
    assert SECRET.value not in repr(SECRET)
