"""No committed file tells where it was written or where packages were fetched from."""

import re

from tests.architecture.tree import repository_files, text_of

# Written in parts, so that this file does not find itself.
PLACES = [
    "/ro" + "ot/",
    "/ho" + r"me/\w",
    "/Us" + r"ers/\w",
    r"(?<![\w.])/wo" + "rk/",
    r"\.\./sha" + "red",
    "pythonho" + r"sted\.org",
    "pypi" + r"\.org",
    "proxy" + r"\.golang\.org",
    "sum" + r"\.golang\.org",
    "registry" + r"\.npmjs\.org",
    "index" + "-url",
    "find" + "-links",
    "art" + "ifactory",
]
# Options by name, where they are forbidden rather than used.
EXCEPTIONS = {
    "Makefile": {"index" + "-url"},
    "docs/dependencies.md": {"index" + "-url"},
}
VERBATIM = {"LICENSE"}


def test_no_file_names_a_machine_path_or_a_package_host() -> None:
    found: list[str] = []
    for path in repository_files():
        if path in VERBATIM:
            continue
        text = text_of(path)
        hits = {place for place in PLACES if re.search(place, text)} - EXCEPTIONS.get(path, set())
        found += [f"{path}: {place}" for place in sorted(hits)]
    assert found == []


def test_no_file_is_larger_than_a_megabyte() -> None:
    large = {path: len(text_of(path)) for path in repository_files() if len(text_of(path)) > 1_000_000}
    assert large == {}
