"""What a search for rates asks next, when it ends, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from harness.search.bisect.answers import Evidence, Question
from harness.search.bisect.axis_state import AxisState
from harness.search.bisect.findings import AxisFinding
from harness.search.bisect.rate_search import _with, rate_step
from harness.search.bisect.rates import Rates
from harness.search.bisect.search import Cost, free
from tests.unit.search.bisect.histories import axis, names

Runs = tuple[int, int]
"""How many runs of a version failed, and how many passed."""


def state(*runs: Runs, cost: Cost = free, untestable: str = "", **given: Any) -> AxisState:
    """Versions 2.10, 2.11 and so on that were run so often."""
    evidence = Evidence()
    for name, (bad, good) in zip(names(len(runs)), runs, strict=True):
        for answer in ["bad"] * bad + ["good"] * good:
            evidence = evidence.plus((name,), answer)  # type: ignore[arg-type]
    for name in untestable.split():
        evidence = evidence.plus((name,), "untestable")
    return AxisState.of(axis(len(runs), **{"repeat": "auto"} | given), evidence, cost)


def rates(of: AxisState) -> Rates:
    return Rates.of(of.tallies, of.gaps, of.said)


def asked(of: AxisState, least: float = 0.5) -> tuple[str, str]:
    step = rate_step(of, least)
    assert isinstance(step, Question), step
    assert step.number == of.evidence.runs + 1
    return step.at[0], step.why


def ended(of: AxisState, least: float = 0.5) -> AxisFinding:
    step = rate_step(of, least)
    assert isinstance(step, AxisFinding), step
    assert step.least == least
    assert step.runs == of.evidence.runs
    return step


NOT_RUN: Runs = (0, 0)


@pytest.mark.parametrize(
    ("runs", "given", "at", "why"),
    [
        ([NOT_RUN, NOT_RUN], {}, "2.10", "an end, to begin with"),
        ([NOT_RUN, NOT_RUN, NOT_RUN], {}, "2.10", "an end, to begin with"),
        ([(0, 1), NOT_RUN, NOT_RUN], {}, "2.12", "an end, to begin with"),
        ([NOT_RUN, (0, 5), (5, 0)], {}, "2.10", "an end, to begin with"),
        (
            [NOT_RUN, NOT_RUN, NOT_RUN],
            {"good": "2.12", "bad": "2.10"},
            "2.12",
            "confirm that it is good",
        ),
        (
            [NOT_RUN, NOT_RUN, (0, 1)],
            {"good": "2.12", "bad": "2.10"},
            "2.10",
            "confirm that it is bad",
        ),
        ([NOT_RUN, NOT_RUN, NOT_RUN], {"bad": "2.11"}, "2.11", "confirm that it is bad"),
        ([NOT_RUN, (1, 0), NOT_RUN], {"bad": "2.11"}, "2.10", "an end, to begin with"),
    ],
)
def test_the_ends_are_run_first(runs: list[Runs], given: dict[str, Any], at: str, why: str) -> None:
    assert asked(state(*runs, **given)) == (at, why)


ENDS = "whether the ends fail equally often"
ELSEWHERE = "run least so far"


@pytest.mark.parametrize(
    ("runs", "at", "why"),
    [
        ([(0, 3), NOT_RUN, NOT_RUN, (0, 3)], "2.13", ENDS),
        ([(0, 2), NOT_RUN, NOT_RUN, (0, 3)], "2.10", ENDS),
        ([(0, 3), NOT_RUN, NOT_RUN, (0, 2)], "2.13", ENDS),
        ([(0, 3), (0, 3), NOT_RUN, (0, 4)], "2.10", ENDS),
        # each fourth run, farthest from what was run; the newest of those
        ([(0, 4), *[NOT_RUN] * 5, (0, 3)], "2.13", ELSEWHERE),
        ([(0, 3), NOT_RUN, NOT_RUN, (0, 4)], "2.12", ELSEWHERE),
        ([(0, 4), NOT_RUN, (0, 1), NOT_RUN, (0, 2)], "2.13", ELSEWHERE),
        ([(0, 4), *[NOT_RUN] * 5, (0, 1), NOT_RUN, (0, 2)], "2.13", ELSEWHERE),
        ([(0, 4), (0, 1), (0, 1), (0, 5)], "2.12", ELSEWHERE),
    ],
)
def test_where_nothing_seems_to_change_the_ends_are_run_in_turn(
    runs: list[Runs], at: str, why: str
) -> None:
    assert asked(state(*runs)) == (at, why)


def test_where_all_were_run_as_often_the_newest_is_next() -> None:
    alike = state((0, 5), (0, 5), (0, 5), repeat="rate:10%")
    assert asked(alike, 0.1) == ("2.12", ELSEWHERE)


def dear(name: str, seconds: float) -> Cost:
    return lambda at: seconds if at == (name,) else 1.0


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({}, "2.12"),  # halves what is open
        ({"cost": dear("2.12", 9)}, "2.11"),
        ({"cost": lambda _: 9.0}, "2.12"),
        ({"prior": {"2.14": 100.0}}, "2.13"),
    ],
)
def test_the_run_that_tells_most_per_second_is_next(given: dict[str, Any], at: str) -> None:
    between = state((0, 4), NOT_RUN, NOT_RUN, NOT_RUN, (4, 0), **given)
    chance = rates(between).chances.max()
    assert asked(between) == (at, f"tells most; the likeliest change stands at {chance:.1%}")


@pytest.mark.parametrize("runs", [[(0, 6), (4, 0), (0, 6)], [(6, 0), (0, 6), (6, 0)]])
def test_what_stands_out_is_run_again(runs: list[Runs]) -> None:
    assert asked(state(*runs)) == ("2.11", "it stands out from those on both sides of it")
    limit = sum(bad + good for bad, good in runs)
    assert asked(state(*runs, max_runs=limit + 1))[0] == "2.11"
    assert ended(state(*runs, max_runs=limit)).kind == "undecided"


def test_a_change_that_is_too_small_to_matter_is_still_looked_for_where_it_shows() -> None:
    """That a large one is excluded does not say that nothing changed."""
    small = state((0, 60), (9, 51))
    assert rates(small).error_of_none(0.5) < 0.01
    assert asked(small)[1].startswith("tells most")


@pytest.mark.parametrize(
    ("runs", "given", "note"),
    [
        ([(0, 0)], {}, "there is only 2.10, and nothing to compare its failures with"),
        ([(0, 4)], {}, "there is only 2.10, and nothing to compare its failures with"),
        (
            [NOT_RUN, NOT_RUN],
            {"untestable": "2.10"},
            "there is only 2.11, and nothing to compare its failures with",
        ),
        ([NOT_RUN, NOT_RUN], {"untestable": "2.10 2.11"}, "no candidate can be tested"),
    ],
)
def test_too_few_to_compare(runs: list[Runs], given: dict[str, Any], note: str) -> None:
    found = ended(state(*runs, **given))
    assert (found.kind, found.notes[0]) == ("undecided", note)
    ran = {"2.10": runs[0]} if runs[0] != NOT_RUN else {}
    assert found.failed == {name: (bad, bad + good) for name, (bad, good) in ran.items()}
    assert found.notes[1] == ("no run failed" if ran else "no run passed or failed")


@pytest.mark.parametrize(
    ("runs", "direction", "notes"),
    [
        (
            [(0, 12), (12, 0)],
            "regression",
            (
                "0 of 12 runs failed (0% to 42%) up to 2.10, 12 of 12 runs failed (58% to 100%) "
                "from 2.11 on (99 % together)",
                "failed: 2.11 in 12 of 12; of others none, in 12 runs",
            ),
        ),
        (
            [(12, 0), (0, 12)],
            "fix",
            (
                "12 of 12 runs failed (55% to 100%) up to 2.10, 0 of 12 runs failed (0% to 45%) "
                "from 2.11 on (99 % together)",
                "failed: 2.10 in 12 of 12; of others none, in 12 runs",
                "newer versions fail less often than older ones",
            ),
        ),
        (
            [(2, 28), (29, 1)],
            "regression",
            (
                "2 of 30 runs failed (0% to 42%) up to 2.10, 29 of 30 runs failed (64% to 100%) "
                "from 2.11 on (99 % together)",
                "failed: 2.11 in 29 of 30, 2.10 in 2 of 30",
                "versions on both sides fail: good are those that fail less often",
            ),
        ),
    ],
)
def test_a_change(runs: list[Runs], direction: str, notes: tuple[str, ...]) -> None:
    found = ended(state(*runs))
    assert (found.kind, found.direction) == ("change", direction)
    assert (found.before, found.after, found.between) == ("2.10", "2.11", ())
    assert found.notes == notes
    assert found.confidence is not None
    assert 0.99 <= found.confidence <= 1
    told = [(side.failed, side.runs) for side in found.rates]
    assert told == [(bad, bad + good) for bad, good in runs]
    assert found.failed == dict(zip(("2.10", "2.11"), told, strict=True))


def test_a_change_among_several() -> None:
    found = ended(state((0, 9), (0, 9), (9, 0), (9, 0)))
    assert (found.kind, found.before, found.after) == ("change", "2.11", "2.12")
    assert [(side.failed, side.runs) for side in found.rates] == [(0, 18), (18, 18)]


@pytest.mark.parametrize(
    ("runs", "verdict", "first", "last"),
    [
        (
            [(0, 13), NOT_RUN, (0, 13)],
            "good",
            "no run failed",
            "what came and went between the ends might not show: 0 of 1 version there were run, "
            "in 0 runs",
        ),
        (
            [(0, 13), (0, 1), NOT_RUN, (0, 2), (0, 13)],
            "good",
            "no run failed",
            "what came and went between the ends might not show: 2 of 3 versions there were run, "
            "in 3 runs",
        ),
        (
            [(15, 0), (15, 0)],
            "bad",
            "failed: 2.10 in 15 of 15, 2.11 in 15 of 15",
            None,
        ),
        ([(5, 25), (4, 26)], None, "failed: 2.10 in 5 of 30, 2.11 in 4 of 30", None),
    ],
)
def test_no_change(runs: list[Runs], verdict: str | None, first: str, last: str | None) -> None:
    of = state(*runs)
    found = ended(of)
    assert (found.kind, found.verdict) == ("no-change", verdict)
    assert found.confidence == pytest.approx(1 - rates(of).error_of_none(0.5))
    assert found.confidence >= 0.99
    assert found.excluded == rates(of).excluded(0.99)
    failed, ran = sum(bad for bad, _ in runs), sum(bad + good for bad, good in runs)
    assert [(side.failed, side.runs) for side in found.rates] == [(failed, ran)]
    assert found.notes[0] == first
    between = [note for note in found.notes if "between the ends" in note]
    assert between == ([last] if last else [])


def more(of: AxisState, least: float | None) -> int:
    found = rates(of).more_runs(least, 0.99)
    assert found
    return found


@pytest.mark.parametrize(
    ("runs", "excluded", "targets"),
    [
        ([(0, 1), (0, 1)], 100, [50, 25]),
        ([(0, 13), (0, 13)], 40, [25, 10]),
        ([(0, 24), (0, 24)], 25, [10, 5]),
        ([(0, 27), (0, 27)], 23, [10, 5]),
        ([(0, 120), (0, 120)], 6, [5]),
        ([(0, 200), (0, 200)], 4, []),
    ],
)
def test_what_is_excluded_and_what_more_runs_would_exclude(
    runs: list[Runs], excluded: int, targets: list[int]
) -> None:
    of = state(*runs, max_runs=sum(good for _, good in runs))
    notes = ended(of).notes
    sure = f"excluded (99 %): that the share that fails changes by {excluded} points or more"
    assert sure in notes
    offers = ", ".join(
        f"by {target} points some {more(of, target / 100)} more runs (--repeat rate:{target}%)"
        for target in targets
    )
    said = [note for note in notes if note.startswith("to exclude a change ")]
    assert said == ([f"to exclude a change {offers}"] if targets else [])


def test_beside_an_end_that_was_never_run_nothing_is_excluded() -> None:
    """However sure what was said of the other one makes it that nothing changed."""
    of = state((0, 9), NOT_RUN, bad="2.10", max_runs=9)
    assert rates(of).no_change > 0.5
    found = ended(of)
    assert found.excluded is None
    assert not [note for note in found.notes if "exclude" in note]


@pytest.mark.parametrize(
    ("confidence", "said"), [(0.99, "99 %"), (0.999, "99.9 %"), (0.75, "75 %")]
)
def test_the_confidence_is_said_in_hundredths(confidence: float, said: str) -> None:
    found = ended(state((0, 30), (30, 0), confidence=confidence))
    assert f"({said} together)" in found.notes[0]


def test_a_change_that_no_runs_like_these_exclude_is_not_offered() -> None:
    """Their shares differ by 10 points themselves."""
    of = state((4, 36), (8, 32), max_runs=80)
    assert rates(of).no_change > 0.5
    assert rates(of).more_runs(0.10, 0.99) is None
    offers = [note for note in ended(of).notes if note.startswith("to exclude a change ")]
    assert [offer.count("more runs (") for offer in offers] == [1]


@pytest.mark.parametrize(("extra", "few"), [(0, ""), (1, "more than the 906 of ")])
def test_a_search_is_offered_as_far_as_it_makes_so_many_runs(extra: int, few: str) -> None:
    of = state((0, 3), *[NOT_RUN] * 6, (0, 3))
    most = axis(8, repeat="rate:25%").bound().runs
    assert most == 906
    assert _with(of, 0.25, most - 6 + extra) == f"{few}--repeat rate:25%"


@pytest.mark.parametrize(
    ("runs", "direction", "before", "after", "between"),
    [
        ([(0, 9), (0, 9), NOT_RUN, (9, 0)], "regression", "2.11", "2.13", ("2.12",)),
        ([(9, 0), (9, 0), NOT_RUN, (0, 9)], "fix", "2.11", "2.13", ("2.12",)),
        ([(0, 9), NOT_RUN, NOT_RUN, (9, 0)], "regression", "2.10", "2.13", ("2.11", "2.12")),
        ([(0, 9), NOT_RUN, (9, 0), (9, 0)], "regression", "2.10", "2.12", ("2.11",)),
    ],
)
def test_at_the_bound_the_change_is_in_a_range(
    runs: list[Runs], direction: str, before: str, after: str, between: tuple[str, ...]
) -> None:
    number = sum(bad + good for bad, good in runs)
    of = state(*runs, max_runs=number)
    found = ended(of)
    assert (found.kind, found.direction) == ("range", direction)
    assert (found.before, found.after, found.between) == (before, after, between)
    assert found.notes[0] == f"{number} runs did not suffice to be surer"
    assert found.notes[1].startswith("failed: ")
    assert not any("whether it changes at all" in note for note in found.notes), "it does"
    assert found.confidence is not None
    assert 0.99 <= found.confidence < 1
    assert len(found.failed) == 4 - runs.count(NOT_RUN)
    assert asked(state(*runs, max_runs=number + 1))


@pytest.mark.parametrize(
    ("runs", "likeliest"),
    [
        ([(1, 9), NOT_RUN, (2, 8)], "that nothing changes is 55% likely"),
        ([(2, 8), NOT_RUN, (9, 1)], "that it changes is 99% likely"),  # with either of two
        ([(1, 6), (1, 2), NOT_RUN, (0, 9)], "that it changes is 67% likely"),
        ([(0, 1), NOT_RUN], "that it changes is 70% likely, mostly with 2.11 (61%)"),
        (
            [(0, 6), (1, 3), (1, 3), (6, 0)],
            "that it changes is 100% likely, mostly with 2.13 (95%)",
        ),
        ([(0, 6), (4, 0), (0, 6)], "that it changes is 90% likely, mostly with 2.11 (57%)"),
    ],
)
def test_at_the_bound_it_may_be_undecided(runs: list[Runs], likeliest: str) -> None:
    number = sum(bad + good for bad, good in runs)
    of = state(*runs, max_runs=number)
    found = ended(of)
    assert (found.kind, found.one_change) == ("undecided", True)
    assert found.notes[0].endswith(" did not suffice to be surer")
    assert found.notes[1] == likeliest
    assert found.notes[2].startswith(("failed: ", "no run failed"))
    assert found.excluded == rates(of).excluded(0.99)
    unchanged = rates(of).no_change
    told = [note for note in found.notes if "would tell whether it changes at all" in note]
    if unchanged < 0.5 and number > 1:
        assert told == [
            f"some {more(of, None)} more runs like these would tell whether it changes at all"
        ]
    else:
        assert told == []


def test_more_than_one_change() -> None:
    found = ended(state((0, 9), (9, 0), (0, 9), (9, 0), (0, 9)))
    assert (found.kind, found.one_change) == ("undecided", False)
    start = "the answers fit no single change of the rate of failures; the one that fits best is a "
    assert found.notes[0].startswith(start)
    assert found.notes[0].removeprefix(start) in ("regression with 2.11", "fix with 2.14")
    assert found.notes[1] == "failed: 2.11 in 9 of 9, 2.13 in 9 of 9; of others none, in 27 runs"
    assert found.failed["2.11"] == (9, 9)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([(0, 2), (0, 2)], "no run failed"),
        # those that fail most, of how many runs whatever
        ([(1, 3), (2, 0)], "failed: 2.11 in 2 of 2, 2.10 in 1 of 4"),
        ([(3, 9), (2, 2)], "failed: 2.11 in 2 of 4, 2.10 in 3 of 12"),
        ([(1, 0), (0, 1)], "failed: 2.10 in 1 of 1; of others none, in 1 run"),
        (
            [(1, 1)] * 5,
            f"failed: {', '.join(f'2.1{i} in 1 of 2' for i in range(5))}",
        ),
        (
            [(1, 1)] * 7 + [(0, 3)],
            f"failed: {', '.join(f'2.1{i} in 1 of 2' for i in range(5))}, and 2 more versions; "
            "of others none, in 3 runs",
        ),
    ],
)
def test_the_versions_that_failed(runs: list[Runs], text: str) -> None:
    found = ended(state(*runs, max_runs=sum(bad + good for bad, good in runs)))
    assert text in found.notes
