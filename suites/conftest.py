"""The atlas of error codes runs when it is asked for: it looks for news in the libraries only."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "atlas" in (config.option.markexpr or "")
    named = any("test_error_codes" in str(argument) for argument in config.args)
    if asked or named:
        return
    left_out = [item for item in items if item.get_closest_marker("atlas")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
