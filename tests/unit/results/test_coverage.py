"""How many of the selected cases have a verdict: what each counts as, and what follows from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.history.attempts import Attempt
from harness.report.summary import section
from harness.results.coverage import FAULTS, Coverage, Standing, coverage_of
from harness.results.record import CaseRecord
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
    made = record(**changed)
    assert (made.standing, Attempt.of(made).standing) == (standing, standing)
    lost = standing in FAULTS
    assert Attempt.of(made).has_verdict == (standing in ("passed", "failed", "known"))
    assert (Attempt.of(made).fault is not None) == lost
    assert made.is_unexpected == Attempt.of(made).is_unexplained == (lost or standing == "failed")
    if made.is_bad:
        assert section(made) == ("lab" if lost else {"known": "expected"}.get(standing, "failing"))


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
    made = [record(), record(case="b", outcome="unsupported", device=None)]
    found = coverage_of(made, info)
    assert (found.selected, found.not_run) == (selected, not_run)
    assert found.is_whole == (selected is not None and not not_run)


@pytest.mark.parametrize(
    ("counts", "code", "words"),
    [
        ({"selected": 0}, 0, "no case was run"),
        ({"selected": 1, "passed": 1}, 0, "1 of 1 case has a verdict"),
        ({"selected": 2, "passed": 1, "strict": 1, "known": 1}, 1, "2 of 2 cases have a verdict"),
        (
            {"selected": 9, "passed": 1, "failed": 1, "input": 4, "lab": 1, "not_run": 2},
            1,
            "2 of 9 cases have a verdict, 4 lost to a wrong test or input, 1 lost to the lab, "
            "2 not run",
        ),
        (
            {"selected": 5, "input": 1, "lab": 1, "harness": 1, "unsupported": 1, "skipped": 1},
            2,
            "0 of 5 cases have a verdict, 1 lost to a wrong test or input, 1 lost to the lab, "
            "1 lost to the harness, 1 unsupported, 1 skipped",
        ),
        (
            {"selected": 2, "known": 1, "harness": 1},
            3,
            "1 of 2 cases has a verdict, 1 lost to the harness",
        ),
        ({"selected": 2, "passed": 1, "not_run": 1}, 3, "1 of 2 cases has a verdict, 1 not run"),
        (
            {"selected": None, "passed": 3},
            3,
            "3 cases with a verdict, of how many is unknown: the run was cut short and does not "
            "say",
        ),
        (
            {"selected": 2, "unsupported": 2},
            0,
            "0 of 2 cases have a verdict, 2 unsupported",
        ),
    ],
)
def test_what_is_said_first_and_how_it_ends(counts: dict[str, Any], code: int, words: str) -> None:
    found = Coverage(**counts)
    assert (found.headline, found.exit_code) == (words, code)
    assert Coverage.model_validate_json(found.model_dump_json()) == found


@given(st.lists(records(), max_size=8), st.none() | st.integers(0, 12), st.booleans())
def test_nothing_is_green_above_a_missing_verdict(
    made: list[CaseRecord], selected: int | None, ended: bool
) -> None:
    info = {"selected": selected} if selected is not None else {}
    found = coverage_of(made, info | (ENDED if ended else {}))
    assert coverage_of(map(Attempt.of, made), info | (ENDED if ended else {})) == found
    cases = len({one.case for one in made})
    aside = found.unsupported + found.skipped + sum(found.missing.values())
    if found.selected is not None:
        assert found.selected == found.judged + aside >= cases
    assert found.is_green <= (found.exit_code == 0)
    unexpected = {one.case for one in made if one.standing == "failed"}
    assert (found.failed + found.flaky > 0) or not unexpected - {
        one.case for one in final_attempts(made) if one.standing not in ("passed", "failed")
    }
    if found.failed or found.flaky:
        assert not found.is_green
        assert re.search(r"[1-9]\d* (failed|of them flaky)", found.sentence())
    if found.missing or found.selected is None:
        assert not found.is_green
        assert found.exit_code != 0
        assert found.lost_code in (2, 3)
    else:
        assert found.lost_code == 0
