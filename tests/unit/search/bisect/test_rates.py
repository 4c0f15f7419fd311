"""Rates of failures: what is answered at every rate, and what is never claimed of any."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from harness.ground.errors.outgoing_text import counted
from harness.search.bisect.answers import (
    Evidence,
    GoodOrBad,
    Point,
    Question,
    RunAnswer,
    Tally,
    least_change,
)
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.findings import AxisFinding
from harness.search.bisect.flaky import Floats
from harness.search.bisect.grid_search import GridSearch
from harness.search.bisect.rates import FIX, REGRESSION, ChangePlace, Rates, runs_if_none_fails
from tests.properties import reached, reaches
from tests.unit.search.bisect.histories import World, axis, drive, drive_grid, grid, names

NUMBER = 8
BY_DAY, BY_NIGHT = 6, 60
RATES = (0.0, 0.05, 0.10, 0.25, 0.40, 0.75)
Show = Callable[..., None]


def failing(k: int, before: float, after: float, seed: str) -> World:
    """The first k versions fail in one share of their runs, the others in another."""
    dice, order = random.Random(seed), names(NUMBER)

    def world(at: Point) -> RunAnswer:
        rate = before if order.index(at[0]) < k else after
        return "bad" if dice.random() < rate else "good"

    return world


@dataclass(frozen=True)
class Ended:
    """What a search came to, beside the truth: versions from k on fail more often."""

    finding: AxisFinding
    k: int
    before: float
    after: float

    @property
    def found(self) -> bool:
        return self.finding.kind in ("change", "range")

    @property
    def false_claims(self) -> list[str]:
        """What is stated with the confidence, and is not so."""
        found, rise = self.finding, self.after - self.before
        false = []
        if self.found:
            at = names(NUMBER)[self.k]
            right = (found.before or "") < at <= (found.after or "")
            if rise == 0 or found.direction != "regression" or not right:
                false.append(str(found))
        if found.kind == "no-change" and found.least is not None and rise >= found.least:
            false.append(str(found))
        if found.excluded is not None and rise >= found.excluded:
            false.append(f"excluded: {found.excluded}")
        true = (self.before, self.after) if len(found.rates) == 2 else (self.before,)
        if self.found or rise == 0:
            false += [
                f"{one} is not {rate}"
                for one, rate in zip(found.rates, true, strict=False)
                if not one.low <= rate <= one.high
            ]
        return false


def searches(number: int, repeat: str, before: float, after: float) -> list[Ended]:
    ended = []
    for seed in range(number):
        k = 1 + seed % (NUMBER - 1)
        search = AxisSearch(axis(NUMBER, repeat=repeat))
        found, asked = drive(search, failing(k, before, after, f"{seed} {before} {after}"))
        assert len(asked) <= search.spec.bound().runs
        ended.append(Ended(found, k, before, after))
    return ended


def told(ended: list[Ended]) -> dict[str, object]:
    kinds = Counter(one.finding.kind for one in ended)
    runs = [one.finding.runs for one in ended]
    return {
        "found": kinds["change"],
        "range": kinds["range"],
        "no_such_change": kinds["no-change"],
        "undecided": kinds["undecided"],
        "false": sum(bool(one.false_claims) for one in ended),
        "mean_runs": round(sum(runs) / len(runs)),
        "most_runs": max(runs),
    }


def cells() -> Iterator[Any]:
    """Each by night; by day fewer searches, and only those that differ from a simpler one."""
    for rate, repeat in itertools.product(RATES, ("auto", "rate:25%", "rate:10%")):
        yield pytest.param(rate, repeat, BY_NIGHT, marks=pytest.mark.nightly)
        if repeat == "auto" or (repeat == "rate:25%" and rate <= 0.10):
            few = () if rate in (0.0, 0.10) and repeat == "auto" else pytest.mark.slow
            yield pytest.param(rate, repeat, BY_DAY, marks=few)


def nothing_is_denied(found: AxisFinding) -> None:
    """Which versions failed is told, whatever was found; passing is not called being good."""
    text = f"{found}; {'; '.join(found.notes)}"
    for word in ("all are good", "is good", "ones good", "all are bad"):
        assert word not in text
    failed = {name: runs for name, runs in found.failed.items() if runs[0]}
    assert ("no run failed" in found.notes) == (not failed)
    told = [note for note in found.notes if note.startswith("failed: ")]
    assert len(told) == bool(failed)
    named = [f"{name} in {bad} of {runs}" for name, (bad, runs) in failed.items()]
    assert sum(one in told[0] for one in named) >= min(5, len(named)) if failed else True
    if len(named) > 5:
        assert f"and {len(named) - 5} more versions" in told[0]


@pytest.mark.parametrize(("rate", "repeat", "number"), list(cells()))
def test_nothing_is_claimed_that_is_wrong_more_often_than_stated(
    rate: float, repeat: str, number: int, show_figures: Show
) -> None:
    """Versions fail in this share of their runs from one of them on, and never before."""
    ended = searches(number, repeat, 0.0, rate)
    show_figures(f"fails in {rate:.0%}, --repeat {repeat}, {number} searches", **told(ended))
    assert sum(bool(one.false_claims) for one in ended) <= 0.01 * number
    for one in ended:
        nothing_is_denied(one.finding)
    least = least_change(repeat) or 1.0
    if rate >= least:
        assert sum(one.found for one in ended) == number
    if rate == 0:
        assert {one.finding.kind for one in ended} == {"no-change"}


@pytest.mark.parametrize(
    ("rate", "number"),
    [
        pytest.param(0.10, 6, marks=pytest.mark.slow),
        (0.25, 6),
        *(pytest.param(r, 60, marks=pytest.mark.nightly) for r in RATES[1:]),
    ],
)
def test_where_every_version_fails_as_often_no_change_is_claimed(
    rate: float, number: int, show_figures: Show
) -> None:
    ended = searches(number, "auto", rate, rate)
    show_figures(f"all fail in {rate:.0%}, {number} searches", **told(ended))
    assert sum(bool(one.false_claims) for one in ended) <= 0.01 * number
    verdicts = {one.finding.verdict for one in ended if one.finding.kind == "no-change"}
    assert verdicts <= {None, "good"}  # good: not one of some 30 runs happened to fail


def test_two_failures_of_twenty_at_one_end_are_told() -> None:
    """So much was seen when it was said that all are good, with 99.5 %."""
    evidence = Evidence()
    for answer, at, times in (("bad", 7, 2), ("good", 7, 8), ("good", 0, 10)):
        for _ in range(times):
            evidence = evidence.plus((names(NUMBER)[at],), answer)  # type: ignore[arg-type]
    search = AxisSearch(axis(NUMBER, repeat="auto", max_runs=20), evidence=evidence)
    found = search.next()
    assert isinstance(found, AxisFinding)
    assert (found.kind, found.verdict) == ("undecided", None)
    assert "failed: 2.17 in 2 of 10; of others none, in 10 runs" in found.notes
    assert found.failed == {"2.10": (0, 10), "2.17": (2, 10)}
    assert "that it changes is 84% likely" in found.notes, "it may be with any of seven versions"
    excluded = next(note for note in found.notes if note.startswith("excluded (99 %)"))
    assert excluded.endswith(f"changes by {100 * (found.excluded or 0):.0f} points or more")
    assert any("more runs" in note for note in found.notes)
    on = AxisSearch(axis(NUMBER, repeat="auto"), evidence=evidence)
    assert isinstance(on.next(), Question), "what was seen is looked into, not denied"


def test_a_version_is_named_as_the_likeliest_where_it_is_likelier_than_all_others() -> None:
    evidence = Evidence()
    for at, answer, times in ((0, "good", 2), (4, "good", 3), (5, "bad", 3), (7, "bad", 2)):
        for _ in range(times):
            evidence = evidence.plus((names(NUMBER)[at],), answer)  # type: ignore[arg-type]
    spec = axis(NUMBER, repeat="auto", max_runs=10, confidence=0.9999)
    found = AxisSearch(spec, evidence=evidence).next()
    assert isinstance(found, AxisFinding)
    assert found.kind == "undecided"
    assert "that it changes is 100% likely, mostly with 2.15 (99%)" in found.notes


def test_no_failure_says_how_rare_ones_are_excluded() -> None:
    found, asked = drive(AxisSearch(axis(NUMBER, repeat="auto")), failing(1, 0, 0, ""))
    assert str(found) == (
        f"no change: 0 of {len(asked)} runs failed, and from the oldest to the newest the share "
        "that fails does not change by 50 points or more"
    )
    assert (found.kind, found.verdict, found.notes[0]) == ("no-change", "good", "no run failed")
    assert found.confidence is not None
    assert found.confidence >= 0.99
    assert found.excluded is not None
    assert found.excluded <= 0.5
    assert "--repeat rate:25%" in found.notes[-2]
    assert "--repeat rate:10%" in found.notes[-2]
    inner = [runs for name, (_, runs) in found.failed.items() if name not in ("2.10", "2.17")]
    assert found.notes[-1] == (
        f"what came and went between the ends might not show: {len(inner)} of 6 versions there "
        f"were run, in {sum(inner)} runs"
    )


@pytest.mark.parametrize(
    ("before", "after", "good", "bad"),
    [(0.0, 0.0, 0, 7), (1.0, 1.0, 0, 7), (0.5, 0.0, 0, 7), (0.9, 0.3, 0, 7), (0.0, 0.9, 5, None)],
)
def test_a_claim_is_put_beside_what_was_seen(
    before: float, after: float, good: int, bad: int | None
) -> None:
    """Of a version that fails now and then, passing so often does not say that it is good."""
    order = names(NUMBER)
    spec = axis(NUMBER, repeat="auto", good=order[good], bad=None if bad is None else order[bad])
    found, asked = drive(AxisSearch(spec), failing(4, before, after, "claims"))
    nothing_is_denied(found)
    failed, runs = found.failed[order[good]]
    said = [f"{order[good]} was said to be good, and failed in {failed} of {counted(runs, 'run')}"]
    expected = said if failed else []
    if bad is not None:
        failed, runs = found.failed[order[bad]]
        said = [f"{order[bad]} was said to be bad, and did not fail in {counted(runs, 'run')}"]
        expected += [] if failed else said
    assert [note for note in found.notes if "was said to be" in note] == expected
    assert runs == asked.count((order[good if bad is None else bad],))


@pytest.mark.parametrize(("before", "after"), [(0.3, 1.0), (1.0, 0.3), (0.0, 0.9), (0.9, 0.0)])
def test_what_fails_less_often_is_not_called_good_without_saying_so(
    before: float, after: float
) -> None:
    found, _ = drive(AxisSearch(axis(NUMBER, repeat="auto")), failing(4, before, after, "both"))
    assert found.kind == "change"
    nothing_is_denied(found)
    both = "versions on both sides fail: good are those that fail less often" in found.notes
    assert both == (min(before, after) > 0)
    rarer = "newer versions fail less often than older ones" in found.notes
    assert rarer == (after < before)


def test_a_single_version_is_called_nothing() -> None:
    found, asked = drive(AxisSearch(axis(1, repeat="auto")), lambda _: "bad")
    assert (found.kind, asked) == ("undecided", [])
    assert found.notes == (
        "there is only 2.10, and nothing to compare its failures with",
        "no run passed or failed",
    )
    found, _ = drive(AxisSearch(axis(3, repeat="auto")), lambda _: "untestable")
    assert found.notes[0] == "there is only 2.12, and nothing to compare its failures with"
    evidence = Evidence()
    for name in names(2):
        evidence = evidence.plus((name,), "untestable")
    ended = AxisSearch(axis(2, repeat="auto"), evidence=evidence).next()
    assert isinstance(ended, AxisFinding)
    assert ended.notes[0] == "no candidate can be tested"


def test_what_failed_before_it_could_not_be_tested_any_more_is_told() -> None:
    answers: list[RunAnswer] = ["bad", "bad", "untestable"]
    found, _ = drive(
        AxisSearch(axis(NUMBER, repeat="auto")),
        lambda at: answers.pop(0) if at[0] == "2.17" else "good",
    )
    assert answers == []
    assert "could not be tested: 2.17" in "; ".join(found.notes) or "2.17" in found.between
    assert found.failed["2.17"] == (2, 2)
    nothing_is_denied(found)


@pytest.mark.parametrize(("each", "failed", "enough"), [(10, 0, True), (30, 6, False)])
def test_a_search_that_would_not_make_so_many_runs_is_not_offered_as_if_it_did(
    each: int, failed: int, enough: bool
) -> None:
    """Where versions fail anyway, to exclude a small change takes more than its bound."""
    evidence = Evidence()
    for name, more in (("2.10", 0), ("2.17", 4)):
        for run in range(each):
            bad = run < failed + (more if failed else 0)
            evidence = evidence.plus((name,), "bad" if bad else "good")
    found = AxisSearch(axis(NUMBER, repeat="auto", max_runs=2 * each), evidence=evidence).next()
    assert isinstance(found, AxisFinding)
    (offer,) = (note for note in found.notes if note.startswith("to exclude a change"))
    bound = axis(NUMBER, repeat="rate:25%").bound().runs
    more = int(offer.partition("by 25 points some ")[2].split()[0])
    assert (2 * each + more <= bound) == enough
    said = "--repeat rate:25%" if enough else f"more than the {bound} of --repeat rate:25%"
    assert f"some {more} more runs ({said})" in offer


def test_more_runs_are_as_many_as_it_takes() -> None:
    """The budget that is told is about what the search then needs."""
    found, asked = drive(AxisSearch(axis(NUMBER, repeat="auto")), failing(1, 0, 0, ""))
    said = int(found.notes[-2].partition("25 points some ")[2].split()[0])
    _, more = drive(AxisSearch(axis(NUMBER, repeat="rate:25%")), failing(1, 0, 0, ""))
    assert 0.5 * said <= len(more) - len(asked) <= 2 * said
    bound = axis(NUMBER, repeat="rate:25%").bound()
    assert bound.if_none_fails is not None
    assert 0.7 * len(more) <= bound.if_none_fails <= 1.5 * len(more)
    assert str(bound).endswith(f"; some {bound.if_none_fails} where none fails")


def test_the_rates_beside_a_change_are_told() -> None:
    search = AxisSearch(axis(NUMBER, repeat="rate:25%"))
    found, _ = drive(search, failing(5, 0.0, 0.4, "told"))
    older, newer = found.rates
    assert (found.kind, found.after, older.failed) == ("change", names(NUMBER)[5], 0)
    assert older.high < newer.high
    assert newer.low <= 0.4 <= newer.high
    assert found.notes[0].startswith(f"0 of {older.runs} runs failed (0% to ")
    assert f"{newer.failed} of {newer.runs} runs failed (" in found.notes[0]


@pytest.mark.parametrize("alone", [3, 10, 16])
@pytest.mark.parametrize("others", ["good", "bad"])
def test_a_version_that_is_alone_is_not_denied(alone: int, others: RunAnswer) -> None:
    """Where it was run: a version between the ends that never answers as the others do."""
    order = names(20)
    odd: RunAnswer = "bad" if others == "good" else "good"
    search = AxisSearch(axis(20, repeat="auto"))
    found, asked = drive(search, lambda at: odd if at[0] == order[alone] else others)
    assert any("what came and went" in note for note in found.notes) == (found.kind == "no-change")
    if (order[alone],) in asked:
        assert (found.kind, found.one_change) == ("undecided", False)
    if found.kind == "no-change":
        assert order[alone] not in found.failed


def likelihood(failed: float, passed: float, rate: float) -> float:
    """In logarithms."""
    parts = [(failed, rate), (passed, 1 - rate)]
    return sum(n * math.log(max(p, 1e-300)) for n, p in parts if n)


@reaches(0.9)
@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.integers(0, 20_000)] * 4),
    st.sampled_from((0.0, 0.01, 0.05, 0.25, 0.5)),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_no_rates_fit_better_than_those_that_an_error_is_reckoned_with(
    runs: tuple[int, int, int, int], least: float, one: float, other: float
) -> None:
    """A table of rates is coarse beside the 20,000 runs that a small change takes."""
    (bad, good, bad_after, good_after) = runs
    rates = Rates.of(
        [Tally(good=good, bad=bad), Tally(good=good_after, bad=bad_after)], [1.0], [None] * 2
    )
    all_bad, all_good = bad + bad_after, good + good_after
    low, high = sorted((one, other))
    pairs = [(low, high)]
    if all_bad + all_good:  # and close to the best
        share = all_bad / (all_bad + all_good)
        nearest = min(max(0.0, share - least / 2), 1 - least)
        pairs.append((nearest, nearest + least))
    pairs = [(p, q) for p, q in pairs if q - p >= least - 1e-12]
    most = rates.error_of_none(least)
    if pairs:
        reached()
    for p, q in pairs:
        for before, after in ((p, q), (q, p)):
            fits = likelihood(bad, good, before) + likelihood(bad_after, good_after, after)
            assert min(0.0, fits - rates._evidence) <= math.log(max(most, 1e-320)) + 1e-6


# --- beside a model that is summed up pair by pair of rates, without logarithms

TABLE = np.array([math.sin(math.pi / 2 * step / 160) ** 2 for step in range(161)])
"""Even steps of the angle whose squared sine the rate is."""
FINE = np.linspace(0, 1, 2001)
"""Where the best rates are looked for."""


@cache
def rising() -> Floats:
    """What is expected of the two rates where the first is the smaller one."""
    weights = np.zeros((161, 161))
    for low, high in itertools.combinations(range(161), 2):
        weights[low, high] = 0.455 / (161 * 160 / 2)
        weights[low, high] += 0.175 / 160 if low == 0 else 0
        weights[low, high] += 0.07 / 160 if high == 160 else 0
    weights[0, 160] += 0.3
    return weights


STAYING = np.array([0.3 * (at == 0) + 0.1 * (at == 160) + 0.6 / 161 for at in range(161)])


def fits(tallies: Sequence[Tally], rates: Floats) -> Floats:
    """How likely these runs are at each rate."""
    bad, good = sum(one.bad for one in tallies), sum(one.good for one in tallies)
    return np.asarray(rates**bad * (1 - rates) ** good)


def expected(
    gaps: Sequence[float], said: Sequence[GoodOrBad | None]
) -> dict[ChangePlace | None, float]:
    """How likely each history is before any run; None is that nothing changes."""
    chances: dict[ChangePlace | None, float] = {
        None: 0.3 * (0.1 if {"good", "bad"} <= {*said} else 1)
    }
    for (way, share), at in itertools.product([(REGRESSION, 0.45), (FIX, 0.25)], range(len(gaps))):
        chance = share * gaps[at] / sum(gaps)
        for i, verdict in enumerate(said):
            is_bad = (i > at) == (way == REGRESSION)
            if verdict is not None and is_bad != (verdict == "bad"):
                chance *= 0.1
        chances[way, at + 1] = chance
    whole = sum(chances.values())
    return {history: chance / whole for history, chance in chances.items()}


@dataclass(frozen=True)
class Model:
    tallies: list[Tally]
    gaps: list[float]
    said: list[GoodOrBad | None]

    @property
    def rates(self) -> Rates:
        return Rates.of(self.tallies, self.gaps, self.said)

    @property
    def expected(self) -> dict[ChangePlace | None, float]:
        return expected(self.gaps, self.said)

    def joint(self, history: ChangePlace | None) -> Floats:
        """How likely the answers are with each pair of rates, before and behind the change."""
        if history is None:
            return np.diag(STAYING * fits(self.tallies, TABLE))
        way, at = history
        before, behind = fits(self.tallies[:at], TABLE), fits(self.tallies[at:], TABLE)
        return np.outer(before, behind) * (rising() if way == REGRESSION else rising().T)

    @cached_property
    def evidence(self) -> float:
        return float(sum(w * self.joint(one).sum() for one, w in self.expected.items()))

    @property
    def chances(self) -> dict[ChangePlace | None, float]:
        return {
            one: w * float(self.joint(one).sum()) / self.evidence
            for one, w in self.expected.items()
        }

    def best(self, history: ChangePlace | None, least: float = 0.0) -> float:
        """W / E: the answers at the rates that fit best, the greater one by so much at least."""
        if history is None:
            return float(fits(self.tallies, FINE).max()) / self.evidence
        way, at = history
        sides = [fits(self.tallies[:at], FINE), fits(self.tallies[at:], FINE)]
        low, high = sides if way == REGRESSION else sides[::-1]
        off = round(2000 * least)
        return float((np.maximum.accumulate(low)[: 2001 - off] * high[off:]).max()) / self.evidence

    def within(self, tallies: Sequence[Tally], others: Sequence[Tally]) -> tuple[float, float]:
        """Between which rates of some runs W is 1 % of E or more."""
        least = 0.01 * self.evidence / float(fits(others, FINE).max())
        inside = FINE[fits(tallies, FINE) >= least]
        return float(inside[0]), float(inside[-1])


def model(*runs: tuple[int, int], said: str = "", gaps: Sequence[float] | None = None) -> Model:
    """Of (failed, passed) of each version; `said` is such as "+ -", good and bad."""
    words: dict[str, GoodOrBad | None] = {"+": "good", "-": "bad", " ": None}
    claims = [words[one] for one in said.ljust(len(runs))]
    tallies = [Tally(bad=bad, good=good) for bad, good in runs]
    return Model(tallies, [*(gaps or [1.0] * (len(runs) - 1))], claims)


MODELS = [
    model((0, 0), (0, 0)),
    model((0, 0), (0, 0), (0, 0), gaps=[1, 3], said=" +"),
    model((0, 0), (0, 0), (0, 0), said="- +"),
    model((0, 0), (0, 0), said="+-", gaps=[7]),
    model((0, 3), (4, 1)),
    model((1, 0), (0, 1)),
    model((5, 0), (1, 6), said="+ "),
    model((0, 6), (0, 0), (3, 1), (4, 0), gaps=[1, 9, 2]),
    model((1, 7), (0, 0), (0, 0), (0, 9), said="+  -"),
    model((4, 0), (0, 1), (0, 5), gaps=[0.2, 0.1], said=" -"),
    model((0, 0), (4, 9), (0, 0)),
    model((7, 0), (0, 0), (5, 0)),
    model((2, 2), (0, 8), (7, 1), (3, 3), (1, 0)),
    model((3, 3), (0, 0), (1, 2), (0, 0), said=" +- "),
    model((0, 2), (0, 7), (7, 0), (0, 7), (0, 3)),
    model((0, 9), (9, 0), (9, 0)),
    model((0, 9), (0, 9), (9, 0), (9, 0)),
    model((9, 0), (9, 0), (0, 9)),
    model((12, 28), (10, 30)),
    model((3, 9), (0, 0), (4, 8)),
    model((9, 3), (11, 4)),
    model((1, 19), (19, 1), (19, 1), (1, 19)),
]


@pytest.mark.parametrize("one", MODELS)
def test_chances_are_those_of_all_pairs_of_rates(one: Model) -> None:
    rates, chances = one.rates, one.chances
    for (way, at), chance in ((key, c) for key, c in chances.items() if key):
        assert rates.chances[way, at - 1] == pytest.approx(chance, rel=1e-6)
    assert rates.no_change == pytest.approx(chances.pop(None), rel=1e-6)
    assert chances[rates.likeliest()] == pytest.approx(max(chances.values()))


@pytest.mark.parametrize("one", MODELS)
def test_a_run_is_expected_to_tell_what_it_tells_of_the_history(one: Model) -> None:
    """The bits of a failure's chance, less those that are left where the history is known."""

    def bits(chance: float) -> float:
        return -sum(p * math.log2(p) for p in (chance, 1 - chance) if p > 1e-12)

    fails = {}
    for history in one.chances:
        joint = one.joint(history)
        before, behind = joint.sum(axis=1) @ TABLE, joint.sum(axis=0) @ TABLE
        fails[history] = (before / joint.sum(), behind / joint.sum())
    for i in range(len(one.tallies)):
        each = {h: fails[h][int(h is not None and i >= h[1])] for h in fails}
        whole = sum(chance * each[h] for h, chance in one.chances.items())
        left = sum(chance * bits(each[h]) for h, chance in one.chances.items())
        assert one.rates.gains[i] == pytest.approx(bits(whole) - left, abs=1e-9)


