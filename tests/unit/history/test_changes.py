"""Changes of a case from run to run, by hand-made nights."""

from __future__ import annotations

import pytest

from harness.history.attempts import attempts_by_name
from harness.history.timeline import NightChange, changes_of, lines_of
from tests.unit.history.test_timeline import at_night


def became(*runs: str, first: int = 0) -> list[NightChange]:
    """Of nights with one case each."""
    runs_by_name = (
        attempts_by_name(briefs, index) for index, (_, briefs) in enumerate(at_night(*runs))
    )
    return [change for line in lines_of(runs_by_name) for change in changes_of(line, first)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (("a passed", "a passed"), []),
        (("a passed", "a failed"), [(1, "new", 1)]),
        (("a failed", "a failed"), [(0, "new", 0), (1, "still", 0)]),
        (("a passed", "a failed", "a failed"), [(1, "new", 1), (2, "still", 1)]),
        (("a@1.0 passed", "a@2.0 failed", "a@3.0 passed"), [(1, "new", 1), (2, "fixed", 2)]),
        (("a passed", "a failed known=x"), [(1, "known", 1)]),
        (("a passed", "a error", "a error", "a passed"), [(1, "lost", 1), (2, "lost", 1)]),
        (("a passed; a failed n=2",), [(0, "flaky", 0)]),
        (("a passed", "a failed", "a passed"), [(1, "new", 1), (2, "flaky", 2)]),
        (("a passed", "a skipped", "a unsupported"), []),
    ],
)
def test_what_became_of_a_case(runs: tuple[str, ...], expected: list[tuple[int, str, int]]) -> None:
    assert [(change.run_index, change.became, change.since) for change in became(*runs)] == expected


def test_only_what_is_asked_for_is_told() -> None:
    (only,) = became("a passed", "a failed", "a failed", first=2)
    assert (only.run_index, only.since) == (2, 1)


def test_the_versions_that_changed_with_it_are_told() -> None:
    (_, still) = became("a@2.50.0 passed", "a@2.50.40 failed", "a@2.50.40 failed")
    assert (still.changed, still.versions) == ("qnn 2.50.0 to 2.50.40", "qnn 2.50.40")


def test_what_is_fixed_and_what_is_flaky_name_the_failure() -> None:
    new, fixed = became("a@1.0 passed", "a@2.0 crashed id=x", "a@3.0 passed")
    assert (fixed.cause, fixed.kind, fixed.outcome) == (new.cause, "x", "crashed")
    *_, flaky = became("a passed", "a crashed id=x", "a passed")
    assert (flaky.became, flaky.kind) == ("flaky", "x")
