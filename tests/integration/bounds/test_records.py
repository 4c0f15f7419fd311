"""What is made of many records, or of large ones, holds what it needs of them and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.bounds.test_streams import MOST_KB, peak_kb
from tests.unit.results.records import DEVICE, record

COMMAND = """
import sys
from harness.cli.main import commands
commands(sys.argv[1:], standalone_mode=False)
print()
"""
FORMS = ("--json", "--markdown", "--html")
# a list has twenty times as much memory as characters
MEASURED = {"alike": {"load_us": [300, 310, 305]}, "lists": {"x": [[]] * 20_000}}


def journal(run: Path, kind: str, size: int, failing: int) -> Path:
    """A run's folder, with so many bytes of records: every so many-th case fails."""
    run.mkdir(parents=True)
    made = {
        outcome: record(
            outcome=outcome, case="NAME", device=DEVICE, measurements=MEASURED[kind]
        ).model_dump_json()
        for outcome in ("passed", "failed")
    }
    with (run / "results.jsonl").open("w") as file:
        number = 0
        while file.tell() < size:
            name = f"suites/test_context_count.py::test_contexts[sim-v73-htp-2.51.0-{number}]"
            text = made["passed" if number % failing else "failed"]
            file.write(text.replace('"NAME"', json.dumps(name)) + "\n")
            number += 1
    return run


SIZES = [
    pytest.param("lists", 8 << 20, id="lists"),
    pytest.param("lists", 80 << 20, id="many lists", marks=pytest.mark.nightly),
    pytest.param("alike", 80 << 20, id="many", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "size"), SIZES)
def test_a_report_of_many_records(tmp_path: Path, kind: str, size: int) -> None:
    """It had 356 MB for 80 MB of them: each was held whole, in all that was made of it at once."""
    peak, _ = peak_kb(COMMAND, "report", journal(tmp_path / "a", kind, size, 10))
    assert peak < MOST_KB


@pytest.mark.parametrize(
    "form",
    [pytest.param(one, marks=pytest.mark.nightly if at else ()) for at, one in enumerate(FORMS)],
)
@pytest.mark.parametrize(("kind", "size"), SIZES)
def test_a_comparison_of_many_records(tmp_path: Path, kind: str, size: int, form: str) -> None:
    """It had 595 MB for twice 80 MB of them."""
    runs = [journal(tmp_path / f"{at}", kind, size, at) for at in (9, 10)]
    peak, _ = peak_kb(COMMAND, "compare", *runs, form)
    assert peak < MOST_KB