@pytest.mark.parametrize("one", MODELS)
def test_errors_are_those_at_the_rates_that_fit_best(one: Model) -> None:
    rates = one.rates
    for history in one.expected:
        if history is not None:
            against = max(one.best(other) for other in one.expected if other != history)
            assert rates.error(history) == pytest.approx(min(1.0, against), rel=1e-3)
    for least in (0.05, 0.3, 0.5, 1.0):
        against = max(one.best(other, least) for other in one.expected if other)
        assert rates.error_of_none(least) == pytest.approx(min(1.0, against), rel=5e-4, abs=1e-12)


@pytest.mark.parametrize("one", MODELS)
@pytest.mark.parametrize("confidence", [0.6, 0.99])
def test_what_cannot_be_excluded_is_left(one: Model, confidence: float) -> None:
    left, sure = one.rates.most(confidence)
    allowed = 1 - confidence
    against = {history: one.best(history) for history in one.expected if history}
    assert left == [history for history in sorted(against) if against[history] > allowed]
    assert sure == pytest.approx(1 - max((w for w in against.values() if w <= allowed), default=0))
    assert one.best(None) <= min(against.values()) * (1 + 1e-9), "so it need not be told"


@pytest.mark.parametrize("one", [*MODELS, model((0, 4000), (0, 4000)), model((0, 12), (0, 12))])
def test_the_smallest_change_that_is_excluded(one: Model) -> None:
    def error(percent: int) -> float:
        return max(one.best(other, percent / 100) for other in one.expected if other)

    excluded = next((n / 100 for n in range(1, 101) if error(n) <= 0.01), None)
    assert one.rates.excluded(0.99) == excluded


