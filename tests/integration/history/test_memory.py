"""Memory that importing takes does not depend on the number of records."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.results.journal import MAX_LINE_BYTES, MAX_VALUES
from tests.unit.results.records import record

MB = 1 << 20
MEASURED = """
import re, sys
from pathlib import Path
from harness.cli.main import commands
code = commands(sys.argv[1:], standalone_mode=False)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak[1]) // 1024, file=sys.stderr)
"""


def peak_mb(*words: object) -> int:
    """The most memory that a command held, in a process of its own, in MiB."""
    command = [sys.executable, "-c", MEASURED, *map(str, words)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=7200, check=True)
    return int(completed.stderr.splitlines()[-1])


def many(reports: Path, cases: int) -> Path:
    """A run in which every tenth case fails, each with a message of its own."""
    run = reports / "20261121T060000Z-00ff"
    run.mkdir(parents=True)
    texts = {
        outcome: record(outcome=outcome, case="NAME").model_dump_json()
        for outcome in ("passed", "failed")
    }
    with (run / "results.jsonl").open("w") as file:
        for number in range(cases):
            letters = "".join(chr(97 + int(digit)) for digit in str(number))
            name = f"suites/test_a.py::test[sim-v73-htp-2.51.0-{number}]"
            text = texts["failed" if number % 10 == 0 else "passed"]
            text = text.replace('"NAME"', json.dumps(name)).replace("Failed to", f"No {letters}")
            file.write(text + "\n")
    (run / "run.json").write_text(json.dumps({"schema": 1, "run": run.name, "finished": "then"}))
    return run


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(10_000, marks=pytest.mark.slow),
        pytest.param(1_000_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_many_cases_take_little_more_memory_than_few(tmp_path: Path, cases: int) -> None:
    few, many_cases = tmp_path / "few", tmp_path / "many"
    many(few, 100)
    run = many(many_cases, cases)
    base = peak_mb("history", "list", "--reports", few)
    assert peak_mb("history", "import", run, "--reports", many_cases) < base + 40
    for form in ((), ("--json",)) if cases == 10_000 else ():
        assert peak_mb("history", "list", "--reports", many_cases, *form) < base + 250


WORST: dict[str, Callable[[], bytes]] = {
    "lists in lists": lambda: b"[]," * (MAX_VALUES // 2 - 50) + b"0",
    "objects": lambda: b'{"a":1},' * (MAX_VALUES // 2 - 50) + b"0",
    "more than there may be": lambda: b"{}," * (MAX_LINE_BYTES // 3 - 1000) + b"0",
    "text": lambda: b'"\xf0\x9f\x98\x80' + b"x" * (MAX_LINE_BYTES - 10_000) + b'"',
    "one line of 100 MB": lambda: b"1," * (50 * MB) + b"0",
    "unknown keys": lambda: b"".join(b'"k%d":1,' % n for n in range(MAX_VALUES - 1000)),
}
BY_NIGHT = ("objects", "text", "one line of 100 MB")


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(kind, marks=pytest.mark.nightly if kind in BY_NIGHT else pytest.mark.slow)
        for kind in WORST
    ],
)
def test_the_worst_line_takes_a_bounded_amount(tmp_path: Path, inside: str) -> None:
    """Whatever the text of a line becomes in memory."""
    whole = record(case="worst", measurements={"x": ["X"]}).model_dump_json().encode()
    worst = WORST[inside]()
    line = b"{" + worst + whole[1:] if inside == "unknown keys" else whole.replace(b'"X"', worst)
    run = tmp_path / "20261121T060000Z-00ff"
    run.mkdir()
    last = record(case="last").model_dump_json().encode()
    (run / "results.jsonl").write_bytes(line + b"\n" + last + b"\n")
    peaks = {
        "import": peak_mb("history", "import", run, "--reports", tmp_path),
        "history": peak_mb("history", "list", "--reports", tmp_path),
        "compare": peak_mb("compare", run, run),
        "report": peak_mb("report", "write", run),
    }
    assert max(peaks.values()) < 220, peaks
