"""What a run says at its end of cases that one fault of the lab ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.plugin.recorder import _shorten_repeats
from harness.plugin.terminal import LAB_ERROR


def report(name: str, text: str, cause: str | None = "infra") -> Any:
    return SimpleNamespace(nodeid=name, longrepr=text, **{LAB_ERROR: cause})


def test_what_a_dead_adb_server_ended_is_told_once() -> None:
    first, other = "no adb server at localhost:5037: refused", "no adb server at localhost:1: x"
    reports = [
        report("a", f"phone: {first}"),
        report("b", f"device phone is not used: {first}"),
        report("c", other),
        report("d", f"my own text: {first}", None),
        report("e", "another fault"),
    ]
    plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(stats={"error": reports}))
    config: Any = SimpleNamespace(pluginmanager=plugins)
    for _ in range(2):
        _shorten_repeats(config)
        assert [report.longrepr for report in reports] == [
            f"phone: {first}",
            "same fault as a: no adb server at localhost:5037",
            other,
            f"my own text: {first}",
            "another fault",
        ]
