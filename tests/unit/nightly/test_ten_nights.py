"""Ten nights of cases whose truth is known: what each night tells of them, and how often it flaps.

Journals are real, and so are the steps of a night; only pytest is a stand-in, which draws verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.core.whole_file import read_json
from harness.nightly.chain import AGAIN as TIMES, Chain
from harness.nightly.issues import Issue
from harness.nightly.night import STEPS, Night
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder
from tests.unit.history.runs import attempt, run_folder
from tests.unit.nightly.nights import a_night

BEGIN = datetime(2026, 11, 1, 22, tzinfo=UTC)
Fails = Callable[[random.Random, int], bool]

CASES: dict[str, Fails] = {
    "steady": lambda draw, night: False,
    "old": lambda draw, night: True,
    "tenth": lambda draw, night: draw.random() < 0.1,
    "third": lambda draw, night: draw.random() < 0.3,
    "half": lambda draw, night: draw.random() < 0.5,
    "broken": lambda draw, night: night >= 3,
    "mended": lambda draw, night: night < 6,
    "away": lambda draw, night: False,
    "old-away": lambda draw, night: True,
}
SEED = 7
AWAY = range(4, 7)
"""The nights in which the phone of the last two is away."""


@dataclass
class MockPytest:
    """Draws the verdicts of a night, and of what is run again in it."""

    number: int
    draw: random.Random
    versions: str
    made: dict[str, int] = field(default_factory=dict)

    def attempt(self, name: str) -> CaseRecord:
        self.made[name] = number = self.made.get(name, 0) + 1
        lost = "away" in name and self.number in AWAY
        outcome = "error" if lost else "failed" if CASES[name](self.draw, self.number) else "passed"
        why = "cable" if lost else name
        text = f"{name}@{self.versions} {outcome} n={number} message={why}"
        return attempt(text, device="phone" if "away" in name else "sim", duration_s=1)


class TenNights(Chain):
    """A night whose pytest is the stand-in."""

    mock: MockPytest

    def _pytest_run(self, left_s: float, run: RunFolder | None, *more: str) -> int | None:
        assert run is not None
        times = read_json(self.path / TIMES, 1 << 20)
        names = {self.mock.attempt(name).case: name for name in CASES}
        for case, number in times.items():
            for _ in range(number):
                record = self.mock.attempt(names[case]).model_copy(update={"run": run.run_id})
                run.journal.append(record)
        return 0


@dataclass
class Told:
    """A night, and the texts that it published."""

    night: Night
    comparison: str

    @property
    def issues(self) -> dict[str, Issue]:
        """By the case, of which each has a signature of its own."""
        return {issue.signature.rpartition("|")[2]: issue for issue in self.night.issues}


def ten_nights(reports: Path, seed: int, version: Callable[[int], str]) -> Iterator[Told]:
    draw = random.Random(seed)
    for number in range(10):
        mock = MockPytest(number, draw, version(number))
        run = run_folder(reports, *(mock.attempt(name) for name in CASES))
        start = BEGIN + timedelta(days=number)
        started = a_night(
            night=f"{start:%Y%m%dT%H%M%SZ}-{number:04x}-nightly",
            started=start.isoformat(),
            budget_s=4 * 3600,
            until=datetime.now(UTC).timestamp() + 4 * 3600,
            done=STEPS[:2],
            run=run.name,
            run_exit_code=1,
            run_is_whole=True,
        )
        chain = TenNights(started, (), reports, None)
        mock.made = dict.fromkeys(CASES, 1)
        chain.mock = mock
        chain._save()
        chain._compare()
        chain._save(done=STEPS)
        yield Told(chain.night, (chain.path / "comparison.md").read_text())


@pytest.mark.parametrize("version", [lambda _: "2.50.0", lambda night: f"2.{40 + night}.0"])
def test_each_is_told_as_what_it_is_from_the_second_night_on(
    tmp_path: Path, version: Callable[[int], str]
) -> None:
    states: dict[str, list[str]] = {name: [] for name in CASES}
    codes, reasons = [], []
    for number, ended in enumerate(ten_nights(tmp_path, SEED, version)):
        for name in CASES:
            issue = ended.issues.get(name)
            shown = "-" if issue is None else "flaky" if issue.flaky else issue.state
            states[name].append(shown)
        codes.append(ended.night.exit_code)
        reasons.append(ended.night.failed_on)
        lost = {
            entry.count
            for entry in ended.night.issues
            if entry.fault == "lab" and entry.state == "open"
        }
        assert lost == ({2} if number in AWAY else set())
        assert ended.comparison.startswith("### Devices: failed") == bool(ended.night.failed_on)
        assert "Devices: passed" not in ended.comparison
        assert ("#### Fixed" in ended.comparison) == (number == 6)
    assert set(states["steady"]) == set(states["away"]) == {"-"}
    assert states["old"] == ["open"] * 10
    assert states["broken"] == ["-"] * 3 + ["open"] * 7
    assert states["mended"] == ["open"] * 6 + ["closed"] * 4
    assert states["old-away"] == ["open"] * 10, "it is known when its phone is back"
    for name in ("tenth", "third", "half"):
        first = states[name].index("flaky")
        assert states[name] == ["-"] * first + ["flaky"] * (10 - first)
    news = {states[name].index("flaky") for name in ("tenth", "third", "half")}
    assert [number for number, why in enumerate(reasons) if why] == sorted({0, 3, *news})
    assert reasons[3] == ("new",) or (reasons[3] == ("new", "flaky") and 3 in news)
    quiet = [number for number in range(10) if not reasons[number]]
    assert {codes[number] for number in quiet} <= {0, 3}
    assert [number for number in quiet if codes[number] == 3] == [n for n in quiet if n in AWAY]


class EndedNight(TenNights):
    """It is ended while cases are run again, when `left` more attempts have been made."""

    left: int

    def _pytest_run(self, left_s: float, run: RunFolder | None, *more: str) -> int | None:
        assert run is not None
        resumed = RunFolder.reopen(run.path)
        resumed.resume(["pytest"])
        ((case, number),) = read_json(self.path / TIMES, 1 << 20).items()
        for _ in range(min(number, self.left)):
            record = self.mock.attempt("broken").model_copy(update={"run": run.run_id})
            assert record.case == case
            resumed.journal.append(record)
        resumed.close()
        if number > self.left:
            raise KeyboardInterrupt
        return 0


def test_a_death_while_cases_are_run_again_changes_nothing(tmp_path: Path) -> None:
    passed, failed = (MockPytest(number, random.Random(0), "2.50.0") for number in (0, 3))
    run_folder(tmp_path, passed.attempt("broken"))
    run = run_folder(tmp_path, failed.attempt("broken"))
    RunFolder(run).end({"exit_code": 1, "other_failures": True})
    started = a_night(
        night="20261104T220000Z-0003-nightly",
        started=BEGIN.isoformat(),
        budget_s=3600,
        until=datetime.now(UTC).timestamp() + 3600,
        done=STEPS[:2],
        run=run.name,
        run_exit_code=1,
        run_is_whole=True,
        other_failures=True,
    )
    for remaining in (2, 0, 9):
        chain = EndedNight(started, (), tmp_path, None)
        chain.mock, chain.left = failed, remaining
        chain._save()
        if remaining < 9:
            with pytest.raises(KeyboardInterrupt):
                chain._compare()
            assert not RunFolder(run).info()["finished"]
    chain._compare()
    info = RunFolder(run).info()
    assert info["finished"]
    assert (info["exit_code"], info["other_failures"], info["problem"]) == (1, True, None)
    assert failed.made["broken"] == 7, "each once"
    assert [reason[:5] for reason in chain.night.failed_on] == ["new", "tests"]
    assert [issue.state for issue in chain.night.issues] == ["open"]
