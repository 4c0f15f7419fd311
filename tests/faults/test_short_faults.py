"""Short faults of the link: they never cost a run, nor a record."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.results.journal import read_journal
from tests.faults.breakable import BreakableLab
from tests.faults.table import SIMULATED
from tests.integration.device_runs import ROOT, Finished
from tests.integration.transport.adb.faulty_link import FaultyLink

SUITE = '''"""Many quick cases, which give a device time while it is away."""
import time
from pathlib import Path
import pytest
from harness.probe.plan import Plan, Step


@pytest.fixture(autouse=True)
def pace():
    if Path(__file__).with_name("away").exists():
        time.sleep(0.5)


@pytest.mark.device
@pytest.mark.parametrize("number", range({cases}))
def test_quick(bench, number):
    bench.run(Plan((Step("noop"),))).check()
'''


class Journal:
    """The journal of a run under way."""

    def __init__(self, lab: BreakableLab) -> None:
        self._file = lab.folder / "reports/latest/results.jsonl"

    def wait_for(self, fits: Callable[[list[Any]], bool], *, within_s: float = 120) -> None:
        """Returns when the case records so far fit."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            if self._file.exists() and fits(list(read_journal(self._file).records)):
                return
            time.sleep(0.05)
        raise TimeoutError("the run does not get so far")


def run_with_faults(
    lab: BreakableLab,
    faults: Callable[[FaultyLink, Journal], None],
    *arguments: object,
    cases: int,
) -> Finished:
    """Runs a suite of quick cases on the device behind the relay while `faults` breaks it."""
    suite = lab.folder / "suite/test_quick.py"
    suite.parent.mkdir()
    suite.write_text(SUITE.format(cases=cases))
    problems: list[BaseException] = []

    def break_it() -> None:
        try:
            faults(lab.link, Journal(lab))
        except BaseException as error:
            problems.append(error)

    breaking = threading.Thread(target=break_it)
    breaking.start()
    chosen = ("--device", "main", *arguments)
    completed = lab.run(*chosen, suites=suite, PYTHONPATH=str(ROOT))
    breaking.join(120)
    assert not problems, (problems, completed.output)
    assert read_journal(completed.folder / "latest/results.jsonl").damage == ()
    assert len({case["case"] for case in completed.cases}) == cases, completed.output
    return completed


def last_outcomes(counts: Finished) -> Counter[tuple[str, str | None]]:
    last = {case["case"]: (case["outcome"], case["cause"]) for case in counts.cases}
    return Counter(last.values())


@pytest.mark.slow
def test_three_faults_in_a_row_cost_no_verdict(tmp_path: Path) -> None:
    def faults(link: FaultyLink, journal: Journal) -> None:
        journal.wait_for(lambda records: len(records) >= 5)
        for _ in range(2):
            link.cut()
            time.sleep(0.1)
            link.resume()
            time.sleep(0.3)
        link.stall()
        time.sleep(6)
        link.resume()

    with BreakableLab(tmp_path, SIMULATED, None) as lab:
        completed = run_with_faults(lab, faults, cases=80)
    assert completed.code == 0, completed.output
    assert last_outcomes(completed) == {("passed", None): 80}
    assert "quarantine" not in {event["event"] for event in completed.events}


@pytest.mark.nightly
def test_a_device_that_was_away_is_used_again(tmp_path: Path) -> None:
    """Longer than `come_back_s`; on a worker of pytest-xdist, which is told of no other device."""

    def faults(link: FaultyLink, journal: Journal) -> None:
        journal.wait_for(lambda records: len(records) >= 5)
        link.cut()
        (tmp_path / "suite/away").touch()
        journal.wait_for(lambda records: sum(record.outcome == "error" for record in records) >= 10)
        link.resume()

    with BreakableLab(tmp_path, SIMULATED, None, come_back_s=2) as lab:
        completed = run_with_faults(lab, faults, "-n", 1, cases=50)
    assert completed.code == 3, completed.output
    outcomes = last_outcomes(completed)
    assert set(outcomes) == {("passed", None), ("error", "infra")}
    assert outcomes["passed", None] > 5, completed.output
    events = [event["event"] for event in completed.events]
    assert events[-1] == "healed", completed.output
    assert events.count("quarantine") == 1
    assert not list((tmp_path / "quarantine").iterdir())
