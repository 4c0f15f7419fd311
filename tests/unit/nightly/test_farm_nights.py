"""The nights of a farm that tests look at show what was planted in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.whole_file import read_json
from harness.history.database import open_database
from harness.history.importing import import_run, list_runs, stored_attempts
from harness.history.run_changes import facts_lookup, list_causes
from harness.history.timeline import Filter
from harness.nightly.night import Night
from harness.results.run_folder import RunFolder, run_folders
from tests.farm_nights import many_nights, ten_farm_nights


def kept(folder: Path) -> Night:
    return Night.model_validate(read_json(folder / "nightly.json", 1 << 24))


@pytest.mark.nightly
def test_ten_nights_tell_what_was_planted(tmp_path: Path) -> None:
    nights = [kept(night) for night in ten_farm_nights(tmp_path)]
    assert ["new" in night.failed_on for night in nights] == [
        index in (3, 5) for index in range(10)
    ]
    assert [night.exit_code for night in nights][7] == 3
    assert [night.coverage.not_run > 0 for night in nights if night.coverage] == [
        index == 7 for index in range(10)
    ]
    (broken,) = (issue for issue in nights[3].issues if not issue.flaky)
    assert (broken.count, broken.state) == (12, "open")
    database = open_database(str(tmp_path / "history.sqlite"))
    for run in run_folders(tmp_path):
        imported = import_run(database, run)
        assert (imported.changed, imported.left_out.count) == (True, 0)
        assert imported.attempts == len(RunFolder(run).contents().records)
    facts_of = facts_lookup(database)
    causes = [cause.cause for cause in list_causes(database, list_runs(database))]
    facts = {cause: known for cause in causes if (known := facts_of(cause))}
    runtime = facts[broken.id]
    affected = {device.device for device in runtime.devices if device.result == "affected"}
    assert affected == {f"phone-0{number}" for number in range(1, 7)}
    assert {device.soc for device in runtime.devices if device.device in affected} == {"SM8750"}
    assert runtime.versions_changed == "qnn 2.50.0 to 2.50.40"
    assert sorted(fact.shows for fact in facts.values()) == [
        *("fails", "flaky", "flaky", "flaky", "no verdict"),
    ]


def test_lines_of_many_nights_are_records(tmp_path: Path) -> None:
    runs = many_nights(tmp_path, nights=3, cases=60, devices=20)
    database = open_database(str(tmp_path / "history.sqlite"))
    for run in run_folders(tmp_path):
        imported = import_run(database, run)
        assert (imported.attempts, imported.left_out.count) == (60, 0)
    assert len([*stored_attempts(database, Filter())]) == 180
    for run in runs:
        coverage = RunFolder(run).coverage()
        (night,) = (path for path in map(kept, tmp_path.glob("*-nightly")) if path.run == run.name)
        assert night.coverage == coverage
