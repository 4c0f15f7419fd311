"""The values with which each option of a context is tried."""

from __future__ import annotations

import pytest

from harness.core.context_options import CONTEXT_OPTIONS, option_fields
from harness.experiments.context_options import OPTION_NAMES, tried_values


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_each_option_is_tried_with_what_it_needs(name: str) -> None:
    options = tried_values(name)
    needed = CONTEXT_OPTIONS[name].needs
    assert set(options) == {name} | ({needed} if needed else set())
    assert all(value != "0" for value in option_fields(options).values())
