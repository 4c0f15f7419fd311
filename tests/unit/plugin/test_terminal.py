"""Lines that the plug-in writes on pytest's terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.terminal import TerminalReporter

from harness.plugin.terminal import write_lines


@pytest.mark.parametrize("before", ["", "..F", "test_a.py ..F", "..F\n"])
def test_what_is_written_begins_a_line(pytestconfig: pytest.Config, before: str) -> None:
    written = io.StringIO()
    reporter = TerminalReporter(pytestconfig, written)
    reporter.write(before)
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: reporter if name else None)
    )
    write_lines(cast(pytest.Config, config), "so")
    line = "" if not before or before.endswith("\n") else "\n"
    assert written.getvalue() == f"{before}{line}so\n"