def test_a_change_by_a_hundredth_is_excluded_by_thousands_of_runs() -> None:
    assert model((0, 4000), (0, 4000)).rates.excluded(0.99) == 0.01
    assert model((0, 0), (0, 0)).rates.excluded(0.99) is None


@pytest.mark.parametrize("one", MODELS)
def test_rates_lie_where_their_runs_are_not_too_unlikely(one: Model) -> None:
    def told(tallies: Sequence[Tally]) -> tuple[int, int]:
        failed = sum(one.bad for one in tallies)
        return failed, failed + sum(one.good for one in tallies)

    possible = {history for history in one.expected if one.best(history) > 0.01}
    for at in {history[1] for history in possible if history}:
        parts = one.tallies[:at], one.tallies[at:]
        for side, own, others in zip(one.rates.sides(at, 0.99), parts, parts[::-1], strict=True):
            assert (side.failed, side.runs) == told(own)
            assert (side.low, side.high) == pytest.approx(one.within(own, others), abs=6e-4)
    whole = one.rates.throughout(0.99)
    assert (whole.failed, whole.runs) == told(one.tallies)
    if None in possible:
        assert (whole.low, whole.high) == pytest.approx(one.within(one.tallies, []), abs=6e-4)


@pytest.mark.parametrize("one", MODELS)
def test_a_version_alone_is_put_beside_the_best_single_change(one: Model) -> None:
    rates = one.rates
    single = max(one.best(history) for history in one.expected)
    odds = [0.0] * len(one.tallies)
    for i in range(1, len(odds) - 1):
        own, others = one.tallies[i : i + 1], one.tallies[:i] + one.tallies[i + 1 :]
        alone = float(fits(own, FINE).max() * fits(others, FINE).max()) / one.evidence
        odds[i] = math.log(alone / single)
    assert list(rates.odds_alone) == pytest.approx(odds, abs=1e-3)
    each = math.prod(float((STAYING * fits([t], TABLE)).sum()) for t in one.tallies)
    accident = each / one.evidence < 10_000 and max(odds) <= math.log(10_000 * len(odds))
    assert rates.one_change == accident


