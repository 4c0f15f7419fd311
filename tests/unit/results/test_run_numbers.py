"""Runs are in the order in which they were begun, whatever clocks and names say."""

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.bisect.folder import BisectFolder
from harness.core.errors import ConfigError, InfraError
from harness.history.database import open_database
from harness.history.importing import import_run, list_runs
from harness.results import run_folder, run_folder as run_numbers
from harness.results.run_folder import (
    COUNTER,
    RunFolder,
    info_in,
    new_run_id,
    number_folder,
    ordered,
    run_folders,
    take_number,
)
from tests.logged import Logged
from tests.unit.bisect.histories import axis, task

SERIES = ("0" * 16, "1" * 16, "2" * 16)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BISECTION = task(axis(2))

SetClock = Callable[[datetime], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the clock by which runs, bisections and nights begin."""

    def set_to(moment: datetime) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
                return moment

        for module in (run_folder, run_numbers):
            monkeypatch.setattr(module, "datetime", Clock)

    return set_to


def new_run(reports: Path) -> Path:
    return RunFolder.create(reports, command=["pytest"], lab={}, devices=[]).path


def new_bisection(reports: Path) -> Path:
    folder = BisectFolder.create(reports, BISECTION)
    folder.close()
    return folder.path


def new_night(reports: Path) -> Path:
    night = reports / f"{run_folder.new_run_id()}-nightly"
    night.mkdir()
    number_folder(night, "nightly")
    return night


@pytest.mark.parametrize(
    "steps",
    [
        [timedelta(0), timedelta(seconds=-30), timedelta(seconds=-20), timedelta(days=1)],
        [timedelta(0), timedelta(days=365), timedelta(hours=8), timedelta(days=1)],
        [timedelta(days=365), timedelta(0), timedelta(hours=8), timedelta(days=1)],
        [timedelta(0)] * 4,
    ],
)
def test_nights_keep_their_order_whatever_the_clock_did(
    tmp_path: Path, set_clock: SetClock, steps: list[timedelta]
) -> None:
    folders, runs = list[Path](), list[Path]()
    for step in steps:
        set_clock(NOON + step)
        night = new_night(tmp_path)
        runs += [new_run(tmp_path), new_run(tmp_path)]
        folders += [night, *runs[-2:], new_bisection(tmp_path)]
    assert ordered(folders[::-1]) == folders
    assert run_folders(tmp_path) == runs
    database = open_database(str(tmp_path / "history.sqlite"))
    for run in reversed(runs):
        import_run(database, run)
    assert [run.run for run in list_runs(database)] == [run.name for run in runs]


def test_runs_of_several_folders_are_ordered_by_when_they_began(
    tmp_path: Path, set_clock: SetClock
) -> None:
    folders = []
    for hour, hours_ahead in ((0, 0), (1, 0), (2, 24 * 365), (3, 0), (4, 0), (5, 0)):
        set_clock(NOON + timedelta(hours=hour + hours_ahead))
        folders.append(new_run(tmp_path / "ab"[hour % 2]))
    # the one whose clock was ahead is put where the next one of its folder began
    assert ordered(folders[::-1]) == [folders[index] for index in (0, 1, 3, 2, 4, 5)]


def test_a_folder_that_is_gone_or_was_copied_changes_nothing(tmp_path: Path) -> None:
    runs = [new_run(tmp_path / "a") for _ in range(5)]
    shutil.rmtree(runs.pop(2))
    assert run_folders(tmp_path / "a") == runs
    (tmp_path / "b").mkdir()
    copies = [shutil.copytree(folder, tmp_path / "b" / folder.name) for folder in runs]
    later = new_run(tmp_path / "b")
    assert run_folders(tmp_path / "b") == [*copies, later]


@pytest.mark.parametrize("counter", ["", "{torn", f"{SERIES[0]} {(1 << 62) - 1:019}\n"])
def test_a_counter_that_is_damaged_or_at_its_end_begins_anew(tmp_path: Path, counter: str) -> None:
    first = new_run(tmp_path)
    (tmp_path / COUNTER).write_text(counter)
    later = [new_run(tmp_path) for _ in range(2)]
    assert [info_in(folder)["number"] for folder in (first, *later)] == [1, 1, 2]
    assert run_folders(tmp_path) == [first, *later]


def test_a_link_in_somebody_elses_folder_has_no_file_overwritten(tmp_path: Path) -> None:
    mine, reports = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    reports.mkdir()
    for target in (mine, tmp_path / "new"):
        (reports / COUNTER).unlink(missing_ok=True)
        (reports / COUNTER).symlink_to(target)
        with pytest.raises(InfraError, match="/theirs: "):
            take_number(reports)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_many_at_once_get_a_number_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        numbers = list(pool.map(lambda _: take_number(tmp_path), range(64)))
    assert sorted(int(str(number["number"])) for number in numbers) == list(range(1, 65))
    assert len({number["series"] for number in numbers}) == 1


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"series": "00000000000000ff"},
        {"series": "x", "number": 1},
        {"started": "9999-12-31T23:59:59-14:00"},
        {"series": "00000000000000ff", "number": 1 << 62},
    ],
)
def test_a_run_that_says_no_number_has_the_place_of_its_time(
    tmp_path: Path, info: dict[str, object]
) -> None:
    names = [new_run_id(NOON + timedelta(hours=hours)) for hours in (0, 2)]
    before, after = (tmp_path / name for name in names)
    between = tmp_path / new_run_id(NOON + timedelta(hours=1))
    for folder in (before, between, after):
        folder.mkdir()
    (between / "run.json").write_text(json.dumps({"schema": 1} | info))
    assert ordered([after, between, before]) == [before, between, after]


@pytest.mark.parametrize(
    "info",
    [
        "",
        "[]",
        "[" * 10_000,
        '{"schema": 1,\n"x": ' + "[" * 900 + "]" * 900 + "}",
        '{"schema": 1, "run": "\\ud800"}',
        '{"schema": 1, "x": [' + "1," * 500_000 + "1]}",
        *(f'{{"schema": {schema}}}' for schema in ("null", "true", '"1"', 2)),
        '{"run": "x"}',
        '{"schema": 1, "number": true}',
        '{"schema": 1, "selected": -1}',
        '{"schema": 1, "command": "pytest"}',
    ],
    ids=lambda info: info[:30],
)
def test_a_run_whose_run_json_is_bad_is_left_out(tmp_path: Path, logged: Logged, info: str) -> None:
    good, bad = new_run(tmp_path), new_run(tmp_path)
    (bad / "run.json").write_text(info)
    assert run_folders(tmp_path) == [good]
    (line,) = logged.warnings
    assert line.startswith(f"left out: {bad}/run.json: ")
    with pytest.raises(ConfigError, match=r"run\.json: "):
        RunFolder.open(bad)


def test_ids_have_random_digits_behind_a_time_that_people_read() -> None:
    ids = [new_run_id(NOON) for _ in range(50)]
    assert len(set(ids)) >= 49
    assert all(re.fullmatch(r"20261121-120000-[0-9a-f]{6}", name) for name in ids)
