"""The form that the tables of error codes have."""

import pytest

from activities.providers.codes import Example, Listed, class_by_prefix, table
from domain.contracts.errors import ErrorCode

QUOTA = Example(400, "no more", "Quota.Machines")
STOCK = Example(403, "sold out")


def test_table_keeps_class_and_example_of_each_word() -> None:
    listed = table({ErrorCode.QUOTA: {"Quota": QUOTA, "OurWord": None}})
    assert listed == {
        "Quota": Listed(ErrorCode.QUOTA, QUOTA),
        "OurWord": Listed(ErrorCode.QUOTA, None),
    }


def test_table_refuses_a_word_in_two_classes() -> None:
    classes = {ErrorCode.QUOTA: {"Quota": QUOTA}, ErrorCode.INSUFFICIENT_CAPACITY: {"Quota": STOCK}}
    with pytest.raises(ValueError, match="Quota stands in two classes"):
        table(classes)


@pytest.mark.parametrize(
    ("vendor_code", "code"),
    [
        ("Quota", ErrorCode.QUOTA),
        ("QuotaExceeded", ErrorCode.QUOTA),
        ("Quota.Addresses.Subnet", ErrorCode.INSUFFICIENT_CAPACITY),
        ("Quot", ErrorCode.UNKNOWN),
        ("", ErrorCode.UNKNOWN),
    ],
)
def test_class_is_that_of_the_longest_beginning(vendor_code: str, code: ErrorCode) -> None:
    words = {ErrorCode.QUOTA: {"Quota": QUOTA}, ErrorCode.INSUFFICIENT_CAPACITY: {"Quota.Addresses": STOCK}}
    assert class_by_prefix(vendor_code, table(words)) is code
