"""Amounts of a countable resource, in the API's spelling of quantities."""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3}|m|k|M|G|Ki|Mi|Gi)?")
_FACTORS: Final = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
}


def count_of(quantity: object) -> int:
    """The quantity as a whole number, rounded up as the scheduler does: ``"8"``, ``"8000m"``, ``"1k"``.

    Returns:
        0 for what is no quantity: such an object never passed the API server.
    """
    match = _FORM.fullmatch(str(quantity).strip())
    if match is None:
        return 0
    number, suffix = Decimal(match[1]), match[2] or ""
    factor = _FACTORS.get(suffix) or Decimal(f"1{suffix}" if suffix else 1)
    return int((number * factor).to_integral_value(rounding=ROUND_CEILING))
