"""Coverage: how each of the selected cases counts, and what follows from it."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.history.attempts import Attempt
from harness.report.summary import section
from harness.results.coverage import FAULTS, Coverage, Standing, Tally, coverage_of
from harness.results.record import CaseRecord
from tests.snapshots import Snapshot
from tests.unit.results.records import final_attempts, record, records

ENDED = {"finished": "2026-11-21T06:00:00Z", "problem": None}


@pytest.mark.parametrize(
    ("changed", "standing"),
    [
        ({}, "passed"),
        ({"outcome": "unsupported"}, "unsupported"),
        ({"outcome": "skipped"}, "skipped"),
        ({"outcome": "failed"}, "failed"),
        ({"outcome": "crashed", "expected": {"known_issue": "x"}}, "known"),
        ({"outcome": "error", "cause": "config"}, "input"),
        ({"outcome": "error", "cause": "infra"}, "lab"),
        ({"outcome": "error", "cause": "harness"}, "harness"),
        ({"outcome": "error", "cause": "target"}, "harness"),
        # no known issue gives a verdict to what has none
        ({"outcome": "error", "cause": "infra", "expected": {"known_issue": "x"}}, "lab"),
        ({"outcome": "failed", "cause": "config"}, "input"),
    ],
)
def test_a_case_comes_to_one_thing_for_all_readers(
    changed: dict[str, Any], standing: Standing
) -> None:
    case = record(**changed)
    assert (case.standing, Attempt.of(case).standing) == (standing, standing)
    lost = standing in FAULTS
    assert Attempt.of(case).has_verdict == (standing in ("passed", "failed", "known"))
    assert (Attempt.of(case).fault is not None) == lost
    assert case.is_unexpected == Attempt.of(case).is_unexpected == (lost or standing == "failed")
    if case.is_bad:
        assert section(case) == ("lab" if lost else {"known": "expected"}.get(standing, "failing"))


@pytest.mark.parametrize(
    ("info", "selected", "not_run"),
    [
        (None, 2, 0),
        ({"selected": 2} | ENDED, 3, 1),  # one of the two records is of a test that fits no device
        ({"selected": 1, "finished": None}, 2, 0),  # whoever ended it: all were run
        ({"selected": 0} | ENDED, 2, 0),
        (ENDED, 2, 0),  # of an older harness
        (ENDED | {"problem": "interrupted"}, None, 0),
        ({"finished": None}, None, 0),
        ({}, None, 0),
    ],
)
def test_run_json_says_how_many_were_selected(
    info: dict[str, Any] | None, selected: int | None, not_run: int
) -> None:
    records = [record(), record(case="b", outcome="unsupported", device=None)]
    coverage = coverage_of(records, info)
    assert (coverage.selected, coverage.not_run) == (selected, not_run)
    assert coverage.is_whole == (selected is not None and not not_run)


COUNTS: list[tuple[dict[str, Any], int]] = [
    ({"selected": 0}, 0),
    ({"selected": 1, "passed": 1}, 0),
    ({"selected": 2, "passed": 1, "strict": 1, "known": 1}, 1),
    ({"selected": 9, "passed": 1, "failed": 1, "input": 4, "lab": 1, "not_run": 2}, 1),
    ({"selected": 5, "input": 1, "lab": 1, "harness": 1, "unsupported": 1, "skipped": 1}, 2),
    ({"selected": 2, "known": 1, "harness": 1}, 3),
    ({"selected": 2, "passed": 1, "not_run": 1}, 3),
    ({"selected": None, "passed": 3}, 3),
    ({"selected": 2, "unsupported": 2}, 0),
]


def test_headlines_and_exit_codes(snapshot: Snapshot) -> None:
    coverages = [Coverage(**counts) for counts, _ in COUNTS]
    assert [coverage.exit_code for coverage in coverages] == [code for _, code in COUNTS]
    assert [coverage.headline() for coverage in coverages] == snapshot


@given(st.lists(records(), max_size=8), st.none() | st.integers(0, 12), st.booleans())
def test_nothing_is_green_above_a_missing_verdict(
    records: list[CaseRecord], selected: int | None, ended: bool
) -> None:
    info = {"selected": selected} if selected is not None else {}
    coverage = coverage_of(records, info | (ENDED if ended else {}))
    assert coverage_of(map(Attempt.of, records), info | (ENDED if ended else {})) == coverage
    cases = len({record.case for record in records})
    others = coverage.unsupported + coverage.skipped + sum(coverage.missing.values())
    if coverage.selected is not None:
        assert coverage.selected == coverage.judged + others >= cases
    assert coverage.is_green <= (coverage.exit_code == 0)
    unexpected = {record.case for record in records if record.standing == "failed"}
    assert (coverage.failed + coverage.flaky > 0) or not unexpected - {
        record.case
        for record in final_attempts(records)
        if record.standing not in ("passed", "failed")
    }
    if coverage.failed or coverage.flaky:
        assert not coverage.is_green
        assert re.search(r"[1-9]\d* ((new )?failure|flaky)", coverage.headline())
    if coverage.missing or coverage.selected is None:
        assert not coverage.is_green
        assert coverage.exit_code != 0
        assert coverage.lost_code in (2, 3)
    else:
        assert coverage.lost_code == 0


@pytest.mark.parametrize(
    ("attempts", "flaky"),
    [
        ([("a", "failed"), ("a", "passed")], 1),
        ([("a", "failed"), ("b", "passed")], 0),  # of another file
        ([("a", "passed"), ("b", "failed"), ("b", "passed")], 1),
        ([("a", "failed"), ("a", "failed")], 0),
    ],
)
def test_a_case_that_failed_and_passed_with_the_same_file_is_flaky(
    attempts: list[tuple[str, str]], flaky: int
) -> None:
    tried = [
        record(files_sha256=file * 64, outcome=outcome, attempt=number)
        for number, (file, outcome) in enumerate(attempts, 1)
    ]
    assert Tally(tried).coverage().flaky == flaky
