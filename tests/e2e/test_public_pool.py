"""The public pool, verbatim, from its file to nothing left."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sandbox.audit import audit
from sandbox.expectation import expect
from sandbox.provision import EXAMPLES
from sandbox.stack import Stack
from sandbox.watched_pool import WatchedPool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LEVEL_SECONDS = 60


def test_public_pool_is_served_as_it_stands(stack: Stack) -> None:
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "gpuspotpool.yaml").read_text())
    pool = WatchedPool(stack, "public", manifest["metadata"]["name"])
    pool.apply(manifest)
    seen = expect("2 machines Running", lambda: pool.at_level(2), within_seconds=LEVEL_SECONDS)
    assert {machine.status for machine in seen.machines} == {"Running"}
    resource = pool.observer.pool_resource(pool.namespace, pool.name)
    assert resource is not None
    assert resource["spec"]["scaleStrategy"]["cooldownSeconds"] == 300
    pool.delete()
    expect("nothing left", lambda: pool.is_gone() or None, within_seconds=LEVEL_SECONDS)
    assert audit(stack, pool.uid)
