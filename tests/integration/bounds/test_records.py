"""Commands over many or large records stay within bounds of memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.results.run_folder import RunFolder
from tests.integration.bounds.test_streams import MOST_KB, peak_kb
from tests.unit.results.records import DEVICE, record

COMMAND = """
import sys
from harness.cli.main import commands
commands(sys.argv[1:], standalone_mode=False)
print()
"""
FORMS = ("--json", "--format=md", "--format=html")
# a list has twenty times as much memory as characters
MEASURED = {"x": [[]] * 20_000}


def journal(run: Path, size: int, failing: int) -> Path:
    """A run's folder, with so many bytes of records: every so many-th case fails."""
    run.mkdir(parents=True)
    templates = {
        outcome: record(
            outcome=outcome, case="NAME", device=DEVICE, measurements=MEASURED
        ).model_dump_json()
        for outcome in ("passed", "failed")
    }
    with (run / "results.jsonl").open("w") as file:
        number = 0
        while file.tell() < size:
            name = f"suites/test_context_count.py::test_contexts[sim-v73-htp-2.51.0-{number}]"
            text = templates["passed" if number % failing else "failed"]
            file.write(text.replace('"NAME"', json.dumps(name)) + "\n")
            number += 1
    return run


SIZES = [
    pytest.param(8 << 20, id="some", marks=pytest.mark.slow),
    pytest.param(80 << 20, id="many", marks=pytest.mark.nightly),
]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_report_of_many_records(tmp_path: Path, size: int) -> None:
    """It had 356 MB for 80 MB of them: each was held whole, in all that was made of it at once."""
    peak, _ = peak_kb(COMMAND, "report", "write", journal(tmp_path / "a", size, 10))
    assert peak < MOST_KB


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=pytest.mark.nightly if form != FORMS[0] else ()) for form in FORMS],
)
@pytest.mark.parametrize("size", SIZES)
def test_a_comparison_of_many_records(tmp_path: Path, size: int, form: str) -> None:
    """It had 595 MB for twice 80 MB of them."""
    runs = [journal(tmp_path / f"{failing}", size, failing) for failing in (9, 10)]
    peak, _ = peak_kb(COMMAND, "compare", *runs, form)
    # in JSON a comparison has an entry for each case, made whole
    assert peak < (MOST_KB * 1.5 if form == "--json" else MOST_KB)


STEPS = b'{"event":"begin","t_us":1,"step":1}\n{"event":"end","t_us":2,"step":1}\n'


RUN = b'{"schema":1,"x":[%b]}'


def lists(number: int = 5 << 20) -> bytes:
    return b",".join([b"[]"] * number)


# made by the test, as each process of a run collects all
@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("run.json", lambda: RUN % lists(240_000), id="a run.json taken"),
        pytest.param("logs/x/probe.jsonl", lambda: b'{"x":[%b]}\n' % lists(), id="an event"),
        pytest.param(
            "logs/x/probe.jsonl",
            lambda: b"{}\n" * 2_000_000,
            id="events",
            marks=pytest.mark.nightly,
        ),
        pytest.param("logs/x/probe.jsonl", lambda: STEPS * 10_000, id="steps"),
    ],
)
def test_a_run_of_somebody_else(tmp_path: Path, name: str, content: Callable[[], bytes]) -> None:
    """A run.json of 16 MB had 1.2 GB, a log as long as that 800 MB, as one event or as millions."""
    run = tmp_path / "run"
    (run / name).parent.mkdir(parents=True)
    (run / name).write_bytes(content())
    (run / "results.jsonl").write_text(record().model_dump_json() + "\n")
    peak, _ = peak_kb(COMMAND, "report", "write", run)
    assert peak < MOST_KB


@pytest.mark.nightly
def test_merged_runs_of_many_records(tmp_path: Path) -> None:
    template = record(outcome="passed", case="NAME", device=DEVICE).model_dump_json()
    runs = []
    for number in range(3):
        reports = tmp_path / str(number)
        run = RunFolder.create(reports, command=["pytest"], lab={}, devices=["sim"])
        with (run.path / "results.jsonl").open("w") as file:
            for case in range(number, 40_000, 3):
                name = f"suites/test_a.py::test_a[sim-v73-htp-2.51.0-{case}]"
                file.write(template.replace('"NAME"', json.dumps(name)) + "\n")
        run.end({"exit_code": 0, "problem": None})
        runs.append(run.path)
    peak, output = peak_kb(COMMAND, "report", "merge", *runs, "-o", tmp_path / "whole")
    assert "40000 passed" in output
    assert peak < MOST_KB
