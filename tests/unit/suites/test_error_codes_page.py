"""The atlas of error codes: its table, and the page that is made of its results."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.core.error_codes import describe, symbol_table
from harness.probe.plan import Plan

ROOT = Path(__file__).parents[3]


@pytest.fixture
def table() -> ModuleType:
    return importlib.import_module("suites.error_codes")


@pytest.fixture
def page() -> ModuleType:
    return importlib.import_module("suites.error_codes_page")


def case(version: str, code: int | None, *, ended: str = "failed", log: str = "") -> Any:
    chain = [{"message": log, "source": "log"}] if log else []
    error = {"api": "QnnDevice_free", "chain": chain}
    figures = {"code": 14003, "how": "x", "answered": code, "ended": ended, "error": error}
    axes = {"backend": "htp", "qnn": version, "ort": None}
    return {"suite": "error_codes", "axes": axes, "measurements": figures}


def test_every_entry_is_a_plan_of_its_own(table: ModuleType) -> None:
    entries = table.PROVOCATIONS
    assert len(entries) >= 30
    assert len({(entry.code, entry.backend) for entry in entries}) == len(entries)
    for entry in entries:
        assert Plan(entry.steps).text()
        assert describe(entry.code).component not in ("none", "unknown")
    known = [entry for entry in entries if entry.code in symbol_table()]
    assert len({entry.code for entry in known}) >= 30


def test_the_page_lists_every_entry(table: ModuleType) -> None:
    lines = (ROOT / "docs/reference/error-codes.md").read_text("utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    entries = [row for row in rows if len(row) == 7]
    listed = {(row[0][2:], name, row[3]) for row in entries for name in row[2].split(", ")}
    expected = {
        (str(entry.code), entry.backend.upper(), entry.trigger) for entry in table.PROVOCATIONS
    }
    expected |= {
        (str(entry.code), f"ORT on {entry.backend.upper()}", entry.trigger)
        for entry in table.ORT_PROVOCATIONS
    }
    assert listed - {("code", "backend", "given when"), ("---", "---", "---")} == expected


def test_the_page_has_the_words_of_its_maker(page: ModuleType) -> None:
    text = (ROOT / "docs/reference/error-codes.md").read_text("utf-8")
    assert text.startswith(page.HEAD)
    assert page.GPU_HEAD in text
    assert f"| {' | '.join(page.COLUMNS)} |\n" in text


def test_a_code_that_changed_stands_out(page: ModuleType) -> None:
    line = "cannot open /a/b/libX.so | at 0x7f001234567"
    rows = [case("2.47.0", 14003, log=line), case("2.51.0", None, ended="passed", log=line)]
    text = page.page([{**rows[0], "suite": "other"}, *rows])
    assert "1 codes, 1 ways to get them, with QNN 2.47.0, 2.51.0." in text
    (row,) = (line for line in text.splitlines() if line.startswith("| 14003"))
    assert "| **changed:** HTP 2.51.0: no error |" in row
    assert "`cannot open .../libX.so \\| at 0x...`" in row
