"""Tells a newcomer what to install; everything else is in harness/plugin."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("qnn_harness"):
        pytest.exit("the qnn-harness plug-in is not installed: run `pip install -e .`", 4)
