"""The form of a cloud's table of error codes, and how a vendor's word is looked up in one."""

from collections.abc import Mapping
from typing import NamedTuple

from domain.contracts.errors import ErrorCode, ProviderError
from domain.contracts.instances import LaunchResult, Refusal, Rejected


class Example(NamedTuple):
    """An answer of the vendor's that carries a word of the table.

    Attributes:
        status: Its HTTP status.
        message: Its text, shortened. In parentheses stands one of ours, where the vendor's is not known.
        code: Its whole word, where the table has the beginning of several; empty when it carries none.
            Without it, the word of the table.
    """

    status: int
    message: str
    code: str | None = None


class Listed(NamedTuple):
    """What a word of the vendor's means.

    Attributes:
        code: Its class.
        example: An answer with it; None for a word of our own, said before anything is sent.
    """

    code: ErrorCode
    example: Example | None


Table = Mapping[str, Listed]
"""A cloud's words, or beginnings of them, to what they mean. Unlisted: UNKNOWN."""


def table(classes: Mapping[ErrorCode, Mapping[str, Example | None]]) -> Table:
    """The table of a cloud, written class by class.

    Raises:
        ValueError: a word stands in two classes.
    """
    listed: dict[str, Listed] = {}
    for code, words in classes.items():
        for word, example in words.items():
            if word in listed:
                raise ValueError(f"{word} stands in two classes: {listed[word].code} and {code}")
            listed[word] = Listed(code, example)
    return listed


def class_by_prefix(vendor_code: str, listed: Table) -> ErrorCode:
    """The class of a vendor's code by the longest word that it begins with."""
    words = [word for word in listed if vendor_code.startswith(word)]
    return listed[max(words, key=len)].code if words else ErrorCode.UNKNOWN


def classify_by_prefix(vendor_code: str, listed: Table, *, creating: bool) -> ErrorCode:
    """The class of a vendor's code where each word of the table stands for all its suffixes.

    Args:
        vendor_code: The cloud's word; empty when an error answer had none.
        listed: The cloud's table.
        creating: Whether a machine was being bought, so that an internal error may have made it.
    """
    code = class_by_prefix(vendor_code, listed)
    may_have_run = code is ErrorCode.UNAVAILABLE or not vendor_code
    return ErrorCode.UNKNOWN_OUTCOME if creating and may_have_run else code


def answer_of(fault: ProviderError, *, not_offered: bool) -> LaunchResult:
    """The value that a fault of a create call stands for: the market's refusal, or what can never succeed.

    Args:
        fault: Of the create call.
        not_offered: Whether a refusal says: not sold there at all.

    Raises:
        ProviderError: the same fault, when it is no answer of the market.
    """
    match fault.code:
        case ErrorCode.INSUFFICIENT_CAPACITY | ErrorCode.QUOTA | ErrorCode.PRICE_TOO_LOW as code:
            return Refusal(
                code=code, vendor_code=fault.vendor_code, message=str(fault), not_offered=not_offered
            )
        case ErrorCode.INVALID_REQUEST | ErrorCode.UNAUTHENTICATED | ErrorCode.FORBIDDEN as code:
            return Rejected(code=code, vendor_code=fault.vendor_code, message=str(fault))
        case _:
            raise fault
