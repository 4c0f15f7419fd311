"""Whose fault a failure is, over many runs: model, runtime, phone, lab, or none of them (pure).

Few explanations compete. Each says where a cause should be seen, and where not: on a device, on
those of one host, with versions from one on, with a file since it was changed. How well that agrees
with what was seen, sightings by chance included, is a likelihood; what an explanation leaves open
(which device, since when) is paid for. What is left to no explanation, such as what began one night
for no reason that is known, competes, too: it is `unknown`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.answers.history.spread import spread
from harness.answers.history.states import RanWith, wilson
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.axes import VERSIONS
from harness.libraries.runtimes.runtime import version_key
from harness.verdict.failure.error import Part

Guilty = Literal["model", "runtime", "phone", "lab", "flaky", "unknown"]
_NAMED: Final = 0.5
_MOST_TESTS: Final = 50
_FILES: Final = 3
_MASKED: Final = 0.8
"""So little is known of whether what failed for one cause would have failed for another."""

_FILE, _RUN = "file", "run"
_Rate = tuple[float, float]
# How often it is seen where an explanation says so, and where not, as beta distributions.
_ALWAYS: Final[_Rate] = (4.0, 0.7)
_OFTEN: Final[_Rate] = (2.0, 1.0)
_SELDOM: Final[_Rate] = (1.0, 2.0)
_HARDLY: Final[_Rate] = (0.3, 30.0)
_ANY: Final[_Rate] = (0.5, 0.5)
_SICK: Final = 0.2
"""So many phones are sick, whatever else fails."""
_PRIORS: Final[Mapping[bool, Mapping[Guilty, float]]] = {
    False: {
        "model": 0.2,
        "runtime": 0.25,
        "phone": 0.2,
        "lab": 0.05,
        "flaky": 0.25,
        "unknown": 0.05,
    },
    True: {"phone": 0.3, "lab": 0.6, "unknown": 0.1},
}
"""What is expected before anything was seen: of a failure, and of a verdict that is missing."""


class Sighting(NamedTuple):
    """What a run says of a case: it `passed` and `failed` so often, of the `cause`.

    `test` is what it shares with its cases on other devices and with other versions, `run` the
    place of the run among others. `file` is the digest of the files of users that it took, which
    are called as `files_named`. What is
    `lost` failed for no fault of the target, and so has no verdict.
    """

    test: str
    run: int
    device: str
    soc: str | None
    host: str | None
    versions: RanWith
    file: str | None
    cause: str | None
    passed: int = 0
    failed: int = 0
    lost: bool = False
    files_named: str = ""

    def told(self, cause: str) -> tuple[float, float]:
        """How much of it tells that a cause is there, and how much that it is not; what failed for
        another cause might have failed for this one, too."""
        share = 1.0 if self.lost else self.failed / (self.passed + self.failed)
        return (share, 1 - share) if self.cause == cause else (0.0, 1 - _MASKED * share)


class TwinFigure(NamedTuple):
    """How often a device `failed` what its twins passed in the same run, of so many `compared`; the
    share lies between `low` and `high` (95 %).
    """

    failed: int
    compared: int
    low: float
    high: float


class Blamed(Part):
    """Whose fault a cause of failures is, and why; `since` is the version or the run that brought
    it. `devices` are those where it was seen.
    """

    fault: Guilty
    confidence: Annotated[float, Field(ge=0, le=1)]
    why: str
    since: str | None = None
    devices: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """It in one line."""
        sure = "" if self.fault == "unknown" else f", {math.floor(100 * self.confidence)} % sure"
        return f"{self.fault}{sure}: {self.why}"


_Twins = Mapping[str, Sequence[tuple[str, int, bool]]]
"""By device what its twins passed in the same run: the test, the run, whether it failed it."""


class _Cells:
    """The sightings of one cause, summed up: an entry for each device, run, versions and file.

    `test` is the one that has it most, `twins` are the devices' by their names.
    """

    def __init__(
        self, seen: Sequence[Sighting], cause: str, lost: bool, test: str, twins: _Twins
    ) -> None:
        self.lost, self.test, self.twins = lost, test, twins
        # each SoC may have a file of its own; what follows upon that is a change
        files: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for one in sorted(seen, key=lambda one: (one.run, one.file or "")):
            if one.file is not None and one.file not in files[one.test, one.soc]:
                files[one.test, one.soc].append(one.file)
        self.files_named: dict[int, set[str]] = defaultdict(set)
        found: dict[tuple[int, str, RanWith, int], list[Sighting]] = defaultdict(list)
        for one in seen:
            age = files[one.test, one.soc].index(one.file) if one.file is not None else 0
            self.files_named[age].add(one.files_named)
            found[one.run, one.device, one.versions, age].append(one)
        self.where = {one.device: (one.soc, one.host) for one in seen}
        devices = [device for _, device, _, _ in found]
        self.device = np.array(devices)
        self.soc, self.host = (
            np.array([str(self.where[one][at] or "") for one in devices]) for at in (0, 1)
        )
        self.axes: dict[str, NDArray[np.int64]] = {
            _FILE: np.array([age for *_, age in found]),
            _RUN: np.array([run for run, *_ in found]),
        }
        self.named: dict[str, list[str]] = {}
        for name in VERSIONS:
            said = [str(dict(versions).get(name) or "") for _, _, versions, _ in found]
            self.named[name] = order = sorted(set(said), key=version_key)
            self.axes[name] = np.array([order.index(one) for one in said])
        # what one device did in one run has much in common: many tests there say less than they are
        bad, good = (
            np.array([sum(one.told(cause)[at] for one in group) for group in found.values()])
            for at in (0, 1)
        )
        size = np.sqrt([len(group) for group in found.values()])
        self.bad, self.good = bad / size, good / size
        self.tests = len({one.test for one in seen if one.cause == cause})


_Cut = NDArray[np.bool_]


class _Guess(NamedTuple):
    """One explanation: whose fault, how likely beforehand, and `parts`, cells that have one rate
    each. The cause should be seen in the first of them: on `base`, along `axis` from `start` on.
    """

    guilty: Guilty
    prior: float
    parts: Sequence[tuple[_Cut, _Rate]]
    kind: str = "all"
    base: str = ""
    axis: str = _RUN
    start: int = 0


def blames(
    seen: Sequence[Sighting], started: Sequence[str], causes: Container[str] | None = None
) -> dict[str, Blamed]:
    """Whose fault each cause is, or each of these. `started` is when each run was, by its place.

    Of a verdict that is missing nothing is said where it may be the phone as well as the lab.
    """
    of_test: dict[str, list[Sighting]] = defaultdict(list)
    tests: dict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        of_test[one.test].append(one)
        if one.cause is not None and (causes is None or one.cause in causes):
            tests[one.cause][one.test] += 1
    twins: dict[str, list[tuple[str, int, bool]]] = defaultdict(list)
    for one, bad in _twins(seen):
        twins[one.device].append((one.test, one.run, bad))
    found = {}
    for cause, counts in tests.items():
        most = sorted(counts, key=lambda test: (-counts[test], test))[:_MOST_TESTS]
        some = [one for test in most for one in of_test[test]]
        lost = any(one.lost for one in some if one.cause == cause)
        rows = [one for one in some if one.cause == cause or not one.lost]
        blame = _blame(_Cells(rows, cause, lost, most[0], twins), started)
        if not lost or blame.fault != "unknown":
            found[cause] = blame
    return found


def _twins(seen: Iterable[Sighting]) -> Iterator[tuple[Sighting, bool]]:
    """The sightings on devices whose twins passed the same then, and whether these fail."""
    alike: dict[object, list[Sighting]] = defaultdict(list)
    for one in seen:
        if not one.lost and one.soc is not None:  # what is of no known kind has no twin
            alike[one.test, one.run, one.soc, one.versions, one.file].append(one)
    for group in alike.values():
        good = {one.device for one in group if not one.failed}
        yield from ((one, one.failed > 0) for one in group if good - {one.device})


def where_twins_pass(by_test: Iterable[Iterable[Sighting]]) -> dict[str, TwinFigure]:
    """How often each device fails what another of its SoC passes, in the same run. Those of one
    test and one run come together."""
    failed: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for seen in by_test:
        for one, bad in _twins(seen):
            failed[one.device] += bad
            compared[one.device] += 1
    return {
        name: TwinFigure(failed[name], many, *wilson(failed[name], many))
        for name, many in compared.items()
    }


def _blame(cells: _Cells, started: Sequence[str]) -> Blamed:
    scored = [(_score(one, cells), one) for one in _guesses(cells)]
    top = max(score for score, _ in scored)
    weights: dict[Guilty, float] = defaultdict(float)
    for score, one in scored:
        weights[one.guilty] += math.exp(score - top)
    guilty = max(weights, key=lambda one: weights[one])
    _, guess = max((one for one in scored if one[1].guilty == guilty), key=lambda one: one[0])
    # that it is chance has a weight that halves with each device and run that could contradict
    bad, runs = cells.bad > 0, cells.axes[_RUN]
    contrasts = (len(set(cells.device)) - 1) * (len(set(runs)) - 1)
    witnesses = len(set(cells.device[bad])) + len(set(runs[bad])) - 1
    witnesses += guess.kind == "device" and _others(guess, cells)[0] > 0
    chance = max(0.5**contrasts, 0.5**witnesses)
    sure = (1 - chance) * weights[guilty] / sum(weights.values())
    return Blamed(
        fault=guilty if sure >= _NAMED else "unknown",
        confidence=round(sure, 4),
        why=_why(guess, cells, started, sure >= _NAMED),
        since=_since(guess, cells, started) or None,
        devices=tuple(sorted(set(map(str, cells.device[bad])))),
    )


def _guesses(cells: _Cells) -> Iterator[_Guess]:
    """All explanations that compete."""
    priors, everywhere = _PRIORS[cells.lost], np.ones(len(cells.bad), dtype=bool)
    bases: list[tuple[str, str, _Cut, float]] = [("all", "", everywhere, 1.0)]
    for kind, of in (("soc", cells.soc), ("host", cells.host), ("device", cells.device)):
        names = sorted(set(map(str, of)) - {""})
        bases += [(kind, one, of == one, 1 / len(names)) for one in names if len(names) > 1]
    for kind, name, base, share in bases:
        if not cells.bad[base].any():
            continue
        for axis, start, end, part in _spans(cells, base):
            guilty = _guilty(kind, name, axis, cells)
            if guilty is None or guilty not in priors:
                continue
            inside = base & (cells.axes[axis] >= start) & (cells.axes[axis] < end)
            rate = _OFTEN if guilty in ("phone", "unknown") else _ALWAYS
            parts = [(inside, rate), (~inside, _HARDLY)]
            yield _Guess(guilty, priors[guilty] * share * part, parts, kind, name, axis, start)
        if "flaky" in priors and kind != "host":
            parts = [(base, _SELDOM), (~base, _HARDLY)]
            start = int(cells.axes[_RUN].min())
            several = 0.5 ** min(cells.tests - 1, 5)  # each test is flaky by itself
            yield _Guess("flaky", priors["flaky"] * share * several, parts, kind, name, _RUN, start)
    for of in (cells.device, cells.axes[_RUN]):  # each device, or each run, is as it is
        parts = [(of == one, _ANY) for one in sorted(set(of))]
        yield _Guess("unknown", priors["unknown"], parts)


def _spans(cells: _Cells, base: _Cut) -> Iterator[tuple[str, int, int, float]]:
    """Spans along which a cause could be there: the axis, from where, to before where, and how
    likely that one is among others."""
    axes = {name: sorted(set(map(int, of[base]))) for name, of in cells.axes.items()}
    varied = [name for name in (_FILE, *VERSIONS) if len(axes[name]) > 1]
    for name in varied:
        values = [*axes[name], axes[name][-1] + 1]
        pairs = [(at, to) for i, at in enumerate(values) for to in values[i + 1 :]]
        for start, end in pairs[: len(values) - 2] + pairs[len(values) - 1 :]:
            # what goes on is likelier than what came and went
            yield name, start, end, (1.0 if end == values[-1] else 0.3) / len(values)
    runs, bad = axes[_RUN], cells.axes[_RUN][base & (cells.bad > 0)]
    first, last = int(bad.min()), int(bad.max())
    yield _RUN, runs[0], runs[-1] + 1, 0.3
    if first > runs[0]:
        yield _RUN, first, runs[-1] + 1, 1 / len(runs)
    if last < runs[-1]:
        yield _RUN, first, last + 1, 1 / len(runs) ** 2


def _guilty(kind: str, name: str, axis: str, cells: _Cells) -> Guilty | None:
    """Who would be at fault for what is seen along an axis on devices of a kind."""
    if kind == "host":
        return "lab" if axis == _RUN and len(set(cells.device[cells.host == name])) > 1 else None
    if kind == "device":
        soc = cells.where[name][0]
        alike = sum(of[0] == soc is not None for of in cells.where.values())
        twin = cells.lost or alike > 1
        return None if axis != _RUN else "phone" if twin else "unknown"
    if axis == _FILE:
        return "model"
    return "runtime" if axis != _RUN else "lab" if cells.lost and kind == "all" else "unknown"


def _score(guess: _Guess, cells: _Cells) -> float:
    """The logarithm of how likely an explanation is, and what was seen if it is true."""
    score = math.log(guess.prior)
    for cut, rate in guess.parts:
        score += _log_odds(float(cells.bad[cut].sum()), float(cells.good[cut].sum()), rate)
    if guess.kind == "device":  # a sick phone fails other tests, too; but so may one that is sick
        failed, others = _others(guess, cells)
        sick, well = (_log_odds(failed, others - failed, rate) for rate in (_ANY, _HARDLY))
        score += sick if guess.guilty == "phone" else well
        score -= float(np.logaddexp(math.log(_SICK) + sick, math.log(1 - _SICK) + well))
    return score


def _others(guess: _Guess, cells: _Cells) -> tuple[int, int]:
    """How many other tests a device failed in that time where its twins passed, and of how many."""
    seen = [one for one in cells.twins.get(guess.base, ()) if one[1] >= guess.start]
    bad, every = ({test for test, _, bad in seen if bad >= least} for least in (True, False))
    return len(bad - {cells.test}), len(every - {cells.test})


def _beside(guess: _Guess, cells: _Cells) -> str:
    """How the twins of a device did with the same."""
    soc, _ = cells.where[guess.base]
    twins = (cells.soc == (soc or "")) & (cells.device != guess.base)
    if soc is None or not twins.any():
        return "which has no twin here"
    return "where its twins pass" if (cells.good[twins] > 0).any() else "as on its twins"


def _log_odds(bad: float, good: float, rate: _Rate) -> float:
    """The logarithm of how likely so many bad and good ones are where their rate is so spread."""
    first, second = rate
    return _log_beta(first + bad, second + good) - _log_beta(first, second)


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)


def _since(guess: _Guess, cells: _Cells, started: Sequence[str]) -> str:
    """The version that brought it, or the run; empty if it was always there."""
    at = guess.start
    if at <= min(map(int, cells.axes[guess.axis])):
        return ""
    if guess.axis in cells.named:
        return f"{guess.axis} {cells.named[guess.axis][at]}"
    inside = guess.parts[0][0]
    return started[int(cells.axes[_RUN][inside].min())]


def _why(guess: _Guess, cells: _Cells, started: Sequence[str], sure: bool) -> str:
    """Figures that bear an explanation out, or say how little is known."""
    since = _since(guess, cells, started)
    when = f"; since {since if guess.axis in cells.named else since[:10]}" if since else ""
    if guess.axis == _FILE and since:
        named = ", ".join(sorted(cells.files_named[guess.start] - {""})[:_FILES])
        when = f"; since {named or 'its file'} changed ({since[:10]})"
    bad = cells.bad > 0
    inside = guess.parts[0][0]
    of_runs = [len(set(cells.axes[_RUN][cut])) for cut in (inside & bad, inside)]
    runs = f"in {of_runs[0]} of {counted(of_runs[1], 'run')}"
    if guess.guilty == "flaky" and not sure:
        return f"failed {runs}, too few to tell"
    if guess.guilty == "flaky":
        on = f" on {guess.base}" if guess.base else ""
        return f"fails now and then{on}, {runs}, whatever changes"
    if guess.kind == "device":
        failed, others = _others(guess, cells)
        more = f", as do {failed} of {counted(others, 'other test')} there" if failed else ""
        return f"on {guess.base} {runs}, {_beside(guess, cells)}{more}{when}"
    of = cells.host if guess.kind == "host" else cells.soc
    there = cells.axes[guess.axis] >= guess.start
    seen = zip(of[there], cells.device[there], bad[there], strict=True)
    return f"on {spread((str(kind), str(one), bool(is_bad)) for kind, one, is_bad in seen)}{when}"