@pytest.mark.parametrize(
    ("runs", "single"),
    [
        ([(0, 9), (0, 9), (9, 0), (9, 0)], True),
        ([(0, 9), (0, 9), (0, 9), (0, 9)], True),
        ([(0, 9), (9, 0), (0, 9), (0, 9)], False),  # one is alone
        ([(0, 6), (6, 0), (0, 6)], True),  # that may be an accident still
        ([(0, 9), (9, 0), (9, 0), (0, 9)], False),  # each has a rate of its own
        ([(1, 19), (19, 1), (19, 1), (1, 19)], False),
    ],
)
def test_whether_answers_fit_one_change(runs: list[tuple[int, int]], single: bool) -> None:
    assert model(*runs).rates.one_change is single


@pytest.mark.parametrize(
    ("one", "least"),
    [
        (model((0, 10), (0, 10)), 0.25),
        (model((0, 10), (0, 0), (0, 10)), 0.1),
        (model((0, 18), (0, 18)), 0.3),  # but few more
        (model((1, 9), (1, 9)), 0.25),
        (model((3, 7), (2, 8)), 0.5),
        (model((1, 6), (1, 5)), 0.038),  # thousands of times as many
        (model((0, 5), (2, 3)), None),
        (model((3, 0), (1, 2)), None),
        (model((0, 40), (3, 37)), None),
    ],
)
def test_more_runs_are_the_fewest_that_answer(one: Model, least: float | None) -> None:
    """To some 2 %."""
    rates, total = one.rates, sum(tally.told for tally in one.tallies)
    more = rates.more_runs(least, 0.99)
    assert more is not None
    assert more > 0

    def error(times: float) -> float:
        grown = Rates(rates.counts * times, rates.before)
        if least is not None:
            return grown.error_of_none(least)
        # that nothing changes is wrong whichever change it is
        return grown._against_none

    assert error((total + more) / total) <= 0.01
    assert error((total + more - 1) / total / 1.025) > 0.01


