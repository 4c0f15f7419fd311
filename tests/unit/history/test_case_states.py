"""States of cases: by tables, and by properties."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, strategies as st

from harness.history.attempts import Attempt, CaseAttempts, attempts_by_name
from harness.history.case_states import CaseHistory, CaseState, state_of
from harness.history.comparison import apply_history, compare
from harness.history.comparison_text import lines, view_of
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.history.runs import briefs


def seen_then(day: str, qnn: str, device: str, passed: int, failed: int) -> CaseAttempts:
    """A case that passed and failed so often in a run that was begun then."""
    last = replace(_ended(bool(failed)), axes={"qnn": qnn}, device=device)
    return CaseAttempts(last, passed, failed, started=day)


@cache
def _ended(bad: bool) -> Attempt:
    (attempt,) = briefs(f"a {'failed' if bad else 'passed'}")
    return attempt


def runs(text: str) -> list[CaseAttempts]:
    """`P F` are nights that passed and failed, `F7` had seven verdicts, `PF` both; `2:F` with
    version 2, `2@b:F` on device b."""
    items = []
    for day, word in enumerate(text.split(), start=1):
        place, _, ended = word.rpartition(":")
        version, _, device = place.partition("@")
        number = int(ended.lstrip("PF") or 1)
        passed, failed = (number if letter in ended else 0 for letter in "PF")
        items.append(seen_then(f"2026-11-{day:02}", version or "1", device or "a", passed, failed))
    return items


def state_after(text: str) -> CaseState:
    return state_of(runs(text))


@pytest.mark.parametrize(
    ("nights", "kind", "since", "is_sure"),
    [
        ("P P P", "passing", 1, True),
        ("F", "failing", 1, False),
        ("F7", "failing", 1, True),
        ("P P F", "new", 3, False),
        ("P P F7", "new", 3, True),
        ("P F F", "failing", 2, False),
        ("P F F F", "failing", 2, True),
        ("F F P", "fixed", 3, False),
        ("F F P7", "fixed", 3, True),
        # both in one night
        ("P PF", "flaky", 2, True),
        ("F PF", "flaky", 1, True),
        # there and back again, seen once
        ("P F P", "flaky", 2, True),
        ("F P F", "flaky", 1, True),
        # there and back again, each seen often: a change, and its end
        ("P F7 P7", "fixed", 3, True),
        ("P F7 P", "fixed", 3, False),
        ("F P P P P P P P F", "new", 9, False),
        # and again
        ("P F7 P7 F7", "flaky", 2, True),
        # each version, and each device, ends as it always does
        ("1:P 2:F 1:P 2:F", "new", 4, False),
        ("1:P 2:F 2:F 1:P", "fixed", 4, False),
        ("1@a:P 1@b:F 1@a:P 1@b:F", "new", 4, False),
        # flaky at first, steady then
        ("PF F F F F F F F F F", "flaky", 1, True),
        ("PF2 " + "F " * 11, "failing", 2, True),
        ("PF P7", "flaky", 1, True),
        ("P2 PF " + "P " * 19, "flaky", 2, True),
        ("P2 PF " + "P " * 30, "passing", 3, True),
        # a flaky case that a version breaks
        ("P PF P P PF P 2:F7", "new", 7, True),
        ("P PF P P PF P 2:F", "flaky", 2, True),
        # and one that fails again long after
        ("P2 PF " + "P " * 24 + "F", "flaky", 2, True),
    ],
)
def test_what_a_case_is_at(nights: str, kind: str, since: int, is_sure: bool) -> None:
    state = state_after(nights)
    assert (state.kind, state.since, state.is_sure) == (kind, f"2026-11-{since:02}", is_sure)


def test_nothing_is_said_of_what_had_no_verdict() -> None:
    assert state_of([]) is None
    assert state_of([seen_then("x", "1", "a", 0, 0)]) is None


def test_what_is_flaky_is_told_with_its_rate_and_why_it_is_not_the_version(
    snapshot: Snapshot,
) -> None:
    state = state_after("P P F P")
    assert (state.failed, state.verdicts) == (1, 4)
    # in the second 2 may have mended it
    assert [state.summary, state_after("P P F P 2:P").summary] == snapshot


def test_attempts_of_a_run_count_each() -> None:
    words = "a failed n=1;a passed n=2;a error n=3;a failed n=4 message=other"
    (attempts,) = attempts_by_name(briefs(words)).values()
    assert (attempts.passed, attempts.failed, attempts.verdicts) == (1, 2, 3)
    assert (attempts.is_bad, attempts.is_flaky) == (None, True)
    assert attempts.bad.signature == "call|1002|other"


words = st.sampled_from(["P", "F", "P7", "F7", "PF", "2:P", "2:F", "2:PF", "1@b:F"])


@reaches(0.3)
@given(st.lists(words, min_size=1, max_size=12))
def test_whatever_happens_it_says_what_was_seen(nights: list[str]) -> None:
    state = state_after(" ".join(nights))
    last = runs(" ".join(nights))[-1].is_bad
    if last is None:
        assert state.kind == "flaky"
    if state.kind in ("passing", "fixed"):
        assert (last, state.failed) == (False, 0)
    if state.kind in ("failing", "new"):
        assert (last, state.failed) == (True, state.verdicts)
    if state.kind == "flaky":
        reached()
        assert 0 < state.failed < state.verdicts, "of one device and its versions"
    else:
        assert state.versions == ()


@reaches(0.5)
@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_a_single_change_is_never_flaky(before: int, after: int, breaks: bool) -> None:
    was, now = ("P", "F") if breaks else ("F", "P")
    for versions in ("1", "2"):
        for night in range(after):
            words = " ".join([was] * before + [f"{versions}:{now}"] * (night + 1))
            reached()
            assert state_after(words).kind == (
                ("new" if breaks else "fixed")
                if not night
                else ("failing" if breaks else "passing")
            )


def history(*before: str, now: str, last: str = "") -> dict[str, CaseHistory]:
    """Of a case in its runs; `last` is its last verdict up to the base."""

    def case_attempts(words: str) -> CaseAttempts:
        (attempts,) = attempts_by_name(briefs(words)).values()
        return attempts

    known = CaseHistory(
        case_attempts(now),
        [case_attempts(words) for words in before],
        case_attempts(last) if last else None,
    )
    return {known.now.last.case: known}


@pytest.mark.parametrize(
    ("before", "now", "histories", "became"),
    [
        ("a passed", "a failed", history("a passed", now="a failed"), "new"),
        ("a passed", "a failed", history("a failed", "a passed", now="a failed"), "flaky"),
        ("a failed", "a passed", history("a passed", "a failed", now="a passed"), "flaky"),
        ("a passed", "a passed", history("a passed;a failed n=2", now="a passed"), "flaky"),
        # the lab's night is the lab's
        ("a failed", "a error", history("a passed", "a failed", now="a error"), "lab"),
        ("a error", "a failed", history(now="a failed", last="a passed"), "new"),
        ("a error", "a failed", history(now="a failed", last="a failed"), "failing"),
        ("a error", "a passed", history(now="a passed", last="a failed"), "fixed"),
        ("a error", "a passed", history(now="a passed", last="a passed"), "added"),
        ("a error", "a failed", history(now="a failed"), "added"),
        # what was flaky within the base's run, and has ended alike since for long
        ("a passed;a failed n=2", "a passed", history(now="a passed"), "passing"),
        ("a passed;a failed n=2", "a failed", history(now="a failed"), "failing"),
    ],
)
def test_what_became_of_a_case_in_the_light_of_its_runs(
    before: str, now: str, histories: dict[str, CaseHistory], became: str
) -> None:
    comparison = apply_history(compare(briefs(before), briefs(now)), histories)
    assert [category for category, pairs in comparison.pairs.items() if pairs] == [became]
    (pair,) = comparison.pairs[became]  # type: ignore[index]
    assert (pair.after.case in comparison.states) == (became == "flaky")


def test_a_flaky_case_changes_nothing_of_those_behind_it() -> None:
    known = history("a failed", "a passed", now="a failed") | history("b passed", now="b failed")
    comparison = compare(briefs("a passed;b passed"), briefs("a failed;b failed"))
    judged = apply_history(comparison, known)
    assert [judged.cases("flaky"), judged.cases("new")] == [[case] for case in known]


def test_nothing_is_passed_beside_what_is_flaky(snapshot: Snapshot) -> None:
    known = history(*["a passed"] * 3, now="a failed;a passed n=2")
    (flaky_case,) = known.values()
    assert flaky_case.turned_flaky
    assert not history("a failed;a passed n=2", now="a failed")[
        flaky_case.now.last.case
    ].turned_flaky
    (expected,) = history("a passed", now="a failed known=k;a passed n=2").values()
    assert (expected.is_flaky, expected.turned_flaky) == (True, False)
    comparison = apply_history(compare(briefs("a passed"), briefs("a failed;a passed n=2")), known)
    whole = view_of(comparison, (), base="b", run="r")
    assert list(lines(whole)) == snapshot
