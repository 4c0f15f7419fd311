"""Attempts at cases: their figures, and what makes two of them one case or several."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harness.core.errors import ConfigError
from harness.history.attempts import (
    Attempt,
    attempts_by_name,
    cause_id,
    resolution_of,
    sample,
    unit_of,
)
from harness.history.case_states import CaseState, state_of
from harness.history.comparison import compare
from harness.report.merge import merge_runs
from harness.results.coverage import coverage_of
from harness.results.record import CaseRecord, FileOptions
from tests.properties import reached, reaches
from tests.unit.history.runs import attempt, run_folder
from tests.unit.history.test_importing import history_output


@pytest.mark.parametrize(
    ("name", "unit", "step"),
    [
        ("run_us", "us", 1),
        ("rss_bytes.peak", "bytes", 1),
        ("steady_ms.max", "ms", 1e-3),
        ("probe.took_s", "s", 1e-6),
        ("took_s.of.all", "s", 1e-6),
        ("steady_ms.count", None, 1),
        ("steady_ms.counted", "ms", 1e-3),
        ("bytes", None, 1),
    ],
)
def test_a_name_ends_with_its_unit(name: str, unit: str | None, step: float) -> None:
    assert (unit_of(name), resolution_of(name)) == (unit, step)


VALUES = {name: "allow" if name == "fallback" else 3 for name in FileOptions.model_fields}
VALUES |= dict.fromkeys(("inputs", "expected", "reference", "graph", "context_option"), "0a" * 32)


def of_file(words: str, day: int, **options: object) -> CaseRecord:
    started = f"2026-11-{day:02}T10:00:00Z"
    return attempt(
        words, file="net.onnx", asked=FileOptions(**options) if options else None, started=started
    )


@pytest.mark.parametrize("name", VALUES)
def test_what_was_asked_makes_another_case(name: str) -> None:
    options = {name: VALUES[name]}
    plain, other = (Attempt.of(of_file("a failed", 1, **chosen)) for chosen in ({}, options))
    assert plain.case_group != other.case_group
    assert cause_id(plain) != cause_id(other)
    comparison = compare([plain], [other])
    assert comparison.cases("added") == [other.case] == [*comparison.asked_otherwise]
    assert comparison.cases("vanished") == [plain.case]
    assert not compare([plain], [plain]).asked_otherwise


def test_what_was_asked_makes_no_case_flaky(tmp_path: Path) -> None:
    options = {"max_error": 3}
    runs = [
        run_folder(
            tmp_path, of_file("a passed", day) if day % 3 else of_file("a failed", day, **options)
        )
        for day in range(1, 10)
    ]
    document = json.loads(history_output("--reports", tmp_path, "--json")[1])
    failing, passing = document["cases"]
    file_options = str(FileOptions(**options))
    assert (failing["state"], failing["failed"], failing["asked"]) == ("failing", 3, file_options)
    assert (passing["state"], passing["passed"], passing["asked"]) == ("passing", 6, "")
    assert f"options: {file_options}" in history_output("--reports", tmp_path)[1]
    with pytest.raises(ConfigError, match=r"net\.onnx::"):
        merge_runs([runs[1], runs[2]], tmp_path / "merged")


def test_no_name_of_a_graph_takes_words_apart() -> None:
    attempt = Attempt.of(of_file("a passed", 1, graph="x [y]::z (1)", min_cosine=0.9))
    assert (attempt.file_options, "[sim-htp-a]" in attempt.case_group) == (
        "graph x .y...z .1., min-cosine 0.9",
        True,
    )


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


def state_of_runs(runs: list[list[CaseRecord]]) -> CaseState:
    sides = [attempts_by_name(map(Attempt.of, records)) for records in runs]
    return state_of(attempts for run in sides for attempts in run.values())


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
    assert not state_of_runs(runs).is_flaky
    assert [coverage_of(records).flaky for records in runs] == [0] * len(runs)


@pytest.mark.parametrize("others", ["", "b", "bc"])
def test_a_file_that_ends_both_ways_in_a_run_is_one_whatever_others_do(others: str) -> None:
    last = [*((file, True) for file in others), ("a", True), ("a", False)]
    records = records_of(9, last)
    for ends in ((True, True), (False, False), (True, False)):
        before = [records_of(day, [("a", end), ("b", end)]) for day, end in enumerate(ends, 1)]
        assert state_of_runs([*before, records]).is_flaky
    assert coverage_of(records).flaky == 1


@pytest.mark.parametrize(
    ("measured", "figure", "number"),
    [
        ({"load_us": [3, 1, 2]}, "load_us", 2),
        ({"load_us": 7}, "load_us", 7),
        ({"rss_bytes": {"peak": 9, "end": 1}}, "rss_bytes.peak", 9),
        ({"load_us": []}, "load_us", None),
        ({"load_us": [1, "2"]}, "load_us", None),
        ({"load_us": [0, -1]}, "load_us", None),
        ({"load_us": [0.5, 0.25]}, "load_us", 0.375),
        ({"load_us": [float("nan")]}, "load_us", None),
        ({"load_us": 10**400}, "load_us", None),
        ({"rss_bytes": [1]}, "rss_bytes.peak", None),
    ],
)
def test_of_a_run_one_number_counts(measured: dict[str, Any], figure: str, number: Any) -> None:
    assert sample(measured, figure) == number
