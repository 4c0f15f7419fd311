"""Nights of a small farm, each with what was sent: headline, exit code, message and site agree.

Journals are real, and so are the steps of a night; only pytest and the devices are stand-ins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from harness.core.errors import HarnessError
from harness.core.whole_file import read_json
from harness.nightly import chain as chain_module
from harness.nightly.chain import AGAIN as TIMES, SUMMARY, Chain
from harness.nightly.night import STEPS, DeviceSeen, Night
from harness.notify.messages import Message
from harness.results.record import CaseRecord
from harness.results.run_folder import JOURNAL, RunFolder
from tests.unit.history.runs import attempt, run_folder
from tests.unit.nightly.nights import a_night

BEGIN: Final = datetime(2026, 11, 1, 22, tzinfo=UTC)
ABORTS = "crashed message=SIGABRT"
CASES: Final = (
    ("farm-01", "suites/test_old.py"),
    ("farm-01", "suites/test_other.py"),
    ("farm-02", "suites/test_old.py"),
    ("farm-03", "suites/test_old.py"),
)
FLAKY: Final = CASES[0]
NIGHTS: Final[tuple[tuple[str, dict[tuple[str, str], str], int], ...]] = (
    ("a flaky case is found", {}, 1),
    ("another test aborts in the same way", {CASES[1]: ABORTS}, 1),
    ("a phone is lost", {CASES[1]: ABORTS, CASES[2]: "error message=away"}, 3),
    (
        "a second phone is lost",
        {
            CASES[1]: ABORTS,
            CASES[2]: "error message=away",
            CASES[3]: "error message=away",
        },
        3,
    ),
    ("a file is cut off", {CASES[1]: ABORTS, CASES[2]: "error cause=config message=cut_off"}, 2),
    ("all is mended", {}, 0),
    ("nothing happens", {}, 0),
)


class PlannedNight(Chain):
    """A night whose pytest is a stand-in, and whose devices nobody asks."""

    ends: dict[tuple[str, str], str]
    made: dict[tuple[str, str], int]

    def attempt(self, case: tuple[str, str]) -> CaseRecord:
        number = self.made[case] = self.made.get(case, 0) + 1
        device, file = case
        end = self.ends.get(case, ABORTS if case == FLAKY and number == 1 else "passed")
        return attempt(f"a {end} n={number}", device=device, file=file, duration_s=1)

    def _pytest_run(self, left_s: float, run: RunFolder | None, *more: str, stdout: int = 2) -> int:
        assert run is not None
        names = {attempt("a passed", device=case[0], file=case[1]).case: case for case in CASES}
        for name, times in read_json(self.path / TIMES, 1 << 20).items():
            for _ in range(times):
                record = self.attempt(names[name])
                run.journal.append(record.model_copy(update={"run": run.run_id}))
        return 0

    def _lab(self, before: Iterable[DeviceSeen]) -> tuple[DeviceSeen, ...]:
        return ()


@pytest.mark.slow
def test_headline_exit_code_message_and_site_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Message]()

    def notify(lab: Path, message: Message, file: Path | None = None) -> list[str]:
        sent.append(message)
        return []

    monkeypatch.setattr(chain_module, "notify", notify)
    nights = list[Night]()
    messages = list[Message | None]()
    for number, (_, ends, code) in enumerate(NIGHTS):
        start = BEGIN + timedelta(days=number)
        chain = PlannedNight(a_night(), (), tmp_path, None)
        chain.ends, chain.made = ends, {}
        run_id = f"{start:%Y%m%dT%H%M%SZ}-{number:016x}"
        run = run_folder(tmp_path, *map(chain.attempt, CASES), run_id=run_id)
        chain.night = a_night(
            night=f"{start:%Y%m%dT%H%M%SZ}-{number:04x}-nightly",
            started=start.isoformat(),
            site=str(tmp_path / "site"),
            budget_s=4 * 3600,
            until=datetime.now(UTC).timestamp() + 4 * 3600,
            done=STEPS[:2],
            run=run.name,
            run_exit_code=code,
            run_is_whole=True,
        )
        chain.path = tmp_path / chain.night.night
        chain._save()
        sent.clear()
        night = chain.go_on()
        nights.append(night)
        messages.append(sent[0] if sent else None)
        assert len(sent) <= 1

        assert night.exit_code == code
        head, text = (chain.path / SUMMARY).read_text().split("\n", 1)
        is_quiet = head.removeprefix("### Devices: ") in ("passed", "nothing new fails")
        assert is_quiet == (code == 0), head
        if sent:
            assert sent[0].title == f"{head.lstrip('# ')} ({night.night})"
            assert text.strip().startswith(sent[0].body.strip().splitlines()[0])
        coverage = RunFolder(run).coverage()
        assert coverage == night.coverage
        assert (coverage.failed + coverage.flaky > 0) == any(
            record.outcome == "crashed" for record in RunFolder(run).contents().records
        )
        page = (tmp_path / "site/index.html").read_text()
        (shown,) = re.findall('class="(verdict[^"]*)">(.*?)</p>', page)
        assert ("bad" in shown[0]) == (code != 0)
        assert shown[1] == f"{night.verdict}."
        assert night.failed_on == () or f"Fails because of: {', '.join(night.failed_on)}" in page
        assert str(night.verdict).startswith(coverage.sentence())
        assert f"{coverage.sentence()}; " in text
    assert [message is not None for message in messages] == [True] * 6 + [False]
    fresh = [[issue for issue in night.issues if issue.first_run == night.run] for night in nights]
    assert [[issue.fault for issue in issues] for issues in fresh] == [
        [None],
        [None],
        ["lab"],
        ["lab"],
        ["input"],
        [],
        [],
    ]
    for issues, message in zip(fresh, messages, strict=True):
        for issue in issues:
            assert message is not None
            (line,) = (line for line in message.body.splitlines() if issue.id in line)
            assert line.startswith("- **new** " if not issue.flaky else "- **flaky** ")


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
    chain = PlannedNight(a_night(run=run.name, done=STEPS[:2]), (), tmp_path, None)
    if journal is not None:
        (run / JOURNAL).write_bytes(journal)
    with pytest.raises((type(error), HarnessError)):
        chain.go_on()
    so_far = "1 of 1 case has a verdict" if journal is None else "no case was run"
    assert titles == [f"Devices: not over: {so_far} (n)"]
