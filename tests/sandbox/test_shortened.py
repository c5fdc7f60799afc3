"""What the sandbox shortens: settings that the operator knows, and the defaults that people are told."""

from __future__ import annotations

import pytest

from domain.contracts.settings import PoolSettings
from sandbox.shortened import SHORTENED, Shortened, shortened_environment, shortened_lines
from workers.settings import PREFIX, Settings

POOL = f"{PREFIX}POOL__"


@pytest.mark.parametrize("setting", [pytest.param(s, id=s.variable) for s in SHORTENED])
def test_shortened_is_a_setting_of_the_operator_with_the_default_that_it_names(setting: Shortened) -> None:
    if setting.variable.startswith(POOL):
        fields, name = PoolSettings.model_fields, setting.variable.removeprefix(POOL).lower()
    else:
        fields, name = Settings.model_fields, setting.variable.removeprefix(PREFIX).lower()
    assert float(fields[name].default) == float(setting.usual)
    assert float(setting.value) < float(setting.usual)


def test_shortened_settings_are_all_printed() -> None:
    text = "\n".join(shortened_lines())
    assert all(variable in text for variable in shortened_environment())
