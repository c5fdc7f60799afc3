"""Hundreds of seeded variants against the real API server: refused by name, or taken and readable by us."""

import collections

import pytest

from sandbox.control_plane.launcher import ControlPlane
from tests.crd_bridge.raw_api import Answer, RawApi
from tests.variants.judgement import BY_KIND, judge
from tests.variants.resources import Variant, variants

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SEED = 3
COUNT = 800


@pytest.fixture
def made(plane_with_crds: ControlPlane, namespace: str, api: RawApi) -> list[tuple[Variant, Answer]]:
    """Every variant with the server's answer."""
    return [
        (variant, api.create(namespace, BY_KIND[variant.kind].plural, variant.text))
        for variant in variants(SEED, COUNT)
    ]


def test_variant_is_refused_by_name_or_taken_and_readable(made: list[tuple[Variant, Answer]]) -> None:
    assert [wrong for variant, answer in made if (wrong := judge(variant, answer))] == []
    taken = collections.Counter(answer.ok for _, answer in made)
    assert taken[True] >= COUNT // 10
    assert taken[False] >= COUNT // 2
