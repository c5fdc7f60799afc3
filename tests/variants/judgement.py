"""What is wrong with the API server's answer to one variant."""

from crd_bridge.kinds import KINDS
from crd_bridge.schema import parse
from tests.crd_bridge.raw_api import Answer
from tests.variants.resources import Variant

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
