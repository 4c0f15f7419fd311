"""The page of context options, made of the results of the suite that tries them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.core.context_options import CONTEXT_OPTIONS

PAGE = Path(__file__).parents[3] / "docs/reference/context-options.md"


@pytest.fixture
def page() -> ModuleType:
    return importlib.import_module("suites.context_options_page")


def case(version: str, target: str, message: str | None = None, **figures: object) -> Any:
    error = {"api": "QnnContext_createFromBinary", "code": 5010, "message": message}
    figures = {"option": "reused_io_limit_mb", "error": error if message else None, **figures}
    return {
        "suite": "context_options",
        "axes": {"qnn": version},
        "device": {"target": target},
        "measurements": figures,
    }


def row(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| `{name}` "))
    return line.strip("| ").split(" | ")


def test_the_answers_of_targets_and_versions(page: ModuleType) -> None:
    refusal = "[ERROR][SetBufName] status=-3\nHTP Config option: 17 not supported\nmore"
    ort = {"provider_option": "htp_reused_io_limit_mb"}
    cases = [
        {**case("2.46.0", "linux-x64"), "suite": "other"},
        case("2.51.0", "linux-x64", refusal),
        case("2.47.0", "linux-x64", refusal),
        case("2.51.0", "linux-arm64"),
        case("2.47.0", "linux-arm64", refusal),
        case("2.50.0", "linux-x64", **ort, ended="no option"),
        case("2.51.0", "linux-x64", **ort, ended="failed"),
    ]
    text = page.page(cases)
    assert "Tried with QNN 2.47.0, 2.51.0;" in text
    refused = "5010 `QnnContext_createFromBinary`: `HTP Config option: 17 not supported`"
    assert row(text, "reused_io_limit_mb")[-3:] == [
        "`htp_reused_io_limit_mb`, QNN 2.51.0 on",
        refused,
        f"2.47.0: {refused}<br>2.51.0: accepted",
    ]
    assert row(text, "weight_sharing")[-3:] == [
        "`enable_htp_weight_sharing`, none of these versions",
        "not tried",
        "not tried",
    ]


def test_the_page_is_that_of_the_table(page: ModuleType) -> None:
    text = PAGE.read_text("utf-8")
    assert text.startswith(page.HEAD)
    for option in CONTEXT_OPTIONS.values():
        cells = row(text, option.name)
        assert cells[1] == f"{option.kind} {option.number}"
        assert "not tried" not in cells