def test_where_the_runs_tell_it_no_more_are_needed() -> None:
    assert model((0, 20), (0, 20)).rates.more_runs(0.5, 0.99) == 0
    assert model((0, 9), (9, 0)).rates.more_runs(None, 0.99) == 0


def test_where_too_many_runs_would_be_needed_none_are_told() -> None:
    assert model((0, 10), (9, 1)).rates.more_runs(0.5, 0.99) is None
    assert model((1, 9), (1, 9)).rates.more_runs(None, 0.99) is None


@pytest.mark.parametrize(
    ("versions", "least", "confidence"),
    [
        (2, 0.5, 0.99),
        (8, 0.5, 0.99),
        (8, 0.25, 0.99),
        (3, 0.2, 0.9),
        (2, 1.0, 0.8),
        (2, 0.9, 0.6),
        (2, 0.4, 0.99),
        (3, 0.2, 0.99),
    ],
)
def test_runs_that_suffice_where_none_fails(versions: int, least: float, confidence: float) -> None:
    def error(each: int) -> float:
        alike = model((0, each), *[(0, 0)] * (versions - 2), (0, each))
        return max(alike.best(other, least) for other in alike.expected if other)

    each = next(n for n in range(2, 500) if error(n) <= 1 - confidence)
    assert runs_if_none_fails(versions, least, confidence) == 2 * each


