"""Parts of an API object, where absent, null and empty are the same."""

from typing import cast

from activities.cluster.base import Object


def section(body: Object, name: str) -> Object:
    """The mapping under a name."""
    return cast("Object", body.get(name) or {})


def entries(body: Object, name: str) -> list[Object]:
    """The list of mappings under a name."""
    return cast("list[Object]", body.get(name) or [])
