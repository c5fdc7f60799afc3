"""Hundreds of seeded variants against the real API server: refused by name, or taken and readable by us."""

import collections

import pytest

from crd_bridge.kinds import KINDS
from crd_bridge.schema import parse
from sandbox.control_plane.launcher import ControlPlane
from tests.crd_bridge.raw_api import Answer, RawApi
from tests.variants.resources import Variant, variants

# Long enough for a first build of the programs.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SEED = 3
COUNT = 800
BY_KIND = {kind.kind: kind for kind in KINDS}


def judge(variant: Variant, answer: Answer) -> str:
    """What is wrong with the answer to one variant; empty when nothing is."""
    if answer.status not in (201, 400, 422):
        return f"{variant.what}: HTTP {answer.status} {answer.message[:200]}"
    got = "accepted" if answer.ok else "refused"
    if variant.expected not in (got, "either"):
        return f"{variant.what}: {got} {answer.message[:200]}"
    if answer.ok:
        parse(BY_KIND[variant.kind], answer.body)  # must not raise: what the server takes we can read
        return ""
    return "" if variant.field in answer.message else f"{variant.what}: not named in {answer.message[:300]}"


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
