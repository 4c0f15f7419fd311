"""What is held of runs is read as sightings, of which whose fault a failure is can be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.answers.history import sightings
from harness.answers.history.brief import Brief
from harness.answers.history.causes import cause_of
from harness.answers.history.database import open_database
from harness.answers.history.importing import import_run
from harness.answers.history.sightings import faults_beside, faults_held, sightings_in
from harness.verdict.results.run_folder import RunFolder
from tests.unit.answers.history.runs import attempt, run_folder

ON = {"name": "one", "serial": None, "soc": "SM8650", "target": "t", "simulated": False}


def test_attempts_at_a_case_are_one_sighting(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "history.sqlite"))
    measured = {"context_files": {"m.bin": {"sha256": "ab" * 32}}}
    said = {
        "both": ["both failed", "both passed n=2", "both passed n=3"],
        "known": ["known crashed known=k"],
        "lost": ["lost error message=gone"],
        "input": ["input error cause=config"],
        "then": ["then error message=gone", "then passed n=2"],
        "skip": ["skip skipped"],
    }
    records = {
        name: [attempt(one, device="one", measurements=measured) for one in ends]
        for name, ends in said.items()
    }
    some = [
        one.model_copy(update={"device": one.device.model_copy(update=ON) if one.device else None})
        for ends in records.values()
        for one in ends
    ]
    run = run_folder(tmp_path, *some)
    import_run(database, run)
    with database.transaction(writes=False) as connection:
        found = [one for _, seen in sightings_in(connection, run.name, 0) for one in seen]
    by_name = {
        one.test.partition("-")[0].rpartition("[")[2].partition("]")[0]: one for one in found
    }
    assert by_name.keys() == {"both", "known", "lost", "then"}
    ends = {name: (one.passed, one.failed, one.lost) for name, one in by_name.items()}
    assert ends == {
        "both": (2, 1, False),
        "known": (0, 1, False),
        "lost": (0, 0, True),
        "then": (1, 0, False),
    }
    assert by_name["both"].cause == cause_of(Brief.of(records["both"][0]))
    assert by_name["lost"].cause == cause_of(Brief.of(records["lost"][0]))
    assert by_name["then"].cause is None
    assert {(one.soc, one.run) for one in found} == {("SM8650", 0)}
    assert len({one.file for one in found}) == 1
    assert {one.files_named for one in found} == {"m.bin"}
    assert {dict(one.versions)["qnn"] for one in found} == {"2.51.0"}


def test_the_history_beside_a_run_takes_it_in_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (run_folder(tmp_path, attempt(f"a {one}")) for one in ("passed", "failed"))
    folders = RunFolder.open(old), RunFolder.open(new)
    assert faults_beside(*folders) == {}
    assert not (tmp_path / "history.sqlite").exists(), "who keeps none is not given one"
    open_database(str(tmp_path / "history.sqlite"))
    assert [one.fault for one in faults_beside(*folders).values()] == ["unknown"]
    warned: list[tuple[object, ...]] = []
    monkeypatch.setattr(sightings._log, "warning", lambda *said: warned.append(said))
    (tmp_path / "history.sqlite").write_bytes(b"no database at all, but long enough for a header")
    assert faults_beside(*folders) == {}
    assert [one[0] for one in warned] == ["the history does not tell whose fault it is: %s"]


def test_only_the_last_runs_are_looked_at(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "history.sqlite"))
    for number in range(4):
        import_run(
            database, run_folder(tmp_path, attempt(f"a {'failed' if number == 0 else 'passed'}"))
        )
    faults, twins = faults_held(database, 3)
    assert (faults, twins) == ({}, {})
    faults, _ = faults_held(database)
    assert [one.fault for one in faults.values()] == ["unknown"]
    assert faults_held(open_database(str(tmp_path / "new.sqlite"))) == ({}, {})
