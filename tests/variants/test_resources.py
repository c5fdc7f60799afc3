"""The generator of variants: repeatable, varied, and honest about what it changes."""

import collections
import re
from functools import cache

import pytest
import yaml

from tests.variants.resources import BASES, Variant, variants
from tests.variants.yaml_text import Doubled, Raw, to_yaml


@cache
def many() -> list[Variant]:
    """More than one round of every change."""
    return variants(1, 2500)


def test_variants_are_the_same_for_the_same_seed_and_a_shorter_run_begins_a_longer_one() -> None:
    assert variants(1, 300) == many()[:300]
    assert variants(8, 300) != many()[:300]


def test_variants_cover_every_kind_and_differ_from_one_another() -> None:
    made = many()[:1500]
    assert len({variant.text for variant in made}) == 1500
    assert set(collections.Counter(variant.kind for variant in made)) == {kind.kind for kind, _ in BASES}
    assert min(collections.Counter(variant.expected for variant in made).values()) > 50


def test_variants_go_on_after_every_change_was_made_once() -> None:
    assert len({variant.name for variant in many()}) > 2400


def test_variants_never_ask_for_a_machine() -> None:
    """Whatever is taken keeps a minimum of zero: a higher one stands above the most, and is refused."""
    asked = {
        found[1]
        for variant in many()
        if variant.kind == "GPUSpotPool" and variant.expected != "refused"
        if (found := re.search(r"^  minInstances: (.*)$", variant.text, re.MULTILINE))
    }
    assert asked == {"0", "0.0", "0x0", "1000", "1_000"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param({"a": 1, "b": [1, {"c": "x"}]}, 'a: 1\nb:\n  - 1\n  - c: "x"\n', id="plain"),
        pytest.param(Doubled({"a": 1}, "a", 2), "a: 1\na: 2\n", id="key twice"),
        pytest.param({"a": Raw("1e400")}, "a: 1e400\n", id="raw number"),
        pytest.param({"a": {}, "b": [], "c": None}, "a: {}\nb: []\nc: null\n", id="empty"),
        pytest.param(
            {"a": [[1, 2], [{"b": 1, "c": 2}]]}, "a:\n  - - 1\n    - 2\n  - - b: 1\n      c: 2\n", id="nested"
        ),
        pytest.param({"池 1": "é\n"}, '"池 1": "é\\n"\n', id="unicode"),
    ],
)
def test_to_yaml_writes_what_it_was_given(body: dict[str, object], text: str) -> None:
    assert to_yaml(body) == text


def test_to_yaml_reads_back() -> None:
    for _, spec in BASES:
        assert yaml.safe_load(to_yaml(spec)) == spec
