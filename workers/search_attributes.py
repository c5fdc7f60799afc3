"""The search attributes that the workflows write: a missing one would block every workflow task."""

from collections.abc import Mapping
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from domain.contracts.names import SEARCH_BOOLS, SEARCH_INTS, SEARCH_KEYWORD_LISTS, SEARCH_KEYWORDS
from workers.errors import ConfigurationError

_WANTED: Final[Mapping[str, "IndexedValueType.ValueType"]] = {
    **dict.fromkeys(SEARCH_KEYWORDS, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
    **dict.fromkeys(SEARCH_BOOLS, IndexedValueType.INDEXED_VALUE_TYPE_BOOL),
    **dict.fromkeys(SEARCH_INTS, IndexedValueType.INDEXED_VALUE_TYPE_INT),
    **dict.fromkeys(SEARCH_KEYWORD_LISTS, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST),
}


async def check(client: Client) -> None:
    """Make sure that the namespace has every attribute with its type.

    Raises:
        ConfigurationError: Names the attributes that are missing or of another type.
    """
    registered = await _registered(client)
    missing = [name for name in _WANTED if name not in registered]
    if missing:
        raise ConfigurationError(
            f"Temporal namespace {client.namespace} lacks the search attributes {', '.join(missing)}; "
            "run: spotgpu search-attributes register"
        )
    _refuse_other_types(client, registered)


async def register(client: Client) -> list[str]:
    """Add the attributes that are missing; returns their names, none when all were there.

    Raises:
        ConfigurationError: One exists with another type, or the server refuses.
    """
    registered = await _registered(client)
    _refuse_other_types(client, registered)
    missing = {name: kind for name, kind in _WANTED.items() if name not in registered}
    if missing:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            # Somebody registered them at the same moment; the check that follows tells.
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise ConfigurationError(
                    f"Temporal refuses to register search attributes: {error.message}"
                ) from error
    return sorted(missing)


async def _registered(client: Client) -> Mapping[str, "IndexedValueType.ValueType"]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        answer = await client.operator_service.list_search_attributes(request)
    except RPCError as error:
        raise ConfigurationError(f"Temporal does not list its search attributes: {error.message}") from error
    return answer.custom_attributes


def _refuse_other_types(client: Client, registered: Mapping[str, "IndexedValueType.ValueType"]) -> None:
    wrong = [name for name, kind in _WANTED.items() if registered.get(name, kind) != kind]
    if wrong:
        names = ", ".join(f"{name} (wanted: {IndexedValueType.Name(_WANTED[name])})" for name in wrong)
        raise ConfigurationError(
            f"Temporal namespace {client.namespace} has search attributes of another type: {names}; "
            "remove them, or use a namespace of our own"
        )
