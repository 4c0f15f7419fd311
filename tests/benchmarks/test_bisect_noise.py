"""Bisections of a figure that has the noise of real devices: how often they are right, how dear.

The noise is that of `test_performance_history.py`, of the half that nothing was learned from, and
the file is the same:
`QNN_HARNESS_PERF_HISTORY=FILE make bench` prints the figures of docs/bisect.md.
"""

from __future__ import annotations

import math
import os
import random
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.bisect.match import Repeat
from harness.bisect.result import AxisFinding
from harness.bisect.search import AxisSpec
from tests.benchmarks.test_performance_history import (
    FEWEST_EARLIER,
    Rerun,
    noise_of,
    reruns,
    wilson,
)
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection

VERSIONS = tuple(f"2.{number}.0" for number in range(40, 50))
MATCH = "measurement took_us > 1.1 * good"
BISECTIONS = 200
STEPS = (1.15, 1.2, 1.3)

pytestmark = pytest.mark.benchmark

__all__ = ["reruns"]  # the fixture


def bisected(
    folder: Path, reruns: list[Rerun], repeat: Repeat, step: float | None
) -> tuple[Counter[str], list[int]]:
    """Return the ends of so many bisections, and their runs; without a step nothing changes."""
    unseen = [rerun for rerun in reruns if not rerun.learned]
    draw, rng = noise_of(unseen), random.Random(1)
    cases = [rerun for rerun in unseen if rerun.at >= FEWEST_EARLIER]
    ended, runs = Counter[str](), []
    for number in range(BISECTIONS):
        case, first_bad = rng.choice(cases), rng.choice(VERSIONS[1:])
        size = rng.choice(STEPS) if step is None else step
        value_s = partial(measured, case, draw, random.Random(number), first_bad, size)
        spec = AxisSpec(
            axis="qnn",
            candidates=VERSIONS,
            good=VERSIONS[0],
            bad=None if size == 1 else VERSIONS[-1],
            repeat=repeat,
        )
        scripted = ScriptedRuns(lambda place, _: "passed", value=value_s)
        bisection = new_bisection(folder / f"{number}", spec, scripted, match=MATCH)
        finding = bisection.run()
        bisection.folder.close()
        assert isinstance(finding, AxisFinding)
        ended[describe(finding, None if size == 1 else first_bad)] += 1
        runs.append(finding.runs)
    return ended, runs


def measured(
    case: Rerun,
    draw: Callable[[str, random.Random], float],
    dice: random.Random,
    first_bad: str,
    size: float,
    place: tuple[str, ...],
) -> float:
    """Return the figure of a run."""
    slower = math.log(size) if place[0] >= first_bad else 0.0
    return math.exp(case.level + draw(case.device, dice) + slower)


def describe(finding: AxisFinding, first_bad: str | None) -> str:
    if finding.kind in ("no-change", "undecided"):
        right = finding.kind == "no-change" and finding.verdict == "good" and first_bad is None
        return "right" if right else "undecided" if finding.kind == "undecided" else "wrong"
    inside = first_bad in (*finding.between, finding.after) and finding.direction == "regression"
    if not inside:
        return "wrong"
    return "right" if finding.kind == "change" else "a range that holds it"


@pytest.mark.parametrize("step", [None, 1.0])
@pytest.mark.parametrize("repeat", [1, "judged"])
def test_steps_of_versions(
    tmp_path: Path,
    reruns: list[Rerun],
    repeat: Repeat,
    step: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # thousands of runs that nobody made
    ended, runs = bisected(tmp_path, reruns, repeat, step)
    title = "nothing changed" if step == 1 else "steps of 15 to 30 %"
    print(
        f"\n{title}, --repeat {repeat}: right {wilson(ended['right'], BISECTIONS)}; {dict(ended)}"
    )
    print(f"  runs: {statistics.fmean(runs):.1f} on average, at most {max(runs)}")
    assert repeat != "judged" or ended["right"] >= 0.95 * BISECTIONS
