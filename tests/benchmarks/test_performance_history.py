"""How often a change of speed is told where there is none, and where there is one, on real devices.

The file is a history of a public model zoo: a line per measurement, with date, model, component,
precision, device, runtime, ms, qairt, ort and job. Reruns with the same QAIRT and ONNX Runtime are
the null. `QNN_HARNESS_PERF_HISTORY=FILE make bench` prints the figures of docs/results.md.
Numbers of judge's noise were chosen on one half of the models (`learned`); the other is for this.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from harness.history.performance import MOST_RUNS, judge
from tests.needed import PERF_HISTORY, need

STEP = 1.15
FEWEST_EARLIER = 4
# a pair that differs by more has one run that is off, not two
OFF = 0.1

pytestmark = pytest.mark.benchmark


@dataclass(frozen=True)
class Run:
    date: str
    job: str
    versions: tuple[str, str]
    log_us: float


@dataclass(frozen=True)
class Rerun:
    """The run at `at` has the versions of the one before."""

    case: tuple[str, ...]
    runs: list[Run]
    at: int

    @property
    def learned(self) -> bool:
        return hashlib.sha256(self.case[0].encode()).digest()[0] % 2 == 0

    @property
    def device(self) -> str:
        return self.case[3]

    @property
    def apart(self) -> float:
        return self.runs[self.at].log_us - self.runs[self.at - 1].log_us

    @property
    def level(self) -> float:
        """Where both are but for noise: the one of them that is nearer to the runs around them."""
        near = statistics.median(run.log_us for run in self.runs[self.at - 2 : self.at + 2])
        return min(
            (run.log_us for run in self.runs[self.at - 1 : self.at + 1]),
            key=lambda one: round(abs(one - near), 6),
        )


def histories(path: Path) -> dict[tuple[str, ...], list[Run]]:
    """Of each case its measurements; one that is listed again as it was is no rerun."""
    found: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in sorted(csv.DictReader(file, delimiter="\t"), key=lambda row: row["date"]):
            case = tuple(row[k] for k in ("model", "component", "precision", "device", "runtime"))
            run = Run(
                row["date"],
                row["job"],
                (row["qairt"], row["ort"]),
                math.log(1000 * float(row["ms"])),
            )
            if not found[case] or found[case][-1].job != run.job:
                found[case].append(run)
    return found


@pytest.fixture(scope="module")
def reruns() -> list[Rerun]:
    need(PERF_HISTORY)
    return reruns_in(Path(os.environ[PERF_HISTORY]))


def reruns_in(path: Path) -> list[Rerun]:
    """One that is listed under the names of several devices counts once."""
    found = {
        (one.job, other.job): Rerun(case, runs, at)
        for case, runs in histories(path).items()
        for at, (one, other) in enumerate(pairwise(runs), start=1)
        if other.versions[0] and one.versions == other.versions
    }
    return list(found.values())


def wilson(part: int, whole: int) -> str:
    """With its 95 % interval."""
    from scipy.stats import binomtest

    found = binomtest(part, max(whole, 1)).proportion_ci(method="wilson")
    return f"{part} of {whole} = {part / max(whole, 1):.2%} ({found.low:.2%} to {found.high:.2%})"


def sized(logs: list[float]) -> list[float]:
    return [math.exp(one) for one in logs]


def verdict_after(base: list[float], new: list[float]) -> tuple[str, int]:
    """What the first runs that settle it say, and how many they were; as `unsure`, all of them."""
    for number in range(1, len(new) + 1):
        found = judge(["a"], ["a"], [sized(base)], [sized(new[:number])]).changes[0]
        if found.verdict in ("slower", "faster"):
            return found.verdict, number
    return "unsure", len(new)


def noise_of(reruns: list[Rerun]) -> Callable[[str, random.Random], float]:
    """Draws how far one run is off, of what reruns on that device were apart."""
    known = defaultdict(list)
    for one in reruns:
        known[one.device].append(one.apart)

    def draw(device: str, rng: random.Random) -> float:
        apart = rng.choice(known[device]) * rng.choice((-1, 1))
        return apart / math.sqrt(2) if abs(apart) < OFF else apart * rng.choice((0, 1))

    return draw


def with_reruns(reruns: list[Rerun], step: float) -> Iterator[tuple[Rerun, str, int]]:
    """Each rerun, with four more that are made of the device's noise, all slower by a step."""
    draw, rng = noise_of(reruns), random.Random(1)
    for one in reruns:
        if one.at < FEWEST_EARLIER:
            continue
        more = [one.level + draw(one.device, rng) for _ in range(MOST_RUNS - 1)]
        new = [log + math.log(step) for log in (one.runs[one.at].log_us, *more)]
        yield one, *verdict_after([run.log_us for run in one.runs[: one.at]], new)