TALLIES = st.lists(
    st.builds(Tally, good=st.integers(0, 30), bad=st.integers(0, 30)), min_size=2, max_size=9
)


@settings(max_examples=60, deadline=None)
@given(TALLIES)
def test_good_and_bad_are_mirrors_but_for_what_is_expected_of_them(tallies: list[Tally]) -> None:
    """What is exchanged turns a regression into a fix; so does the other order."""
    number = len(tallies)
    gaps, said = [1.0] * (number - 1), [None] * number
    one = Rates.of(tallies, gaps, said)
    turned = Rates.of(tallies[::-1], gaps, said)
    for at in range(1, number):
        ratio = one.chances[REGRESSION, at - 1] / 0.45, one.chances[FIX, at - 1] / 0.25
        other = turned.chances[:, number - at - 1] / (0.45, 0.25)
        shares = [side / max(1e-300, sum(ratio)) for side in ratio]
        mirrored = [side / max(1e-300, float(other.sum())) for side in other[::-1]]
        if min(sum(ratio), float(other.sum())) > 1e-200:
            assert shares == pytest.approx(mirrored, abs=1e-6)
    assert 0 <= one.no_change <= 1
    assert float(one.chances.sum()) + one.no_change == pytest.approx(1)
    errors = [one.error_of_none(percent / 100) for percent in range(5, 101, 5)]
    assert errors == sorted(errors, reverse=True), "a larger change is easier to exclude"
    assert all(0 <= error <= 1 for error in errors)


