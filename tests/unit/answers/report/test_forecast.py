"""What was forecast of contexts, as the report shows it beside what happened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.answers.report.forecast import forecast_of
from harness.answers.report.html import html_text
from harness.answers.report.run_data import RunData
from harness.verdict.results.journal import Contents
from tests.unit.verdict.results.records import json_values, record

FITS = {"loaded": 3, "first_refused": None, "budget_bytes": 1000, "used_bytes": [750]}
REFUSED = {"load": 3, "context": "m.bin#1", "bytes": 400, "missing_bytes": 150}
FULL = FITS | {"first_refused": REFUSED}


@pytest.mark.parametrize(
    ("told", "loaded", "words", "came_true"),
    [
        (FITS, 3, "750 of 1,000 bytes, 3 contexts: all fit", "3 loaded, as forecast"),
        (
            FULL,
            4,
            "750 of 1,000 bytes, 3 contexts; the next, m.bin#1, 400 bytes, does not fit: "
            "150 bytes are missing",
            "4 loaded, not 3",
        ),
        (
            FITS | {"loaded": 1},
            None,
            "750 of 1,000 bytes, 1 context: all fit",
            "none loaded, not 1",
        ),
    ],
)
def test_a_forecast_stands_beside_what_happened(
    told: dict[str, Any], loaded: int | None, words: str, came_true: str
) -> None:
    case = record(measurements={"forecast": told, "loaded": loaded})
    found = forecast_of(case)
    assert found is not None
    assert (found.words, found.came_true) == (words, came_true)
    page = html_text(RunData("r", Contents((case,), ())))
    assert came_true in page
    assert words in page


def test_all_domains_are_told_together() -> None:
    told = FULL | {"used_bytes": [900, 750]}
    found = forecast_of(record(measurements={"forecast": told}))
    assert found is not None
    assert found.words.startswith("1,650 of 2,000 bytes, ")


def test_a_report_without_forecasts_says_nothing_of_them() -> None:
    assert "Will it fit" not in html_text(RunData("r", Contents((record(),), ())))


@pytest.mark.parametrize(
    "told",
    [
        {"loaded": 3, "first_refused": None, "budget_bytes": 1000},  # of an older version
        FITS | {"budget_bytes": None},
        FITS | {"used_bytes": []},
        FITS | {"budget_bytes": True},
        FITS | {"first_refused": REFUSED | {"missing_bytes": 500}},
        FITS | {"first_refused": REFUSED | {"missing_bytes": -1}},
    ],
)
def test_what_cannot_be_drawn_is_left_out(told: dict[str, Any]) -> None:
    assert forecast_of(record(measurements={"forecast": told})) is None


@given(st.dictionaries(st.sampled_from([*FULL, *REFUSED]), json_values), json_values)
def test_a_page_is_made_of_any_journal(told: dict[str, Any], loaded: Any) -> None:
    told_of = (told, FULL | told, FITS | {"first_refused": REFUSED | told})
    cases = [record(measurements={"forecast": one, "loaded": loaded}) for one in told_of]
    pages = [html_text(RunData("r", Contents((case,), ()))) for case in cases]
    assert all(page.count("</body>") == 1 for page in pages)
