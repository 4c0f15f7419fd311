"""Ten nights of cases whose truth is known: what each night tells of them, and how often it flaps.

Journals are real, and so are the steps of a night; only pytest, which draws verdicts, and the
devices are stand-ins.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.core.errors import HarnessError
from harness.core.files import read_json
from harness.nightly import night_steps as chain_module
from harness.nightly.issues import Issue
from harness.nightly.night import STEPS, DeviceSeen, Night
from harness.nightly.night_steps import AGAIN as TIMES, SUMMARY, Chain
from harness.notify.messages import Message
from harness.results.record import CaseRecord
from harness.results.run_folder import JOURNAL, RunFolder
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
    "input": lambda draw, night: False,
}
SEED = 7
AWAY = range(4, 7)
"""The nights in which the phone of two cases is away."""
CUT_OFF = 8
"""The night in which the file of a case is cut off."""


@dataclass
class MockPytest:
    """Draws the verdicts of a night, and of what is run again in it."""

    number: int
    draw: random.Random
    versions: str = "2.50.0"
    attempts: dict[str, int] = field(default_factory=dict)

    def attempt(self, name: str) -> CaseRecord:
        self.attempts[name] = number = self.attempts.get(name, 0) + 1
        end = f"{'failed' if CASES[name](self.draw, self.number) else 'passed'} message={name}"
        if "away" in name and self.number in AWAY:
            end = "error message=cable"
        elif name == "input" and self.number == CUT_OFF:
            end = "error cause=config message=cut_off"
        device = "phone" if "away" in name else "sim"
        return attempt(f"{name}@{self.versions} {end} n={number}", device=device, duration_s=1)


class MockedNight(Chain):
    """A night whose pytest is the stand-in, and whose devices nobody asks."""

    mock: MockPytest
    attempts_left: int | None = None
    """It ends while cases are run again, after so many more attempts."""

    def _pytest_run(self, left_s: float, run: RunFolder | None, *more: str, stdout: int = 2) -> int:
        times = read_json(self.path / TIMES, 1 << 20)
        resumed = RunFolder.reopen(run.path)
        resumed.resume(["pytest"])
        again = [
            case.rpartition(f"-{self.mock.versions}-")[2].removesuffix("]")
            for case, number in times.items()
            for _ in range(number)
        ]
        for name in again[: self.attempts_left]:
            record = self.mock.attempt(name).model_copy(update={"run": run.run_id})
            assert record.case in times
            resumed.journal.append(record)
        resumed.close()
        if self.attempts_left is not None and len(again) > self.attempts_left:
            raise KeyboardInterrupt
        return 0

    def _lab(self, before: Iterable[DeviceSeen]) -> tuple[DeviceSeen, ...]:
        return ()

    def _bisect(self) -> None:
        """Nothing is bisected."""


def mocked(reports: Path, run: Path, mock: MockPytest, **more: object) -> MockedNight:
    """A night that has run its tests."""
    start = BEGIN + timedelta(days=mock.number)
    night = a_night(
        night=f"{start:%Y%m%dT%H%M%SZ}-{mock.number:04x}-nightly",
        started=start.isoformat(),
        budget_s=4 * 3600,
        until=datetime.now(UTC).timestamp() + 4 * 3600,
        done=STEPS[:2],
        run=run.name,
        run_exit_code=1,
        run_is_whole=True,
        **more,
    )
    chain = MockedNight(night, (), reports)
    chain.mock = mock
    chain._save()
    return chain


def ten_nights(reports: Path, version: Callable[[int], str]) -> Iterator[MockedNight]:
    draw = random.Random(SEED)
    for number in range(10):
        mock = MockPytest(number, draw, version(number))
        run_id = f"{BEGIN + timedelta(days=number):%Y%m%dT%H%M%SZ}-{number:016x}"
        run = run_folder(reports, *map(mock.attempt, CASES), run_id=run_id)
        chain = mocked(reports, run, mock, site=str(reports / "site"))
        chain.go_on()
        yield chain


def by_name(night: Night) -> dict[str, Issue]:
    """The issues by the case, of which each has a signature of its own."""
    return {issue.signature.rpartition("|")[2]: issue for issue in night.issues}


def assert_all_agree(chain: MockedNight, message: Message | None) -> None:
    """Headline, exit code, message and site tell the same of a night."""
    night = chain.night
    head, text = (chain.path / SUMMARY).read_text().split("\n", 1)
    is_quiet = head.removeprefix("### Devices: ") in ("passed", "nothing new fails")
    assert is_quiet == (night.exit_code == 0), head
    coverage = RunFolder(chain.reports / str(night.run)).coverage()
    assert coverage == night.coverage
    assert str(night.verdict).startswith(coverage.headline())
    assert f"{coverage.headline()}; " in text
    page = (chain.reports / "site/index.html").read_text()
    (shown,) = re.findall('class="(verdict[^"]*)">(.*?)</p>', page)
    assert ("bad" in shown[0], shown[1]) == (night.exit_code != 0, f"{night.verdict}.")
    (because,) = re.findall("Fails because of: ([^<]*)", page) or [""]
    assert all(reason in because for reason in night.failed_on)
    fresh = [issue for issue in night.issues if issue.first_run == night.run]
    closed = [issue for issue in night.issues if issue.closed == night.started]
    assert (message is not None) == bool(night.exit_code or closed)
    if message is None:
        assert not fresh
        return
    assert message.title == f"{head.lstrip('# ')} ({night.night})"
    assert text.strip().startswith(message.body.strip().splitlines()[0])
    for issue in fresh:
        (line,) = (line for line in message.body.splitlines() if issue.id in line)
        assert line.startswith("- **new** " if not issue.flaky else "- **flaky** ")


@pytest.mark.slow
@pytest.mark.parametrize("version", [lambda _: "2.50.0", lambda night: f"2.{40 + night}.0"])
def test_each_is_told_as_what_it_is_from_the_second_night_on(
    tmp_path: Path, version: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Message] = []
    monkeypatch.setattr(
        chain_module, "notify", lambda lab, message, file=None: sent.append(message) or []
    )
    states: dict[str, list[str]] = {name: [] for name in CASES}
    codes, reasons = [], []
    for number, chain in enumerate(ten_nights(tmp_path, version)):
        assert_all_agree(chain, sent.pop() if sent else None)
        assert not sent
        issues, comparison = by_name(chain.night), (chain.path / "comparison.md").read_text()
        for name in CASES:
            issue = issues.get(name)
            states[name].append("-" if not issue else "flaky" if issue.flaky else issue.state)
        codes.append(chain.night.exit_code)
        reasons.append(chain.night.failed_on)
        lost = {
            (issue.fault, issue.count)
            for issue in chain.night.issues
            if issue.fault and issue.state == "open"
        }
        assert lost == (
            {("lab", 2)} if number in AWAY else {("input", 1)} if number == CUT_OFF else set()
        )
        assert comparison.startswith("### Devices: failed") == bool(chain.night.failed_on)
        assert "Devices: passed" not in comparison
        assert ("#### Fixed" in comparison) == (number == 6)
    assert set(states["steady"]) == set(states["away"]) == set(states["input"]) == {"-"}
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
    expected = {
        number: 3 if number in AWAY else 2 if number == CUT_OFF else 0 for number in range(10)
    }
    assert all(codes[number] == (1 if reasons[number] else expected[number]) for number in expected)


def test_a_death_while_cases_are_run_again_changes_nothing(tmp_path: Path) -> None:
    passed, failed = (MockPytest(number, random.Random(0)) for number in (0, 3))
    run_folder(tmp_path, passed.attempt("broken"))
    run = run_folder(tmp_path, failed.attempt("broken"))
    RunFolder(run).end({"exit_code": 1, "other_failures": True})
    for attempts_left in (2, 0, 9):
        chain = mocked(tmp_path, run, failed, other_failures=True)
        chain.attempts_left = attempts_left
        if attempts_left < 9:
            with pytest.raises(KeyboardInterrupt):
                chain._compare()
            assert not RunFolder(run).info()["finished"]
    chain._compare()
    info = RunFolder(run).info()
    assert info["finished"]
    assert (info["exit_code"], info["other_failures"], info["problem"]) == (1, True, None)
    assert failed.attempts["broken"] == 7, "each once"
    assert [reason[:5] for reason in chain.night.failed_on] == ["new", "tests"]
    assert [issue.state for issue in chain.night.issues] == ["open"]


@pytest.mark.parametrize("journal", [None, b'{"schema": 99}\n'])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), OSError("full")])
def test_a_night_that_is_cut_short_tells_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, journal: bytes | None
) -> None:
    titles = list[str]()
    monkeypatch.setattr(
        chain_module, "notify", lambda lab, message, file: titles.append(message.title) or []
    )

    def fail(self: Chain) -> None:
        raise error

    monkeypatch.setattr(Chain, "_compare", fail)
    run = run_folder(tmp_path, attempt("a passed"), command=("pytest", "n"))
    chain = MockedNight(a_night(run=run.name, done=STEPS[:2]), (), tmp_path)
    if journal is not None:
        (run / JOURNAL).write_bytes(journal)
    with pytest.raises((type(error), HarnessError)):
        chain.go_on()
    so_far = "1 passed" if journal is None else "no case was run"
    assert titles == [f"Devices: unfinished: {so_far} (n)"]
