"""A vendor's word looked up in the table of its cloud, where a code stands for all its suffixes."""

from collections.abc import Mapping

from domain.contracts.errors import ErrorCode


def classify_by_prefix(vendor_code: str, table: Mapping[str, ErrorCode], *, creating: bool) -> ErrorCode:
    """The closed class of a vendor's code, by its longest listed prefix.

    Args:
        vendor_code: The cloud's word; empty when an error answer had none.
        table: Prefixes of the cloud's words; an unlisted word is ``UNKNOWN``.
        creating: Whether a machine was being bought, so that an internal error may have made it.
    """
    prefixes = [prefix for prefix in table if vendor_code.startswith(prefix)]
    code = table[max(prefixes, key=len)] if prefixes else ErrorCode.UNKNOWN
    may_have_run = code is ErrorCode.UNAVAILABLE or not vendor_code
    return ErrorCode.UNKNOWN_OUTCOME if creating and may_have_run else code
