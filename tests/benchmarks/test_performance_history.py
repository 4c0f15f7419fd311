"""Changes of speed that are reported with and without a real one, on figures of real devices.

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
        """The level of both but for noise: that of the one nearer to the runs around them."""
        near = statistics.median(run.log_us for run in self.runs[self.at - 2 : self.at + 2])
        return min(
            (run.log_us for run in self.runs[self.at - 1 : self.at + 1]),
            key=lambda item: round(abs(item - near), 6),
        )


def histories(path: Path) -> dict[tuple[str, ...], list[Run]]:
    """Of each case its measurements; one that is listed again as it was is no rerun."""
    runs_of: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in sorted(csv.DictReader(file, delimiter="\t"), key=lambda row: row["date"]):
            case = tuple(row[k] for k in ("model", "component", "precision", "device", "runtime"))
            run = Run(
                row["date"],
                row["job"],
                (row["qairt"], row["ort"]),
                math.log(1000 * float(row["ms"])),
            )
            if not runs_of[case] or runs_of[case][-1].job != run.job:
                runs_of[case].append(run)
    return runs_of


@pytest.fixture(scope="module")
def reruns() -> list[Rerun]:
    need(PERF_HISTORY)
    return reruns_in(Path(os.environ[PERF_HISTORY]))


def reruns_in(path: Path) -> list[Rerun]:
    """One that is listed under the names of several devices counts once."""
    reruns = {
        (first.job, other.job): Rerun(case, runs, number)
        for case, runs in histories(path).items()
        for number, (first, other) in enumerate(pairwise(runs), start=1)
        if other.versions[0] and first.versions == other.versions
    }
    return list(reruns.values())


def wilson(part: int, whole: int) -> str:
    """With its 95 % interval."""
    from scipy.stats import binomtest

    interval = binomtest(part, max(whole, 1)).proportion_ci(method="wilson")
    shown = f"{interval.low:.2%} to {interval.high:.2%}"
    return f"{part} of {whole} = {part / max(whole, 1):.2%} ({shown})"


def sized(logs: list[float]) -> list[float]:
    return [math.exp(value) for value in logs]


def verdict_after(base: list[float], new: list[float]) -> tuple[str, int]:
    """Return the verdict of the first runs that settle it, and their number; all if `unsure`."""
    for number in range(1, len(new) + 1):
        change = judge(["a"], ["a"], [sized(base)], [sized(new[:number])]).changes[0]
        if change.verdict in ("slower", "faster"):
            return change.verdict, number
    return "unsure", len(new)


def noise_of(reruns: list[Rerun]) -> Callable[[str, random.Random], float]:
    """Draws how far one run is off, of what reruns on that device were apart."""
    known = defaultdict(list)
    for rerun in reruns:
        known[rerun.device].append(rerun.apart)

    def draw(device: str, rng: random.Random) -> float:
        apart = rng.choice(known[device]) * rng.choice((-1, 1))
        return apart / math.sqrt(2) if abs(apart) < OFF else apart * rng.choice((0, 1))

    return draw


def with_reruns(reruns: list[Rerun], step: float) -> Iterator[tuple[Rerun, str, int]]:
    """Each rerun, with four more that are made of the device's noise, all slower by a step."""
    draw, rng = noise_of(reruns), random.Random(1)
    for rerun in reruns:
        if rerun.at < FEWEST_EARLIER:
            continue
        more = [rerun.level + draw(rerun.device, rng) for _ in range(MOST_RUNS - 1)]
        new = [log + math.log(step) for log in (rerun.runs[rerun.at].log_us, *more)]
        yield rerun, *verdict_after([run.log_us for run in rerun.runs[: rerun.at]], new)


def halves(reruns: list[Rerun]) -> dict[str, list[Rerun]]:
    return {
        "held out": [rerun for rerun in reruns if not rerun.learned],
        "learned from": [rerun for rerun in reruns if rerun.learned],
    }


def test_single_reruns_of_a_day_together(reruns: list[Rerun]) -> None:
    """As a night's comparison sees them: all that ran again that day, on all devices."""
    for half, some in halves(reruns).items():
        counts: Counter[str] = Counter()
        for day in {rerun.runs[rerun.at].date for rerun in some}:
            here = [same_day for same_day in some if same_day.runs[same_day.at].date == day]
            days = sorted({run.date for rerun in here for run in rerun.runs[: rerun.at]})
            base, new = [], []
            for rerun in here:
                known = {run.date: math.exp(run.log_us) for run in rerun.runs[: rerun.at]}
                base.append([known.get(day) for day in days])
                new.append([math.exp(rerun.runs[rerun.at].log_us)])
            changes = judge(
                [rerun.case for rerun in here], [rerun.device for rerun in here], base, new
            )
            counts.update("suspect" if change.suspect else change.verdict for change in changes.all)
        alarms = counts["slower"] + counts["faster"]
        naive = sum(abs(rerun.apart) >= math.log(1.1) for rerun in some)
        print(f"\nsingle reruns, {half}: alarms {wilson(alarms, len(some))}; {dict(counts)}")
        print(f"  a threshold of 10 % on single figures: {wilson(naive, len(some))}")
        assert alarms <= 0.01 * len(some)


def test_up_to_five_reruns_without_a_change(reruns: list[Rerun]) -> None:
    for half, some in halves(reruns).items():
        verdicts = [verdict for _, verdict, _ in with_reruns(some, 1)]
        alarms = len(verdicts) - verdicts.count("unsure")
        print(f"\nup to five reruns, no change, {half}: alarms {wilson(alarms, len(verdicts))}")
        assert alarms <= 0.02 * len(verdicts)


@pytest.mark.parametrize("step", [STEP, 1 / STEP, 1.10, 1.30])
def test_up_to_five_reruns_of_a_step(reruns: list[Rerun], step: float) -> None:
    expected = "slower" if step > 1 else "faster"
    for half, some in halves(reruns).items():
        verdicts = [(verdict, number) for _, verdict, number in with_reruns(some, step)]
        right = Counter(number for verdict, number in verdicts if verdict == expected)
        all_right = sum(right.values())
        print(f"\na step x {step:.2f}, {half}: found {wilson(all_right, len(verdicts))}")
        print(f"  after so many runs: {dict(sorted(right.items()))}")
        assert abs(math.log(step)) < math.log(STEP) - 1e-9 or all_right >= 0.9 * len(verdicts)


def test_real_sequences_of_reruns(reruns: list[Rerun]) -> None:
    """Few cases were run more than twice with the same versions, over months."""
    counts: Counter[str] = Counter()
    for rerun in reruns:
        versions, rest = rerun.runs[rerun.at].versions, rerun.runs[rerun.at :]
        new = [run.log_us for run in rest if run.versions == versions][:MOST_RUNS]
        if len(new) >= 2 and rerun.at >= FEWEST_EARLIER:
            counts[verdict_after([run.log_us for run in rerun.runs[: rerun.at]], new)[0]] += 1
    whole = sum(counts.values())
    alarms = whole - counts["unsure"]
    print(f"\nreal sequences of reruns: alarms {wilson(alarms, whole)}")
    assert alarms <= 0.06 * whole
