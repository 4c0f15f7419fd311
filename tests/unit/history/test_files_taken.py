"""Two files of one name are never one flake, and one file that ends both ways is one."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings, strategies as st

from harness.history.attempts import Attempt, attempts_by_name
from harness.history.states import CaseState, state_of
from harness.results.coverage import coverage_of
from harness.results.record import CaseRecord
from tests.properties import reached, reaches
from tests.unit.history.runs import attempt, run_folder
from tests.unit.history.test_importing import history_output

ATTEMPTS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=4)
RUNS = st.lists(ATTEMPTS, min_size=1, max_size=8)


def records_of(day: int, attempts: list[tuple[str, bool]]) -> list[CaseRecord]:
    """The records of a case in a run that was begun on that day, of `(file, fails)` each."""
    return [
        attempt(
            f"net {'failed' if fails else 'passed'} n={number}",
            file="net.onnx",
            files_sha256=file * 64,
            started=f"2026-11-{day:02}T10:{number:02}:00Z",
        )
        for number, (file, fails) in enumerate(attempts, start=1)
    ]


def state_after(runs: list[list[CaseRecord]]) -> CaseState:
    sides = [attempts_by_name(map(Attempt.of, records)) for records in runs]
    state = state_of(attempts for run in sides for attempts in run.values())
    assert state is not None
    return state


@reaches(0.3)
@settings(max_examples=400)
@given(RUNS, st.dictionaries(st.sampled_from("abc"), st.booleans(), min_size=3))
def test_a_file_that_always_ends_alike_makes_no_flake(
    drawn: list[list[tuple[str, bool]]], fails: dict[str, bool]
) -> None:
    runs = [
        records_of(day, [(file, fails[file]) for file, _ in attempts])
        for day, attempts in enumerate(drawn, start=1)
    ]
    if len(set(fails.values())) > 1:
        reached()
    assert not state_after(runs).is_flaky
    assert [coverage_of(records).flaky for records in runs] == [0] * len(runs)


@reaches(0.3)
@settings(max_examples=400)
@given(RUNS, st.lists(st.sampled_from("bc"), max_size=3))
def test_a_file_that_ends_both_ways_in_a_run_is_one_whatever_others_do(
    drawn: list[list[tuple[str, bool]]], others: list[str]
) -> None:
    last = [*((file, True) for file in others), ("a", True), ("a", False)]
    before = [records_of(day, attempts) for day, attempts in enumerate(drawn, start=1)]
    records = records_of(len(drawn) + 1, last)
    if others:
        reached()
    assert state_after([*before, records]).is_flaky
    assert coverage_of(records).flaky == 1


def test_what_is_held_of_runs_tells_a_file_that_was_exported_anew(tmp_path: Path) -> None:
    for folder, files in (("anew", "abababab"), ("same", "aaaaaaaa")):
        (tmp_path / folder).mkdir()
        for day, file in enumerate(files, start=1):
            run_folder(tmp_path / folder, *records_of(day, [(file, day % 2 == 1)]))
    states = [
        json.loads(history_output("--reports", tmp_path / folder, "--json")[1])["cases"][0]["state"]
        for folder in ("anew", "same")
    ]
    assert states == ["fixed", "flaky"]