def halves(reruns: list[Rerun]) -> dict[str, list[Rerun]]:
    return {
        "held out": [one for one in reruns if not one.learned],
        "learned from": [one for one in reruns if one.learned],
    }


def test_single_reruns_of_a_day_together(reruns: list[Rerun]) -> None:
    """As a night's comparison sees them: all that ran again that day, on all devices."""
    for half, some in halves(reruns).items():
        told: Counter[str] = Counter()
        for day in {one.runs[one.at].date for one in some}:
            here = [one for one in some if one.runs[one.at].date == day]
            days = sorted({run.date for one in here for run in one.runs[: one.at]})
            base, new = [], []
            for one in here:
                known = {run.date: math.exp(run.log_us) for run in one.runs[: one.at]}
                base.append([known.get(day) for day in days])
                new.append([math.exp(one.runs[one.at].log_us)])
            found = judge([one.case for one in here], [one.device for one in here], base, new)
            told.update("suspect" if one.suspect else one.verdict for one in found.all)
        alarms = told["slower"] + told["faster"]
        naive = sum(abs(one.apart) >= math.log(1.1) for one in some)
        print(f"\nsingle reruns, {half}: alarms {wilson(alarms, len(some))}; {dict(told)}")
        print(f"  a threshold of 10 % on single figures: {wilson(naive, len(some))}")
        assert alarms <= 0.01 * len(some)


def test_up_to_five_reruns_without_a_change(reruns: list[Rerun]) -> None:
    for half, some in halves(reruns).items():
        found = [verdict for _, verdict, _ in with_reruns(some, 1)]
        alarms = len(found) - found.count("unsure")
        print(f"\nup to five reruns, no change, {half}: alarms {wilson(alarms, len(found))}")
        assert alarms <= 0.02 * len(found)


@pytest.mark.parametrize("step", [STEP, 1 / STEP, 1.10, 1.30])
def test_up_to_five_reruns_of_a_step(reruns: list[Rerun], step: float) -> None:
    wanted = "slower" if step > 1 else "faster"
    for half, some in halves(reruns).items():
        found = [(verdict, number) for _, verdict, number in with_reruns(some, step)]
        right = Counter(number for verdict, number in found if verdict == wanted)
        all_right = sum(right.values())
        print(f"\na step x {step:.2f}, {half}: found {wilson(all_right, len(found))}")
        print(f"  after so many runs: {dict(sorted(right.items()))}")
        assert abs(math.log(step)) < math.log(STEP) - 1e-9 or all_right >= 0.9 * len(found)


def test_real_sequences_of_reruns(reruns: list[Rerun]) -> None:
    """Few cases were run more than twice with the same versions, over months."""
    told: Counter[str] = Counter()
    for one in reruns:
        versions, rest = one.runs[one.at].versions, one.runs[one.at :]
        new = [run.log_us for run in rest if run.versions == versions][:MOST_RUNS]
        if len(new) >= 2 and one.at >= FEWEST_EARLIER:
            told[verdict_after([run.log_us for run in one.runs[: one.at]], new)[0]] += 1
    whole = sum(told.values())
    alarms = whole - told["unsure"]
    print(f"\nreal sequences of reruns: alarms {wilson(alarms, whole)}")
    assert alarms <= 0.06 * whole