@settings(max_examples=60, deadline=None)
@given(TALLIES, st.randoms())
def test_the_order_of_runs_does_not_count(tallies: list[Tally], dice: random.Random) -> None:
    """What is asked next follows from what was answered, not from when: so it is resumed."""
    answers: list[tuple[str, RunAnswer]] = []
    for name, tally in zip(names(len(tallies)), tallies, strict=True):
        answers += [(name, "good")] * tally.good + [(name, "bad")] * tally.bad
    steps = []
    for _ in range(2):
        dice.shuffle(answers)
        evidence = Evidence()
        for name, answer in answers:
            evidence = evidence.plus((name,), answer)
        steps.append(AxisSearch(axis(len(tallies), repeat="auto"), evidence=evidence).next())
    assert steps[0] == steps[1]


def test_a_grid_says_what_it_takes_for_good() -> None:
    dice = random.Random(4)
    spec = grid(2, 2, repeat="auto")
    search = GridSearch(spec)
    found, _ = drive_grid(search, lambda at: "bad" if dice.random() < 0.15 else "good")
    assert (found.kind, found.verdict) == ("no-change", "good")
    failed = f"all count as good, though {found.failed_though_good} runs of them failed"
    assert failed in str(found)
    assert found.notes[0].startswith("bad is a pair that fails in 60% of its runs or more")
    assert found.notes[1].startswith("counts as good, and failed: 1.")
    never, _ = drive_grid(GridSearch(spec), lambda _: "good")
    assert str(never).startswith("no change: all count as good; ")
    believed, _ = drive_grid(GridSearch(grid(2, 2)), lambda _: "good")
    assert str(believed).startswith("no change: all are good; ")
    with pytest.raises(ValidationError, match="rates are searched on one axis"):
        grid(2, 2, repeat="rate:10%")


@pytest.mark.parametrize(
    ("text", "least"),
    [("auto", 0.5), ("rate:10%", 0.1), ("rate:100%", 1.0), ("rate:1%", 0.01), ("judged", None)],
)
def test_how_small_a_change_matters(text: str, least: float | None) -> None:
    assert least_change(text) == least
    assert axis(3, repeat=text).least == least
    assert least_change(7) is None


@pytest.mark.parametrize("text", ["rate:0%", "rate:10", "rate:101%", "rate:-5%", "rate:", "rate"])
def test_a_rate_that_makes_no_sense_is_refused(text: str) -> None:
    assert least_change(text) is None
    with pytest.raises(ValidationError):
        axis(3, repeat=text)


def test_rarer_failures_take_more_runs() -> None:
    runs = [runs_if_none_fails(NUMBER, least, 0.99) for least in (0.5, 0.25, 0.1, 0.05)]
    assert runs == sorted(runs)
    assert runs[-1] > 200
