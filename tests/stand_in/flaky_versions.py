"""Versions some of which fail, and not always: a real probe process answers for each run.

What a run needs is all there (the probe, a library it opens, a context it loads and executes, an
error code that comes back), but it takes milliseconds, so that hundreds of searches fit into
minutes. The library is the stand-in that does what its context binary says; which binary that is,
dice decide.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.ground.files.cache import cache_root
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import EXIT_DONE, run_plan_locally
from harness.search.bisect.answers import Question, RunAnswer
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.findings import AxisFinding
from harness.search.bisect.search import AxisSpec
from tests.stand_in.build import build_backend
from tests.unit.search.bisect.histories import fewest_runs

VERSIONS = tuple(f"2.{number}.0" for number in range(44, 52))
_FAILS = 6004
_VALUES = np.array([1.5, -2.0, 0.25, 1e6], np.float32)


@dataclass(frozen=True)
class Backend:
    """A probe and the stand-in it opens; `run` is one process that loads, executes and frees."""

    probe: Path
    library: Path
    folder: Path

    @classmethod
    def build(cls, folder: Path) -> Backend:
        for behaviour in ("plain", "fail"):
            (folder / behaviour).write_text(f"stand-in {behaviour} 232 1 4\n")
        (folder / "four").write_bytes(_VALUES.tobytes())
        probe = ProbeBuilder(cache_root() / "probe").build()
        return cls(probe, build_backend(folder), folder)

    def run(self, *, fails: bool) -> RunAnswer:
        binary = str(self.folder / ("fail" if fails else "plain"))
        values = str(self.folder / "four")
        library = str(self.library)
        steps = (
            *(plan.backend_load(library), plan.system_load(library)),
            *map(Step, ("log-create", "backend-create", "device-create")),
            plan.context_load(0, binary),
            plan.execute(0, inputs=[values], expected=[values]),
            plan.context_free(0),
        )
        done = run_plan_locally(self.probe, Plan(steps), env={"PATH": "/usr/bin"}, timeout_s=30)
        failed = done.transcript.first_failure
        if failed is None:
            assert done.exit_code == EXIT_DONE, done.stderr
            return "good"
        assert failed.code == _FAILS, failed
        return "bad"


@dataclass(frozen=True)
class Found:
    """What a search came to, beside the truth."""

    right: bool
    runs: int
    finding: AxisFinding


def search(backend: Backend, seed: int, hides: float, alarms: float, repeat: str = "auto") -> Found:
    """One search; a bad version works with chance `hides`, a good one fails with `alarms`."""
    first_bad = 1 + seed % (len(VERSIONS) - 1)
    dice = random.Random(f"{seed} {hides} {alarms}")
    asked = AxisSearch(AxisSpec(axis="qnn", candidates=VERSIONS, repeat=repeat))
    while True:
        step = asked.next()
        if isinstance(step, AxisFinding):
            break
        assert isinstance(step, Question), step
        fails = dice.random() >= hides
        if VERSIONS.index(step.at[0]) < first_bad:
            fails = dice.random() < alarms
        asked.answer(step, backend.run(fails=fails))
    assert step.runs <= asked.spec.bound().runs
    right = (step.kind, step.direction, step.after) == ("change", "regression", VERSIONS[first_bad])
    return Found(right, step.runs, step)


def searches(
    backend: Backend, seeds: int, hides: float, alarms: float, repeat: str = "auto"
) -> list[Found]:
    """A search for each seed."""

    def one(seed: int) -> Found:
        return search(backend, seed, hides, alarms, repeat)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, range(seeds)))


def figures(found: list[Found], hides: float, alarms: float) -> dict[str, object]:
    """How many were right, and the mean number of runs beside what no search can do better."""
    wrong = sum(not one.right and one.finding.kind == "change" for one in found)
    return {
        "right": f"{sum(one.right for one in found)} of {len(found)}",
        "wrong": wrong,
        "mean_runs": round(sum(one.runs for one in found) / len(found), 1),
        "fewest_of_any_search": round(fewest_runs(alarms, 1 - hides, 0.99), 1),
    }
