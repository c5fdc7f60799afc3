"""Filters and pages of EC2's describe calls."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from sandbox.clouds import aws_listing as listing
from sandbox.clouds import aws_parameters as parameters
from sandbox.clouds.cloud import VendorError
from sandbox.clouds.ledger import Machine

_Item = TypeVar("_Item")


class Pages(Protocol):
    """Which page a call wants."""

    @property
    def next_token(self) -> str:
        """Of the page before; empty for the first."""
        ...

    @property
    def max_results(self) -> int | None:
        """How long; None leaves it to the cloud."""
        ...


Attributes = Mapping[str, Callable[[_Item], Iterable[str]]]
"""Filter name to the values that an item has for it."""

OF_INSTANCES: Final[Attributes[Machine]] = {
    "instance-id": lambda machine: (machine.id,),
    "instance-type": lambda machine: (machine.order.instance_type,),
    "instance-state-name": lambda machine: (listing.state_word(machine),),
    "instance-lifecycle": lambda machine: ("spot",) if machine.order.spot else (),
    "state-reason-code": lambda machine: (listing.state_reason(machine),),
    "spot-instance-request-id": lambda machine: (listing.spot_request_id(machine),),
    "client-token": lambda machine: (machine.order.client_token,),
    "availability-zone": lambda machine: (machine.order.zone,),
    "image-id": lambda machine: (machine.order.image_id,),
    "subnet-id": lambda machine: (machine.order.subnet_id,),
    "private-ip-address": lambda machine: (machine.private_ip,),
    "tag-key": lambda machine: machine.tags,
}
OF_SPOT_REQUESTS: Final[Attributes[Machine]] = {
    "instance-id": lambda machine: (machine.id,),
    "spot-instance-request-id": lambda machine: (listing.spot_request_id(machine),),
    "state": lambda machine: (listing.spot_state(machine),),
    "status-code": lambda machine: (listing.spot_status(machine),),
    "launched-availability-zone": lambda machine: (machine.order.zone,),
    "launch.instance-type": lambda machine: (machine.order.instance_type,),
}


def chosen(
    items: Iterable[_Item],
    filters: Sequence[parameters.Filter],
    attributes: Attributes[_Item],
    tags: Callable[[_Item], Mapping[str, str]] | None = None,
) -> list[_Item]:
    """Items that fulfil every filter. Values may have ``*`` and ``?``; case counts.

    Args:
        items: What to choose from.
        filters: Conditions; ``tag:KEY`` looks into ``tags``.
        attributes: The other filters that the call knows.
        tags: An item's tags, None when the call knows no tags.

    Raises:
        VendorError: a filter that the call does not know.
    """
    tests = [_test(each, attributes, tags) for each in filters]
    return [item for item in items if all(test(item) for test in tests)]


def _test(
    condition: parameters.Filter,
    attributes: Attributes[_Item],
    tags: Callable[[_Item], Mapping[str, str]] | None,
) -> Callable[[_Item], bool]:
    patterns = [_pattern(value) for value in condition.value]
    values = attributes.get(condition.name)
    if tags is not None and condition.name.startswith("tag:"):
        key = condition.name.removeprefix("tag:")
        values = _tag_values(key, tags)
    if values is None:
        text = f"The filter '{condition.name}' is invalid"
        raise VendorError("InvalidParameterValue", text, status=400)
    known = values
    return lambda item: any(pattern.fullmatch(value) for value in known(item) for pattern in patterns)


def _tag_values(key: str, tags: Callable[[_Item], Mapping[str, str]]) -> Callable[[_Item], Iterable[str]]:
    return lambda item: (tags(item)[key],) if key in tags(item) else ()


def _pattern(value: str) -> re.Pattern[str]:
    """A filter's value as a pattern; a backslash takes the meaning from the sign after it."""
    signs = re.findall(r"\\.|.", value, re.DOTALL)
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(sign) or re.escape(sign[-1]) for sign in signs), re.DOTALL)


def page(
    items: Sequence[_Item], key: Callable[[_Item], str], wanted: Pages, size: int = 1000
) -> tuple[tuple[_Item, ...], str | None]:
    """One page of items, and the token of the next one or None.

    Args:
        items: Sorted by ``key``, so that a page begins behind the last item of the page before even when
            that is gone by now.
        key: What the items are sorted by; unique.
        wanted: Token and size of the page.
        size: Size of a page when none is wanted.

    Raises:
        VendorError: the token is not from a page before.
    """
    after = _opened(wanted.next_token)
    rest = [item for item in items if key(item) > after]
    limit = wanted.max_results or size
    shown = tuple(rest[:limit])
    token = (
        base64.urlsafe_b64encode(f"after:{key(shown[-1])}".encode()).decode() if len(rest) > limit else None
    )
    return shown, token


def _opened(token: str) -> str:
    if not token:
        return ""
    try:
        text = base64.urlsafe_b64decode(token).decode()
    except ValueError:
        text = ""
    if not text.startswith("after:"):
        raise VendorError("InvalidNextToken", "The token is not from the page before.", status=400)
    return text.removeprefix("after:")
